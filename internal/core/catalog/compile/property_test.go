package compile_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// random makes contributions of every sort that the catalog as a whole must rule
// on.
type random struct{ *rand.Rand }

func (r random) of(words ...string) string { return words[r.IntN(len(words))] }

func (r random) state() capability.Availability {
	return capability.Availability{State: capability.State(r.of("", "", "ready", "degraded", "unavailable", "unconfigured"))}
}

func (r random) module(ext string) capability.Module {
	m := capability.Module{
		Extension: ext, ID: ext, Label: r.of("", "a", "b", ext), Origin: "config",
		Stage: r.of("", "", "", "", "disabled", "approved"),
	}
	for i := range 1 + r.IntN(6) {
		c := capability.Contribution{ID: fmt.Sprintf("c%d", i), Kind: "capability.agent-tool", Availability: r.state(), Rank: r.IntN(3)}
		switch r.IntN(13) {
		case 0, 1, 2:
			c.Tool = r.of("query", "Query", "create_branch", "a__query", "b__query", "go", "message_send", "acme-go")
			c.Exact = r.IntN(8) == 0
			c.Effect = capability.Effect(r.of("", "read", "write"))
			if r.IntN(3) == 0 {
				c.Aliases = []string{r.of("q", "go")}
			}
		case 3, 4:
			c.Kind = "adapter.runtime"
			c.Action = capability.Action(r.of("message.send", "message.reply", "message.poll", "directory.lookup"))
			domain := "messaging"
			if c.Action == "directory.lookup" {
				domain = "directory"
			}
			c.Provider = capability.NewProviderKey(domain, r.of("slack", "discord"), r.of("work", "home"))
			c.Unsupported = r.IntN(6) == 0
		case 5:
			c.Kind, c.Action = "capability.memory", capability.Action(r.of("memory.search", "memory.store"))
			c.Arbitration = &capability.Arbitration{Slot: "memory", SelectorID: r.of("builtin", "lancedb", "other")}
		case 6:
			c.Kind = "capability.runtime-backend"
			c.Backend = &capability.Backend{Class: "acp", ID: r.of("x", "y", "z"), Exclusive: r.IntN(2) == 0, Selectors: []string{r.of("s", "t")}}
		case 7:
			c.Action = capability.Action(r.of("acme.invoice.create", "acme.invoice.list", "acme.go"))
			c.Provider = capability.NewProviderKey("acme", r.of("one", "two"), "default")
		case 8:
			c.Tool = "look"
			c.Scope = &capability.Scope{Agent: []string{r.of("main", "other")}, ConversationKind: []string{r.of("dm", "*")}}
		case 9:
			c.Depends = &capability.Depends{Requires: []string{r.of("e0/c0", "e1/c0", "e2/c1")}, Supersedes: []string{r.of("e3/c0", "e4/c1")}}
		case 10:
			c.Kind = r.of("capability.context-augmenter", "capability.event-handler", "capability.rpc")
		case 11:
			c.Action = capability.Action("fn." + r.of("photo", "locate"))
			c.Provider = capability.NewProviderKey("fn", "node", ext)
			c.InputSchema = json.RawMessage(r.of(`{"type":"object"}`, `{"type":"object"}`, `{"type":"array"}`))
		case 12: // bound to the slot without claiming it
			c.Tool, c.Arbitration = "bound", &capability.Arbitration{Slot: "memory"}
		}
		m.Contributions = append(m.Contributions, c)
	}
	return m
}

func settings() catalog.Settings {
	return catalog.Settings{
		Policy: []rules.Rule{
			{Effect: "deny", Match: []string{"ext:e5"}},
			{Effect: "deny", Layer: "agent", Agent: "other", Match: []string{"tag:x", "message.poll"}},
			{Effect: "deny", Layer: "session", Session: "s9", Match: []string{"acme.*"}},
		},
		Ranks:  map[capability.ProviderKey]int{"messaging:slack:work": 2},
		Owners: map[string]string{"messaging:discord:home": "e1/c1"},
		Naming: catalog.NamingSetting{Pins: map[string]string{"go": "e2/c0"}, ExposeAliases: []string{"q"}},
		CanonicalMap: []catalog.Mapping{
			{Ext: "e*", Tool: "Query", Action: "ops.query"},
		},
		Slots: map[string]catalog.SlotSetting{"memory": {
			Selected:  "builtin",
			Overrides: []catalog.SlotOverride{{Agent: "other", Selected: "lancedb", Mode: "parallel"}},
		}},
	}
}

func contexts() []capability.Context {
	slack := &capability.Route{Kind: "slack", Account: "work", Conversation: "C1", ConversationKind: "dm"}
	return []capability.Context{
		{},
		{Workspace: "w1", Agent: "main"},
		{Workspace: "w1", Agent: "other", Session: "s9"},
		{Workspace: "w1", Agent: "main", Route: slack},
		{Workspace: "w1", Agent: "other", Route: slack, Bindings: []capability.Binding{{
			Actions:  "message.*",
			Provider: "messaging:discord:home",
		}}},
		{Adapter: &capability.Adapter{Kind: "one"}, Blocks: []capability.Block{{Actions: []string{"acme.*", "ext.e3.*"}}}},
	}
}

// published is everything of a compiled catalog that can be seen.
func published(t testing.TB, a *compile.Agent) []string {
	t.Helper()
	var out []string
	wires := make(map[string]string)
	for x := range a.Actions() {
		schema, err := x.InputSchema()
		if err != nil {
			t.Fatal(err)
		}
		sums := ""
		for _, e := range x.Entries {
			sum := e.Sum()
			sums += fmt.Sprintf("%x", sum[:4])
		}
		wire := a.Wire(x, "strict64", 48)
		if other, taken := wires[wire]; taken {
			t.Errorf("%s and %s are both %s on the wire; want taken = false", x.Name, other, wire)
		}
		wires[wire] = x.Name
		out = append(out, fmt.Sprintf("%s=%s %v %v %s %s %s", x.Name, x.Canonical, x.Providers(), x.RequiresSelection, wire, schema, sums))
	}
	return out
}

// TestHistoryCannotBeSeen checks that a thousand random changes applied one by one give the
// same snapshot, names, catalogs and etags as one build from what is left, in any
// order; and etags are equal exactly when the bytes are.
func TestHistoryCannotBeSeen(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := random{rand.New(rand.NewPCG(seed, 7))}
			c, err := catalog.New(settings(), 0)
			if err != nil {
				t.Fatal(err)
			}
			comp := compile.New(c)
			held := make(map[string]capability.Batch)
			byEtag := make(map[string]string)
			byText := make(map[string]string)
			for round := range 250 {
				source := fmt.Sprintf("s%d", r.IntN(8))
				b := capability.Batch{Source: source}
				if r.IntN(5) > 0 {
					b.Modules = append(b.Modules, r.module("e"+source[1:]))
				}
				held[source] = b
				if _, _, err := c.Replace(b); err != nil {
					t.Fatal(err)
				}
				if r.IntN(3) == 0 {
					continue // views must catch up over several changes
				}
				fresh, err := catalog.New(settings(), 0)
				if err != nil {
					t.Fatal(err)
				}
				for source := range held { // in the order of a map
					if _, _, err := fresh.Replace(held[source]); err != nil {
						t.Fatal(err)
					}
				}
				if got, want := c.Snapshot(), fresh.Snapshot(); got.Etag != want.Etag {
					t.Fatalf("round %d: etag %s, want %s: %s", round, got.Etag, want.Etag, cmp.Diff(ids(want), ids(got)))
				}
				again := compile.New(fresh)
				for i, ctx := range contexts() {
					got, want := comp.Compile(&ctx), again.Compile(&ctx)
					one, other := published(t, got), published(t, want)
					if d := cmp.Diff(other, one); d != "" {
						t.Fatalf(`round %d, context %d: %s; want d = ""`, round, i, d)
					}
					if d := cmp.Diff(want.Contests, got.Contests); d != "" && len(want.Contests)+len(got.Contests) > 0 {
						t.Fatalf(`round %d, context %d: %s; want not (d != "" && len(want.Contests)+len(got.Contests) > 0)`,
							round, i, d)
					}
					if got.Etag() != want.Etag() {
						t.Fatalf("round %d, context %d: one content, two etags; want got.Etag() = want.Etag()", round, i)
					}
					text := fmt.Sprint(one)
					if was, ok := byEtag[got.Etag()]; ok && was != text {
						t.Fatalf("one etag, two contents:\n%s\n%s\nwant not (ok && was != text)", was, text)
					}
					if was, ok := byText[text]; ok && was != got.Etag() {
						t.Fatalf("one content, two etags: %s; want not (ok && was != got.Etag())", text)
					}
					byEtag[got.Etag()], byText[text] = text, got.Etag()
					explained(t, got)
				}
			}
		})
	}
}

func ids(s *catalog.Snapshot) (out []string) {
	for e := range s.Entries() {
		out = append(out, string(e.ID)+" "+s.Withheld(e))
	}
	return append(out, fmt.Sprintf("%+v", s.Conflicts(false)))
}

// explained holds the invariant of explanations: every entry of an action appears
// exactly once.
func explained(t *testing.T, a *compile.Agent) {
	t.Helper()
	seen := make(map[capability.Action]bool)
	for e := range a.Snapshot().Entries() {
		if seen[e.Action] {
			continue
		}
		seen[e.Action] = true
		for _, caller := range []arbitration.Caller{arbitration.Planner, arbitration.Runtime} {
			sel, err := a.Select(arbitration.Request{Action: e.Action, Caller: caller})
			count := make(map[*catalog.Entry]int)
			if sel.Entry != nil {
				count[sel.Entry]++
			}
			for _, r := range sel.Rejected {
				count[r.Entry]++
			}
			for _, x := range sel.Composed {
				count[x]++
			}
			for _, x := range a.Snapshot().Action(e.Action) {
				if count[x] != 1 {
					t.Fatalf("%s (%s): %s appears %d times: %v; want count[x] = 1", e.Action, caller, x.ID, count[x], err)
				}
			}
			again, err2 := a.Frame.Select(sel.Request)
			if (err == nil) != (err2 == nil) || again.Entry != sel.Entry || again.Step != sel.Step {
				t.Fatalf("%s does not replay; want (err == nil) = (err2 == nil), again.Entry = %v, again.Step = %v",
					e.Action, sel.Entry, sel.Step)
			}
		}
	}
}
