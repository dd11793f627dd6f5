package compile_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

func catalogOf(t testing.TB, settings catalog.Settings, modules ...capability.Module) (*catalog.Catalog, *compile.Compiler) {
	t.Helper()
	c, err := catalog.New(settings, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		replace(t, c, m)
	}
	return c, compile.New(c)
}

func replace(t testing.TB, c *catalog.Catalog, m capability.Module) {
	t.Helper()
	if _, _, err := c.Replace(capability.Batch{Source: m.Extension, Modules: []capability.Module{m}}); err != nil {
		t.Fatal(err)
	}
}

func module(ext string, list ...capability.Contribution) capability.Module {
	return capability.Module{Extension: ext, ID: ext, Contributions: list}
}

func toolOf(id, name string) capability.Contribution {
	return capability.Contribution{ID: id, Kind: "capability.agent-tool", Tool: name, Effect: capability.EffectRead}
}

func chat(action, kind, account string) capability.Contribution {
	return capability.Contribution{
		ID: "adapter", Kind: "adapter.runtime", Action: capability.Action(action),
		Provider: capability.NewProviderKey("messaging", kind, account),
	}
}

func listed(a *compile.Agent) string {
	var out []string
	for x := range a.Actions() {
		line := x.Name
		if x.RequiresSelection {
			line += "!"
		}
		out = append(out, line)
	}
	return strings.Join(out, " ")
}

// TestWhatAContextIsShown: one catalog, many contexts.
func TestWhatAContextIsShown(t *testing.T) {
	t.Parallel()
	down := toolOf("down", "down")
	down.Availability.State = capability.StateUnavailable
	dm := toolOf("dm", "dm_only")
	dm.Scope = &capability.Scope{ConversationKind: []string{"dm"}}
	lost := chat("message.poll", "discord", "work")
	lost.Unsupported = true
	settings := catalog.Settings{
		Policy: []rules.Rule{
			{Effect: "deny", Match: []string{"tag:secret"}},
			{Layer: "agent", Agent: "strict", Effect: "allow", Match: []string{"message.*"}},
			{Layer: "session", Session: "s9", Effect: "deny", Match: []string{"ext.*"}},
			{Layer: "session", Session: "s8", Effect: "allow", Match: []string{"ext:tools"}},
			{Layer: "account", Account: "slack:work", Effect: "deny", Match: []string{"ext:tools"}},
		},
		Naming: catalog.NamingSetting{ExposeAliases: []string{"wipe"}},
	}
	secret := toolOf("secret", "secret")
	secret.Tags = []string{"secret"}
	alias := toolOf("clean", "clean")
	alias.Aliases = []string{"wipe", "sweep"}
	_, comp := catalogOf(
		t, settings, module("tools", toolOf("a", "a"), down, dm, secret, alias),
		module("slack", chat("message.send", "slack", "work"), chat("message.reply", "slack", "work")),
		module("discord", chat("message.send", "discord", "work"), chat("message.reply", "discord", "work"), lost),
	)
	slack := &capability.Route{Kind: "slack", Account: "work", Conversation: "C1", ConversationKind: "thread"}
	for _, tt := range []struct {
		name string
		ctx  capability.Context
		want string
	}{
		{"local", capability.Context{}, "a clean message.send! wipe"},
		{"an agent that may only send", capability.Context{Agent: "strict"}, "message.send!"},
		{"a thread, whose account hides the tools", capability.Context{Route: slack}, "message.reply message.send"},
		{
			"a dm elsewhere",
			capability.Context{Route: &capability.Route{Kind: "discord", Account: "work", ConversationKind: "dm"}},
			"a clean dm_only message.reply message.send wipe",
		},
		{"another account", capability.Context{Route: &capability.Route{Kind: "discord", Account: "home"}}, "a clean message.send! wipe"},
		{"an adapter without a conversation", capability.Context{Adapter: &capability.Adapter{Kind: "discord"}}, "a clean message.send wipe"},
		{"a session that may not use tools", capability.Context{Session: "s9"}, "message.send!"},
		{"a session that may use nothing else", capability.Context{Session: "s8"}, "a clean wipe"},
		{"a block", capability.Context{Blocks: []capability.Block{{Actions: []string{"message.*", "ext.tools.a"}}}}, "clean wipe"},
		{
			"a binding",
			capability.Context{Bindings: []capability.Binding{{Actions: "message.*", Provider: "messaging:slack:work"}}},
			"a clean message.send wipe",
		},
		{
			"a binding to nobody",
			capability.Context{Bindings: []capability.Binding{{Actions: "*", Provider: "x:y:z"}}},
			"a! clean! message.send! wipe!",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := comp.Compile(&tt.ctx)
			if got := listed(a); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if again := comp.Compile(&tt.ctx); again != a {
				t.Errorf("compiled twice; got again = %v; want again = %v", again, a)
			}
		})
	}
	a := comp.Compile(&capability.Context{})
	if x, ok := a.Action("wipe"); !ok || !x.Alias || x.Canonical != "ext.tools.clean" {
		t.Errorf(`%+v; want ok = true, x.Alias = true, x.Canonical = "ext.tools.clean"`, x)
	}
	if x, ok := a.Action("clean"); !ok || x.Alias {
		t.Errorf("%+v; want ok = true, x.Alias = false", x)
	}
	if _, ok := a.Action("sweep"); ok {
		t.Error("an alias is listed that nobody exposed")
	}
}

// TestContextsThatCannotDifferShareACatalog: a thousand threads of one account
// are compiled once.
func TestContextsThatCannotDifferShareACatalog(t *testing.T) {
	t.Parallel()
	c, comp := catalogOf(t, catalog.Settings{}, module("slack", chat("message.send", "slack", "work"), chat("message.send", "slack", "home")))
	ctx := func(n int) *capability.Context {
		return &capability.Context{
			Workspace: fmt.Sprint(n), Agent: fmt.Sprint(n), Session: fmt.Sprint(n),
			Route: &capability.Route{Kind: "slack", Account: "work", Conversation: fmt.Sprint(n)},
		}
	}
	first := comp.Compile(ctx(0))
	one, _ := first.Action("message.send")
	for n := range 100 {
		a := comp.Compile(ctx(n))
		if got, _ := a.Action("message.send"); got != one {
			t.Fatalf("compiled again; got got = %v; want got = %v", got, one)
		}
		// What is recorded of a choice names who asked, not who came first.
		if a.Frame.Context.Agent != fmt.Sprint(n) || a.Frame.Context.Route.Conversation != fmt.Sprint(n) {
			t.Fatalf("%d became %+v; want a.Frame.Context.Agent = fmt.Sprint(n), a.Frame.Context.Route.Conversation = fmt.Sprint(n)",
				n, a.Frame.Context)
		}
	}
	scoped := toolOf("x", "only")
	scoped.Scope = &capability.Scope{Conversation: []string{"7"}}
	replace(t, c, module("tools", scoped))
	if got := listed(comp.Compile(ctx(7))); got != "message.send only" {
		t.Errorf("listed(comp.Compile(ctx(7))) = %v, want %v", got, "message.send only")
	}
	if got := listed(comp.Compile(ctx(8))); got != "message.send" {
		t.Errorf("listed(comp.Compile(ctx(8))) = %v, want %v", got, "message.send")
	}
}

func TestOnlyContextsThatChangeGetAnotherEtag(t *testing.T) {
	t.Parallel()
	c, comp := catalogOf(
		t, catalog.Settings{CrossContext: "same-adapter"}, module("slack", chat("message.send", "slack", "work")),
		module("telegram", chat("message.send", "telegram", "home")),
	)
	in := func(kind, account string) string {
		return comp.Compile(&capability.Context{Route: &capability.Route{Kind: kind, Account: account, Conversation: "x"}}).Etag()
	}
	slack, telegram := in("slack", "work"), in("telegram", "home")
	replace(t, c, module("slack", chat("message.send", "slack", "work"), chat("message.send", "slack", "second")))
	if in("slack", "work") == slack || in("telegram", "home") != telegram {
		t.Errorf(`the wrong contexts changed; want in("slack", "work") other than %v, in("telegram", "home") = %v`, slack, telegram)
	}
	replace(t, c, module("slack", chat("message.send", "slack", "work")))
	if in("slack", "work") != slack {
		t.Errorf(`what is as it was has another etag; want in("slack", "work") = %v`, slack)
	}
}

// TestASchemaOfNullsIsNoTrap: a source may declare null where an object belongs.
func TestASchemaOfNullsIsNoTrap(t *testing.T) {
	t.Parallel()
	con := func(account string) capability.Contribution {
		return capability.Contribution{
			ID: account, Kind: "capability.agent-tool", Action: "acme.go", Provider: capability.NewProviderKey("acme", "x", account),
			InputSchema: json.RawMessage(`{"properties":null,"required":null}`),
		}
	}
	_, comp := catalogOf(t, catalog.Settings{}, module("a", con("one"), con("two")))
	x, _ := comp.Compile(&capability.Context{}).Action("acme.go")
	doc, err := x.InputSchema()
	if err != nil || !strings.Contains(string(doc), `"required":["selector"]`) {
		t.Errorf(`%s %v; want no error, string(doc) with "\"required\":[\"selector\"]"`, doc, err)
	}
}

func TestSelectorSchema(t *testing.T) {
	t.Parallel()
	_, comp := catalogOf(t, catalog.Settings{}, module("slack", chat("message.send", "slack", "work"), chat("message.edit", "slack", "work")),
		module("discord", chat("message.send", "discord", "work")))
	selector := func(name string) (string, bool) {
		x, _ := comp.Compile(&capability.Context{}).Action(name)
		doc, err := x.InputSchema()
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Required   []string
			Properties struct {
				Selector *struct {
					Properties map[string]struct{ Enum []string }
				}
			}
		}
		if err := json.Unmarshal(doc, &s); err != nil {
			t.Fatal(err)
		}
		if s.Properties.Selector == nil {
			return "", false
		}
		return strings.Join(s.Properties.Selector.Properties["channel"].Enum, ","), strings.Contains(strings.Join(s.Required, ","), "selector")
	}
	if enum, required := selector("message.send"); enum != "discord,slack" || !required {
		t.Errorf(`selector("message.send") = %v, required = %v, want enum == "discord,slack" && required`, enum, required)
	}
	if enum, required := selector("message.edit"); enum != "" || required {
		t.Errorf(`provider noise where there is one provider %v %v; want enum = "", required = false`, enum, required)
	}
	var many []capability.Contribution
	for i := range 51 {
		many = append(many, chat("message.send", fmt.Sprint("chat", i), fmt.Sprint("x", i)))
	}
	_, comp = catalogOf(t, catalog.Settings{}, module("many", many...))
	if enum, required := selector("message.send"); enum != "" || !required {
		t.Errorf(`too many values are listed %v %v; want enum = "", required = true`, enum, required)
	}
}

// TestReadersSeeWholeSnapshots compiles and chooses in eight readers during a thousand
// changes. Run it with -race.
func TestReadersSeeWholeSnapshots(t *testing.T) {
	t.Parallel()
	c, comp := catalogOf(t, settings())
	done := make(chan struct{})
	var readers sync.WaitGroup
	for n := range 8 {
		readers.Go(func() {
			var last uint64
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				list := contexts()
				ctx := list[(i+n)%len(list)]
				if i%3 == 0 {
					ctx.Session = fmt.Sprint(n, i)
					ctx.Bindings = append(ctx.Bindings, capability.Binding{
						Actions:  "message.*",
						Provider: capability.ProviderKey(fmt.Sprint("messaging:slack:", i)),
					})
				}
				a := comp.Compile(&ctx)
				s := a.Snapshot()
				if s.Generation < last {
					t.Errorf("generation %d after %d; want s.Generation at least %v", s.Generation, last, last)
				}
				last = s.Generation
				whole(t, a)
			}
		})
	}
	r := random{rand.New(rand.NewPCG(1, 2))}
	for i := range 1000 {
		source := fmt.Sprintf("s%d", r.IntN(8))
		b := capability.Batch{Source: source}
		if r.IntN(5) > 0 {
			b.Modules = append(b.Modules, r.module("e"+source[1:]))
		}
		if _, _, err := c.Replace(b); err != nil {
			t.Error(err)
		}
		if i%100 == 0 {
			set := settings()
			set.Exposure.MaxDirect = i
			if _, _, err := c.Configure(set); err != nil {
				t.Error(err)
			}
		}
	}
	close(done)
	readers.Wait()
}

// whole checks the invariants of the catalog that a reader sees.
func whole(t *testing.T, a *compile.Agent) {
	names := make(map[string]bool)
	ids := make(map[capability.ID]bool)
	for e := range a.Snapshot().Entries() {
		if ids[e.ID] {
			t.Errorf("%s is there twice", e.ID)
		}
		ids[e.ID] = true
	}
	for x := range a.Actions() {
		if names[x.Name] || len(x.Entries) == 0 {
			t.Errorf("%s is listed twice, or for nobody", x.Name)
		}
		names[x.Name] = true
		for _, e := range x.Entries {
			if !ids[e.ID] || e.Action != x.Canonical {
				t.Errorf("%s is not of this snapshot", e.ID)
			}
		}
		if x.Family.Slot != "" && a.Snapshot().Slot(x.Family.Slot, a.Frame.Context.Workspace, a.Frame.Context.Agent).Mode != "parallel" {
			for _, e := range x.Entries[1:] {
				if e.Runtime != x.Entries[0].Runtime {
					t.Errorf("%s has two holders; want e.Runtime = x.Entries[0].Runtime", x.Family.Slot)
				}
			}
		}
		sel, err := a.Select(arbitration.Request{Action: x.Canonical})
		if (err != nil) != x.RequiresSelection {
			t.Errorf("%s: a selector is required %v, but: %v; want (err != nil) = %v",
				x.Name, x.RequiresSelection, err, x.RequiresSelection)
		}
		if err == nil && x.Family.Address == "current" && sel.Step != 3 && sel.Step != 2 {
			t.Errorf(`%s is chosen in step %d; want not (err == nil && x.Family.Address == "current" && sel.Step != 3 && sel.Step != 2)`,
				x.Name, sel.Step)
		}
	}
}

func TestContestsAreOfTheContext(t *testing.T) {
	t.Parallel()
	settings := catalog.Settings{Policy: []rules.Rule{{Layer: "agent", Agent: "one", Effect: "deny", Match: []string{"ext:b"}}}}
	_, comp := catalogOf(t, settings, module("a", toolOf("t", "go")), module("b", toolOf("t", "go")))
	if got := listed(comp.Compile(&capability.Context{Agent: "one"})); got != "go" {
		t.Errorf(`listed(comp.Compile(&capability.Context{Agent: "one"})) = %v, want %v`, got, "go")
	}
	two := comp.Compile(&capability.Context{Agent: "two"})
	if d := cmp.Diff("a__go b__go", listed(two)); d != "" || len(two.Contests) != 1 {
		t.Errorf("listed(two) differs from want, two.Contests = %v (-want +got):\n%s", two.Contests, d)
	}
}

// TestAToolBoundToASlotGoesWithIt, also where a third party's claim takes the
// slot away.
func TestAToolBoundToASlotGoesWithIt(t *testing.T) {
	t.Parallel()
	store := capability.Contribution{
		ID: "store", Kind: "capability.memory", Action: "memory.search",
		Arbitration: &capability.Arbitration{Slot: "memory", SelectorID: "builtin"},
	}
	bound := toolOf("bound", "bound")
	bound.Arbitration = &capability.Arbitration{Slot: "memory"}
	c, comp := catalogOf(t, catalog.Settings{}, module("core", store, bound))
	if got := listed(comp.Compile(&capability.Context{})); got != "bound memory.search" {
		t.Errorf("listed(comp.Compile(&capability.Context{})) = %v, want %v", got, "bound memory.search")
	}
	replace(t, c, module("rival", store))
	if got := listed(comp.Compile(&capability.Context{})); got != "" {
		t.Errorf("listed(comp.Compile(&capability.Context{})) = %v, want %v", got, "")
	}
	replace(t, c, module("rival"))
	if got := listed(comp.Compile(&capability.Context{})); got != "bound memory.search" {
		t.Errorf("listed(comp.Compile(&capability.Context{})) = %v, want %v", got, "bound memory.search")
	}
}

// TestWireNamesComeBack: those that are shortened, those that differ only in bytes
// the dialect lacks, and no others.
func TestWireNamesComeBack(t *testing.T) {
	t.Parallel()
	family := func(action string) capability.Contribution {
		return capability.Contribution{
			ID: strings.ReplaceAll(action, ".", "-"), Kind: "capability.agent-tool",
			Action: capability.Action(action), Effect: capability.EffectRead,
		}
	}
	long := strings.Repeat("long", 15)
	_, comp := catalogOf(
		t, catalog.Settings{}, module("a", toolOf("x", "plain"), toolOf("y", long+"1"), toolOf("z", long+"2")),
		module("b", family("acme.goNow.x"), family("acme.go-now.x"), family("acme.go-now.y"), family("acme.gonow.x")),
	)
	a := comp.Compile(&capability.Context{})
	wires := make(map[string]string)
	for _, limit := range []int{0, 48, 64} {
		clear(wires)
		for x := range a.Actions() {
			wire := a.Wire(x, "strict64", limit)
			if other, taken := wires[wire]; taken {
				t.Errorf("%s and %s are both %s; want taken = false", x.Name, other, wire)
			}
			wires[wire] = x.Name
		}
	}
}
