package router

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// project is what a decoder must make of a value, worked out the slow way: the
// known members of the shape and nothing else, each as it was.
func project(s *shape, v any) any {
	in := v.(map[string]any)
	out := make(map[string]any)
	for i := range s.fields {
		f := &s.fields[i]
		value, ok := in[f.name]
		if !ok && f.name == s.aliasTo {
			value, ok = in[s.aliasFrom]
		}
		if ok {
			out[f.name] = projectField(f, value)
		}
	}
	if s.keepRaw {
		out["raw"] = v
	}
	return out
}

func projectField(f *field, value any) any {
	switch v := value.(type) {
	case string:
		if f.rewrite != nil {
			return f.rewrite(v)
		}
	case []any:
		if f.kind == records {
			out := make([]any, len(v))
			for i := range v {
				out[i] = project(f.sub, v[i])
			}
			return out
		}
	case map[string]any:
		if f.kind == record {
			return project(f.sub, v)
		}
		if f.kind == recordMap {
			out := make(map[string]any)
			for name := range v {
				out[name] = project(f.sub, v[name])
			}
			return out
		}
	}
	return value
}

func anyOf(t *testing.T, raw []byte) any {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q is not JSON: %v", raw, err)
	}
	return v
}

// checkIdentity holds one accepted value to the rule that decoding drops unknown
// members and does nothing else: out is what the slow way makes of in, and out
// decodes to itself.
func checkIdentity(t *testing.T, s *shape, in, out []byte, again func(json.RawMessage) (json.RawMessage, error)) {
	t.Helper()
	source := anyOf(t, in)
	if _, ok := source.(map[string]any); !ok {
		source = map[string]any{} // parameters that are not an object count as absent
	}
	if want, got := project(s, source), anyOf(t, out); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q decodes to %q, which is %v, not %v; want got = %v", in, out, got, want, want)
	}
	twice, err := again(out)
	if err != nil {
		t.Fatalf("%q decodes to %q, which is refused: %v", in, out, err)
	}
	if !s.keepRaw && !bytes.Equal(twice, out) {
		t.Fatalf("decoding is not stable: %q, then %q; want not (!s.keepRaw && !bytes.Equal(twice, out))", out, twice)
	}
}

// checkParams and checkResult are the two halves of every method.
func checkParams(t *testing.T, m Method, raw []byte) {
	t.Helper()
	out, err := DecodeParams(m.Name, raw)
	if err != nil {
		wireOf(t, err)
		return
	}
	if firstByte(raw) == 0 {
		raw = []byte("{}")
	}
	checkIdentity(t, m.params, raw, out, func(p json.RawMessage) (json.RawMessage, error) { return DecodeParams(m.Name, p) })
	// What goes out in a request comes in as it was.
	body := append(append([]byte(`{"method":"`+m.Name+`","params":`), out...), '}')
	name, params, e := parseInvoke(body, PathInvoke)
	if e != nil || name != m.Name || !bytes.Equal(bytes.TrimSpace(params), bytes.TrimSpace(out)) {
		t.Fatalf("%q arrives as %s %q, %v; want e = nil, name = %v, bytes.TrimSpace(params) = bytes.TrimSpace(out)",
			body, name, params, e, m.Name)
	}
	for i := range m.params.fields {
		f := &m.params.fields[i]
		want, ok := anyOf(t, out).(map[string]any)[f.name]
		got := paramRaw(out, f.name)
		if ok != (got != nil) || ok && !reflect.DeepEqual(anyOf(t, got), want) {
			t.Fatalf("%q of %q reads as %q, not %v; want ok = (got != nil), not (ok && !reflect.DeepEqual(anyOf(t, got), want))",
				f.name, out, got, want)
		}
	}
}

func checkResult(t *testing.T, m Method, raw []byte) {
	t.Helper()
	out, err := DecodeResult(m.Name, raw)
	if verified := VerifyResult(m.Name, raw); (verified == nil) != (err == nil) {
		t.Fatalf("%q: the producer says %v, the receiver %v; want (verified == nil) = (err == nil)", raw, verified, err)
	}
	if err != nil {
		wireOf(t, err)
		return
	}
	checkIdentity(t, m.result, raw, out, func(r json.RawMessage) (json.RawMessage, error) { return DecodeResult(m.Name, r) })
	answer := append(append([]byte(okPrefix), out...), '}')
	got, err := readEnvelope(200, answer, PathInvoke)
	if err != nil || !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(out)) {
		t.Fatalf("%q arrives as %q, %v; want no error, bytes.TrimSpace(got) = bytes.TrimSpace(out)", answer, got, err)
	}
	switch m.Name {
	case "plugin.asset.get":
		checkAsset(t, out)
	case methodModulesList:
		checkModules(t, out)
	}
}

func checkAsset(t *testing.T, out json.RawMessage) {
	t.Helper()
	a, err := DecodeAsset(out)
	if err != nil {
		return // trailing bits of base64 that the original takes
	}
	if members := anyOf(t, out).(map[string]any); a.Path != members["path"] || a.ContentType != members["contentType"] {
		t.Fatalf(`%q reads as %+v; want a.Path = members["path"], a.ContentType = members["contentType"]`, out, a)
	}
	raw, err := EncodeAsset(a)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := DecodeAsset(raw); err != nil || !reflect.DeepEqual(a, again) {
		t.Fatalf("%+v is encoded as %s and comes back as %+v, %v; want no error, a = %v", a, raw, again, err, again)
	}
}

func checkModules(t *testing.T, out json.RawMessage) {
	t.Helper()
	modules, err := DecodeModules(out, Limits{})
	if err != nil {
		wireOf(t, err)
		return
	}
	listed := anyOf(t, out).(map[string]any)["modules"].([]any)
	if len(listed) != len(modules) {
		t.Fatalf("%q has %d modules; want len(listed) = %v", out, len(modules), len(modules))
	}
	for i, m := range modules {
		if !reflect.DeepEqual(anyOf(t, m.Raw), listed[i]) {
			t.Fatalf("%q is kept as %q; want anyOf(t, m.Raw) = listed[i]", out, m.Raw)
		}
		again, err := ParseModule(m.Raw)
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%q is stored and comes back as %q, %v; want no error, again = %v", m.Raw, again.Raw, err, m)
		}
		a, b, err := m.Digests()
		c, d, err2 := again.Digests()
		if a != c || b != d || (err == nil) != (err2 == nil) {
			t.Fatalf("%q has two digests; want a = %v, b = %v, (err == nil) = (err2 == nil)", m.Raw, c, d)
		}
	}
}

// FuzzIdentity decodes parameters and results of all methods and encodes them
// again.
func FuzzIdentity(f *testing.F) {
	methods := Methods()
	for i, m := range methods {
		for _, v := range readVectors(f) {
			if v.Method == m.Name {
				f.Add(uint8(i), false, []byte(v.Params))
				f.Add(uint8(i), true, []byte(v.Result))
			}
		}
	}
	for i := range methods {
		f.Add(uint8(i), false, []byte(`{"m\u006fduleId":"m","r\u006fot":"/a","p\u0061th":"/a"}`))
		f.Add(uint8(i), true, []byte(`{"m\u006fdules":[{"\u0069d":"m","name":"n"}],"p\u0061th":"/a","contentType":"a/b","b\u006fdyBase64":""}`))
	}
	f.Fuzz(func(t *testing.T, method uint8, result bool, raw []byte) {
		m := methods[int(method)%len(methods)]
		if result {
			checkResult(t, m, raw)
		} else {
			checkParams(t, m, raw)
		}
	})
}

// FuzzManifest is FuzzIdentity for one module by itself, as it is stored.
func FuzzManifest(f *testing.F) {
	for _, v := range readVectors(f) {
		if v.Method != methodModulesList {
			continue
		}
		var list struct{ Modules []json.RawMessage }
		if json.Unmarshal(v.Result, &list) != nil {
			continue
		}
		for _, m := range list.Modules {
			f.Add([]byte(m))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := ParseModule(raw)
		if err != nil {
			wireOf(t, err)
			return
		}
		checkIdentity(t, moduleShape, raw, m.Raw, func(r json.RawMessage) (json.RawMessage, error) {
			again, err := ParseModule(r)
			return again.Raw, err
		})
		checkModules(t, append(append([]byte(`{"modules":[`), m.Raw...), "]}"...))
	})
}

// FuzzEnvelope reads whatever an endpoint may answer: there is a result or a
// typed failure, and a failure survives being passed on.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{
		`{"ok":true,"result":{"a":1}}`, `{"ok":true}`, `{"ok":false,"error":{"code":"CAPABILITY_UNAVAILABLE","message":"m","method":"x","details":{"a":[1]}}}`,
		`{"ok":false,"code":"CAPABILITY_DECODE_FAILED","message":"m"}`, `[]`, `null`, ``, `<html>`, `{"ok":false}`,
		`{"\u006fk":false,"error":{}}`,
		`{"ok":false,"error":{"code":"CAPABILITY_REQUEST_FAILED","message":"\ud800","details":{"code":"timeout","retry_after_ms":9223372036854775807}}}`,
	} {
		f.Add(200, []byte(s))
		f.Add(500, []byte(s))
	}
	f.Fuzz(func(t *testing.T, status int, raw []byte) {
		_, err := readEnvelope(status, raw, PathInvoke)
		if err == nil {
			return
		}
		e := wireOf(t, err)
		switch e.Code {
		case CodeUnavailable, CodeDecodeFailed, CodeRequestFailed:
		default:
			t.Fatalf("%q has code %q", raw, e.Code)
		}
		if c := e.ToCapability("op"); c.Code.Row().Code != c.Code {
			t.Fatalf("%q becomes %q; want c.Code.Row().Code = %v", raw, c.Code, c.Code)
		}
		sent := e.envelope()
		_, err = readEnvelope(200, sent, PathInvoke)
		if again := wireOf(t, err); again.Code != e.Code || again.Capability != e.Capability || again.Method != e.Method {
			t.Fatalf("%+v is passed on as %q and read as %+v; want again.Code = %v, again.Capability = %v, again.Method = %v",
				e, sent, again, e.Code, e.Capability, e.Method)
		}
	})
}
