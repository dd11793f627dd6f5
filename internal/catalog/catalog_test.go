package catalog_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/catalog/rules"
)

func empty(t testing.TB, settings catalog.Settings) *catalog.Catalog {
	t.Helper()
	c, err := catalog.New(settings, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func module(ext string, list ...capability.Contribution) capability.Module {
	return capability.Module{Extension: ext, ID: ext[strings.LastIndexByte(ext, '.')+1:], Contributions: list}
}

// apply replaces a source named after each module's extension.
func apply(t testing.TB, c *catalog.Catalog, modules ...capability.Module) *catalog.Snapshot {
	t.Helper()
	for _, m := range modules {
		if _, _, err := c.Replace(capability.Batch{Source: m.Extension, Modules: []capability.Module{m}}); err != nil {
			t.Fatal(err)
		}
	}
	return c.Snapshot()
}

// built is a snapshot of the modules in three orders, which must be one.
func built(t testing.TB, settings catalog.Settings, modules ...capability.Module) *catalog.Snapshot {
	t.Helper()
	first := apply(t, empty(t, settings), modules...)
	for range 3 {
		modules = slices.Clone(modules)
		rand.Shuffle(len(modules), func(i, j int) { modules[i], modules[j] = modules[j], modules[i] })
		for i := range modules {
			modules[i].Contributions = slices.Clone(modules[i].Contributions)
			list := modules[i].Contributions
			rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
		if got := apply(t, empty(t, settings), modules...); got.Etag != first.Etag {
			t.Fatalf("the order decides: %+v, %+v", got.Conflicts(true), first.Conflicts(true))
		}
	}
	return first
}

func tool(id, name string) capability.Contribution {
	return capability.Contribution{ID: id, Kind: "capability.agent-tool", Tool: name, Member: capability.Member{Module: "tools", Kind: "action", Name: id}}
}

func adapter(action, kind, account string) capability.Contribution {
	return capability.Contribution{ID: "adapter", Kind: "adapter.runtime", Action: capability.Action(action), Provider: capability.NewProviderKey("messaging", kind, account)}
}

func memory(id, selector string, state capability.State) capability.Contribution {
	return capability.Contribution{
		ID: id, Kind: "capability.memory", Action: "memory.search", Availability: capability.Availability{State: state},
		Arbitration: &capability.Arbitration{Slot: "memory", SelectorID: selector},
	}
}

func backend(id string, rank int, health capability.Health, selectors ...string) capability.Contribution {
	exclusive := len(selectors) > 0 && selectors[0] == "!"
	if exclusive {
		selectors = selectors[1:]
	}
	return capability.Contribution{
		ID: id, Kind: "capability.runtime-backend", Rank: rank,
		Backend: &capability.Backend{Class: "acp", ID: id, Health: health, Selectors: selectors, Exclusive: exclusive},
	}
}

func withheld(s *catalog.Snapshot) string {
	var out []string
	for e := range s.Entries() {
		if reason := s.Withheld(e); reason != "" {
			out = append(out, e.Runtime+"="+reason)
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

func conflicts(s *catalog.Snapshot, overlaps bool) string {
	var out []string
	for _, c := range s.Conflicts(overlaps) {
		out = append(out, strings.TrimSpace(fmt.Sprint(c.Class, " ", c.Key, " ", c.Resolution, " ", strings.Join(c.Members, "+"), " ", c.Winner)))
	}
	return strings.Join(out, "; ")
}

func TestOnlyAChangeOfContentChangesTheEtag(t *testing.T) {
	t.Parallel()
	c := empty(t, catalog.Settings{})
	nothing := c.Snapshot().Etag
	first := apply(t, c, module("a", tool("x", "go")))
	seen := map[string]string{first.Etag: "first", nothing: "nothing"}
	change := func(name string, change func(*capability.Module)) {
		m := module("a", tool("x", "go"))
		change(&m)
		snap := apply(t, c, m)
		if other, same := seen[snap.Etag]; same {
			t.Errorf("%s is %s", name, other)
		}
		seen[snap.Etag] = name
		if back := apply(t, c, module("a", tool("x", "go"))); back.Etag != first.Etag || back.Generation <= snap.Generation {
			t.Errorf("%s and back", name)
		}
	}
	change("availability", func(m *capability.Module) { m.Contributions[0].Availability.State = capability.StateUnavailable })
	change("its reason", func(m *capability.Module) { m.Contributions[0].Availability.Reason = "why" })
	change("rank", func(m *capability.Module) { m.Contributions[0].Rank = 1 << 40 })
	change("effect", func(m *capability.Module) { m.Contributions[0].Effect = capability.EffectWrite })
	change("title", func(m *capability.Module) { m.Contributions[0].Title = "T" })
	change("description", func(m *capability.Module) { m.Contributions[0].Description = "d" })
	change("input schema", func(m *capability.Module) { m.Contributions[0].InputSchema = json.RawMessage(`{}`) })
	change("output schema", func(m *capability.Module) { m.Contributions[0].OutputSchema = json.RawMessage(`{}`) })
	change("permissions", func(m *capability.Module) { m.Contributions[0].Permissions = []string{"p"} })
	change("tags", func(m *capability.Module) { m.Contributions[0].Tags = []string{"p"} })
	change("aliases", func(m *capability.Module) { m.Contributions[0].Aliases = []string{"p"} })
	change("telemetry", func(m *capability.Module) { m.Contributions[0].Telemetry = map[string]string{"a": "b"} })
	change("tool", func(m *capability.Module) { m.Contributions[0].Tool = "gone" })
	change("exact", func(m *capability.Module) { m.Contributions[0].Exact = true })
	change("approval", func(m *capability.Module) { m.Contributions[0].Approval = true })
	change("unsupported", func(m *capability.Module) { m.Contributions[0].Unsupported = true })
	change("visibility", func(m *capability.Module) { m.Contributions[0].Visibility = "none" })
	change("scope", func(m *capability.Module) { m.Contributions[0].Scope = &capability.Scope{Agent: []string{"x"}} })
	change("dependency", func(m *capability.Module) {
		m.Contributions[0].Depends = &capability.Depends{Requires: []string{"b/x"}}
	})
	change("version", func(m *capability.Module) { m.Version = "2" })
	change("digest", func(m *capability.Module) { m.Digest = "sha256:1" })
	change("label", func(m *capability.Module) { m.Label = "l" })
	change("stage", func(m *capability.Module) { m.Stage = "disabled" })
	change("rejection", func(m *capability.Module) { m.Contributions[0].Kind = "odd" })

	now := c.Snapshot()
	for _, b := range []capability.Batch{{Source: "a", Modules: []capability.Module{module("a", tool("x", "go"))}}, {Source: "never there"}} {
		change, changed, err := c.Replace(b)
		if err != nil || changed || change.After != now || c.Snapshot() != now {
			t.Errorf("%s: changed %v, %v", b.Source, changed, err)
		}
	}
	if gone := apply(t, c, module("a")); gone.Etag == now.Etag {
		t.Error("an empty module is not its tool")
	}
	if _, _, err := c.Replace(capability.Batch{Source: "a"}); err != nil || c.Snapshot().Etag != nothing {
		t.Error("a withdrawn source leaves traces", err)
	}
	if _, _, err := c.Replace(capability.Batch{}); capability.CodeOf(err) != capability.CodeInternal {
		t.Error(err)
	}
}

// TestGenerationsNeverRepeat: they grow with every change, from where the last
// process ended, and settings count as a change.
func TestGenerationsNeverRepeat(t *testing.T) {
	t.Parallel()
	c, err := catalog.New(catalog.Settings{}, 41)
	if err != nil {
		t.Fatal(err)
	}
	last := c.Snapshot().Generation
	if last != 41 {
		t.Error(last)
	}
	grows := func(changed bool, err error) {
		t.Helper()
		if now := c.Snapshot().Generation; err != nil || !changed || now != last+1 {
			t.Errorf("%d after %d: %v", now, last, err)
		}
		last = c.Snapshot().Generation
	}
	for i := range 3 {
		change, changed, err := c.Replace(capability.Batch{Source: "a", Modules: []capability.Module{module("a", tool("x", fmt.Sprint(i)))}})
		grows(changed, err)
		if change.Before.Generation != last-1 || change.After != c.Snapshot() || len(change.Touched) != 1 {
			t.Errorf("%+v", change)
		}
	}
	_, changed, err := c.Configure(catalog.Settings{CrossContext: "same-adapter"})
	grows(changed, err)
	if touched, ok := c.Touched(last-2, last-1); !ok || len(touched) != 1 {
		t.Error(touched, ok)
	}
	if _, ok := c.Touched(last-1, last); ok {
		t.Error("settings touch everything")
	}
	if _, ok := c.Touched(1, last); ok {
		t.Error("what is forgotten touches everything")
	}
	if touched, ok := c.Touched(last, last); !ok || len(touched) > 0 {
		t.Error("nothing touches nothing")
	}
}

func TestExtensionIDsAreNeverTakenOver(t *testing.T) {
	t.Parallel()
	c := empty(t, catalog.Settings{})
	apply(t, c, module("tools", tool("x", "go")))
	for name, b := range map[string]capability.Batch{
		"held":           {Source: "two", Modules: []capability.Module{module("Tools", tool("y", "other"))}},
		"twice":          {Source: "two", Modules: []capability.Module{module("new"), module("NEW")}},
		"a slash":        {Source: "two", Modules: []capability.Module{module("to/ols")}},
		"nothing":        {Source: "two", Modules: []capability.Module{{}}},
		"contributions":  {Source: "two", Modules: []capability.Module{module("other", tool("y", "a"), tool("y", "b"))}},
		"same instances": {Source: "two", Modules: []capability.Module{module("other", adapter("message.send", "a", "b"), adapter("message.send", "c", "b"))}},
	} {
		before := c.Snapshot()
		_, changed, err := c.Replace(b)
		if err == nil || changed || c.Snapshot() != before {
			t.Errorf("%s: %v, changed %v", name, err, changed)
		}
	}
	apply(t, c, capability.Module{Extension: "other"})
	if _, _, err := c.Replace(capability.Batch{Source: "tools"}); err != nil {
		t.Fatal(err)
	}
	apply(t, c, module("Tools", tool("y", "other")))
}

func TestLookups(t *testing.T) {
	t.Parallel()
	m := module("remote.tools", tool("x", "go"), adapter("message.send", "slack", "work"), adapter("message.send", "slack", "home"))
	other := module("local.tools", tool("x", "go"))
	s := built(t, catalog.Settings{}, m, other, module("task-agent", capability.Contribution{ID: "t", Kind: "capability.agent-tool", Action: "task-agent.task.create"}))
	ids := func(list []*catalog.Entry) (out []string) {
		for _, e := range list {
			out = append(out, string(e.ID))
		}
		return out
	}
	const x, y = "remote.tools/x#ext.remote.tools.x@default", "local.tools/x#ext.local.tools.x@default"
	const home, work = "remote.tools/adapter#message.send@home", "remote.tools/adapter#message.send@work"
	for _, tt := range []struct {
		target capability.Target
		want   []string
	}{
		{capability.Target{Member: capability.Member{Module: "tools", Kind: "action", Name: "x"}}, []string{y, x}},
		{capability.Target{Member: capability.Member{Module: "remote.tools", Kind: "action", Name: "x"}}, []string{x}},
		{capability.Target{Member: capability.Member{Module: "remote.tools", Kind: "event", Name: "x"}}, nil},
		{capability.Target{Member: capability.Member{Module: "remote.tools", Kind: "action", Name: "y"}}, nil},
		{capability.Target{Capability: x}, []string{x}},
		{capability.Target{Capability: work}, []string{work}},
		{capability.Target{Capability: "remote.tools/adapter#message.send@none"}, nil},
		{capability.Target{Capability: "remote.tools/none#message.send@work"}, nil},
		{capability.Target{Capability: "none/adapter#message.send@work"}, nil},
		{capability.Target{Capability: "nonsense"}, nil},
		{capability.Target{Capability: "no#slash@x"}, nil},
		{capability.Target{Action: "ext.remote.tools.x"}, []string{x}},
		{capability.Target{Action: "message.send"}, []string{home, work}},
		{capability.Target{Action: "fs.list"}, nil},
		{capability.Target{}, nil},
	} {
		if d := cmp.Diff(tt.want, ids(s.Resolve(tt.target))); d != "" {
			t.Errorf("%s: %s", tt.target, d)
		}
	}
	if !s.Knows("messaging:slack:work") || s.Knows("messaging:slack") || s.Knows("messaging:slack:x") {
		t.Error("providers are known by their keys")
	}
	if mod, ok := s.Module("remote.tools"); !ok || mod.ID != "tools" {
		t.Error(mod)
	}
	if _, ok := s.Module("tools"); ok {
		t.Error("a module's own id is no extension")
	}
	if n := len(slices.Collect(s.Modules())); n != 3 || s.Len() != 5 {
		t.Error(n, s.Len())
	}
	got := make(map[capability.Action]int)
	for a, list := range s.Families([]capability.Action{"a.b", "message.send", "zzz"}, false) {
		got[a] = len(list)
	}
	if d := cmp.Diff(map[capability.Action]int{"a.b": 0, "message.send": 2, "zzz": 0}, got); d != "" {
		t.Error(d)
	}
}

// TestAliasesOfTheRegistryAreTheirAction: a registered spelling of an older seed
// names the same family, for contributions and for lookups.
func TestAliasesOfTheRegistryAreTheirAction(t *testing.T) {
	t.Parallel()
	alias, id := registeredAlias(t)
	s := built(t, catalog.Settings{}, module("a", capability.Contribution{ID: "x", Kind: "capability.agent-tool", Action: alias}))
	for _, name := range []capability.Action{alias, id} {
		if list := s.Action(name); len(list) != 1 || list[0].Action != id || list[0].Row == nil {
			t.Errorf("%s: %v", name, list)
		}
	}
}

func TestRejections(t *testing.T) {
	t.Parallel()
	with := func(change func(*capability.Contribution)) capability.Contribution {
		c := tool("x", "go")
		change(&c)
		return c
	}
	for _, tt := range []struct {
		c    capability.Contribution
		want string
	}{
		{tool("x", "go"), ""},
		{with(func(c *capability.Contribution) { c.Kind = "odd" }), "unknown_kind"},
		{with(func(c *capability.Contribution) { c.Kind = "surface.cli" }), ""},
		{with(func(c *capability.Contribution) { c.Action = "message.teleport" }), "unknown_canonical_action"},
		{with(func(c *capability.Contribution) { c.Action = "plugin.x" }), "unknown_canonical_action"},
		{with(func(c *capability.Contribution) { c.Action = "ext.other.tool" }), "unknown_canonical_action"},
		{with(func(c *capability.Contribution) { c.Action = "ext.a.x" }), ""},
		{with(func(c *capability.Contribution) { c.Action = "acme" }), "invalid_canonical_action"},
		{with(func(c *capability.Contribution) { c.Action = "acme.b.c.d.e" }), "invalid_canonical_action"},
		{with(func(c *capability.Contribution) { c.Action = "Acme.b" }), "invalid_canonical_action"},
		{with(func(c *capability.Contribution) { c.Action = "acme..b" }), "invalid_canonical_action"},
		{with(func(c *capability.Contribution) { c.Action = capability.Action("acme." + strings.Repeat("x", 64)) }), "invalid_canonical_action"},
		{with(func(c *capability.Contribution) { c.Action = "message-send.x" }), ""},
		{with(func(c *capability.Contribution) { c.Action = "acme.Send" }), "invalid_canonical_action"},
		{with(func(c *capability.Contribution) { c.Action = "acme.sendAll" }), ""},
		{with(func(c *capability.Contribution) { c.Arbitration = &capability.Arbitration{Mode: "lottery"} }), "unknown_arbitration_mode"},
		{with(func(c *capability.Contribution) { c.Arbitration = &capability.Arbitration{Mode: "ranked"} }), "arbitration_override_forbidden"},
		{with(func(c *capability.Contribution) { c.Arbitration = &capability.Arbitration{Mode: "parallel"} }), ""},
		{with(func(c *capability.Contribution) { c.Arbitration = &capability.Arbitration{Slot: "throne"} }), "unknown_slot"},
		{with(func(c *capability.Contribution) { c.InputSchema = json.RawMessage(`{"type":`) }), "invalid_schema"},
		{with(func(c *capability.Contribution) { c.InputSchema = json.RawMessage(`true`) }), "invalid_schema"},
		{with(func(c *capability.Contribution) { c.InputSchema = json.RawMessage(`null`) }), "invalid_schema"},
		{with(func(c *capability.Contribution) { c.InputSchema = json.RawMessage("  ") }), "invalid_schema"},
		{with(func(c *capability.Contribution) { c.InputSchema = json.RawMessage(`{"properties":[]}`) }), "invalid_schema"},
		{with(func(c *capability.Contribution) { c.InputSchema = json.RawMessage(`{"required":{}}`) }), "invalid_schema"},
		{with(func(c *capability.Contribution) { c.InputSchema = json.RawMessage(" {\"properties\":null}") }), ""},
		{with(func(c *capability.Contribution) { c.OutputSchema = json.RawMessage(`[]`) }), "invalid_schema"},
		{with(func(c *capability.Contribution) {
			c.InputSchema = json.RawMessage(`{"x":"` + strings.Repeat("x", 256<<10) + `"}`)
		}), "invalid_schema"},
		{with(func(c *capability.Contribution) { c.ID = "a#b" }), "invalid_id"},
	} {
		s := built(t, catalog.Settings{}, module("a", tt.c, tool("other", "other")))
		if got := s.Rejected()["a/"+tt.c.ID]; got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.c, got, tt.want)
		}
		if n := s.Len(); (n == 2) != (tt.want == "" && tt.c.Kind == "capability.agent-tool") {
			t.Errorf("%+v: %d entries", tt.c, n)
		}
	}
	// A contribution is rejected as a whole, not action by action.
	s := built(t, catalog.Settings{}, module("a", adapter("message.send", "slack", "work"), adapter("message.teleport", "slack", "work"), tool("t", "t")))
	if s.Len() != 1 || s.Rejected()["a/adapter"] == "" {
		t.Error(s.Len(), s.Rejected())
	}
}

func TestAudiencesHaveACeilingPerKind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind       string
		action     capability.Action
		visibility capability.Visibility
		want       string
	}{
		{"capability.agent-tool", "", "", "agent operator internal"},
		{"adapter.runtime", "message.send", "", "agent operator internal"},
		{"capability.memory", "memory.get", "", "agent operator internal"},
		{"capability.interaction", "interaction.modal.open", "", "internal"},
		{"capability.interaction", "interaction.modal.open", "both", "agent operator internal"},
		{"capability.interaction", "interaction.modal.open", "agent", "agent internal"},
		{"capability.rpc", "", "", "internal"},
		{"capability.rpc", "", "both", "internal"},
		{"capability.context-engine", "", "agent", "internal"},
		{"capability.runtime-backend", "", "both", "internal"},
		{"capability.event-handler", "fs.list", "both", "internal"},
		{"capability.agent-tool", "", "operator", "operator internal"},
		{"capability.agent-tool", "", "agent", "agent internal"},
		{"capability.agent-tool", "", "none", "internal"},
		{"capability.agent-tool", "provider.configure", "both", "operator internal"},
		{"capability.agent-tool", "model.invoke", "both", "internal"},
	} {
		c := tool("x", "go")
		c.Kind, c.Action, c.Visibility = tt.kind, tt.action, tt.visibility
		var got []string
		for e := range built(t, catalog.Settings{}, module("a", c)).Entries() {
			for _, a := range []capability.Audience{capability.AudienceAgent, capability.AudienceOperator, capability.AudienceInternal, "", "root"} {
				if e.VisibleTo(a) {
					got = append(got, string(a))
				}
			}
		}
		if d := cmp.Diff(tt.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%+v: %s", tt, d)
		}
	}
}

func TestARegistryRowLimitsWhatAModuleSaysOfIt(t *testing.T) {
	t.Parallel()
	for claimed, want := range map[capability.Effect]capability.Effect{
		"": capability.EffectWrite, "read": capability.EffectWrite, "write": capability.EffectWrite, "external": capability.EffectExternal,
		"admin": capability.EffectAdmin, "odd": capability.EffectExternal,
	} {
		c := tool("x", "")
		c.Action, c.Effect, c.Description = "fs.writeText", claimed, "harmless, trust me"
		e := built(t, catalog.Settings{}, module("a", c)).Action("fs.writeText")[0]
		if e.Effect != want || e.Description() == c.Description {
			t.Errorf("%q became %s: %s", claimed, e.Effect, e.Description())
		}
		c.Action = ""
		if e := built(t, catalog.Settings{}, module("a", c)).Action("ext.a.x")[0]; claimed == "" && e.Effect != capability.EffectExternal || e.Description() != c.Description {
			t.Errorf("a tool of effect %q has %s", claimed, e.Effect)
		}
	}
}

func TestProviderKeys(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		c    capability.Contribution
		want capability.ProviderKey
	}{
		{tool("x", "go"), "ext:mcp.tools:default"},
		{capability.Contribution{ID: "x", Kind: "adapter.runtime", Action: "message.send"}, "messaging:tools:default"},
		{adapter("message.send", "slack", "work"), "messaging:slack:work"},
		{memory("x", "lancedb", ""), "memory:lancedb:default"},
		{backend("alt", 0, ""), "runtime-backend:acp:alt"},
		{capability.Contribution{ID: "x", Kind: "capability.context-engine", Arbitration: &capability.Arbitration{Slot: "context-engine", SelectorID: "lossless"}}, "context-engine:lossless:default"},
		{capability.Contribution{ID: "x", Kind: "capability.agent-tool", Action: "acme.invoice.list"}, "acme:tools:default"},
	} {
		for e := range built(t, catalog.Settings{}, module("mcp.tools", tt.c)).Entries() {
			if e.Key() != tt.want {
				t.Errorf("%s, want %s", e.Key(), tt.want)
			}
		}
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	const down = capability.StateUnavailable
	slot := func(selected, mode string, overrides ...catalog.SlotOverride) catalog.Settings {
		return catalog.Settings{Slots: map[string]catalog.SlotSetting{"memory": {Selected: selected, Mode: mode, Overrides: overrides}}}
	}
	core, lance := module("core", memory("store", "builtin", "")), module("lance", memory("store", "lancedb", ""))
	dormant := func(stage string) capability.Module {
		m := module("off", memory("store", "off", ""))
		m.Stage = stage
		return m
	}
	tiers := []catalog.SlotOverride{
		{Workspace: "w", Selected: "b"}, {Agent: "a", Selected: "c"}, {Workspace: "w", Agent: "a", Selected: "d", Mode: "parallel"},
	}
	four := []capability.Module{module("x1", memory("s", "builtin", "")), module("x2", memory("s", "b", "")), module("x3", memory("s", "c", "")), module("x4", memory("s", "d", ""))}
	needy := memory("store", "builtin", "")
	needy.Depends = &capability.Depends{Requires: []string{"none/x"}}
	for _, tt := range []struct {
		name             string
		settings         catalog.Settings
		modules          []capability.Module
		workspace, agent string
		want             string // source, mode, winner or error, available
		left             string // entries the choice leaves out
	}{
		{"default", catalog.Settings{}, []capability.Module{core, lance}, "", "", "slot_default exclusive core/store builtin,lancedb -lance/store", "lance/store"},
		{"blank is the default", slot("  ", ""), []capability.Module{core, lance}, "", "", "slot_default exclusive core/store builtin,lancedb -lance/store", "lance/store"},
		{"configured", slot(" lancedb ", ""), []capability.Module{core, lance}, "", "", "configured exclusive lance/store builtin,lancedb -core/store", "core/store"},
		{"by runtime id", slot("lance/store", ""), []capability.Module{core, lance}, "", "", "configured exclusive lance/store builtin,lancedb -core/store", "core/store"},
		{"parallel leaves nothing out", slot("lancedb", "parallel"), []capability.Module{core, lance}, "", "", "configured parallel lance/store builtin,lancedb -core/store", ""},
		{"unknown", slot("qdrant", ""), []capability.Module{core, lance}, "", "", "configured exclusive slot_provider_unknown builtin,lancedb", "core/store lance/store"},
		{"one other candidate is no fallback", catalog.Settings{}, []capability.Module{lance}, "", "", "slot_default exclusive slot_provider_unknown lancedb", "lance/store"},
		{"nobody", catalog.Settings{}, nil, "", "", "slot_default exclusive slot_provider_unknown ", ""},
		{"ambiguous", catalog.Settings{}, []capability.Module{core, module("fork", memory("store", "builtin", ""))}, "", "", "slot_default exclusive slot_ambiguous builtin", "core/store fork/store"},
		{"down", catalog.Settings{}, []capability.Module{module("core", memory("store", "builtin", down)), lance}, "", "", "slot_default exclusive slot_provider_unavailable builtin,lancedb", "core/store lance/store"},
		{"withheld", catalog.Settings{}, []capability.Module{module("core", needy), lance}, "", "", "slot_default exclusive slot_provider_unavailable builtin,lancedb", "core/store lance/store"},
		{"disabled", slot("off", ""), []capability.Module{core, dormant("disabled")}, "", "", "configured exclusive slot_provider_disabled builtin", "core/store"},
		{"not activated", slot("off/store", ""), []capability.Module{core, dormant("approved")}, "", "", "configured exclusive slot_provider_unavailable builtin", "core/store"},
		{"base", slot("builtin", "", tiers...), four, "v", "z", "configured exclusive x1/s b,builtin,c,d -x2/s,x3/s,x4/s", "x2/s x3/s x4/s"},
		{"workspace", slot("builtin", "", tiers...), four, "w", "z", "configured exclusive x2/s b,builtin,c,d -x1/s,x3/s,x4/s", "x1/s x3/s x4/s"},
		{"agent beats workspace", slot("builtin", "", tiers...), four, "v", "a", "configured exclusive x3/s b,builtin,c,d -x1/s,x2/s,x4/s", "x1/s x2/s x4/s"},
		{"agent beats workspace where both are named", slot("builtin", "", tiers[:2]...), four, "w", "a", "configured exclusive x3/s b,builtin,c,d -x1/s,x2/s,x4/s", "x1/s x2/s x4/s"},
		{"both beat either, and bring their mode", slot("builtin", "", tiers...), four, "w", "a", "configured parallel x4/s b,builtin,c,d -x1/s,x2/s,x3/s", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := built(t, tt.settings, tt.modules...)
			choice := s.Slot("memory", tt.workspace, tt.agent)
			got := choice.Source + " " + choice.Mode + " " + choice.Winner
			if choice.Err != nil {
				got += choice.Err.Code
				if e := catalog.AsSlotError(fmt.Errorf("wrapped: %w", choice.Err)); e != choice.Err || e.Remediation == "" || e.Error() == "" || capability.AsError(e).Reason != e.Code {
					t.Errorf("%+v", e)
				}
			}
			got += " " + strings.Join(choice.Available, ",")
			if len(choice.Losers) > 0 {
				got += " -" + strings.Join(choice.Losers, ",")
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			var left []string
			for e := range s.Entries() {
				if s.SlotWithholds(e, tt.workspace, tt.agent) {
					left = append(left, e.Runtime)
				}
			}
			slices.Sort(left)
			if d := cmp.Diff(tt.left, strings.Join(left, " ")); d != "" {
				t.Error(d)
			}
		})
	}
	// A plain tool bound to the slot goes with its holder; one that is not stays.
	bound, free := tool("bound", "bound"), tool("free", "free")
	bound.Arbitration = &capability.Arbitration{Slot: "memory"}
	for selected, want := range map[string]bool{"lancedb": false, "builtin": true} {
		s := built(t, slot(selected, ""), core, module("lance", memory("store", "lancedb", ""), bound, free))
		if got := s.SlotWithholds(s.Action("ext.lance.bound")[0], "", ""); got != want {
			t.Errorf("%s: the bound tool is left out: %v", selected, got)
		}
		if s.SlotWithholds(s.Action("ext.lance.free")[0], "", "") {
			t.Error("a tool that is not bound is left out")
		}
	}
	for settings, want := range map[*catalog.Settings]string{
		{}: "singleton_slot memory slot_default core/store+lance/store core/store",
		{Slots: map[string]catalog.SlotSetting{"memory": {Selected: "lancedb"}}}: "singleton_slot memory configured core/store+lance/store lance/store",
		{Slots: map[string]catalog.SlotSetting{"memory": {Selected: "none"}}}:    "singleton_slot memory unresolved core/store+lance/store",
		{Slots: map[string]catalog.SlotSetting{"memory": {Mode: "parallel"}}}:    "",
	} {
		if got := conflicts(built(t, *settings, core, lance), false); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

func TestBackends(t *testing.T) {
	t.Parallel()
	const ok, degraded, bad, unknown = capability.HealthHealthy, capability.HealthDegraded, capability.HealthUnhealthy, capability.HealthUnknown
	exclusive := func(selected string) catalog.Settings {
		return catalog.Settings{Backends: map[string]catalog.BackendSetting{"acp": {Exclusive: true, Selected: selected}}}
	}
	off := backend("off", 99, ok)
	off.Availability.State = capability.StateUnavailable
	slow := backend("slow", 99, "")
	slow.Availability.State = capability.StateDegraded
	for _, tt := range []struct {
		name     string
		settings catalog.Settings
		modules  []capability.Module
		req      catalog.BackendRequest
		want     string
		blocking string
	}{
		{"rank", catalog.Settings{}, []capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))}, catalog.BackendRequest{}, "b", ""},
		{"no word on health is health", catalog.Settings{}, []capability.Module{module("e", backend("a", 1, ""))}, catalog.BackendRequest{}, "a", ""},
		{"health before rank", catalog.Settings{}, []capability.Module{module("e", backend("a", 1, ok), backend("b", 2, degraded))}, catalog.BackendRequest{}, "a", ""},
		{"degraded if nothing is well", catalog.Settings{}, []capability.Module{module("e", backend("a", 1, bad), backend("b", 0, degraded))}, catalog.BackendRequest{}, "b degraded", ""},
		{"state counts as health", catalog.Settings{}, []capability.Module{module("e", backend("a", 1, ok), off, slow)}, catalog.BackendRequest{}, "a", ""},
		{"unknown is never picked", catalog.Settings{}, []capability.Module{module("e", backend("a", 1, unknown), backend("b", 1, bad))}, catalog.BackendRequest{}, "backend_unavailable", ""},
		{"extension id, then contribution id", catalog.Settings{}, []capability.Module{module("f", backend("a", 1, ok)), module("e", backend("z", 1, ok), backend("b", 1, ok))}, catalog.BackendRequest{}, "b", ""},
		{"operator's rank", catalog.Settings{Ranks: map[capability.ProviderKey]int{"runtime-backend:acp:a": 7}}, []capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))}, catalog.BackendRequest{}, "a", ""},
		{"by id", catalog.Settings{}, []capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))}, catalog.BackendRequest{ID: "a"}, "a", ""},
		{"by id, unhealthy", catalog.Settings{}, []capability.Module{module("e", backend("a", 1, bad), backend("b", 2, ok))}, catalog.BackendRequest{ID: "a"}, "backend_unavailable", ""},
		{"by id, absent", catalog.Settings{}, []capability.Module{module("e", backend("a", 1, ok))}, catalog.BackendRequest{ID: "z"}, "backend_not_found", ""},
		{"by id, two", catalog.Settings{}, []capability.Module{module("e", backend("a", 1, ok)), module("f", backend("a", 1, ok))}, catalog.BackendRequest{ID: "a"}, "backend_selector_conflict", ""},
		{"configured", catalog.Settings{Backends: map[string]catalog.BackendSetting{"acp": {Selected: "a"}}}, []capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))}, catalog.BackendRequest{}, "a", ""},
		{"configured and unhealthy is not replaced", catalog.Settings{Backends: map[string]catalog.BackendSetting{"acp": {Selected: "a"}}}, []capability.Module{module("e", backend("a", 1, bad), backend("b", 2, ok))}, catalog.BackendRequest{}, "backend_unavailable", ""},
		{"by selector", catalog.Settings{}, []capability.Module{module("e", backend("a", 9, ok), backend("b", 2, ok, "s"), backend("c", 3, ok, "s"))}, catalog.BackendRequest{Selector: "s"}, "c", ""},
		{"by selector, absent", catalog.Settings{}, []capability.Module{module("e", backend("a", 9, ok, "s"))}, catalog.BackendRequest{Selector: "a"}, "backend_not_found", ""},
		{"contested selector", catalog.Settings{}, []capability.Module{module("e", backend("a", 9, ok, "!", "s")), module("f", backend("b", 9, ok, "s"))}, catalog.BackendRequest{Selector: "s"}, "backend_selector_conflict", ""},
		{"contested everything", catalog.Settings{}, []capability.Module{module("e", backend("a", 9, ok, "!", "s")), module("f", backend("b", 9, ok, "s"))}, catalog.BackendRequest{}, "backend_selector_conflict", ""},
		{"contested in part", catalog.Settings{}, []capability.Module{module("e", backend("a", 9, ok, "!", "s")), module("f", backend("b", 9, ok, "s", "t"))}, catalog.BackendRequest{}, "b", ""},
		{"a selector named twice is no contest", catalog.Settings{}, []capability.Module{module("e", backend("a", 9, ok, "!", "s", "s"))}, catalog.BackendRequest{Selector: "s"}, "a", ""},
		{"pinned", catalog.Settings{Owners: map[string]string{"acp:s": "f/b"}}, []capability.Module{module("e", backend("a", 9, ok, "!", "s")), module("f", backend("b", 0, ok, "s"))}, catalog.BackendRequest{Selector: "s"}, "b", ""},
		{"shared by agreement", catalog.Settings{}, []capability.Module{module("e", backend("a", 9, ok, "s")), module("f", backend("b", 0, ok, "s"))}, catalog.BackendRequest{Selector: "s"}, "a", ""},

		{"exclusive class, one", exclusive(""), []capability.Module{module("e", backend("a", 1, ok))}, catalog.BackendRequest{}, "a", ""},
		{"exclusive class, two", exclusive(""), []capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))}, catalog.BackendRequest{ID: "a"}, "a", "acp:backend_slot_conflict"},
		{"exclusive class, two, the default among them", exclusive(""), []capability.Module{module("e", backend("builtin", 1, ok), backend("b", 2, ok))}, catalog.BackendRequest{}, "builtin", ""},
		{"exclusive class, selected", exclusive("a"), []capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))}, catalog.BackendRequest{}, "a", ""},
		{"exclusive class, selected one is missing", exclusive("z"), []capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))}, catalog.BackendRequest{}, "backend_not_found", "acp:backend_not_found"},
		{"exclusive class, selected one is there twice", exclusive("a"), []capability.Module{module("e", backend("a", 1, ok)), module("f", backend("a", 2, ok))}, catalog.BackendRequest{}, "backend_selector_conflict", "acp:backend_slot_conflict"},
		{"exclusive class, none", exclusive(""), nil, catalog.BackendRequest{}, "backend_not_found", "acp:backend_not_found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := built(t, tt.settings, tt.modules...)
			tt.req.Class = "acp"
			choice, err := s.Backend(tt.req)
			got := ""
			if err != nil {
				got = capability.AsError(err).Reason
			} else if got = choice.Entry.Contribution.Backend.ID; choice.Degraded {
				got += " degraded"
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			var blocking []string
			for _, issue := range s.Blocking() {
				if issue.Remediation == "" {
					t.Error("no remediation")
				}
				blocking = append(blocking, issue.Class+":"+issue.Code)
			}
			if got := strings.Join(blocking, " "); got != tt.blocking {
				t.Errorf("%s, want %s", got, tt.blocking)
			}
		})
	}
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	needs := func(id string, requires ...string) capability.Contribution {
		c := tool(id, id)
		c.Depends = &capability.Depends{Requires: requires}
		return c
	}
	against := func(id string, conflicts ...string) capability.Contribution {
		c := tool(id, id)
		c.Depends = &capability.Depends{Conflicts: conflicts}
		return c
	}
	dormant := module("d", tool("x", "x"))
	dormant.Stage = capability.StageDisabled
	bad := tool("x", "x")
	bad.Action = "message.teleport"
	cli := capability.Contribution{ID: "cli", Kind: "surface.cli"}
	for _, tt := range []struct {
		name     string
		settings catalog.Settings
		modules  []capability.Module
		want     string
	}{
		{"there", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/x")), module("b", tool("x", "x"))}, ""},
		{"a host's contribution counts", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/cli")), module("b", cli)}, ""},
		{"missing", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/x"), tool("y", "y"))}, "a/x=dependency_missing"},
		{"one of two is missing", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/x", "b/y")), module("b", tool("x", "x"))}, "a/x=dependency_missing"},
		{"chain", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/x")), module("b", needs("x", "c/x")), module("c", needs("x", "z/z"))}, "a/x=dependency_missing b/x=dependency_missing c/x=dependency_missing"},
		{"chain that holds", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/x")), module("b", needs("x", "c/x")), module("c", tool("x", "x"))}, ""},
		{"cycle, and who leans on it", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/x")), module("b", needs("x", "a/x")), module("c", needs("x", "a/x"))}, "a/x=dependency_missing b/x=dependency_missing c/x=dependency_missing"},
		{"itself", catalog.Settings{}, []capability.Module{module("a", needs("x", "a/x"))}, "a/x=dependency_missing"},
		{"disabled", catalog.Settings{}, []capability.Module{module("a", needs("x", "d/x")), dormant}, "a/x=dependency_missing"},
		{"rejected", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/x")), module("b", bad)}, "a/x=dependency_missing"},
		{"conflict", catalog.Settings{}, []capability.Module{module("a", against("x", "b/x")), module("b", tool("x", "x"))}, "a/x=dependency_conflict"},
		{"conflict of both", catalog.Settings{}, []capability.Module{module("a", against("x", "b/x")), module("b", against("x", "a/x"))}, "a/x=dependency_conflict b/x=dependency_conflict"},
		{"conflict, pinned", catalog.Settings{Owners: map[string]string{"conflict:a/x+b/x": "b/x"}}, []capability.Module{module("a", against("x", "b/x")), module("b", against("x", "a/x"))}, "a/x=dependency_conflict"},
		{"conflict with nobody", catalog.Settings{}, []capability.Module{module("a", against("x", "b/x"))}, ""},
		{"what needs the loser of a conflict", catalog.Settings{}, []capability.Module{module("a", against("x", "b/x")), module("b", tool("x", "x")), module("c", needs("x", "a/x")), module("e", needs("x", "c/x"))}, "a/x=dependency_conflict c/x=dependency_missing e/x=dependency_missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := withheld(built(t, tt.settings, tt.modules...)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	// R02: what was missing comes, and all that waited for it in one generation.
	c := empty(t, catalog.Settings{})
	apply(t, c, module("a", needs("x", "b/x")), module("c", needs("x", "a/x")))
	change, _, err := c.Replace(capability.Batch{Source: "b", Modules: []capability.Module{module("b", tool("x", "x"))}})
	if got := withheld(change.After); got != "" || err != nil {
		t.Error(got, err)
	}
	if d := cmp.Diff([]capability.Action{"ext.a.x", "ext.b.x", "ext.c.x"}, change.Touched); d != "" {
		t.Error(d)
	}
}

func TestRouteSurfaces(t *testing.T) {
	t.Parallel()
	const key = "messaging:slack:work"
	over := func(c capability.Contribution, ids ...string) capability.Contribution {
		c.Depends = &capability.Depends{Supersedes: ids}
		return c
	}
	send, reply := adapter("message.send", "slack", "work"), adapter("message.reply", "slack", "work")
	two := adapter("message.send", "slack", "home")
	augment := func(id string, exclusive bool, targets ...string) capability.Contribution {
		return capability.Contribution{ID: id, Kind: "capability.route-augmenter", Augment: &capability.Augment{Targets: targets, Exclusive: exclusive}}
	}
	for _, tt := range []struct {
		name      string
		settings  catalog.Settings
		modules   []capability.Module
		withheld  string
		conflicts string
	}{
		{"one", catalog.Settings{}, []capability.Module{module("a", send, reply, two)}, "", ""},
		{"two claims", catalog.Settings{}, []capability.Module{module("a", send, two), module("b", send)}, "a/adapter=route_surface_conflict b/adapter=route_surface_conflict", "route_surface " + key + " unresolved a/adapter+b/adapter"},
		{"different actions do not meet", catalog.Settings{}, []capability.Module{module("a", send), module("b", reply)}, "", ""},
		{"pinned", catalog.Settings{Owners: map[string]string{key: "b/adapter"}}, []capability.Module{module("a", send), module("b", send)}, "a/adapter=route_surface_conflict", "route_surface " + key + " operator_pin a/adapter+b/adapter b/adapter"},
		{"a pin to a stranger is none", catalog.Settings{Owners: map[string]string{key: "z/adapter"}}, []capability.Module{module("a", send), module("b", send)}, "a/adapter=route_surface_conflict b/adapter=route_surface_conflict", "route_surface " + key + " unresolved a/adapter+b/adapter"},
		{"superseded", catalog.Settings{}, []capability.Module{module("a", send), module("b", over(send, "a/adapter"))}, "a/adapter=route_surface_conflict", "route_surface " + key + " supersedes a/adapter+b/adapter b/adapter"},
		{"superseded both ways", catalog.Settings{}, []capability.Module{module("a", over(send, "b/adapter")), module("b", over(send, "a/adapter"))}, "a/adapter=route_surface_conflict b/adapter=route_surface_conflict", "route_surface " + key + " unresolved a/adapter+b/adapter"},
		{"superseding one of two", catalog.Settings{}, []capability.Module{module("a", send), module("b", over(send, "a/adapter")), module("c", send)}, "a/adapter=route_surface_conflict b/adapter=route_surface_conflict c/adapter=route_surface_conflict", "route_surface " + key + " unresolved a/adapter+b/adapter+c/adapter"},
		{"superseding all", catalog.Settings{}, []capability.Module{module("a", send), module("b", over(send, "a/adapter", "c/adapter")), module("c", over(send, "a/adapter"))}, "a/adapter=route_surface_conflict c/adapter=route_surface_conflict", "route_surface " + key + " supersedes a/adapter+b/adapter+c/adapter b/adapter"},
		{"superseding in a circle", catalog.Settings{}, []capability.Module{module("a", over(send, "b/adapter")), module("b", over(send, "c/adapter")), module("c", over(send, "a/adapter"))}, "a/adapter=route_surface_conflict b/adapter=route_surface_conflict c/adapter=route_surface_conflict", "route_surface " + key + " unresolved a/adapter+b/adapter+c/adapter"},
		{"a pin beats superseding", catalog.Settings{Owners: map[string]string{key: "a/adapter"}}, []capability.Module{module("a", send), module("b", over(send, "a/adapter"))}, "b/adapter=route_surface_conflict", "route_surface " + key + " operator_pin a/adapter+b/adapter a/adapter"},
		{"rank decides nothing", catalog.Settings{Ranks: map[capability.ProviderKey]int{key: 9}}, []capability.Module{module("a", send), module("b", send)}, "a/adapter=route_surface_conflict b/adapter=route_surface_conflict", "route_surface " + key + " unresolved a/adapter+b/adapter"},
		{"a minted id cut in two ways is nobody's", catalog.Settings{}, []capability.Module{module("mcp.github", tool("go", "go")), module("mcp", tool("github.go", "go"))}, "mcp.github/go=route_surface_conflict mcp/github.go=route_surface_conflict", "route_surface ext.mcp.github.go unresolved mcp.github/go+mcp/github.go"},
		{"unless it is pinned", catalog.Settings{Owners: map[string]string{"ext.mcp.github.go": "mcp.github/go"}}, []capability.Module{module("mcp.github", tool("go", "go")), module("mcp", tool("github.go", "go"))}, "mcp/github.go=route_surface_conflict", "route_surface ext.mcp.github.go operator_pin mcp.github/go+mcp/github.go mcp.github/go"},
		{"augmenters compose", catalog.Settings{}, []capability.Module{module("a", augment("x", true, "t")), module("b", augment("x", false, "t"))}, "", ""},
		{"augmenters that want a target for themselves", catalog.Settings{}, []capability.Module{module("a", augment("x", true, "t", "t", "u")), module("b", augment("x", true, "t"))}, "", "route_surface augment:t unresolved a/x+b/x"},
		{"one augmenter names its target twice", catalog.Settings{}, []capability.Module{module("a", augment("x", true, "t", "t"))}, "", ""},
		{"augmenters, pinned", catalog.Settings{Owners: map[string]string{"augment:t": "a/x"}}, []capability.Module{module("a", augment("x", true, "t")), module("b", augment("x", true, "t"))}, "", "route_surface augment:t operator_pin a/x+b/x a/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := built(t, tt.settings, tt.modules...)
			if got := withheld(s); got != tt.withheld {
				t.Errorf("got  %s\nwant %s", got, tt.withheld)
			}
			if got := conflicts(s, false); got != tt.conflicts {
				t.Errorf("got  %s\nwant %s", got, tt.conflicts)
			}
			for _, c := range s.Conflicts(false) {
				if (c.Resolution == "unresolved") != (c.Remediation != "") {
					t.Errorf("%+v", c)
				}
			}
		})
	}
	s := built(t, catalog.Settings{}, module("a", send, two), module("b", send))
	if e, ok := s.Capability("a/adapter#message.send@home"); !ok || s.Withheld(e) != "" {
		t.Error("the adapter's other account is touched")
	}
	if got := conflicts(built(t, catalog.Settings{}, module("a", send), module("b", two)), true); got != "canonical_overlap message.send expected a/adapter+b/adapter" {
		t.Error(got)
	}
}

// TestMappings holds catalog spec, section 6.2: the operator's word makes one
// action of tools that look alike, but never of tools that differ.
func TestMappings(t *testing.T) {
	t.Parallel()
	search := func(name, schema string) capability.Contribution {
		c := tool("t", name)
		c.InputSchema = json.RawMessage(schema)
		return c
	}
	text := `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`
	same := `{"required":["text"], "type":"object", "properties":{"text":{"type":"string"}}}`
	odd := `{"type":"object","properties":{"body":{"type":"string"}},"required":["body"]}`
	mapping := func(action capability.Action) catalog.Settings {
		return catalog.Settings{CanonicalMap: []catalog.Mapping{{Ext: "mcp.*", Tool: "send", Action: action}}}
	}
	for _, tt := range []struct {
		name     string
		action   capability.Action
		schemas  []string
		joined   int
		rejected int
	}{
		{"two of one schema", "ops.send", []string{text, same}, 2, 0},
		{"alone", "ops.send", []string{odd}, 1, 0},
		{"the odd one stays apart", "ops.send", []string{text, odd, same}, 2, 1},
		{"of equally many, the first id's", "ops.send", []string{odd, text}, 1, 1},
		{"no schema is a schema", "ops.send", []string{"", ""}, 2, 0},
		{"a family of the core takes what serves it", "message.send", []string{text, same}, 2, 0},
		{"and not what does not", "message.send", []string{odd, odd}, 0, 2},
		{"nor what has none", "message.send", []string{"", ""}, 0, 2},
		{"nor another type", "message.send", []string{`{"type":"object","properties":{"text":{"type":"integer"}}}`}, 0, 1},
		{"nor one that needs more", "message.send", []string{`{"type":"object","properties":{"text":{"type":"string"},"key":{"type":"string"}},"required":["text","key"]}`}, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var modules []capability.Module
			for i, schema := range tt.schemas {
				modules = append(modules, module(fmt.Sprintf("mcp.s%d", i), search("send", schema)))
			}
			s := built(t, mapping(tt.action), append(modules, module("other", search("send", text)))...)
			if n := len(s.Action(tt.action)); n != tt.joined {
				t.Errorf("%d joined", n)
			}
			n := 0
			for id, reason := range s.Rejected() {
				if reason != "mapping_schema_mismatch" {
					t.Error(id, reason)
				}
				n++
			}
			if n != tt.rejected {
				t.Errorf("%d stay apart", n)
			}
			if s.Len() != len(tt.schemas)+1 || len(s.Action("ext.other.t")) != 1 {
				t.Error("somebody is lost")
			}
			for _, e := range s.Action(tt.action) {
				if domain, _, _ := e.Key().Parts(); domain != e.Family.Domain {
					t.Errorf("%s is not of its family's domain", e.Key())
				}
			}
		})
	}
	// It holds when servers come one by one, in whatever order, and go again.
	c := empty(t, mapping("ops.send"))
	apply(t, c, module("mcp.a", search("send", odd)))
	s := apply(t, c, module("mcp.b", search("send", text)), module("mcp.c", search("send", text)))
	if len(s.Action("ops.send")) != 2 || len(s.Action("ext.mcp.a.t")) != 1 {
		t.Error("the many join, and the one that was there before leaves")
	}
	if _, _, err := c.Replace(capability.Batch{Source: "mcp.b"}); err != nil {
		t.Fatal(err)
	}
	s = c.Snapshot()
	if e := s.Action("ops.send"); len(e) != 1 || e[0].Module.Extension != "mcp.a" || s.Rejected()["mcp.c/t"] == "" {
		t.Errorf("%v", s.Rejected())
	}
	if _, _, err := c.Configure(catalog.Settings{}); err != nil || len(c.Snapshot().Action("ops.send")) != 0 || len(c.Snapshot().Rejected()) != 0 {
		t.Error("a mapping that is gone leaves traces", err)
	}
}

// TestFunctionsOfNodesMergeAllOrNothing holds catalog spec, section 6, row CMP.
func TestFunctionsOfNodesMergeAllOrNothing(t *testing.T) {
	t.Parallel()
	node := func(name, schema string) capability.Module {
		return module("node."+name, capability.Contribution{
			ID: "photo", Kind: "capability.agent-tool", Action: "fn.photo", Tool: "photo", InputSchema: json.RawMessage(schema), Provider: capability.NewProviderKey("fn", "node", name),
		})
	}
	const one, two = `{"type":"object"}`, `{"type":"object","properties":{"x":{}}}`
	c := empty(t, catalog.Settings{})
	for _, step := range []struct {
		m      capability.Module
		merged int
	}{
		{node("a", one), 1},
		{node("b", one), 2},
		{node("c", two), 0},
		{node("c", one), 3},
		{node("b", two), 0},
		{module("node.b"), 2},
	} {
		s := apply(t, c, step.m)
		if n := len(s.Action("fn.photo")); n != step.merged {
			t.Errorf("%s: %d merged", step.m.Extension, n)
		}
		if len(s.Rejected()) > 0 {
			t.Error(s.Rejected())
		}
		for e := range s.Entries() {
			if e.Declared() != "photo" {
				t.Errorf("%s wants the name %s", e.ID, e.Declared())
			}
		}
	}
}

func TestSettingsThatAreNone(t *testing.T) {
	t.Parallel()
	slots := func(slot string, set catalog.SlotSetting) catalog.Settings {
		return catalog.Settings{Slots: map[string]catalog.SlotSetting{slot: set}}
	}
	c := empty(t, catalog.Settings{})
	before := c.Snapshot()
	for name, s := range map[string]catalog.Settings{
		"slot": slots("throne", catalog.SlotSetting{}), "slot mode": slots("memory", catalog.SlotSetting{Mode: "chaos"}), "parallel engine": slots("context-engine", catalog.SlotSetting{Mode: "parallel"}),
		"override of nobody": slots("memory", catalog.SlotSetting{Overrides: []catalog.SlotOverride{{Selected: "x"}}}),
		"override's mode":    slots("memory", catalog.SlotSetting{Overrides: []catalog.SlotOverride{{Agent: "a", Mode: "x"}}}),
		"crossContext":       {CrossContext: "sometimes"}, "onCollision": {Naming: catalog.NamingSetting{OnCollision: "fight"}},
		"map without tool": {CanonicalMap: []catalog.Mapping{{Ext: "x", Action: "a.b"}}}, "map to nonsense": {CanonicalMap: []catalog.Mapping{{Ext: "x", Tool: "t", Action: "A"}}},
		"map to a tool":  {CanonicalMap: []catalog.Mapping{{Ext: "x", Tool: "t", Action: "ext.a.b"}}},
		"forced default": {ForcedDefaults: []catalog.ForcedDefault{{Action: "x"}}}, "rule": {Policy: []rules.Rule{{Effect: "maybe"}}},
	} {
		if _, err := catalog.New(s, 0); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v", name, err)
		}
		if _, changed, err := c.Configure(s); err == nil || changed || c.Snapshot() != before {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestComposedMembersAreOrdered(t *testing.T) {
	t.Parallel()
	member := func(id string, priority int, state capability.State) capability.Contribution {
		return capability.Contribution{
			ID: id, Kind: "capability.context-augmenter", Arbitration: &capability.Arbitration{ComposePriority: priority}, Availability: capability.Availability{State: state},
		}
	}
	s := built(t, catalog.Settings{}, module("zed", member("a", 5, ""), member("b", 0, "")), module("alpha", member("b", 0, ""), member("a", 0, ""), member("c", 9, capability.StateUnavailable)))
	var got []string
	for _, e := range s.Compose("capability.context-augmenter") {
		got = append(got, e.Runtime)
	}
	if d := cmp.Diff([]string{"zed/a", "alpha/a", "alpha/b", "zed/b"}, got); d != "" {
		t.Error(d)
	}
}
