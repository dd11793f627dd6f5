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
)

func tool(id, name string) capability.Contribution {
	return capability.Contribution{
		ID: id, Tool: name, Kind: "capability.agent-tool", Effect: capability.EffectRead, Provider: "ext:endpoint:cloud",
		Member: capability.Member{Kind: "action", Name: id},
	}
}

func module(ext string, tools ...capability.Contribution) capability.Module {
	m := capability.Module{Extension: "remote." + ext, ID: ext, Label: ext, Origin: "endpoint", Contributions: tools}
	for i := range m.Contributions {
		m.Contributions[i].Member.Module = ext
	}
	return m
}

func apply(t testing.TB, c *catalog.Catalog, source string, modules ...capability.Module) *catalog.Snapshot {
	t.Helper()
	snap, _, err := c.Apply(capability.Batch{Source: source, Modules: modules})
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func names(s *catalog.Snapshot) (out []string) {
	for _, e := range s.Entries {
		out = append(out, fmt.Sprintf("%s/%s %s %s", e.Module.ID, e.Contribution.ID, e.Tool, e.WireName))
	}
	return out
}

func TestNames(t *testing.T) {
	t.Parallel()
	long := "get_console_message_by_identifier_and_more_of_it"
	labelled := func(m capability.Module, label string) capability.Module { m.Label = label; return m }
	tests := []struct {
		name    string
		modules []capability.Module
		want    []string
	}{
		{"alone", []capability.Module{module("a", tool("x", "create.Branch"))}, []string{"a/x create.Branch create_Branch"}},
		{"without a declared name", []capability.Module{module("a", tool("x.y", ""))}, []string{"a/x.y x.y x_y"}},
		{"other bytes", []capability.Module{module("a", tool("x", "naïve tool"))}, []string{"a/x na__ve_tool na__ve_tool"}},
		{
			"level 1: labels, for all that fold alike",
			[]capability.Module{module("a", tool("x", "create-Branch")), module("b", tool("x", "create_branch")), module("c", tool("x", "create.branch"))},
			[]string{"a/x a__create-Branch a__create-Branch", "b/x b__create_branch b__create_branch", "c/x c__create.branch c__create_branch"},
		},
		{
			"level 2: extension ids, where labels are the same",
			[]capability.Module{labelled(module("a", tool("x", "go")), "L"), labelled(module("b", tool("x", "go")), "L")},
			[]string{"a/x remote_a__go remote_a__go", "b/x remote_b__go remote_b__go"},
		},
		{
			"level 3: contributions, within one module",
			[]capability.Module{module("a", tool("x", "go"), tool("y", "Go"))},
			[]string{"a/x remote_a_x__go remote_a_x__go", "a/y remote_a_y__Go remote_a_y__Go"},
		},
		{
			"level 4: a digest, where those fold alike",
			[]capability.Module{module("a", tool("x.1", "go"), tool("x_1", "go"))},
			[]string{"a/x.1 remote_a_x_1__go_a5744e39 remote_a_x_1__go_a5744e39", "a/x_1 remote_a_x_1__go_6fa078e7 remote_a_x_1__go_6fa078e7"},
		},
		{
			"a label is no way to somebody else's name",
			[]capability.Module{module("a", tool("x", "go")), module("b", tool("x", "go"), tool("y", "a__go"))},
			[]string{"a/x remote_a__go remote_a__go", "b/x remote_b__go remote_b__go", "b/y a__go a__go"},
		},
		{
			"canonical names are reserved in any spelling",
			[]capability.Module{module("a", tool("x", "FS_readText"))},
			[]string{"a/x a__FS_readText a__FS_readText"},
		},
		{
			"the wire name ends at 48 bytes",
			[]capability.Module{module("a", tool("x", long)), module("b", tool("y", long+"_x"))},
			[]string{"a/x " + long + " " + long, "b/y " + long + "_x get_console_message_by_identifier_and_m_e8787f67"},
		},
		{
			"canonical actions share one name",
			[]capability.Module{
				module("a", capability.Contribution{ID: "x", Kind: "capability.agent-tool", Action: "fs.list", Provider: "fs:endpoint:a"}),
				module("b", capability.Contribution{ID: "x", Kind: "capability.agent-tool", Action: "fs.list", Provider: "fs:endpoint:b"}),
			},
			[]string{"a/x fs.list fs_list", "b/x fs.list fs_list"},
		},
		{
			"what agents do not see has no name",
			[]capability.Module{module("a", capability.Contribution{ID: "x", Tool: "go", Kind: "capability.rpc", Provider: "ext:endpoint:a"}, tool("y", "go"))},
			[]string{"a/x  ", "a/y go go"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			snap := apply(t, catalog.New(), "s", tt.modules...)
			if d := cmp.Diff(tt.want, names(snap)); d != "" {
				t.Error(d)
			}
			for _, e := range snap.Entries {
				if e.WireName != "" && !slices.Contains(snap.Tool(e.WireName), e) {
					t.Errorf("%s does not lead back", e.WireName)
				}
			}
		})
	}
}

func TestTheCatalogDoesNotDependOnOrder(t *testing.T) {
	t.Parallel()
	build := func(shuffle bool) *catalog.Snapshot {
		var batches []capability.Batch
		for i := range 6 {
			m := module(fmt.Sprintf("m%d", i), tool("a", "go"), tool("b", "Go"), tool("b", "twice"), tool("c", fmt.Sprintf("own%d", i)),
				capability.Contribution{ID: "f", Kind: "capability.agent-tool", Action: "fs.list", Rank: i, Provider: capability.NewProviderKey("fs", "endpoint", fmt.Sprint(i))})
			extra := module(fmt.Sprintf("x%d", i), tool("go", ""))
			batches = append(batches, capability.Batch{Source: fmt.Sprint("s", i), Modules: []capability.Module{m, extra}})
		}
		if shuffle {
			rand.Shuffle(len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
			for _, b := range batches {
				rand.Shuffle(len(b.Modules), func(i, j int) { b.Modules[i], b.Modules[j] = b.Modules[j], b.Modules[i] })
				for _, m := range b.Modules {
					rand.Shuffle(len(m.Contributions), func(i, j int) {
						m.Contributions[i], m.Contributions[j] = m.Contributions[j], m.Contributions[i]
					})
				}
			}
		}
		c := catalog.New()
		var snap *catalog.Snapshot
		for _, b := range batches {
			snap = apply(t, c, b.Source, b.Modules...)
		}
		return snap
	}
	want := build(false)
	if len(want.Conflicts) != 6 || want.Conflicts[0].Class != "runtime_id" {
		t.Errorf("%+v", want.Conflicts)
	}
	for range 20 {
		got := build(true)
		if got.Etag != want.Etag {
			t.Error("another etag")
		}
		if d := cmp.Diff(names(want), names(got)); d != "" {
			t.Error(d)
		}
	}
}

func TestOnlyAChangeOfContentChangesTheEtag(t *testing.T) {
	t.Parallel()
	c := catalog.New()
	first := apply(t, c, "s", module("a", tool("x", "go")))
	for name, change := range map[string]func(*capability.Module){
		"availability": func(m *capability.Module) { m.Contributions[0].Availability.State = capability.StateUnavailable },
		"its reason":   func(m *capability.Module) { m.Contributions[0].Availability.Reason = "why" },
		"rank":         func(m *capability.Module) { m.Contributions[0].Rank = 1 << 40 },
		"effect":       func(m *capability.Module) { m.Contributions[0].Effect = capability.EffectWrite },
		"description":  func(m *capability.Module) { m.Contributions[0].Description = "d" },
		"schema":       func(m *capability.Module) { m.Contributions[0].InputSchema = json.RawMessage(`{}`) },
		"permissions":  func(m *capability.Module) { m.Contributions[0].Permissions = []string{"p"} },
		"tool":         func(m *capability.Module) { m.Contributions[0].Tool = "gone" },
		"version":      func(m *capability.Module) { m.Version = "2" },
		"digest":       func(m *capability.Module) { m.Digest = "sha256:1" },
	} {
		m := module("a", tool("x", "go"))
		change(&m)
		snap, changed, err := c.Apply(capability.Batch{Source: "s", Modules: []capability.Module{m}})
		if err != nil || !changed || snap.Etag == first.Etag {
			t.Errorf("%s: changed %v, %v", name, changed, err)
		}
		back, changed, err := c.Apply(capability.Batch{Source: "s", Modules: []capability.Module{module("a", tool("x", "go"))}})
		if err != nil || !changed || back.Etag != first.Etag || back.Generation <= first.Generation {
			t.Errorf("%s and back: changed %v, %v", name, changed, err)
		}
	}
	now := c.Snapshot()
	for _, b := range []capability.Batch{{Source: "s", Modules: []capability.Module{module("a", tool("x", "go"))}}, {Source: "never there"}} {
		snap, changed, err := c.Apply(b)
		if err != nil || changed || snap != now {
			t.Errorf("%s: changed %v, %v", b.Source, changed, err)
		}
	}
	if _, _, err := c.Apply(capability.Batch{}); capability.CodeOf(err) != capability.CodeInternal {
		t.Error(err)
	}
}

func TestExtensionIDsAreNeverTakenOver(t *testing.T) {
	t.Parallel()
	c := catalog.New()
	apply(t, c, "one", module("tools", tool("x", "go")))
	for _, b := range []capability.Batch{
		{Source: "two", Modules: []capability.Module{module("Tools", tool("y", "other"))}},
		{Source: "two", Modules: []capability.Module{module("new", tool("y", "other")), module("NEW", tool("z", "other"))}},
	} {
		before := c.Snapshot()
		_, changed, err := c.Apply(b)
		if capability.CodeOf(err) != capability.CodeConflict || changed || c.Snapshot() != before {
			t.Errorf("%v, changed %v", err, changed)
		}
	}
	apply(t, c, "one")
	apply(t, c, "two", module("Tools", tool("y", "other")))
}

func TestMembersAreFoundByModuleAndByExtension(t *testing.T) {
	t.Parallel()
	snap := apply(t, catalog.New(), "s", module("tools", tool("x", "go")))
	want := snap.Entries[0]
	for _, target := range []capability.Target{
		{Member: capability.Member{Module: "tools", Kind: "action", Name: "x"}},
		{Member: capability.Member{Module: "remote.tools", Kind: "action", Name: "x"}},
		{Capability: "remote.tools/x#ext.remote.tools.x@cloud"},
		{Action: "ext.remote.tools.x"},
	} {
		if got := snap.Resolve(target); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v", target, got)
		}
	}
	for _, target := range []capability.Target{
		{}, {Member: capability.Member{Module: "tools", Kind: "event", Name: "x"}}, {Capability: "x"}, {Action: "fs.list"},
	} {
		if got := snap.Resolve(target); len(got) != 0 {
			t.Errorf("%s: %v", target, got)
		}
	}
}

func TestAudiencesHaveACeilingPerKind(t *testing.T) {
	t.Parallel()
	const agent, operator, internal = "agent", "operator", "internal"
	for kind, want := range map[string][]string{
		"capability.agent-tool": {agent, operator, internal}, "adapter.runtime": {agent, operator, internal}, "capability.memory": {agent, operator, internal},
		"capability.control-command": {operator, internal}, "capability.provider-integration": {operator, internal}, "surface.setup": {operator, internal},
		"surface.http-route": {operator, internal}, "capability.rpc": {internal}, "anything": {internal},
	} {
		c := tool("x", "go")
		c.Kind = kind
		e := apply(t, catalog.New(), "s", module("a", c)).Entries[0]
		var got []string
		for _, a := range []capability.Audience{capability.AudienceAgent, capability.AudienceOperator, capability.AudienceInternal, "", "root"} {
			if e.VisibleTo(a) {
				got = append(got, string(a))
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", kind, d)
		}
	}
	for action, visible := range map[capability.Action]bool{"provider.configure": false, "model.invoke": false, "fs.list": true} {
		c := tool("x", "")
		c.Action = action
		if e := apply(t, catalog.New(), "s", module("a", c)).Entries[0]; e.VisibleTo(capability.AudienceAgent) != visible {
			t.Errorf("%s visible to agents: %v", action, !visible)
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
		e := apply(t, catalog.New(), "s", module("a", c)).Entries[0]
		if e.Effect != want || e.Description() == c.Description {
			t.Errorf("%q became %s: %s", claimed, e.Effect, e.Description())
		}
	}
}

func TestSchemaFaultsTellAModelWhatToChange(t *testing.T) {
	t.Parallel()
	c := tool("x", "go")
	c.InputSchema = json.RawMessage(`{"type":"object","required":["path"],"additionalProperties":false,"properties":{
		"path":{"type":"string","minLength":2,"maxLength":4,"pattern":"^[a-z]+$"},"limit":{"type":"integer","minimum":1,"maximum":10},
		"share":{"exclusiveMinimum":0,"exclusiveMaximum":0.5,"multipleOf":0.25},"mode":{"enum":["fast",2,null]},"kind":{"const":"x"},
		"list":{"type":"array","minItems":1,"maxItems":2,"uniqueItems":true,"items":{"type":"object","required":["id"]}},"never":false,"any":{"minProperties":1}}}`)
	schema, err := apply(t, catalog.New(), "s", module("a", c)).Entries[0].Schema()
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]string{
		`{"path":"abc"}`:            "",
		`{"path":"abc","limit":10}`: "",
		`{}`:                        "input: missing path",
		`[]`:                        "input: is array where object is needed",
		`{"path":"abc","pth":1}`:    "input: unknown field pth",
		`{"path":1}`:                "path: is number where string is needed",
		`{"path":"a"}`:              "path: must have at least 2 characters",
		`{"path":"abcde"}`:          "path: must have at most 4 characters",
		`{"path":"AB"}`:             "path: must match ^[a-z]+$",
		`{"path":"abc","limit":0}`:  "limit: must be at least 1",
		`{"path":"abc","limit":99999999999999999999}`: "limit: must be at most 10",
		`{"path":"abc","share":0}`:                    "share: must be more than 0",
		`{"path":"abc","share":0.5}`:                  "share: must be less than 0.5",
		`{"path":"abc","share":0.3}`:                  "share: must be a multiple of 0.25",
		`{"path":"abc","mode":"slow"}`:                `mode: must be one of "fast", 2, null`,
		`{"path":"abc","kind":"y"}`:                   `kind: must be "x"`,
		`{"path":"abc","list":[]}`:                    "list: must have at least 1 items",
		`{"path":"abc","list":[{"id":1},{"id":1}]}`:   "list: must not repeat an item",
		`{"path":"abc","list":[{"id":1},{}]}`:         "list.1: missing id",
		`{"path":"abc","any":{}}`:                     "any: must have at least 1 members",
		`{"path":"abc","never":1}`:                    "never: is not allowed",
		`{"path":`:                                    "not one JSON value",
	} {
		err := schema.Check([]byte(input))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", input, err)
			}
			continue
		}
		if capability.CodeOf(err) != capability.CodeInvalidInput || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", input, err, want)
		}
	}
	for doc, want := range map[string]string{`{"type":`: "not JSON", `{"type":7}`: "not a valid", `{"$ref":"https://example.org/x"}`: "not a valid", `{"x":"` + strings.Repeat("x", 256<<10) + `"}`: "larger"} {
		c.InputSchema = json.RawMessage(doc)
		e := apply(t, catalog.New(), "s", module("a", c)).Entries[0]
		for range 2 {
			if _, err := e.Schema(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.20s: %v", doc, err)
			}
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("create.Branch", "create_branch", "label")
	f.Add("\xff", "日本", "")
	f.Add(strings.Repeat("x", 60), strings.Repeat("x", 61), "a.b")
	f.Fuzz(func(t *testing.T, one, two, label string) {
		a, b := module("a", tool("x", one)), module("b", tool("x", two), tool("y", one+two))
		a.Label, b.Label = label, label
		snap := apply(t, catalog.New(), "s", a, b)
		seen := make(map[string]bool)
		for _, e := range snap.Entries {
			if e.WireName == "" || len(e.WireName) > 48 || strings.Trim(e.WireName, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
				t.Errorf("%q became %q", e.Contribution.Tool, e.WireName)
			}
			if seen[e.WireName] || len(snap.Tool(e.WireName)) != 1 {
				t.Errorf("%q twice", e.WireName)
			}
			seen[e.WireName] = true
		}
	})
}
