package router

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/secret"
)

func TestTheTableHasEveryMethodOnce(t *testing.T) {
	families := map[Family]int{}
	seen := map[string]bool{}
	for _, m := range Methods() {
		families[m.Family]++
		if seen[m.Name] {
			t.Errorf("%s is there twice", m.Name)
		}
		seen[m.Name] = true
		if got, ok := Lookup(m.Name); !ok || got.Name != m.Name || !strings.HasPrefix(m.Name, string(m.Family)+".") {
			t.Errorf("%s: %+v", m.Name, got)
		}
		for _, s := range []*shape{m.params, m.result} {
			if s == nil || len(s.fields) > maxFields {
				t.Errorf("%s has no usable shape", m.Name)
			}
		}
	}
	if len(seen) != 27 || families[FamilyPlugin] != 19 || len(moduleShape.fields) != 26 {
		t.Errorf("%d methods, %v, %d manifest keys", len(seen), families, len(moduleShape.fields))
	}
	route, _ := Lookup("plugin.route.call")
	if route.EffectOf(json.RawMessage(`{"method":"GET"}`)) != capability.EffectRead || route.EffectOf(json.RawMessage(`{"method":"PUT"}`)) != capability.EffectExternal {
		t.Error("a route's effect does not follow its verb")
	}
}

func TestDecodingReturnsTheSameBytesUnlessSomethingIsDropped(t *testing.T) {
	in := json.RawMessage(`  {"moduleId":"m","provider":"P","state":{"a":[1,{"b":1e400}],"zzz":"\ud800"}} `)
	out, err := DecodeParams("plugin.provider.get", in)
	if err != nil || &out[0] != &in[0] || len(out) != len(in) {
		t.Fatalf("%s, %v", out, err)
	}
	in = json.RawMessage(`{"x":1,"moduleId":"m","provider":"P","state":{"a": 1.0 }}`)
	out, err = DecodeParams("plugin.provider.get", in)
	if err != nil || string(out) != `{"moduleId":"m","provider":"P","state":{"a": 1.0 }}` {
		t.Fatalf("%s, %v", out, err)
	}
	for _, none := range []string{"", "null", "[]", `"x"`, "3"} {
		if out, err = DecodeParams("model.status", json.RawMessage(none)); err != nil || string(out) != "{}" {
			t.Errorf("%q: %s, %v", none, out, err)
		}
	}
}

func TestParamsThatTheCodecRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`{"moduleId":"m","moduleId":"n","provider":"P"}`:          `"moduleId" is given twice`,
		`{"module\u0049d":"m","moduleId":"n","provider":"P"}`:     `"moduleId" is given twice`,
		`{"moduleId":"m","provider":"P","state":{"a":}}`:          `at byte 44`,
		`{"moduleId":"m","provider":"P"} x`:                       `unexpected data`,
		"{\"moduleId\":\"m\",\"provider\":\"\xff\"}":              `UTF-8`,
		`{"moduleId":"..","provider":"P"}`:                        `"moduleId" must be`,
		`{"moduleId":"m","provider":"P","state":null}`:            `"state" must be an object, not null`,
		`{"moduleId":"m","provider":"\ufeff \u00a0"}`:             `"provider" must not be blank`,
		`{"moduleId":"m","provider":"P","endpointId":"a\u0000b"}`: `capability.endpoint`,
		`{` + strings.Repeat(`"state":{`, 1100):                   `levels deep`,
	} {
		_, err := DecodeParams("plugin.provider.get", json.RawMessage(in))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", in, err, want)
			continue
		}
		if got := wireOf(t, err).ToCapability("").Code; got != capability.CodeInvalidInput {
			t.Errorf("%.60s is %s", in, got)
		}
	}
}

func TestManifestLimitsHold(t *testing.T) {
	list := func(inner string) json.RawMessage { return json.RawMessage(`{"modules":[` + inner + `]}`) }
	repeat := func(n int, f func(i int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = f(i)
		}
		return strings.Join(parts, ",")
	}
	mod := func(i int) string { return fmt.Sprintf(`{"id":"m%d","name":"n"}`, i) }
	event := func(int) string { return `{"eventName":"e"}` }
	deep := `{"id":"m","name":"n","metadata":` + strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70) + "}"
	tests := map[string]struct {
		raw    json.RawMessage
		limits Limits
		want   string
	}{
		"modules":         {list(repeat(257, mod)), Limits{}, "256"},
		"modules allowed": {list(repeat(257, mod)), Limits{Modules: 300}, ""},
		"items":           {list(`{"id":"m","name":"n","events":[` + repeat(1025, event) + `]}`), Limits{}, "1024"},
		"no limit":        {list(`{"id":"m","name":"n","events":[` + repeat(1025, event) + `]}`), Limits{Items: -1}, ""},
		"depth":           {list(deep), Limits{}, "levels deep"},
		"depth allowed":   {list(deep), Limits{Depth: 80}, ""},
		"bytes":           {list(mod(1)), Limits{ManifestBytes: 10}, "limit is 10"},
		"twice":           {list(mod(1) + "," + mod(1)), Limits{}, "two modules"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeModules(tt.raw, tt.limits)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestHeadersThatCross(t *testing.T) {
	got := RequestHeaders(http.Header{
		"Accept": {"a", "b"}, "Cookie": {"c"}, "Connection": {"X-Hop, close"}, "X-Hop": {"1"}, "Content-Length": {"3"},
		"X-Server-Token": {"t"}, "X-Mine": {"1"}, "X-Bad": {"a\nb"},
	}, "x-mine")
	if len(got) != 1 || got["accept"] != "a, b" {
		t.Errorf("%v", got)
	}
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
				t.Fatalf("decoding is not stable: %s -> %s, %v", m.Raw, again.Raw, err)
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
			t.Fatalf("%s is not JSON", out)
		}
		if again, err := DecodeParams(method, out); err != nil || string(again) != string(out) {
			t.Fatalf("decoding is not stable: %s -> %s, %v", out, again, err)
		}
		if jsonx.Valid(raw) != jsonx.Valid(out) && jsonx.Valid(raw) {
			t.Fatalf("%s became %s", raw, out)
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
			t.Fatalf("%q gave %q %q", escaped, module, path)
		}
		for seg := range strings.SplitSeq(path[1:], "/") {
			if seg == "" || seg == "." || seg == ".." || strings.ContainsAny(seg, "\\\x00") {
				t.Fatalf("%q gave %q", escaped, path)
			}
		}
	})
}

func providerResult() json.RawMessage {
	return json.RawMessage(`{"text":"ready","values":{"a":1,"b":"two"},"data":{"rows":[` +
		strings.TrimSuffix(strings.Repeat(`{"id":12,"name":"some name","ok":true},`, 20), ",") + `]}}`)
}

func BenchmarkDecodeResultPassThrough(b *testing.B) {
	raw := providerResult()
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeResult("plugin.provider.get", raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeParamsPassThrough(b *testing.B) {
	raw := json.RawMessage(`{"moduleId":"device-tools","provider":"DEVICE_STATUS","state":{"a":1}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeParams("plugin.provider.get", raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCallOverHTTP(b *testing.B) {
	raw := providerResult()
	srv := httptest.NewServer(Handler(RequireToken(secret.New("t"), scripted(func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		return raw, nil
	})), HandlerOptions{}))
	defer srv.Close()
	c, err := NewClient(ClientConfig{BaseURL: srv.URL, Token: secret.New("t")})
	if err != nil {
		b.Fatal(err)
	}
	defer c.CloseIdle()
	params := json.RawMessage(`{"moduleId":"device-tools","provider":"DEVICE_STATUS","state":{"a":1}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Invoke(b.Context(), "plugin.provider.get", params); err != nil {
			b.Fatal(err)
		}
	}
}
