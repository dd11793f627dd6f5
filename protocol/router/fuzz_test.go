package router

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Our scanner accepts exactly what the standard library calls valid JSON, apart
// from the limit on nesting.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-0.5e+3,true,false,null,"\u00e9\n"]}`, `[01]`, `[1.]`, `{"a" 1}`, "[\"\x01\"]", `"\x"`, ` 0 `, `-`, `[1,]`, `{"a":1,}`, `nul`,
		`"`, `1e`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		sc := newScanner(raw, maxNesting)
		_, err := sc.value()
		if err == nil {
			err = sc.end()
		}
		if err != nil && strings.Contains(err.Error(), "levels deep") {
			return
		}
		if (err == nil) != json.Valid(raw) {
			t.Fatalf("%q: %v; want (err == nil) = json.Valid(raw)", raw, err)
		}
		if (checkUTF8(raw) == nil) != utf8.Valid(raw) {
			t.Fatalf("%q: UTF-8; want (checkUTF8(raw) == nil) = utf8.Valid(raw)", raw)
		}
	})
}

func FuzzDecodeModules(f *testing.F) {
	for _, v := range readVectors(f) {
		if v.Method == methodModulesList {
			f.Add([]byte(v.Result))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		modules, err := DecodeModules(raw, Limits{})
		if err != nil {
			wireOf(t, err)
			return
		}
		for _, m := range modules {
			again, err := ParseModule(m.Raw)
			if err != nil || string(again.Raw) != string(m.Raw) {
				t.Fatalf("decoding is not stable: %s -> %s, %v; want no error, string(again.Raw) = %v",
					m.Raw, again.Raw, err, string(m.Raw))
			}
		}
	})
}

func FuzzDecodeParams(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add(v.Method, []byte(v.Params))
	}
	f.Fuzz(func(t *testing.T, method string, raw []byte) {
		out, err := DecodeParams(method, raw)
		if err != nil {
			wireOf(t, err)
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%s is not JSON; want json.Valid(out)", out)
		}
		if again, err := DecodeParams(method, out); err != nil || string(again) != string(out) {
			t.Fatalf("decoding is not stable: %s -> %s, %v; want no error, string(again) = %v", out, again, err, string(out))
		}
		if jsonx.Valid(raw) != jsonx.Valid(out) && jsonx.Valid(raw) {
			t.Fatalf("%s became %s; want not (jsonx.Valid(raw) != jsonx.Valid(out) && jsonx.Valid(raw))", raw, out)
		}
	})
}

func FuzzAssetPath(f *testing.F) {
	for _, s := range []string{"m/a.js", "m/a%20b.js", "m/%2e%2e/x", "m/a%2fb", "m//a", "../x", "m/%", "m/a%00", "m/%c3%a9.js", "m/a?b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		module, path, err := ParseAssetPath(escaped)
		if err != nil {
			return
		}
		if CheckModuleID(module) != nil || CheckAssetPath(path) != nil || !strings.HasPrefix(path, "/") {
			t.Fatalf(`%q gave %q %q; want CheckModuleID(module) = nil, CheckAssetPath(path) = nil, path beginning with "/"`,
				escaped, module, path)
		}
		for seg := range strings.SplitSeq(path[1:], "/") {
			if seg == "" || seg == "." || seg == ".." || strings.ContainsAny(seg, "\\\x00") {
				t.Fatalf(`%q gave %q; want seg other than "", seg other than ".", seg other than "..", seg without any of "\\\x00"`,
					escaped, path)
			}
		}
	})
}
