package compile_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// core is the module of the host's own tools.
func core() capability.Module {
	m := capability.Module{Extension: "core", ID: "core", Origin: "local"}
	for _, action := range []capability.Action{"catalog.search", "catalog.describe", "catalog.call", "catalog.callRead"} {
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: string(action), Kind: "capability.agent-tool", Action: action, Provider: capability.NewProviderKey("catalog", "core", "default"),
		})
	}
	return m
}

// tools is a server with n tools tool_000 and so on.
func tools(ext string, n int) capability.Module {
	m := capability.Module{Extension: ext, ID: ext, Origin: "mcp"}
	for i := range n {
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: fmt.Sprintf("t%d", i), Kind: "capability.agent-tool", Tool: fmt.Sprintf("tool_%03d", i), Title: fmt.Sprintf("Tool %d", i),
			Description: "does one thing", Effect: capability.EffectRead,
		})
	}
	return m
}

func agent(t testing.TB, s catalog.Settings, ctx capability.Context, modules ...capability.Module) *compile.Agent {
	t.Helper()
	c, err := catalog.New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		if _, _, err := c.Replace(capability.Batch{Source: m.Extension, Modules: []capability.Module{m}}); err != nil {
			t.Fatal(err)
		}
	}
	return compile.New(c).Compile(&ctx)
}

func shown(t testing.TB, a *compile.Agent, l compile.Limits) (names []string, deferred int) {
	t.Helper()
	x, err := a.Expose(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range x.Direct {
		names = append(names, d.Name)
		if !x.Shows(d.Name) {
			t.Errorf("%s is direct and not shown; want x.Shows(d.Name)", d.Name)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("not in the order of names: %v; want slices.IsSorted(names)", names)
	}
	return names, x.Deferred
}

// TestExposure checks that a context lists only what it may use.
func TestExposure(t *testing.T) {
	t.Parallel()
	set := catalog.Settings{Policy: []rules.Rule{{Effect: "deny", Match: []string{"ext.mcp.x.t0", "ext.mcp.x.t1", "ext.mcp.x.t2"}}}}
	many := agent(t, set, capability.Context{}, core(), tools("mcp.x", 200))
	few := agent(t, catalog.Settings{}, capability.Context{}, core(), tools("mcp.x", 3))
	first := func(n int) []string {
		out := []string{"catalog.describe", "catalog.search"}
		for i := range n {
			out = append(out, fmt.Sprintf("tool_%03d", i+3))
		}
		return out
	}
	with := func(list []string, more ...string) []string {
		list = append(slices.Clone(list), more...)
		slices.Sort(list)
		return list
	}
	for _, tt := range []struct {
		name     string
		agent    *compile.Agent
		limits   compile.Limits
		want     []string
		deferred int
	}{
		{"default", many, compile.Limits{}, first(38), 159},
		{"by name", many, compile.Limits{ByName: true}, with(first(38), "catalog.call", "catalog.callRead"), 159},
		{"fewer", many, compile.Limits{View: compile.ViewHybrid, Exposure: catalog.Exposure{MaxDirect: 3}}, first(1), 196},
		{"bytes", many, compile.Limits{Exposure: catalog.Exposure{MaxSchemaBytes: 500}}, first(8), 189},
		{"no limit", many, compile.Limits{Exposure: catalog.Exposure{MaxDirect: -1, MaxSchemaBytes: -1}}, first(197), 0},
		{"search", many, compile.Limits{View: compile.ViewSearch}, first(0), 197},
		{"search by name", many, compile.Limits{View: compile.ViewSearch, ByName: true}, with(first(0), "catalog.call", "catalog.callRead"), 197},
		{"full", many, compile.Limits{View: compile.ViewFull, ByName: true}, first(197), 0},
		{
			"patterns", many,
			compile.Limits{Exposure: catalog.Exposure{
				MaxDirect: 4,
				Direct:    []string{"ext.mcp.x.t19?", "ext.mcp.x.t150", "ext.mcp.x.t0", "tag:none"},
			}},
			with(first(0), "tool_150", "tool_190", "tool_191", "tool_192", "tool_193", "tool_194", "tool_195", "tool_196", "tool_197", "tool_198",
				"tool_199"), 186,
		},
		{
			"few", few,
			compile.Limits{View: compile.ViewAuto, ByName: true},
			[]string{"catalog.describe", "catalog.search", "tool_000", "tool_001", "tool_002"},
			0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, deferred := shown(t, tt.agent, tt.limits)
			if diff := cmp.Diff(tt.want, got); diff != "" || deferred != tt.deferred {
				t.Errorf("deferred %d\n%s\nwant diff = \"\", deferred = %v", deferred, diff, tt.deferred)
			}
		})
	}
	for _, bad := range []compile.Limits{{View: "half"}, {Exposure: catalog.Exposure{Direct: []string{"nope:x"}}}} {
		if _, err := many.Expose(bad); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%+v: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", bad, err)
		}
	}
}

// TestJSON checks that selectors appear if there is a choice, and that entries have
// all their fields.
func TestJSON(t *testing.T) {
	t.Parallel()
	var modules []capability.Module
	for _, kind := range []string{"telegram", "slack", "discord"} {
		modules = append(modules, capability.Module{Extension: kind, ID: kind, Origin: "bundled", Contributions: []capability.Contribution{{
			ID: "adapter", Kind: "adapter.runtime", Action: "message.send", Provider: capability.NewProviderKey("messaging", kind, "work"),
			Scope:     &capability.Scope{Workspace: []string{"w2", "w1", "w2"}},
			Telemetry: map[string]string{"team": strings.Repeat("x", 80), "Bad": "x"},
		}}})
	}
	ctx := capability.Context{Workspace: "w1"}
	set := catalog.Settings{Policy: []rules.Rule{{ID: "ask", Effect: "approve", Match: []string{"message.*"}}}}
	a := agent(t, set, ctx, append(modules, tools("mcp.x", 1))...)
	send, _ := a.Action("message.send")
	doc, err := a.ActionJSON(send, true)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Required   []string
		Properties struct {
			Selector struct {
				Properties struct{ Channel struct{ Enum []string } }
			}
		}
	}
	if err := json.Unmarshal(doc.InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(schema.Required, "selector") || !slices.Equal(schema.Properties.Selector.Properties.Channel.Enum,
		[]string{"discord", "slack", "telegram"}) {
		t.Errorf(`%s; want schema.Required with "selector", schema.Properties.Selector.Properties.Channel.Enum = `+
			`[]string{"discord", "slack", "telegram"}`, doc.InputSchema)
	}
	if diff := cmp.Diff(map[string]string{"dotted": "message.send", "mcp": "message.send", "strict64": "message_send"},
		doc.WireNames); diff != "" || doc.Exposure != "direct" {
		t.Errorf("doc.WireNames differs from want (-want +got):\n%s", diff)
	}
	one, _ := agent(t, set, ctx, modules[:1]...).Action("message.send")
	if doc, err := one.InputSchema(); err != nil || strings.Contains(string(doc), "selector") {
		t.Errorf(`%v: %s; want no error, string(doc) without "selector"`, err, doc)
	}
	fields := []string{
		"availability", "canonicalAction", "capabilityId", "description", "displayName", "inputSchema", "kind", "outputSchema", "policy",
		"providerKey", "requiresSelection", "scope", "telemetryTags",
	}
	check := func(entry compile.EntryJSON, want string) {
		t.Helper()
		doc, err := json.Marshal(entry)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(doc, &got); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for k := range got {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		if diff := cmp.Diff(fields, keys); diff != "" {
			t.Errorf("keys differs from want (-want +got):\n%s", diff)
		}
		if short := fmt.Sprintf("%s %s %s %s %d", got["scope"], got["availability"], got["policy"], got["requiresSelection"],
			len(entry.TelemetryTags["team"])); short != want {
			t.Errorf("fmt.Sprintf(...) = %v, want %v", short, want)
		}
	}
	entry, err := a.EntryJSON(send, send.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	check(entry, `{"workspace":["w1","w2"]} {"state":"ready","reason":""} {"effect":"external","approval":"required","matchedRules":["ask"]} true 64`)
	tool, _ := a.Action("tool_000")
	check(compile.InternalJSON(tool.Entries[0], false), `{} {"state":"ready","reason":""} {"effect":"read","approval":"none","matchedRules":[]} false 0`)
}

// BenchmarkExposure cuts a catalog of 100,000 tools.
func BenchmarkExposure(b *testing.B) {
	var modules []capability.Module
	for n := range 100 {
		m := tools(fmt.Sprintf("mcp.s%02d", n), 1000)
		for i := range m.Contributions {
			m.Contributions[i].Tool += fmt.Sprintf("_%02d", n)
		}
		modules = append(modules, m)
	}
	a := agent(b, catalog.Settings{}, capability.Context{}, append(modules, core())...)
	for name, l := range map[string]compile.Limits{
		"default": {}, "pattern": {Exposure: catalog.Exposure{Direct: []string{"ext.mcp.s00.t0"}}},
		"wildcard": {Exposure: catalog.Exposure{Direct: []string{"ext:mcp.s00*"}}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if x, err := a.Expose(l); err != nil || len(x.Direct) < 40 {
					b.Fatalf("%v; want no error, len(x.Direct) at least 40", err)
				}
			}
		})
	}
}

// ended is a server with two tools whose names come last.
func ended(ext string) capability.Module {
	m := tools(ext, 2)
	for i := range m.Contributions {
		m.Contributions[i].Tool = fmt.Sprintf("z_%d", i)
	}
	return m
}

// TestACutListHasToolsOfEveryProviderBeforeOwnOnes holds that a provider with many tools, or
// with one large schema, keeps no other provider's tools out of the list.
func TestACutListHasToolsOfEveryProviderBeforeOwnOnes(t *testing.T) {
	t.Parallel()
	large := capability.Module{Extension: "mcp.a", ID: "mcp.a", Origin: "mcp", Contributions: []capability.Contribution{{
		ID: "a", Kind: "capability.agent-tool", Tool: "a_large", Effect: capability.EffectRead,
		InputSchema: []byte(`{"type":"object","description":"` + strings.Repeat("x", 200<<10) + `"}`),
	}}}
	a := agent(t, catalog.Settings{}, capability.Context{}, core(), large, tools("mcp.x", 200), ended("mcp.z"))
	own := func(e *catalog.Entry) bool { return e.Module.Extension == core().Extension }
	count := func(l compile.Limits) map[string]int {
		got, _ := shown(t, a, l)
		out := make(map[string]int)
		for _, name := range got {
			x, ok := a.Action(name)
			if !ok {
				t.Fatalf("%s is shown and not an action; want ok = true", name)
			}
			out[x.Entries[0].Module.Extension]++
		}
		return out
	}
	got := count(compile.Limits{Own: own})
	if got["mcp.z"] != 2 || got["mcp.a"] != 1 || got["mcp.x"] < 100 {
		t.Errorf("tools by provider = %v, want both of mcp.z, the one of mcp.a and over 100 of mcp.x", got)
	}
	got = count(compile.Limits{Own: own, Exposure: catalog.Exposure{MaxDirect: 8}})
	if got["mcp.z"] != 2 || got["mcp.a"] != 1 || got["mcp.x"] != 3 {
		t.Errorf("tools by provider with 8 = %v, want 2 of mcp.z, 1 of mcp.a and 3 of mcp.x", got)
	}
	got = count(compile.Limits{Own: own, Exposure: catalog.Exposure{MaxSchemaBytes: 100 << 10}})
	if got["mcp.z"] != 2 || got["mcp.a"] != 0 {
		t.Errorf("tools by provider in 100 KiB = %v, want both of mcp.z and none of mcp.a", got)
	}
}

// TestOwnToolsAreListedOnlyIfTheyAreChosen holds what a list has with HideOwn.
func TestOwnToolsAreListedOnlyIfTheyAreChosen(t *testing.T) {
	t.Parallel()
	own := func(e *catalog.Entry) bool { return e.Module.Extension == core().Extension }
	withOwn := core()
	for _, action := range []capability.Action{"diff.render", "session.status"} {
		withOwn.Contributions = append(withOwn.Contributions, capability.Contribution{
			ID: string(action), Kind: "capability.agent-tool", Action: action, Provider: capability.NewProviderKey("own", "core", "default"),
		})
	}
	fresh := agent(t, catalog.Settings{}, capability.Context{}, withOwn)
	few := agent(t, catalog.Settings{}, capability.Context{}, withOwn, tools("mcp.x", 2))
	many := agent(t, catalog.Settings{}, capability.Context{}, withOwn, tools("mcp.x", 4))
	chosen := catalog.Exposure{Direct: []string{"diff.*"}}
	for name, test := range map[string]struct {
		of   *compile.Agent
		l    compile.Limits
		want []string
		left int
	}{
		"fresh":       {fresh, compile.Limits{}, nil, 0},
		"fresh, full": {fresh, compile.Limits{View: compile.ViewFull}, nil, 0},
		"fresh, search": {
			fresh,
			compile.Limits{View: compile.ViewSearch},
			[]string{"catalog.call", "catalog.callRead", "catalog.describe", "catalog.search"},
			2,
		},
		"few":          {few, compile.Limits{}, []string{"tool_000", "tool_001"}, 0},
		"chosen":       {few, compile.Limits{Exposure: chosen}, []string{"diff.render", "tool_000", "tool_001"}, 0},
		"chosen, full": {few, compile.Limits{View: compile.ViewFull, Exposure: chosen}, []string{"diff.render", "tool_000", "tool_001"}, 0},
		"cut": {
			many,
			compile.Limits{Exposure: catalog.Exposure{MaxDirect: 2}},
			[]string{"catalog.call", "catalog.callRead", "catalog.describe", "catalog.search", "tool_000", "tool_001"},
			2,
		},
	} {
		test.l.Own, test.l.HideOwn, test.l.ByName = own, true, true
		names, left := shown(t, test.of, test.l)
		slices.Sort(names)
		if d := cmp.Diff(test.want, names); d != "" || left != test.left {
			t.Errorf("%s: %d left, want %d (-want +got):\n%s", name, left, test.left, d)
		}
	}
}
