package offered

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
)

func claimed(t *testing.T, source, doc string) Claimant {
	t.Helper()
	m, err := router.ParseModule(json.RawMessage(doc))
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return Claimant{Source: source, Module: m.ID, claims: claimsOf(&m)}
}

func TestEachKindOfNameIsTakenOnce(t *testing.T) {
	t.Parallel()
	const evaluator = `{"name":"E","description":"d","prompt":"p","schema":{}}`
	const field = `{"name":"F","description":"d","schema":{}}`
	for _, c := range []struct {
		name, a, b string // members of two modules
		kind, key  string // of the collision; "" none
	}{
		{"module name", `"name":"p"`, `"name":"p"`, "module name", "p"},
		{"service", `"services":[{"serviceType":"s"}]`, `"services":[{"serviceType":"s"}]`, "service type", "s"},
		{"model", `"models":[{"modelType":"TEXT"}]`, `"models":[{"modelType":"TEXT","priority":5}]`, "model type", "TEXT"},
		{"route", `"routes":[{"method":"GET","path":"/dup"}]`, `"routes":[{"method":"GET","path":"/dup","name":"x"}]`, "route", "GET /dup"},
		{"route of another verb", `"routes":[{"method":"GET","path":"/dup"}]`, `"routes":[{"method":"POST","path":"/dup"}]`, "", ""},
		{
			"view", `"views":[{"id":"v","label":"l","bundlePath":"/a.js"}]`,
			`"views":[{"id":"v","label":"l","viewType":"gui","bundlePath":"/b.js"}]`, "view", "gui:v",
		},
		{
			"xr view is a gui", `"views":[{"id":"v","label":"l","bundlePath":"/a.js"}]`,
			`"views":[{"id":"v","label":"l","viewType":"xr","bundlePath":"/b.js"}]`, "view", "gui:v",
		},
		{
			"tui view", `"views":[{"id":"v","label":"l","bundlePath":"/a.js"}]`,
			`"views":[{"id":"v","label":"l","viewType":"tui","bundlePath":"/b.js"}]`, "", "",
		},
		{
			"widget", `"widgets":[{"id":"w","pluginId":"x","slot":"wallet","label":"l"}]`,
			`"widgets":[{"id":"w","pluginId":"x","slot":"browser","label":"l"}]`, "widget", "x/w",
		},
		{
			"widget of its own plugin", `"widgets":[{"id":"w","slot":"wallet","label":"l"}]`, `"widgets":[{"id":"w","slot":"wallet","label":"l"}]`,
			"", "",
		},
		{
			"nav tab", `"app":{"navTabs":[{"id":"t","label":"l","path":"/a"}]}`, `"app":{"navTabs":[{"id":"t","label":"m","path":"/b"}]}`,
			"nav tab", "t",
		},
		{
			"app bridge", `"name":"@x/app-notes","appBridge":{"hooks":["resolveLaunchSession"]}`,
			`"name":"@y/plugin-notes","appBridge":{"hooks":["resolveLaunchSession"]}`, "app bridge", "notes",
		},
		{
			"app bridge by its display name", `"app":{"displayName":"Notes"},"appBridge":{"hooks":["resolveLaunchSession"]}`,
			`"name":"@y/Notes","appBridge":{"hooks":["resolveLaunchSession"]}`, "app bridge", "Notes",
		},
		{"names without a bridge", `"name":"@x/app-notes"`, `"name":"@y/plugin-notes"`, "", ""},
		{"evaluator", `"evaluators":[` + evaluator + `]`, `"evaluators":[` + evaluator + `]`, "evaluator", "E"},
		{
			"response-handler evaluator", `"responseHandlerEvaluators":[{"name":"R"}]`, `"responseHandlerEvaluators":[{"name":"R"}]`,
			"response-handler evaluator", "R",
		},
		{
			"field evaluator", `"responseHandlerFieldEvaluators":[` + field + `]`, `"responseHandlerFieldEvaluators":[` + field + `]`,
			"response-handler field evaluator", "F",
		},
		{"action", `"actions":[{"name":"A","description":"d"}]`, `"actions":[{"name":"A","description":"d"}]`, "", ""},
		{"provider", `"providers":[{"name":"P"}]`, `"providers":[{"name":"P"}]`, "", ""},
		{"event", `"events":[{"eventName":"V"}]`, `"events":[{"eventName":"V"}]`, "", ""},
	} {
		doc := func(id, members string) string {
			if !strings.Contains(members, `"name":"`+"p") && !strings.HasPrefix(members, `"name"`) {
				members += `,"name":"plugin of ` + id + `"`
			}
			return `{"id":"` + id + `",` + members + `}`
		}
		a, b := claimed(t, "endpoint/one", doc("a", c.a)), claimed(t, "endpoint/two", doc("b", c.b))
		local := a
		local.Source = "local"
		for where, err := range map[string]error{
			"another endpoint": Collide([]Claimant{b}, []Claimant{a}), "the same batch": Collide([]Claimant{a, b}, nil),
			"this machine": Collide([]Claimant{b}, []Claimant{local}),
		} {
			if c.kind == "" {
				if err != nil {
					t.Errorf("%s, %s: %v", c.name, where, err)
				}
				continue
			}
			e := capability.AsError(err)
			if err == nil || e.Code != capability.CodeConflict || e.Details["kind"] != c.kind || e.Details["key"] != c.key ||
				!strings.Contains(e.Message, c.key) || !strings.Contains(e.Message, "module a (") ||
				!strings.Contains(e.Message, "module b (endpoint/two)") {
				t.Errorf(`%s, %s: %v %v; want an error, e.Code = capability.CodeConflict, e.Details["kind"] = %v, `+
					`e.Details["key"] = %v, e.Message with %v, e.Message with "module a (", e.Message with "module b (endpoint/two)"`,
					c.name, where, err, e, c.kind, c.key, c.key)
			}
		}
		// Both policies, from either side.
		for _, first := range []bool{true, false} {
			strictA, strictB := a, b
			strictA.Strict, strictB.Strict = first, !first
			if soft := c.name == "action" || c.name == "provider" || c.name == "event"; soft &&
				Collide([]Claimant{strictB}, []Claimant{strictA}) == nil {
				t.Errorf("%s under strictNames came in; want not (soft && Collide([]Claimant{strictB}, []Claimant{strictA}) == nil)",
					c.name)
			}
			sharedA, sharedB := a, b
			sharedA.Shared, sharedB.Shared = first, !first
			if err := Collide([]Claimant{sharedB}, []Claimant{sharedA}); c.name == "model" && err != nil {
				t.Errorf(`shared model types: %v; want not (c.name == "model" && err != nil)`, err)
			} else if c.kind != "" && c.name != "model" && err == nil {
				t.Errorf(`sharing models lets %s in; want not (c.kind != "" && c.name != "model" && err == nil)`, c.name)
			}
		}
	}
}

func TestAModuleDoesNotCollideWithItself(t *testing.T) {
	t.Parallel()
	for members, key := range map[string]string{
		`"actions":[{"name":"A","description":"d"},{"name":"A","description":"e"}]`:                        "A",
		`"models":[{"modelType":"M"},{"modelType":"M"}]`:                                                   "M",
		`"events":[{"eventName":"V"},{"eventName":"V"}]`:                                                   "V",
		`"routes":[{"method":"GET","path":"/x"},{"method":"GET","path":"/x"}]`:                             "GET /x",
		`"app":{"runtimePlugin":"app-n","displayName":"n"},"appBridge":{"hooks":["resolveLaunchSession"]}`: "n",
		`"routes":[{"method":"STATIC","path":"/x"}]`:                                                       "STATIC /x",
	} {
		in := claimed(t, "endpoint/one", `{"id":"m","name":"p",`+members+`}`)
		in.Shared = true
		err := Collide([]Claimant{in}, nil)
		if err == nil || capability.AsError(err).Details["key"] != key {
			t.Errorf(`%s: %v; want an error, capability.AsError(err).Details["key"] = %v`, members, err, key)
		}
	}
	same := claimed(t, "endpoint/one", `{"id":"m","name":"n","app":{"runtimePlugin":"n","displayName":"n"},"appBridge":{"hooks":["resolveLaunchSession"]}}`)
	if err := Collide([]Claimant{same}, nil); err != nil {
		t.Errorf("one identifier given three times: %v", err)
	}
}

func TestSlugs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"notes": "notes", " @x/app-notes ": "notes", "plugin-notes": "notes", "@x/notes": "notes", "app-": "app-", "@x/plugin-": "plugin-",
		"app-plugin-x": "plugin-x", "@/x": "@/x",
	} {
		if got := slug(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func TestLocalModulesClaimWhatTheyPublish(t *testing.T) {
	t.Parallel()
	member := func(kind, name string) capability.Contribution {
		return capability.Contribution{Member: capability.Member{Module: "local", Kind: kind, Name: name}}
	}
	local := LocalClaimant(&capability.Module{ID: "local", Name: "local", Origin: "local", Contributions: []capability.Contribution{
		member("function", "fs.list"), member("model", "TEXT"), member("service", "s.one"), member("service", "s.two"),
		member("evaluator", "E.shouldRun"), member("route", "GET /x"),
		member("responseHandlerEvaluator", "R.evaluate"), member("responseHandlerFieldEvaluator", "F.parse"),
	}})
	for _, members := range []string{
		`"name":"local"`, `"name":"m","models":[{"modelType":"TEXT"}]`, `"name":"m","services":[{"serviceType":"s"}]`,
		`"name":"m","routes":[{"method":"GET","path":"/x"}]`, `"name":"m","responseHandlerEvaluators":[{"name":"R"}]`,
	} {
		if err := Collide([]Claimant{claimed(t, "endpoint/e", `{"id":"m",`+members+`}`)}, []Claimant{local}); err == nil {
			t.Errorf("%s came in; want an error", members)
		}
	}
	with := LocalClaimant(&capability.Module{
		ID: "l", Name: "l", Origin: "local",
		Manifest: []byte(`{"id":"l","name":"l","widgets":[{"id":"w","pluginId":"x","slot":"wallet","label":"w"}]}`),
	})
	if err := Collide([]Claimant{claimed(t, "endpoint/e", `{"id":"m","name":"m","widgets":[{"id":"w","pluginId":"x","slot":"wallet","label":"w"}]}`)}, []Claimant{with}); err == nil {
		t.Error("a widget of the local manifest was taken; want an error")
	}
}
