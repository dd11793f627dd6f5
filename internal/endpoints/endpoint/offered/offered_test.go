package offered

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
)

// TestACallBecomesTheParametersOfItsMethod goes from a manifest to the wire.
func TestACallBecomesTheParametersOfItsMethod(t *testing.T) {
	t.Parallel()
	m, err := router.ParseModule(json.RawMessage(`{"id":"m","name":"m","actions":[{"name":"A","description":"d"}],"providers":[{"name":"P"}],
		"services":[{"serviceType":"s","methods":["go"]}],"routes":[{"method":"GET","path":"/x/:id"},{"method":"GET","path":"/y"}],
		"evaluators":[{"name":"E","description":"d","prompt":"p","schema":{},"priority":7}]}`))
	if err != nil {
		t.Fatal(err)
	}
	key := capability.ProviderKey("endpoint/e:ext")
	o := Offer{
		Endpoint: "e", Providers: map[string]capability.ProviderKey{"ext": key}, Bindings: map[capability.Member]Binding{},
		Draining: map[string]bool{"m": true}, State: capability.Availability{State: capability.StateReady},
	}
	mod := o.Module(&m, "digest")
	if mod.Extension != "remote.m" || mod.Endpoint != "e" || mod.Digest != "digest" || len(mod.Contributions) != len(o.Bindings) {
		t.Errorf(`the module is %+v; want mod.Extension = "remote.m", mod.Endpoint = "e", mod.Digest = "digest", `+
			"len(mod.Contributions) = %v", mod, len(o.Bindings))
	}
	for _, c := range mod.Contributions {
		if c.Provider != key || c.Availability.State != capability.StateDraining {
			t.Errorf("%s: %v %v; want c.Provider = %v, c.Availability.State = capability.StateDraining",
				c.ID, c.Provider, c.Availability, key)
		}
		if strings.HasPrefix(c.Member.Name, "E.") != (c.Rank == 7) {
			t.Errorf(`%s has the rank %d; want strings.HasPrefix(c.Member.Name, "E.") = (c.Rank == 7)`, c.ID, c.Rank)
		}
	}
	for _, c := range []struct{ kind, name, input, want string }{
		{"action", "A", `{"a": 1,"$options":{"o":2},"b":3}`, `{"moduleId":"m","action":"A","content":{"a": 1,"b":3},"options":{"o":2}}`},
		{"provider", "P", `{"s":1}`, `{"moduleId":"m","provider":"P","state":{"s":1}}`},
		{"service", "s.go", `{"args":[1]}`, `{"moduleId":"m","serviceType":"s","method":"go","args":[1]}`},
		{"service", "s.go", `{}`, `{"moduleId":"m","serviceType":"s","method":"go"}`},
		{"route", "GET /x/:id", `{"path":"/x/7","query":{}}`, `{"moduleId":"m","method":"GET","path":"/x/7","query":{}}`},
		{"route", "GET /y", `{}`, `{"moduleId":"m","method":"GET","path":"/y"}`},
		{"route", "GET /x/:id", `{}`, ""},
		{"route", "GET /x/:id", `{"path":"/z"}`, ""},
		{"action", "A", `[1]`, ""},
		{"service", "s.go", `"text"`, ""},
	} {
		b, ok := o.Bindings[capability.Member{Module: "m", Kind: c.kind, Name: c.name}]
		if !ok {
			t.Errorf("%s %s is not bound; want ok = true", c.kind, c.name)
			continue
		}
		got, err := b.Params([]byte(c.input))
		if string(got) != c.want && err == nil || (err == nil) != (c.want != "") {
			t.Errorf(`%s %s %s: %s, %v; want not (string(got) != c.want && err == nil), (err == nil) = (c.want != "")`,
				c.kind, c.name, c.input, got, err)
		}
	}
	if b := o.Bindings[capability.Member{Module: "m", Kind: "evaluator", Name: "E.prepare"}]; b.Undeclared != "hasPrepare" {
		t.Errorf(`a phase that is not declared: %+v; want b.Undeclared = "hasPrepare"`, b)
	}
}

func TestForeignNamesAreSpelledInOurGrammar(t *testing.T) {
	t.Parallel()
	if got := ExtensionID("@x/y z"); got != "remote.~40x~2fy~20z" {
		t.Errorf(`ExtensionID("@x/y z") = %q, want "remote.~40x~2fy~20z"`, got)
	}
	a, b := EscapeID(strings.Repeat("a", 200)+"1", 111), EscapeID(strings.Repeat("a", 200)+"2", 111)
	if a == b || len(a) != 111+9 {
		t.Errorf("%s and %s; want a other than %v, len(a) = 111 + 9", a, b, b)
	}
}

func TestASoftFailureIsNull(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"value":{"a":1},"softFail":true}`: `{"softFail":true,"value":null}`, `{"value":1,"softFail":false}`: `{"value":1,"softFail":false}`,
		`{"value":null,"softFail":true}`: `{"value":null,"softFail":true}`, `[]`: `[]`,
	} {
		var got, expected any
		out, err := SoftFailed([]byte(in))
		if err != nil || json.Unmarshal(out, &got) != nil || json.Unmarshal([]byte(want), &expected) != nil {
			t.Errorf("%s: %s, %v; want no error, json.Unmarshal(out, &got) = nil, json.Unmarshal([]byte(want), &expected) = nil",
				in, out, err)
			continue
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(expected)
		if string(a) != string(b) {
			t.Errorf("%s becomes %s, want %s", in, out, want)
		}
	}
}

func TestALongCommandHasTheTimeItAsksForWithinBounds(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		`{}`: defaultPTYTimeout, `{"timeoutMs":1000}`: time.Second, `{"timeoutMs":1e12}`: maxPTYTimeout, `{"timeoutMs":-1}`: defaultPTYTimeout,
		`{"timeoutMs":"1"}`: defaultPTYTimeout, `nonsense`: defaultPTYTimeout,
	} {
		if got := RunTime([]byte(in)); got != want+ptyGrace {
			t.Errorf("%s: %s; want got = want + ptyGrace", in, got)
		}
	}
}
