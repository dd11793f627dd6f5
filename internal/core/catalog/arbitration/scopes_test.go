package arbitration_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
)

// TestScopes checks that a dimension that is given must match.
func TestScopes(t *testing.T) {
	t.Parallel()
	full := capability.Context{
		Workspace: "w", Agent: "a", Session: "s", ModelProvider: "m",
		Route: &capability.Route{Kind: "slack", Account: "work", Conversation: "C1", ConversationKind: "thread"},
	}
	for _, tt := range []struct {
		scope         capability.Scope
		inFull, empty bool
	}{
		{capability.Scope{}, true, true},
		{capability.Scope{Workspace: []string{"*"}, Session: []string{"*"}}, true, true},
		{capability.Scope{Workspace: []string{"v", "w"}}, true, false},
		{capability.Scope{Agent: []string{"a"}}, true, false},
		{capability.Scope{Session: []string{"s"}}, true, false},
		{capability.Scope{Session: []string{"t"}}, false, false},
		{capability.Scope{Account: []string{"work"}}, true, false},
		{capability.Scope{Account: []string{"home"}}, false, false},
		{capability.Scope{Channel: []string{"slack"}}, true, false},
		{capability.Scope{Channel: []string{"discord"}}, false, false},
		{capability.Scope{Conversation: []string{"C1"}}, true, false},
		{capability.Scope{Conversation: []string{"C2"}}, false, false},
		{capability.Scope{ConversationKind: []string{"thread"}}, true, false},
		{capability.Scope{ConversationKind: []string{"dm"}}, false, false},
		{capability.Scope{Provider: []string{"m"}}, true, false},
		{capability.Scope{Provider: []string{""}}, false, false},
		{capability.Scope{Agent: []string{"a"}, Workspace: []string{"v"}}, false, false},
	} {
		c, err := catalog.New(catalog.Settings{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		con := capability.Contribution{ID: "x", Kind: "capability.agent-tool", Tool: "x", Scope: &tt.scope}
		if _, _, err := c.Replace(capability.Batch{Source: "s", Modules: []capability.Module{{
			Extension: "e", ID: "e",
			Contributions: []capability.Contribution{con},
		}}}); err != nil {
			t.Fatal(err)
		}
		s := c.Snapshot()
		for ctx, want := range map[*capability.Context]bool{&full: tt.inFull, {}: tt.empty} {
			if reason, _ := arbitration.NewFrame(s, ctx).Candidate(s.Action("ext.e.x")[0], capability.AudienceAgent); (reason == "") != want {
				t.Errorf(`%+v in %+v: %q; want (reason == "") = %v`, tt.scope, ctx, reason, want)
			}
		}
	}
}

func TestMatchesReadsEveryField(t *testing.T) {
	t.Parallel()
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	con := capability.Contribution{
		ID: "x", Kind: "capability.agent-tool", Action: "fs.list",
		Provider: capability.NewProviderKey("fs", "endpoint", "home:1"),
	}
	if _, _, err := c.Replace(capability.Batch{Source: "s", Modules: []capability.Module{{
		Extension: "endpoint.home", ID: "home",
		Contributions: []capability.Contribution{con},
	}}}); err != nil {
		t.Fatal(err)
	}
	e := c.Snapshot().Action("fs.list")[0]
	for s, want := range map[string]bool{
		"provider=fs:endpoint:home%3A1": true, "kind=endpoint": true, "channel=endpoint": true, "store=endpoint": true, "kind=node": false,
		"account=home:1": true, "instance=home:1": true, "endpoint=home:1": true, "endpoint=home": false, "node=home:1": false,
		"extension=ENDPOINT.home": true, "extension=endpoint": false, "conversation=endpoint:home%3A1:C1": false,
		"conversation=endpoint:home%3A1": false, "odd=x": false,
		"kind=endpoint,store=node": false, "kind=endpoint,instance=home:1": true, "endpoint=home:1,node=home:1": false, "kind=": false,
	} {
		selector := capability.Selector{}
		for _, pair := range strings.Split(s, ",") {
			k, v, _ := strings.Cut(pair, "=")
			selector[k] = v
		}
		if arbitration.Matches(e, selector) != want {
			t.Errorf("%s: want %v", s, want)
		}
	}
	if !slices.Contains(arbitration.SelectorFields(), "conversation") {
		t.Error("conversation is a field")
	}
}

// TestWhereARankedCallMayGoOn holds the list of a fallback: best rank first, only
// what is eligible, only in ranked families, never past a pin.
func TestWhereARankedCallMayGoOn(t *testing.T) {
	t.Parallel()
	rest := func(sel *arbitration.Selection) (out []string) {
		for _, e := range sel.Rest {
			out = append(out, string(e.Key()))
		}
		return out
	}
	s := adapters(t, catalog.Settings{}, "a:x fs.list rank=1", "b:x fs.list rank=9", "c:x fs.list rank=5", "d:x fs.list unavailable",
		"a:y message.send", "b:y message.send rank=9")
	frame := arbitration.NewFrame(s, &capability.Context{})
	sel, err := frame.Select(arbitration.Request{Action: "fs.list"})
	if d := cmp.Diff([]string{"fs:c:x", "fs:a:x"}, rest(sel)); d != "" || err != nil {
		t.Errorf("rest(sel) differs from want, err = %v (-want +got):\n%s", err, d)
	}
	sel, err = frame.Select(arbitration.Request{Action: "fs.list", Selector: capability.Selector{"kind": "b"}})
	if err != nil || len(sel.Rest) != 0 {
		t.Errorf("past a selector: %v %v; want no error, len(sel.Rest) = 0", rest(sel), err)
	}
	sel, err = frame.Select(arbitration.Request{Action: "message.send"})
	if err != nil || len(sel.Rest) != 0 {
		t.Errorf("in a family that is not ranked: %v %v; want no error, len(sel.Rest) = 0", rest(sel), err)
	}
	awake := func(e *catalog.Entry) bool { return e.Module.Extension == "d" }
	sel, err = frame.Select(arbitration.Request{Action: "fs.list", Selector: capability.Selector{"kind": "d"}, Awake: awake})
	if got := told(sel, err); got != "1 explicit_selector fs:d:x" {
		t.Errorf("told(sel, err) = %v, want %v", got, "1 explicit_selector fs:d:x")
	}
	denied := func(e *catalog.Entry) bool { return e.Module.Extension == "b" }
	sel, err = frame.Select(arbitration.Request{Action: "fs.list", Denied: denied})
	if got := told(sel, err); got != "6 ranked_default fs:c:x" || !strings.Contains(fallen(sel), "0 fs:b:x policy_denied") {
		t.Errorf(`told(sel, err) = %v, fallen(sel) = %v, want got == "6 ranked_default fs:c:x" && strings.Contains(fallen(sel), "0 fs:b:x policy_denied")`, got, fallen(sel))
	}
	only := s.Action("fs.list")[:1]
	sel, err = frame.Select(arbitration.Request{Only: only})
	if got := told(sel, err); got != "1 explicit_selector fs:a:x" {
		t.Errorf("told(sel, err) = %v, want %v", got, "1 explicit_selector fs:a:x")
	}
}

// TestComposedMembersRunInOrder: priority descending, then ids, without a choice.
func TestComposedMembersRunInOrder(t *testing.T) {
	t.Parallel()
	member := func(id string, priority int) capability.Contribution {
		return capability.Contribution{
			ID: id, Kind: "capability.context-augmenter",
			Arbitration: &capability.Arbitration{ComposePriority: priority},
		}
	}
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := capability.Batch{Source: "s", Modules: []capability.Module{
		{Extension: "z", ID: "z", Contributions: []capability.Contribution{member("a", 5), member("b", -1)}},
		{Extension: "a", ID: "a", Contributions: []capability.Contribution{member("b", 0), member("a", 0)}},
	}}
	if _, _, err := c.Replace(b); err != nil {
		t.Fatal(err)
	}
	sel, err := arbitration.NewFrame(c.Snapshot(), &capability.Context{}).Select(arbitration.Request{
		Action:   "context.augment",
		Audience: capability.AudienceInternal,
	})
	var got []string
	for _, e := range sel.Composed {
		got = append(got, e.Runtime)
	}
	if d := cmp.Diff([]string{"z/a", "a/a", "a/b", "z/b"}, got); d != "" || err != nil || sel.Entry != nil {
		t.Errorf("result differs from want, err = %v (-want +got):\n%s", err, d)
	}
}
