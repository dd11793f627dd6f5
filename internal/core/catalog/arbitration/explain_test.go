package arbitration_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// adapters reads "kind:account action,action state" per module; an action with
// '!' is one that the account cannot do.
func adapters(t testing.TB, settings catalog.Settings, specs ...string) *catalog.Snapshot {
	t.Helper()
	c, err := catalog.New(settings, 411)
	if err != nil {
		t.Fatal(err)
	}
	b := capability.Batch{Source: "test"}
	for _, spec := range specs {
		parts := strings.Fields(spec)
		kind, account, _ := strings.Cut(parts[0], ":")
		m := capability.Module{Extension: kind, ID: kind, Origin: "bundled"}
		for i := range b.Modules {
			if b.Modules[i].Extension == kind {
				m.Extension, m.ID = kind+"-"+account, kind+"-"+account
			}
		}
		for _, action := range strings.Split(parts[1], ",") {
			action, unsupported := strings.CutSuffix(action, "!")
			domain, _, _ := strings.Cut(action, ".")
			if domain == "message" {
				domain = "messaging"
			}
			con := capability.Contribution{
				ID: "adapter", Kind: "adapter.runtime", Action: capability.Action(action), Unsupported: unsupported,
				Provider: capability.NewProviderKey(domain, kind, account),
			}
			switch domain {
			case "memory":
				con.Kind, con.Arbitration = "capability.memory", &capability.Arbitration{Slot: "memory", SelectorID: kind}
			case "fs":
				con.Kind = "capability.agent-tool"
			case "context":
				con.Kind, con.ID = "capability.context-augmenter", account
			}
			for _, word := range parts[2:] {
				switch {
				case strings.HasPrefix(word, "rank="):
					_, _ = fmt.Sscanf(word, "rank=%d", &con.Rank)
				default:
					con.Availability.State = capability.State(word)
				}
			}
			m.Contributions = append(m.Contributions, con)
		}
		b.Modules = append(b.Modules, m)
	}
	if _, _, err := c.Replace(b); err != nil {
		t.Fatal(err)
	}
	if rejected := c.Snapshot().Rejected(); len(rejected) > 0 {
		t.Fatalf("c.Snapshot().Rejected() = %v, want len(rejected) == 0", rejected)
	}
	return c.Snapshot()
}

func slack() *capability.Route {
	return &capability.Route{Kind: "slack", Account: "work", Conversation: "C1", ConversationKind: "thread"}
}

type explainCase struct {
	name     string
	settings catalog.Settings
	specs    []string
	ctx      capability.Context
	req      arbitration.Request
}

func explainCases() []explainCase {
	three := []string{"slack:work message.send,message.reply", "discord:work message.send", "telegram:personal message.send"}
	send := arbitration.Request{Action: "message.send"}
	code := arbitration.Request{Action: "message.send", Caller: arbitration.Runtime}
	deny := catalog.Settings{Policy: []rules.Rule{{ID: "r7", Effect: "deny", Match: []string{"provider:messaging:matrix:*"}}}}
	return []explainCase{
		{"route", deny, append(three, "matrix:home message.send"), capability.Context{Route: slack()}, send},
		{"selection required", catalog.Settings{}, three, capability.Context{}, send},
		{"order of ids", catalog.Settings{}, three, capability.Context{}, code},
		{
			"selector",
			catalog.Settings{},
			three,
			capability.Context{Route: slack()},
			arbitration.Request{Action: "message.send", Selector: capability.Selector{"channel": "telegram"}},
		},
		{
			"route cannot serve",
			catalog.Settings{},
			[]string{"slack:work message.send unavailable", "discord:work message.send"},
			capability.Context{Route: slack()},
			send,
		},
		{
			"route passed over",
			catalog.Settings{},
			[]string{"slack:work directory.lookup unavailable", "discord:work directory.lookup"},
			capability.Context{Route: slack()},
			arbitration.Request{Action: "directory.lookup"},
		},
		{"no conversation", catalog.Settings{}, three, capability.Context{}, arbitration.Request{Action: "message.reply"}},
		{
			"memory slot",
			catalog.Settings{Slots: map[string]catalog.SlotSetting{"memory": {Selected: "lancedb", Mode: "parallel"}}},
			[]string{"builtin:default memory.store", "lancedb:default memory.store unavailable"},
			capability.Context{},
			arbitration.Request{Action: "memory.store"},
		},
		{
			"the slot has no holder",
			catalog.Settings{Slots: map[string]catalog.SlotSetting{"memory": {Selected: "other"}}},
			[]string{"builtin:default memory.store"},
			capability.Context{},
			arbitration.Request{Action: "memory.store"},
		},
		{"adapter at hand", catalog.Settings{}, three, capability.Context{Adapter: &capability.Adapter{Kind: "telegram"}}, send},
		{
			"provider unknown",
			catalog.Settings{},
			three,
			capability.Context{},
			arbitration.Request{Action: "message.send", Selector: capability.Selector{"channel": "signal"}},
		},
		{
			"ranked",
			catalog.Settings{},
			[]string{"endpoint:cloud fs.list rank=100", "endpoint:spare fs.list", "node:laptop fs.list unavailable"},
			capability.Context{},
			arbitration.Request{Action: "fs.list"},
		},
		{
			"session binding denied", deny, append(three, "matrix:home message.send"),
			capability.Context{Bindings: []capability.Binding{{Actions: "message.*", Provider: "messaging:matrix:home"}}},
			send,
		},
		{
			"composed",
			catalog.Settings{},
			[]string{"facts:a context.augment", "mood:b context.augment unavailable", "weather:c context.augment"},
			capability.Context{},
			arbitration.Request{
				Action: "context.augment", Caller: arbitration.Runtime,
				Audience: capability.AudienceInternal,
			},
		},
		{
			"forced default",
			catalog.Settings{ForcedDefaults: []catalog.ForcedDefault{{Action: "message.*", Provider: "messaging:discord:work"}}},
			three,
			capability.Context{},
			send,
		},
	}
}

// TestExplanationsAreReadable compares records and their text with golden
// files.
func TestExplanationsAreReadable(t *testing.T) {
	t.Parallel()
	for _, tt := range explainCases() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := adapters(t, tt.settings, tt.specs...)
			sel, _ := arbitration.NewFrame(s, &tt.ctx).Select(tt.req)
			x := arbitration.Explain(sel, "etag")
			doc, err := json.MarshalIndent(x, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			base := "testdata/explain/" + strings.ReplaceAll(tt.name, " ", "-")
			for path, got := range map[string]string{base + ".txt": x.Text(), base + ".json": string(doc) + "\n"} {
				if *update {
					if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("result differs from want, path = %v (-want +got):\n%s", path, diff)
				}
			}
		})
	}
}

// TestExplanationsReplay checks that a record's inputs reproduce winner and step, and
// that every entry of the action is in the record once.
func TestExplanationsReplay(t *testing.T) {
	t.Parallel()
	var kept arbitration.Explanations
	for _, tt := range explainCases() {
		s := adapters(t, tt.settings, tt.specs...)
		for _, caller := range []arbitration.Caller{arbitration.Planner, arbitration.Runtime} {
			for _, outside := range []func(*catalog.Entry) bool{nil, func(e *catalog.Entry) bool { return e.Module.Extension == "slack" }} {
				req := tt.req
				req.Caller, req.Denied = caller, outside
				req.Awake = func(e *catalog.Entry) bool { return outside != nil }
				sel, _ := arbitration.NewFrame(s, &tt.ctx).Select(req)
				id := kept.Put(arbitration.Explain(sel, ""))
				x, ok := kept.Get(id)
				if !ok || x.ID != id {
					t.Fatalf("id = %v, want ok && x.ID == id", id)
				}
				doc, err := json.Marshal(x) // what a client has
				if err != nil {
					t.Fatal(err)
				}
				var read arbitration.Explanation
				if err := json.Unmarshal(doc, &read); err != nil {
					t.Fatal(err)
				}
				again, _ := arbitration.NewFrame(s, read.Inputs.Context).Select(read.Inputs.Request(s, read.Action, read.Caller))
				if again.Entry != sel.Entry || again.Step != sel.Step || again.DecidedBy != sel.DecidedBy {
					t.Errorf("%s (%s): got %s at step %d; want again.Entry = %v, again.Step = %v, again.DecidedBy = %v",
						tt.name, caller, again.DecidedBy, again.Step, sel.Entry, sel.Step, sel.DecidedBy)
				}
				if second, _ := json.Marshal(arbitration.Explain(again, "")); !sameRecord(t, second, doc) {
					t.Errorf("%s: the records differ\n%s\n%s\nwant sameRecord(t, second, doc)", tt.name, doc, second)
				}
				count := make(map[capability.ID]int)
				if read.Selected != nil {
					count[read.Selected.Capability]++
				}
				for _, n := range read.Composed {
					count[n.Capability]++
				}
				for _, st := range read.Steps {
					for _, r := range st.Rejected {
						count[r.Capability]++
					}
				}
				for _, e := range s.Action(read.Action) {
					if count[e.ID] != 1 {
						t.Errorf("%s: %s is in the record %d times; want count[e.ID] = 1", tt.name, e.ID, count[e.ID])
					}
				}
			}
		}
	}
}

func sameRecord(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatal("no JSON; want json.Unmarshal(a, &x) = nil, json.Unmarshal(b, &y) = nil")
	}
	delete(x, "id")
	delete(y, "id")
	return cmp.Equal(x, y)
}

func TestPlannersDoNotLearnWhoIsDenied(t *testing.T) {
	t.Parallel()
	for _, tt := range explainCases() {
		s := adapters(t, tt.settings, tt.specs...)
		tt.req.Denied = func(e *catalog.Entry) bool { return e.Module.Extension == "discord" }
		tt.req.Selector = nil
		sel, _ := arbitration.NewFrame(s, &tt.ctx).Select(tt.req)
		x := arbitration.Explain(sel, "").ForPlanner()
		doc, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"matrix", "discord", "r7"} {
			if strings.Contains(string(doc)+x.Text(), secret) {
				t.Errorf("%s: %q in %s\n%s\nwant string(doc) + x.Text() without %v", tt.name, secret, doc, x.Text(), secret)
			}
		}
	}
}

// TestAbsentAndDeniedReadAlike to a planner.
func TestAbsentAndDeniedReadAlike(t *testing.T) {
	t.Parallel()
	text := func(specs ...string) string {
		f := arbitration.NewFrame(adapters(t, catalog.Settings{}, specs...), &capability.Context{})
		sel, _ := f.Select(arbitration.Request{Action: "message.send", Denied: func(*catalog.Entry) bool { return true }})
		x := arbitration.Explain(sel, "").ForPlanner()
		doc, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Replace(string(doc), "411", "412", 1) + x.Text()
	}
	if diff := cmp.Diff(text("slack:work directory.lookup"), text("slack:work message.send", "discord:work message.send")); diff != "" {
		t.Errorf("text(\"slack:work message.send\", \"discord:work message.send\") differs from want (-want +got):\n%s", diff)
	}
}

func TestOldExplanationsMakeRoom(t *testing.T) {
	t.Parallel()
	var kept arbitration.Explanations
	first := kept.Put(&arbitration.Explanation{})
	second := kept.Put(&arbitration.Explanation{})
	for range 1023 {
		kept.Put(&arbitration.Explanation{})
	}
	if _, ok := kept.Get(first); ok {
		t.Error("the oldest is still there")
	}
	if _, ok := kept.Get(second); !ok {
		t.Error("one of the last 1,024 is gone")
	}
	big := &arbitration.Explanation{Steps: []arbitration.ExplainedStep{{Rejected: make([]arbitration.RejectedEntry, 200_000)}}}
	id := kept.Put(big)
	if other := kept.Put(&arbitration.Explanation{}); other == id {
		t.Errorf("ids repeat; got other = %v; want other other than %v", other, id)
	}
	if _, ok := kept.Get(id); !ok {
		t.Error("a large record is not kept")
	}
	more := *big
	kept.Put(&more)
	if _, ok := kept.Get(id); ok {
		t.Error("two records that are too large together are kept")
	}
}

// BenchmarkExplain is the record of a choice among 64.
func BenchmarkExplain(b *testing.B) {
	var specs []string
	for i := range 64 {
		specs = append(specs, fmt.Sprintf("kind%02d:work message.send", i))
	}
	f := arbitration.NewFrame(adapters(b, catalog.Settings{}, specs...), &capability.Context{})
	sel, _ := f.Select(arbitration.Request{Action: "message.send", Caller: arbitration.Runtime})
	b.ReportAllocs()
	for b.Loop() {
		arbitration.Explain(sel, "etag")
	}
}
