package router

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
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
			t.Errorf(`%s: %+v; want ok = true, got.Name = %v, m.Name beginning with string(m.Family) + "."`, m.Name, got, m.Name)
		}
		for _, s := range []*shape{m.params, m.result} {
			if s == nil || len(s.fields) > maxFields {
				t.Errorf("%s has no usable shape; want s not nil, len(s.fields) at most %v", m.Name, maxFields)
			}
		}
	}
	if len(seen) != 27 || families[FamilyPlugin] != 19 || len(moduleShape.fields) != 26 {
		t.Errorf("%d methods, %v, %d manifest keys; want len(seen) = 27, families[FamilyPlugin] = 19, len(moduleShape.fields) = 26",
			len(seen), families, len(moduleShape.fields))
	}
	route, _ := Lookup("plugin.route.call")
	if route.EffectOf(json.RawMessage(`{"method":"GET"}`)) != capability.EffectRead ||
		route.EffectOf(json.RawMessage(`{"method":"PUT"}`)) != capability.EffectExternal {
		t.Error("a route's effect does not follow its verb; want route.EffectOf(json.RawMessage(`{\"method\":\"GET\"}`)) = " +
			"capability.EffectRead, route.EffectOf(json.RawMessage(`{\"method\":\"PUT\"}`)) = capability.EffectExternal")
	}
}

func TestDecodingReturnsTheSameBytesUnlessSomethingIsDropped(t *testing.T) {
	in := json.RawMessage(`  {"moduleId":"m","provider":"P","state":{"a":[1,{"b":1e400}],"zzz":"\ud800"}} `)
	out, err := DecodeParams("plugin.provider.get", in)
	if err != nil || &out[0] != &in[0] || len(out) != len(in) {
		t.Fatalf("%s, %v; want no error, &out[0] = &in[0], len(out) = %v", out, err, len(in))
	}
	in = json.RawMessage(`{"x":1,"moduleId":"m","provider":"P","state":{"a": 1.0 }}`)
	out, err = DecodeParams("plugin.provider.get", in)
	if err != nil || string(out) != `{"moduleId":"m","provider":"P","state":{"a": 1.0 }}` {
		t.Fatalf(`%s, %v; want no error, string(out) = "{\"moduleId\":\"m\",\"provider\":\"P\",\"state\":{\"a\": 1.0 }}"`, out, err)
	}
	for _, none := range []string{"", "null", "[]", `"x"`, "3"} {
		if out, err = DecodeParams("model.status", json.RawMessage(none)); err != nil || string(out) != "{}" {
			t.Errorf(`%q: %s, %v; want no error, string(out) = "{}"`, none, out, err)
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
			t.Errorf("%.60s is %s; want got = capability.CodeInvalidInput", in, got)
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
		"a kind of view that came later": {
			list(`{"id":"m","name":"n","views":[{"id":"v","label":"V","viewKind":"hologram"}],"app":{"viewKind":"x"}}`), Limits{}, "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeModules(tt.raw, tt.limits)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf(`%v; want (err == nil) = (tt.want == ""), not (err != nil && !strings.Contains(err.Error(), tt.want))`, err)
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
		t.Errorf(`%v; want len(got) = 1, got["accept"] = "a, b"`, got)
	}
}

// A name may be written with escapes: what was checked under it is what is read
// from it.
func TestEscapedNamesAreReadAsTheyAreChecked(t *testing.T) {
	a, err := DecodeAsset(json.RawMessage(`{"p\u0061th":"/a.js","content\u0054ype":"text/javascript","bodyB\u0061se64":"YQ=="}`))
	if err != nil || a.Path != "/a.js" || a.ContentType != "text/javascript" || string(a.Body) != "a" {
		t.Errorf(`%+v, %v; want no error, a.Path = "/a.js", a.ContentType = "text/javascript", string(a.Body) = "a"`, a, err)
	}
	if m, err := DecodeModules(json.RawMessage(`{"m\u006fdules":[{"\u0069d":"m","name":"n"}]}`), Limits{}); err != nil || len(m) != 1 ||
		m[0].ID != "m" {
		t.Errorf(`%+v, %v; want no error, len(m) = 1, m[0].ID = "m"`, m, err)
	}
	route, _ := Lookup("plugin.route.call")
	if route.EffectOf(json.RawMessage(`{"m\u0065thod":"GET"}`)) != capability.EffectRead {
		t.Error("the verb is not read; want route.EffectOf(json.RawMessage(`{\"m\\u0065thod\":\"GET\"}`)) = capability.EffectRead")
	}
	if _, err := readEnvelope(200, []byte(`{"\u006fk":false,"err\u006fr":{"code":"CAPABILITY_UNAVAILABLE","message":"m"}}`),
		"/"); err == nil || wireOf(t, err).Code != CodeUnavailable {
		t.Errorf("a failure is taken for a result: %v; want an error, wireOf(t, err).Code = %v", err, CodeUnavailable)
	}
}
