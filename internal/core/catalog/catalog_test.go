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
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
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
			t.Fatalf("the order decides: %+v, %+v; want got.Etag = %v", got.Conflicts(true), first.Conflicts(true), first.Etag)
		}
	}
	return first
}

func tool(id, name string) capability.Contribution {
	return capability.Contribution{
		ID: id, Kind: "capability.agent-tool", Tool: name,
		Member: capability.Member{Module: "tools", Kind: "action", Name: id},
	}
}

func adapter(action, kind, account string) capability.Contribution {
	return capability.Contribution{
		ID: "adapter", Kind: "adapter.runtime", Action: capability.Action(action),
		Provider: capability.NewProviderKey("messaging", kind, account),
	}
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
			t.Errorf("%s is %s; want same = false", name, other)
		}
		seen[snap.Etag] = name
		if back := apply(t, c, module("a", tool("x", "go"))); back.Etag != first.Etag || back.Generation <= snap.Generation {
			t.Errorf("%s and back; want back.Etag = %v, back.Generation more than %v", name, first.Etag, snap.Generation)
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
			t.Errorf("%s: changed %v, %v; want no error, changed = false, change.After = %v, c.Snapshot() = %v",
				b.Source, changed, err, now, now)
		}
	}
	if gone := apply(t, c, module("a")); gone.Etag == now.Etag {
		t.Errorf("an empty module is not its tool; got gone.Etag = %v; want gone.Etag other than %v", gone.Etag, now.Etag)
	}
	if _, _, err := c.Replace(capability.Batch{Source: "a"}); err != nil || c.Snapshot().Etag != nothing {
		t.Errorf("a withdrawn source leaves traces %v; want no error, c.Snapshot().Etag = %v", err, nothing)
	}
	if _, _, err := c.Replace(capability.Batch{}); capability.CodeOf(err) != capability.CodeInternal {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInternal", err)
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
		t.Errorf("last = %v, want %v", last, 41)
	}
	grows := func(changed bool, err error) {
		t.Helper()
		if now := c.Snapshot().Generation; err != nil || !changed || now != last+1 {
			t.Errorf("%d after %d: %v; want no error, changed = true, now = last + 1", now, last, err)
		}
		last = c.Snapshot().Generation
	}
	for i := range 3 {
		change, changed, err := c.Replace(capability.Batch{Source: "a", Modules: []capability.Module{module("a", tool("x", fmt.Sprint(i)))}})
		grows(changed, err)
		if change.Before.Generation != last-1 || change.After != c.Snapshot() || len(change.Touched) != 1 {
			t.Errorf("%+v; want change.Before.Generation = last - 1, change.After = c.Snapshot(), len(change.Touched) = 1", change)
		}
	}
	_, changed, err := c.Configure(catalog.Settings{CrossContext: "same-adapter"})
	grows(changed, err)
	if touched, ok := c.Touched(last-2, last-1); !ok || len(touched) != 1 {
		t.Errorf("c.Touched(last-2, last-1) = %v, ok = %v, want ok && len(touched) == 1", touched, ok)
	}
	if _, ok := c.Touched(last-1, last); ok {
		t.Error("settings touch everything")
	}
	if _, ok := c.Touched(1, last); ok {
		t.Error("what is forgotten touches everything")
	}
	if touched, ok := c.Touched(last, last); !ok || len(touched) > 0 {
		t.Errorf("nothing touches nothing; got len(touched) = %v; want ok = true, len(touched) at most 0", len(touched))
	}
}

// TestTextsDoNotRunIntoEachOther: two contents that read alike when strung
// together are two contents, for etags and for what approvals bind to.
func TestTextsDoNotRunIntoEachOther(t *testing.T) {
	t.Parallel()
	var etags, hashes []string
	for _, texts := range [][3]string{{"x", "y\x00z", "p,q"}, {"x\x00y", "z", "p,q"}, {"x", "y\x00z", "p"}} {
		c := tool("x", "go")
		c.Title, c.Description, c.Permissions = texts[0], texts[1], []string{texts[2]}
		if texts[2] == "p" {
			c.Permissions = []string{"p", "q"}
		}
		s := built(t, catalog.Settings{}, module("a", c))
		etags, hashes = append(etags, s.Etag), append(hashes, s.Action("ext.a.x")[0].ContentHash())
	}
	if etags[0] == etags[1] || etags[0] == etags[2] || hashes[0] == hashes[2] {
		t.Errorf("etags = %v, hashes = %v, want etags[0] != etags[1] && etags[0] != etags[2] && hashes[0] != hashes[2]", etags, hashes)
	}
}

func TestExtensionIDsAreNeverTakenOver(t *testing.T) {
	t.Parallel()
	c := empty(t, catalog.Settings{})
	apply(t, c, module("tools", tool("x", "go")))
	for name, b := range map[string]capability.Batch{
		"held":          {Source: "two", Modules: []capability.Module{module("Tools", tool("y", "other"))}},
		"twice":         {Source: "two", Modules: []capability.Module{module("new"), module("NEW")}},
		"a slash":       {Source: "two", Modules: []capability.Module{module("to/ols")}},
		"nothing":       {Source: "two", Modules: []capability.Module{{}}},
		"contributions": {Source: "two", Modules: []capability.Module{module("other", tool("y", "a"), tool("y", "b"))}},
		"same instances": {Source: "two", Modules: []capability.Module{module("other", adapter("message.send", "a", "b"),
			adapter("message.send", "c", "b"))}},
	} {
		before := c.Snapshot()
		_, changed, err := c.Replace(b)
		if err == nil || changed || c.Snapshot() != before {
			t.Errorf("%s: %v, changed %v; want an error, changed = false, c.Snapshot() = %v", name, err, changed, before)
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
	s := built(t, catalog.Settings{}, m, other, module("task-agent",
		capability.Contribution{ID: "t", Kind: "capability.agent-tool", Action: "task-agent.task.create"}))
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
			t.Errorf(`%s: %s; want d = ""`, tt.target, d)
		}
	}
	if !s.Knows("messaging:slack:work") || s.Knows("messaging:slack") || s.Knows("messaging:slack:x") {
		t.Error("providers are known by their keys")
	}
	if mod, ok := s.Module("remote.tools"); !ok || mod.ID != "tools" {
		t.Errorf(`s.Module("remote.tools") = %v, want ok && mod.ID == "tools"`, mod)
	}
	if _, ok := s.Module("tools"); ok {
		t.Error("a module's own id is not an extension")
	}
	if n := len(slices.Collect(s.Modules())); n != 3 || s.Len() != 5 {
		t.Errorf("len(slices.Collect(s.Modules())) = %v, s.Len() = %v, want n == 3 && s.Len() == 5", n, s.Len())
	}
	got := make(map[capability.Action]int)
	for a, list := range s.Families([]capability.Action{"a.b", "message.send", "zzz"}, false) {
		got[a] = len(list)
	}
	if d := cmp.Diff(map[capability.Action]int{"a.b": 0, "message.send": 2, "zzz": 0}, got); d != "" {
		t.Errorf("result differs from want (-want +got):\n%s", d)
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
			t.Errorf("%s: %v; want len(list) = 1, list[0].Action = %v, list[0].Row not nil", name, list, id)
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
		{with(func(c *capability.Contribution) {
			c.Action, c.Provider = "messaging.x.y", capability.NewProviderKey("messaging", "slack", "work")
		}), "reserved_domain"},
		{with(func(c *capability.Contribution) {
			c.Action, c.Arbitration = "messaging.x", &capability.Arbitration{SelectorID: "slack"}
		}), "reserved_domain"},
		{with(func(c *capability.Contribution) { c.Provider = capability.NewProviderKey("messaging", "slack", "work") }), "reserved_domain"},
		{with(func(c *capability.Contribution) {
			c.Action, c.Provider = "acme.x", capability.NewProviderKey("directory", "slack", "work")
		}), "reserved_domain"},
		{with(func(c *capability.Contribution) {
			c.Action, c.Provider = "message.send", capability.NewProviderKey("messaging", "slack", "work")
		}), ""},
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
		{with(func(c *capability.Contribution) { c.ID = "a\x00b" }), "invalid_id"},
	} {
		s := built(t, catalog.Settings{}, module("a", tt.c, tool("other", "other")))
		if got := s.Rejected()["a/"+tt.c.ID]; got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.c, got, tt.want)
		}
		if n := s.Len(); (n == 2) != (tt.want == "" && tt.c.Kind == "capability.agent-tool") {
			t.Errorf(`%+v: %d entries; want (n == 2) = (tt.want == "" && tt.c.Kind == "capability.agent-tool")`, tt.c, n)
		}
	}
	// A contribution is rejected as a whole, not action by action.
	s := built(t, catalog.Settings{}, module("a", adapter("message.send", "slack", "work"), adapter("message.teleport", "slack", "work"),
		tool("t", "t")))
	if s.Len() != 1 || s.Rejected()["a/adapter"] == "" {
		t.Errorf(`s.Len() = %v, s.Rejected() = %v, want s.Len() == 1 && s.Rejected()["a/adapter"] != ""`, s.Len(), s.Rejected())
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
			t.Errorf(`%+v: %s; want d = ""`, tt, d)
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
			t.Errorf("%q became %s: %s; want e.Effect = %v, e.Description() other than %v",
				claimed, e.Effect, e.Description(), want, c.Description)
		}
		c.Action = ""
		if e := built(t, catalog.Settings{}, module("a", c)).Action("ext.a.x")[0]; claimed == "" && e.Effect != capability.EffectExternal ||
			e.Description() != c.Description {
			t.Errorf(`a tool of effect %q has %s; want not (claimed == "" && e.Effect != capability.EffectExternal), e.Description() = %v`,
				claimed, e.Effect, c.Description)
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
		{capability.Contribution{
			ID: "x", Kind: "capability.context-engine",
			Arbitration: &capability.Arbitration{Slot: "context-engine", SelectorID: "lossless"},
		}, "context-engine:lossless:default"},
		{capability.Contribution{ID: "x", Kind: "capability.agent-tool", Action: "acme.invoice.list"}, "acme:tools:default"},
	} {
		for e := range built(t, catalog.Settings{}, module("mcp.tools", tt.c)).Entries() {
			if e.Key() != tt.want {
				t.Errorf("%s, want %s", e.Key(), tt.want)
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
		"slot": slots("throne", catalog.SlotSetting{}), "slot mode": slots("memory", catalog.SlotSetting{Mode: "chaos"}),
		"parallel engine":    slots("context-engine", catalog.SlotSetting{Mode: "parallel"}),
		"override of nobody": slots("memory", catalog.SlotSetting{Overrides: []catalog.SlotOverride{{Selected: "x"}}}),
		"override's mode":    slots("memory", catalog.SlotSetting{Overrides: []catalog.SlotOverride{{Agent: "a", Mode: "x"}}}),
		"crossContext":       {CrossContext: "sometimes"}, "onCollision": {Naming: catalog.NamingSetting{OnCollision: "fight"}},
		"map without tool": {CanonicalMap: []catalog.Mapping{{Ext: "x", Action: "a.b"}}},
		"map to nonsense":  {CanonicalMap: []catalog.Mapping{{Ext: "x", Tool: "t", Action: "A"}}},
		"map to a tool":    {CanonicalMap: []catalog.Mapping{{Ext: "x", Tool: "t", Action: "ext.a.b"}}},
		"forced default":   {ForcedDefaults: []catalog.ForcedDefault{{Action: "x"}}}, "rule": {Policy: []rules.Rule{{Effect: "maybe"}}},
	} {
		if _, err := catalog.New(s, 0); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
		if _, changed, err := c.Configure(s); err == nil || changed || c.Snapshot() != before {
			t.Errorf("%s: %v; want an error, changed = false, c.Snapshot() = %v", name, err, before)
		}
	}
}

func TestComposedMembersAreOrdered(t *testing.T) {
	t.Parallel()
	member := func(id string, priority int, state capability.State) capability.Contribution {
		return capability.Contribution{
			ID: id, Kind: "capability.context-augmenter", Arbitration: &capability.Arbitration{ComposePriority: priority},
			Availability: capability.Availability{State: state},
		}
	}
	s := built(t, catalog.Settings{}, module("zed", member("a", 5, ""), member("b", 0, "")),
		module("alpha", member("b", 0, ""), member("a", 0, ""), member("c", 9, capability.StateUnavailable)))
	var got []string
	for _, e := range s.Compose("capability.context-augmenter") {
		got = append(got, e.Runtime)
	}
	if d := cmp.Diff([]string{"zed/a", "alpha/a", "alpha/b", "zed/b"}, got); d != "" {
		t.Errorf("result differs from want (-want +got):\n%s", d)
	}
}

func TestBatchesAppliedTogetherAreWhatTheyAreOneAfterTheOther(t *testing.T) {
	t.Parallel()
	of := func(source string, modules ...string) capability.Batch {
		b := capability.Batch{Source: source}
		for _, m := range modules {
			b.Modules = append(b.Modules, capability.Module{
				Extension: "remote." + m, ID: m, Origin: "endpoint",
				Contributions: []capability.Contribution{
					{
						ID: "tool", Kind: "capability.agent-tool", Action: "fn.same", Effect: capability.EffectRead,
						Provider: capability.NewProviderKey("fn", "node", source),
					},
				},
			})
		}
		return b
	}
	before := []capability.Batch{of("a", "a1", "a2"), of("b", "b1"), of("c", "c1")}
	after := []capability.Batch{of("a", "a2", "a3"), of("b"), of("d", "d1")}
	single, together := catalogtest.New(t), catalogtest.New(t)
	for _, b := range append(slices.Clone(before), after...) {
		if _, _, err := single.Replace(b); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := together.ReplaceAll(before); err != nil {
		t.Fatal(err)
	}
	change, changed, err := together.ReplaceAll(after)
	if err != nil || !changed || len(change.Old["a"].Modules) != 2 || len(change.Old["b"].Modules) != 1 {
		t.Fatalf(`change.Old = %v, changed = %v, err = %v, want err == nil && changed && len(change.Old["a"].Modules) == 2 && len(change.Old["b"].Modules) == 1`, change.Old, changed, err)
	}
	if a, b := single.Snapshot(), together.Snapshot(); a.Etag != b.Etag || a.Len() != 4 {
		t.Errorf("%s with %d entries, %s with %d; want a.Etag = %v, a.Len() = 4", a.Etag, a.Len(), b.Etag, b.Len(), b.Etag)
	}
	if n := together.Snapshot().Generation; n != 2 {
		t.Errorf("generation %d; want n = 2", n)
	}
	etag := together.Snapshot().Etag
	for name, list := range map[string][]capability.Batch{
		"an id of another source":        {of("e", "e1"), of("f", "c1")},
		"an id of another batch":         {of("e", "e1"), of("f", "e1")},
		"two batches of one source":      {of("e", "e1"), of("e", "e2")},
		"one without the name of anyone": {of("e", "e1"), of("", "f1")},
	} {
		if _, _, err := together.ReplaceAll(list); err == nil || together.Snapshot().Etag != etag {
			t.Errorf("%s: %v; want an error, together.Snapshot().Etag = %v", name, err, etag)
		}
	}
}
