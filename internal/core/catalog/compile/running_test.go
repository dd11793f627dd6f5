package compile_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// TestNothingIsPublishedBeforeItsGates checks that an approved entry is not yet
// activated, and that an entry that needs an account waits for the account. Each gate
// is one generation.
func TestNothingIsPublishedBeforeItsGates(t *testing.T) {
	t.Parallel()
	adapter := func(stage string, state capability.State) capability.Module {
		one := chat("message.send", "slack", "work")
		one.Availability.State = state
		m := module("slack", one)
		m.Stage = stage
		return m
	}
	c, comp := catalogOf(t, catalog.Settings{})
	ctx := &capability.Context{Route: &capability.Route{Kind: "slack", Account: "work", Conversation: "C1"}}
	last := c.Snapshot().Generation
	for _, step := range []struct {
		module capability.Module
		inside int
		want   string
	}{
		{adapter(capability.StageApproved, capability.StateReady), 0, ""},
		{adapter(capability.StageActivated, capability.StateUnconfigured), 1, ""}, // no account is bound
		{adapter(capability.StageActivated, capability.StateReady), 1, "message.send"},
	} {
		replace(t, c, step.module)
		snap := c.Snapshot()
		if snap.Generation != last+1 || snap.Len() != step.inside || listed(comp.Compile(ctx)) != step.want {
			t.Errorf("%s: generation %d, %d entries, %q; want snap.Generation = last + 1, snap.Len() = %v, listed(comp.Compile(ctx)) = %v",
				step.module.Stage, snap.Generation, snap.Len(), listed(comp.Compile(ctx)), step.inside, step.want)
		}
		last = snap.Generation
	}
}

// TestAnotherOrderOfOneListChangesNothing checks that the order in which an upstream
// lists its tools has no effect.
func TestAnotherOrderOfOneListChangesNothing(t *testing.T) {
	t.Parallel()
	list := []capability.Contribution{toolOf("a", "alpha"), toolOf("b", "beta"), toolOf("c", "gamma")}
	c, comp := catalogOf(t, catalog.Settings{}, module("mcp.x", list...))
	before, snap := comp.Compile(&capability.Context{}), c.Snapshot()
	slices.Reverse(list)
	_, changed, err := c.Replace(capability.Batch{Source: "mcp.x", Modules: []capability.Module{module("mcp.x", list...)}})
	if err != nil || changed || c.Snapshot() != snap || comp.Compile(&capability.Context{}).Etag() != before.Etag() {
		t.Errorf("changed %v: %v; want no error, changed = false, c.Snapshot() = %v, comp.Compile(&capability.Context{}).Etag() "+
			"= before.Etag()", changed, err, snap)
	}
}

// TestANodeThatGoesAndAFamilyThatTurnsOff checks that an unavailable provider leaves the
// selector at once, and its entry when its lease ends, that no other name changes, and
// that a call that names the provider meanwhile fails as unavailable.
func TestANodeThatGoesAndAFamilyThatTurnsOff(t *testing.T) {
	t.Parallel()
	node := func(id string, state capability.State) capability.Module {
		photo := capability.Contribution{
			ID: "photo", Kind: "capability.agent-tool", Action: "fn.camera.photo", Effect: capability.EffectRead,
			Provider: capability.NewProviderKey("fn", "node", id), InputSchema: json.RawMessage(`{"type":"object"}`),
			Availability: capability.Availability{State: state},
		}
		return module("node."+id, photo)
	}
	c, comp := catalogOf(t, catalog.Settings{}, node("alice", ""), node("bob", ""), module("mcp.x", toolOf("a", "alpha")))
	schema := func() string {
		a, ok := comp.Compile(&capability.Context{}).Action("camera.photo")
		if !ok {
			return "not listed"
		}
		doc, err := a.InputSchema()
		if err != nil {
			t.Fatal(err)
		}
		return string(doc)
	}
	names := func() (out []string) {
		for a := range comp.Compile(&capability.Context{}).Actions() {
			out = append(out, a.Name)
		}
		return out
	}
	all := names()
	if got := schema(); !strings.Contains(got, `["alice","bob"]`) {
		t.Errorf(`both: %s; want got with "[\"alice\",\"bob\"]"`, got)
	}
	replace(t, c, node("alice", capability.StateUnavailable)) // it missed its heartbeat
	if got := schema(); strings.Contains(got, "alice") || !slices.Equal(names(), all) {
		t.Errorf(`one is silent: %s, names %v; want got without "alice", names() = %v`, got, names(), all)
	}
	sel, err := comp.Compile(&capability.Context{}).Select(arbitration.Request{
		Action:   "fn.camera.photo",
		Selector: capability.Selector{"node": "alice"},
	})
	if err == nil || sel.Step != 1 || sel.Err.Reason != "provider_unavailable" {
		t.Errorf(`naming the silent one: %v; want an error, sel.Step = 1, sel.Err.Reason = "provider_unavailable"`, err)
	}
	if n := len(c.Snapshot().Action("fn.camera.photo")); n != 2 {
		t.Errorf("%d entries while the lease runs; want n = 2", n)
	}
	if _, _, err := c.Replace(capability.Batch{Source: "node.alice"}); err != nil { // its lease ended
		t.Fatal(err)
	}
	if n := len(c.Snapshot().Action("fn.camera.photo")); n != 1 || !slices.Equal(names(), all) {
		t.Errorf("%d entries afterwards, names %v; want n = 1, names() = %v", n, names(), all)
	}
}

func TestEachAgentSeesItsOwnStore(t *testing.T) {
	t.Parallel()
	store := func(ext, selector string) capability.Module {
		return module(ext, capability.Contribution{
			ID: "store", Kind: "capability.memory", Action: "memory.search", Effect: capability.EffectRead,
			Arbitration: &capability.Arbitration{Slot: "memory", SelectorID: selector},
		})
	}
	settings := catalog.Settings{Slots: map[string]catalog.SlotSetting{"memory": {
		Selected: "builtin", Overrides: []catalog.SlotOverride{{Agent: "research", Selected: "lancedb"}},
	}}}
	_, comp := catalogOf(t, settings, store("memory-core", "builtin"), store("memory-lancedb", "lancedb"))
	for agent, want := range map[string]string{"main": "memory:builtin:default", "research": "memory:lancedb:default"} {
		a, ok := comp.Compile(&capability.Context{Agent: agent}).Action("memory.search")
		if !ok || !slices.Equal(a.Providers(), []string{want}) {
			t.Errorf("%s: %+v; want ok = true, a.Providers() = []string{want}", agent, a)
		}
	}
}

// TestLintTellsAMisspeltPatternFromASleepingOne checks every finding of the lint.
func TestLintTellsAMisspeltPatternFromASleepingOne(t *testing.T) {
	t.Parallel()
	asleep := module("mcp.sleeper", toolOf("dream", "dream"))
	asleep.Stage = capability.StageDisabled
	bad := toolOf("bad", "bad")
	bad.Arbitration = &capability.Arbitration{Mode: "quorum"}
	settings := catalog.Settings{
		Policy:   []rules.Rule{{ID: "wide", Effect: "allow", Match: []string{"*", "memroy.*", "ext:mcp.sleeper", "message.*"}}},
		Backends: map[string]catalog.BackendSetting{"acp": {Exclusive: true}},
	}
	_, comp := catalogOf(t, settings, asleep, module("a.x", toolOf("t", "go"), bad), module("b.x", toolOf("t", "Go")),
		module("slack", chat("message.poll", "slack", "work")), module("slack-pro", chat("message.poll", "slack", "work")))
	got := make(map[string]string)
	for _, f := range comp.Compile(&capability.Context{}).Lint() {
		got[f.Code+" "+f.Subject] = f.Message
	}
	for _, want := range []string{
		"pattern_unknown memroy.*", "pattern_known_inactive ext:mcp.sleeper", "unresolved_conflict messaging:slack:work",
		"slot memory", "slot context-engine", "backend acp", "rejected a.x/bad", "label go",
	} {
		if got[want] == "" {
			t.Errorf(`%s is not found; there are %v; want got[want] other than ""`, want, got)
		}
		delete(got, want)
	}
	for left := range got {
		t.Errorf("found %s", left)
	}
}
