package publish_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/publish"
)

// told is every event of a name, as JSON.
func (w *world) told(name string) []string {
	w.t.Helper()
	out := []string{}
	for _, e := range w.recent.List(name) {
		doc, err := json.Marshal(e.Payload)
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, string(doc))
	}
	return out
}

func (w *world) want(name string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), w.told(name)); diff != "" {
		w.t.Errorf("diff (-want +got):\n%s; name = %q", diff, name)
	}
}

func (w *world) choose(c capability.Context, action capability.Action, caller arbitration.Caller) {
	w.t.Helper()
	sel, _ := w.comp.Compile(&c).Select(arbitration.Request{Action: action, Caller: caller})
	w.pub.Telemetry.Selected(sel, publish.Call{Correlation: "run_1", Explanation: "exp_1"})
}

func TestNamesAndTheirConflictsAreToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Settings{})
	w.put(server("mcp.github", "create_branch", "search_issues"))
	w.put(server("mcp.neon", "create_branch"))
	for i := range 1000 {
		w.pub.Telemetry.Compiled(w.comp.Compile(&capability.Context{Workspace: "w", Agent: fmt.Sprint(i % 100), Session: fmt.Sprint(i)}))
	}
	w.want(publish.ConflictDetected, `{"class":"planner_name","key":"create_branch","members":["mcp.github/create_branch","mcp.neon/create_branch"],"resolution":"labelled"}`)
	github := `{"declaredName":"create_branch","publicName":"github__create_branch","level":1,"members":["mcp.github/create_branch","mcp.neon/create_branch"],"resolution":"labelled"}`
	neon := strings.Replace(github, "github__", "neon__", 1)
	w.want(publish.NameDisambiguated, github, neon)
	late := w.comp.Compile(&capability.Context{})
	again := func() { w.pub.Telemetry.Compiled(w.comp.Compile(&capability.Context{})) }
	w.put(server("mcp.neon", "create_branch", "other"))
	again()
	w.want(publish.NameDisambiguated, github, neon)
	w.withdraw("mcp.neon")
	again()
	w.put(server("mcp.neon", "create_branch"))
	again()
	w.want(publish.NameDisambiguated, github, neon, github, neon)
	w.pub.Telemetry.Compiled(late)
	if n := len(w.told(publish.ConflictDetected)); n != 2 {
		t.Errorf("conflicts: len(w.told(publish.ConflictDetected)) = %v, want 2", n)
	}
	w.put(server("mcp.x", "github__create_branch")) // the same contest, other names
	again()
	w.want(publish.NameDisambiguated, github, neon, github, neon,
		strings.NewReplacer("github__", "mcp_github__", ":1", ":2").Replace(github),
		strings.NewReplacer("neon__", "mcp_neon__", ":1", ":2").Replace(neon))
}

func TestWithheldNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Settings{Naming: catalog.NamingSetting{OnCollision: "reject"}})
	w.put(server("mcp.a", "go"))
	w.put(server("mcp.b", "Go"))
	w.pub.Telemetry.Compiled(w.comp.Compile(&capability.Context{}))
	w.want(publish.NameDisambiguated,
		`{"declaredName":"go","level":0,"members":["mcp.a/go","mcp.b/Go"],"resolution":"withheld"}`,
		`{"declaredName":"Go","level":0,"members":["mcp.a/go","mcp.b/Go"],"resolution":"withheld"}`)
	if got := w.told(publish.ConflictDetected); len(got) != 1 || !strings.Contains(got[0], `"remediation":"set catalog.naming.pins`) {
		t.Errorf("w.told(publish.ConflictDetected) = %q, want one with a hint about catalog.naming.pins", got)
	}
}

// TestTwoOfOneProvider is a conflict of the catalog as a whole: told when it
// appears, when it changes, and not in between.
func TestTwoOfOneProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Settings{})
	w.put(chat("slack", "", "work"))
	pro := chat("slack-pro", "", "work")
	for i := range pro.Contributions {
		pro.Contributions[i].Provider = "messaging:slack:work"
	}
	w.put(pro)
	w.put(server("mcp.a", "x"))
	if got := w.told(publish.ConflictDetected); len(got) != 1 || !strings.Contains(got[0], `"resolution":"unresolved"`) {
		t.Errorf("w.told(publish.ConflictDetected) = %q, want one that is unresolved", got)
	}
	change, _, err := w.c.Configure(catalog.Settings{Owners: map[string]string{"messaging:slack:work": "slack/adapter"}})
	if err != nil {
		t.Fatal(err)
	}
	w.pub.Changed(change)
	if got := w.told(publish.ConflictDetected); len(got) != 2 || !strings.Contains(got[1], `"winner":"slack/adapter"`) {
		t.Errorf("w.told(publish.ConflictDetected) = %q, want a second one that slack/adapter wins", got)
	}
}

// TestSlots checks that conflicts of a slot and changes of its winner are published.
func TestSlots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Settings{Slots: map[string]catalog.SlotSetting{
		"context-engine": {Selected: "lossless"},
		"memory":         {Overrides: []catalog.SlotOverride{{Agent: "research", Selected: "vector"}}},
	}})
	engine := func(id, stage string) capability.Module {
		return capability.Module{Extension: id, ID: id, Stage: stage, Contributions: []capability.Contribution{{
			ID: "engine", Kind: "capability.context-engine", Arbitration: &capability.Arbitration{Slot: "context-engine", SelectorID: id},
		}}}
	}
	slot := func() (out []string) {
		for _, e := range w.told(publish.SlotSelected) {
			if strings.Contains(e, `"context-engine"`) {
				out = append(out, e)
			}
		}
		return out
	}
	w.put(engine("builtin", ""))
	w.put(server("mcp.a", "x"))
	w.put(engine("lossless", "disabled"))
	w.put(engine("lossless", ""))
	w.put(server("mcp.a", "y"))
	unknown := `{"slot":"context-engine","requested":"lossless","source":"configured","error":"slot_provider_unknown","available":[],"losers":[]}`
	want := []string{
		unknown, strings.Replace(unknown, "[]", `["builtin"]`, 1),
		`{"slot":"context-engine","requested":"lossless","source":"configured","error":"slot_provider_disabled","available":["builtin"],"losers":[]}`,
		`{"slot":"context-engine","requested":"lossless","source":"configured","winner":"lossless/engine","available":["builtin","lossless"],"losers":["builtin/engine"]}`,
	}
	if diff := cmp.Diff(want, slot()); diff != "" {
		t.Errorf("slot() differs from want (-want +got):\n%s", diff)
	}
	agents := map[string]string{}
	for _, e := range w.recent.List(publish.SlotSelected) {
		if p := e.Payload.(publish.SlotPayload); p.Slot == "memory" {
			agents[e.AgentID] = p.Requested
		}
	}
	if diff := cmp.Diff(map[string]string{"": "builtin", "research": "vector"}, agents); diff != "" {
		t.Errorf("agents differs from want (-want +got):\n%s", diff)
	}
}

func backend(id string, health capability.Health) capability.Module {
	return capability.Module{Extension: "acp-" + id, ID: id, Contributions: []capability.Contribution{{
		ID: "backend", Kind: "capability.runtime-backend", Backend: &capability.Backend{Class: "acp", ID: id, Health: health},
	}}}
}

func TestExclusiveBackendsAreToldAtStart(t *testing.T) {
	t.Parallel()
	set := catalog.Settings{Backends: map[string]catalog.BackendSetting{"acp": {Exclusive: true, Selected: "one"}, "tts": {Exclusive: true}}}
	w := newWorld(t, set)
	w.put(backend("one", ""))
	w.put(backend("two", ""))
	publish.New(w.c.Snapshot(), w.comp, w.pub.Telemetry)
	var got []string
	for _, e := range w.told(publish.SlotSelected) {
		if strings.Contains(e, "backend:acp") {
			got = append(got, e)
		}
	}
	want := []string{
		`{"slot":"backend:acp","requested":"one","source":"configured","error":"backend_not_found","available":[],"losers":[]}`,
		`{"slot":"backend:acp","requested":"one","source":"configured","winner":"acp-one/backend","available":["one","two"],"losers":["acp-two/backend"]}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result differs from want (-want +got):\n%s", diff)
	}
}

// TestFallbacks checks that a fallback is published as a choice and as a fallback, and
// the first choice as a choice only.
func TestFallbacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Settings{})
	w.put(chat("slack", "", "work"))
	w.put(chat("discord", "", "work"))
	w.choose(thread("slack", 1), "message.reply", "")
	selected := `{"action":"message.reply","capabilityId":"slack/adapter#message.reply@work","providerKey":"messaging:slack:work","step":3,"decidedBy":"route_binding","caller":"planner","candidates":2,"explanationId":"exp_1"}`
	w.want(publish.ProviderSelected, selected)
	w.want(publish.FallbackSelected)

	w.choose(capability.Context{}, "message.send", arbitration.Runtime)
	order := `{"action":"message.send","capabilityId":"discord/adapter#message.send@work","providerKey":"messaging:discord:work","step":7,"decidedBy":"deterministic_fallback","caller":"runtime","candidates":2,"explanationId":"exp_1"`
	w.want(publish.ProviderSelected, selected, order+"}")
	if got := w.told(publish.FallbackSelected); len(got) != 1 || !strings.HasPrefix(got[0], order+`,"reasons":[{"step":7`) {
		t.Errorf("w.told(publish.FallbackSelected) = %q, want one for the choice at step 7", got)
	}

	lookup := func(kind string, state capability.State) capability.Module {
		return capability.Module{Extension: "dir-" + kind, ID: kind, Contributions: []capability.Contribution{{
			ID: "dir", Kind: "adapter.runtime", Action: "directory.lookup", Provider: capability.NewProviderKey("directory", kind, "work"),
			Availability: capability.Availability{State: state},
		}}}
	}
	w.put(lookup("slack", capability.StateUnavailable))
	w.put(lookup("discord", ""))
	w.choose(thread("slack", 1), "directory.lookup", "")
	if got := w.told(publish.FallbackSelected); len(got) != 2 ||
		!strings.Contains(got[1], `"reasons":[{"step":3,"providerKey":"directory:slack:work","reason":"unavailable"}]`) {
		t.Errorf("w.told(publish.FallbackSelected) = %q, want a second one because the provider of step 3 is unavailable", got)
	}

	w.choose(capability.Context{}, "message.send", "")
	w.want(publish.SelectionFailed, `{"action":"message.send","step":7,"code":"selection_required","candidates":2}`)
}

// TestTelemetryHoldsNothingPrivate checks that telemetry contains no conversations, no
// reasons in words, and no descriptions of tools.
func TestTelemetryHoldsNothingPrivate(t *testing.T) {
	t.Parallel()
	const marker = "Marker-7f3a"
	w := newWorld(t, catalog.Settings{})
	m := server("mcp.a", "x")
	m.Contributions[0].Description = marker
	m.Contributions[0].InputSchema = json.RawMessage(`{"type":"object","properties":{"` + marker + `":{}}}`)
	w.put(m)
	w.put(server("mcp.b", "x"))
	down := chat("slack", capability.StateUnavailable, "work")
	for i := range down.Contributions {
		down.Contributions[i].Availability.Reason = marker
	}
	w.put(down)
	ctx := capability.Context{
		Session: "slack:work:" + marker, Route: &capability.Route{Kind: "slack", Account: "work", Conversation: marker},
		Blocks: []capability.Block{{Actions: []string{"message.reply"}, By: "owner/veto", Reason: marker + " says no"}},
	}
	for range 3 {
		w.pub.Telemetry.Compiled(w.comp.Compile(&ctx))
	}
	w.choose(ctx, "message.send", "")
	w.choose(ctx, "message.reply", "")
	w.pub.Telemetry.Vetoed(1, &ctx, publish.VetoPayload{
		Action: "message.send", ProviderKey: "messaging:slack:work", By: "owner/veto",
		ReasonCode: "not_owner", Phase: "invoke", Conversation: ctx.Route.Ref(),
	}, publish.Call{})
	doc, err := json.Marshal(w.recent.List(""))
	if err != nil || strings.Contains(string(doc), marker) {
		t.Errorf("%v: %s; want no error, string(doc) without %v", err, doc, marker)
	}
	hash := publish.HashRef("slack:work:" + marker)
	w.want(publish.RouteVetoed,
		`{"action":"message.reply","by":"owner/veto","reasonCode":"other","phase":"compile","conversation":"`+hash+`"}`,
		`{"action":"message.send","providerKey":"messaging:slack:work","by":"owner/veto","reasonCode":"not_owner","phase":"invoke","conversation":"`+hash+`"}`)
	if len(hash) != 16 || len(w.told(publish.SelectionFailed)) != 2 {
		t.Errorf("hash = %v, w.told(publish.SelectionFailed) = %v, want len(hash) == 16 && len(w.told(publish.SelectionFailed)) == 2", hash,
			w.told(publish.SelectionFailed))
	}
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Settings{})
	w.put(chat("slack", "", "work"))
	w.choose(thread("slack", 1), "message.send", "")
	e := w.recent.List(publish.ProviderSelected)[0]
	e.ID, e.OccurredAt = e.ID[:4], time.Time{}
	want := publish.Telemetry{
		Event: publish.ProviderSelected, Version: 1, ID: "evt_", Generation: w.c.Snapshot().Generation, WorkspaceID: "w", AgentID: "main",
		SessionID: "slack1", CorrelationID: "run_1",
	}
	e.Payload = nil
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("e differs from want (-want +got):\n%s", diff)
	}
}

func TestSlowSinksLoseAndCount(t *testing.T) {
	t.Parallel()
	q := publish.NewQueue(2)
	for range 5 {
		q.Put(publish.Telemetry{Event: "x"})
	}
	if q.Dropped() != 3 {
		t.Errorf("q.Dropped() = %v, want %v", q.Dropped(), 3)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	q.Run(ctx, func(publish.Telemetry) {
		if n++; n == 2 {
			cancel()
		}
	})
	if n != 2 {
		t.Errorf("n = %v, want %v", n, 2)
	}
	var r publish.Recent
	for i := range 1030 {
		r.Put(publish.Telemetry{ID: fmt.Sprint(i)})
	}
	if list := r.List(""); len(list) != 1024 || list[0].ID != "6" || list[1023].ID != "1029" {
		t.Errorf(`len(list) = %v, want len(list) == 1024 && list[0].ID == "6" && list[1023].ID == "1029"`, len(list))
	}
}
