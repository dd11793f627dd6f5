package arbitration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// told is a selection in one line: step, decision or reason, provider, candidates
// and what fell where.
func told(sel *arbitration.Selection, err error) string {
	if err != nil {
		out := fmt.Sprint(sel.Step, " ", sel.Err.Reason)
		if list, _ := sel.Err.Details["candidates"].([]string); len(list) > 0 {
			out += " " + strings.Join(list, "+")
		}
		if sel.Would != nil {
			out += " would " + string(sel.Would.Key())
		}
		return out
	}
	out := fmt.Sprint(sel.Step, " ", sel.DecidedBy)
	if sel.Entry != nil {
		out += " " + string(sel.Entry.Key())
	}
	if sel.Fallback {
		out += " fallback"
	}
	return out
}

func fallen(sel *arbitration.Selection) string {
	var out []string
	for _, r := range sel.Rejected {
		out = append(out, fmt.Sprint(r.Step, " ", r.Entry.Key(), " ", r.Reason))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func bound(key string) *capability.Context {
	return &capability.Context{Bindings: []capability.Binding{{Actions: "*", Provider: capability.ProviderKey(key)}}}
}

// TestPins checks the result of a promise of the session (step 2) or the conversation
// (step 3), for strict actions (message.send, message.reply) and soft ones
// (message.read).
func TestPins(t *testing.T) {
	t.Parallel()
	in := func() *capability.Context { return &capability.Context{Route: slack()} }
	deny := catalog.Settings{Policy: []rules.Rule{{Effect: "deny", Match: []string{"provider:messaging:slack:*"}}}}
	const s, d, tg = "messaging:slack:work", "messaging:discord:work", "messaging:telegram:home"
	for _, tt := range []struct {
		name     string
		settings catalog.Settings
		specs    []string
		ctx      *capability.Context
		action   capability.Action
		selector capability.Selector
		want     string
	}{
		{
			"session, can serve",
			catalog.Settings{},
			[]string{"slack:work message.send", "discord:work message.send"},
			bound(s), "message.send",
			nil, "2 session_binding " + s,
		},
		{
			"route, can serve",
			catalog.Settings{},
			[]string{"slack:work message.send", "discord:work message.send"},
			in(), "message.send", nil,
			"3 route_binding " + s,
		},
		{
			"route, soft, can serve",
			catalog.Settings{},
			[]string{"slack:work message.read", "discord:work message.read"},
			in(), "message.read",
			nil, "3 route_binding " + s,
		},
		{
			"session beats route",
			catalog.Settings{},
			[]string{"slack:work message.send", "discord:work message.send"},
			&capability.Context{Route: slack(), Bindings: bound(d).Bindings}, "message.send", nil, "2 session_binding " + d,
		},

		{
			"session, account cannot, others can",
			catalog.Settings{},
			[]string{"slack:work message.send!", "discord:work message.send", "telegram:home message.send unavailable"},
			bound(s), "message.send",
			nil, "2 selection_required " + d,
		},
		{
			"session, account cannot, nobody can",
			catalog.Settings{},
			[]string{"slack:work message.send!", "discord:work message.send unavailable"},
			bound(s), "message.send", nil, "2 binding_unsatisfied",
		},
		{
			"route, account cannot, others can",
			catalog.Settings{},
			[]string{"slack:work message.send!", "discord:work message.send"},
			in(),
			"message.send", nil, "3 selection_required " + d,
		},
		{
			"route, account cannot reply here",
			catalog.Settings{},
			[]string{"slack:work message.reply!", "discord:work message.reply"},
			in(),
			"message.reply", nil, "3 route_unsatisfied",
		},
		{
			"soft, account cannot",
			catalog.Settings{},
			[]string{"slack:work message.read!", "discord:work message.read"},
			in(), "message.read",
			nil, "4 only_supported " + d + " fallback",
		},

		{
			"session, down",
			catalog.Settings{},
			[]string{"slack:work message.send unavailable", "discord:work message.send"},
			bound(s),
			"message.send", nil, "2 binding_unsatisfied",
		},
		{
			"route, down",
			catalog.Settings{},
			[]string{"slack:work message.send unavailable", "discord:work message.send"},
			in(), "message.send",
			nil, "3 route_unsatisfied",
		},
		{
			"session, soft, down",
			catalog.Settings{},
			[]string{"slack:work message.read unavailable", "discord:work message.read"},
			bound(s),
			"message.read", nil, "4 only_supported " + d + " fallback",
		},
		{
			"degraded serves",
			catalog.Settings{},
			[]string{"slack:work message.send degraded", "discord:work message.send"},
			in(), "message.send",
			nil, "3 route_binding " + s,
		},

		{
			"excluded by the selector",
			catalog.Settings{},
			[]string{
				"slack:work message.send", "discord:work message.send",
				"discord:home message.send rank=2",
			},
			in(), "message.send",
			capability.Selector{"channel": "discord"},
			"6 ranked_default messaging:discord:home",
		},
		{
			"session, excluded by the selector",
			catalog.Settings{},
			[]string{
				"slack:work message.send", "discord:work message.send",
				"discord:home message.send rank=2",
			},
			bound(s), "message.send",
			capability.Selector{"channel": "discord"},
			"6 ranked_default messaging:discord:home",
		},

		{
			"session, denied", deny,
			[]string{"slack:work message.send", "discord:work message.send"},
			bound(s), "message.send", nil,
			"2 binding_unsatisfied",
		},
		{
			"route, denied", deny,
			[]string{"slack:work message.send", "discord:work message.send"},
			in(), "message.send", nil,
			"3 route_unsatisfied",
		},
		{
			"route, soft, denied", deny,
			[]string{"slack:work message.read", "discord:work message.read"},
			in(), "message.read", nil,
			"4 only_supported " + d + " fallback",
		},

		{
			"session, does not offer it, others do",
			catalog.Settings{},
			[]string{"slack:work message.edit", "discord:work message.send", "telegram:home message.send"},
			bound(s), "message.send", nil,
			"2 selection_required " + d + "+" + tg,
		},
		{
			"session, does not offer it, nobody can",
			catalog.Settings{},
			[]string{"slack:work message.edit", "discord:work message.send unavailable"},
			bound(s), "message.send", nil, "2 binding_unsatisfied",
		},
		{
			"route, does not offer it",
			catalog.Settings{},
			[]string{"slack:work message.edit", "discord:work message.send"},
			in(), "message.send",
			nil, "3 selection_required " + d,
		},
		{
			"route, cannot reply at all",
			catalog.Settings{},
			[]string{"slack:work message.edit", "discord:work message.reply"},
			in(),
			"message.reply", nil, "3 route_unsatisfied",
		},
		{
			"soft, does not offer it",
			catalog.Settings{},
			[]string{"slack:work message.edit", "discord:work message.read"},
			in(), "message.read",
			nil, "4 only_supported " + d,
		},

		{"session, unknown", catalog.Settings{}, []string{"discord:work message.send"}, bound(s), "message.send", nil, "2 binding_unsatisfied"},
		{
			"session, soft, unknown",
			catalog.Settings{},
			[]string{"discord:work message.read"},
			bound(s), "message.read", nil,
			"4 only_supported " + d + " fallback",
		},
		{
			"route, unknown: a call is not a chat",
			catalog.Settings{},
			[]string{"discord:work message.send"},
			in(), "message.send", nil,
			"4 only_supported " + d,
		},
		{"route, soft, unknown", catalog.Settings{}, []string{"discord:work message.read"}, in(), "message.read", nil, "4 only_supported " + d},
		{
			"route, unknown, on the current conversation",
			catalog.Settings{},
			[]string{"discord:work message.reply"},
			in(), "message.reply", nil,
			"3 no_current_conversation",
		},
		{
			"the route of another account pins nobody",
			catalog.Settings{},
			[]string{"slack:home message.send", "discord:work message.send"},
			in(),
			"message.send", nil, "7 selection_required " + d + "+messaging:slack:home would " + d,
		},
		{
			"what is not route-aware is not pinned",
			catalog.Settings{},
			[]string{"slack:work fs.list", "discord:work fs.list rank=1"},
			in(),
			"fs.list", nil, "4 current_adapter fs:slack:work",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sel, err := arbitration.NewFrame(adapters(t, tt.settings, tt.specs...),
				tt.ctx).Select(arbitration.Request{Action: tt.action, Selector: tt.selector})
			if got := told(sel, err); got != tt.want {
				t.Errorf("got  %s\nwant %s\n%v", got, tt.want, err)
			}
		})
	}
}

// TestSteps checks the other steps, every error code, and the entries that each step
// excludes.
func TestSteps(t *testing.T) {
	t.Parallel()
	forced := func(list ...catalog.ForcedDefault) catalog.Settings { return catalog.Settings{ForcedDefaults: list} }
	slot := func(selected, mode string) catalog.Settings {
		return catalog.Settings{Slots: map[string]catalog.SlotSetting{"memory": {Selected: selected, Mode: mode}}}
	}
	const a, b, c = "messaging:a:x", "messaging:b:x", "messaging:c:x"
	three := []string{"a:x message.send", "b:x message.send", "c:x message.send"}
	sel := func(kv ...string) capability.Selector {
		s := capability.Selector{}
		for i := 0; i < len(kv); i += 2 {
			s[kv[i]] = kv[i+1]
		}
		return s
	}
	for _, tt := range []struct {
		name     string
		settings catalog.Settings
		specs    []string
		ctx      capability.Context
		req      arbitration.Request
		want     string
		fallen   string
	}{
		{"nobody", catalog.Settings{}, three, capability.Context{}, arbitration.Request{Action: "message.edit"}, "0 no_provider", ""},
		{
			"all denied",
			catalog.Settings{Policy: []rules.Rule{{Effect: "deny", Match: []string{"message.*"}}}},
			three[:1],
			capability.Context{},
			arbitration.Request{Action: "message.send"},
			"0 no_provider", "0 " + a + " policy_denied",
		},
		{
			"the slot is broken", slot("other", ""),
			[]string{"a:x memory.search"},
			capability.Context{},
			arbitration.Request{Action: "memory.search"},
			"0 no_provider", "0 memory:a:x slot_not_selected",
		},
		{
			"composed",
			catalog.Settings{},
			[]string{"b:x context.augment", "a:x context.augment", "a:y context.augment unavailable"},
			capability.Context{},
			arbitration.Request{
				Action: "context.augment", Audience: capability.AudienceInternal,
				Caller: arbitration.Runtime,
			},
			"0 composed", "0 context:a:y unavailable",
		},

		{
			"a field nobody knows",
			catalog.Settings{},
			three,
			capability.Context{},
			arbitration.Request{Action: "message.send", Selector: sel("colour", "red")},
			"1 invalid_selector", "",
		},
		{
			"a blank value",
			catalog.Settings{},
			three,
			capability.Context{},
			arbitration.Request{Action: "message.send", Selector: sel("channel", " ")},
			"1 invalid_selector", "",
		},
		{
			"no current conversation",
			catalog.Settings{},
			[]string{"a:x message.reply"},
			capability.Context{},
			arbitration.Request{Action: "message.reply"},
			"3 no_current_conversation", "",
		},
		{
			"no conversation but a selector",
			catalog.Settings{},
			[]string{"a:x message.reply"},
			capability.Context{},
			arbitration.Request{Action: "message.reply", Selector: sel("channel", "a")},
			"1 explicit_selector " + a, "",
		},
		{
			"explicit",
			catalog.Settings{},
			three,
			capability.Context{},
			arbitration.Request{Action: "message.send", Selector: sel("channel", " b ")},
			"1 explicit_selector " + b,
			"1 " + a + " selector_mismatch, 1 " + c + " selector_mismatch",
		},
		{
			"explicit, all fields count",
			catalog.Settings{},
			three,
			capability.Context{},
			arbitration.Request{Action: "message.send", Selector: sel("channel", "b", "account", "y")},
			"1 unknown_provider " + a + "+" + b + "+" + c, "1 " + a + " selector_mismatch, 1 " + b + " selector_mismatch, 1 " + c +
				" selector_mismatch",
		},
		{
			"explicit, denied",
			catalog.Settings{Policy: []rules.Rule{{Effect: "deny", Match: []string{"ext:b"}}}},
			three,
			capability.Context{},
			arbitration.Request{Action: "message.send", Selector: sel("channel", "b")},
			"1 provider_denied " + a + "+" + c,
			"0 " + b + " policy_denied, 1 " + a + " selector_mismatch, 1 " + c + " selector_mismatch",
		},
		{
			"explicit, does not offer it",
			catalog.Settings{},
			[]string{"a:x message.send", "b:x message.edit"},
			capability.Context{},
			arbitration.Request{Action: "message.send", Selector: sel("channel", "b")},
			"1 unsupported_action " + a,
			"1 " + a + " selector_mismatch",
		},
		{
			"explicit, its account cannot",
			catalog.Settings{},
			[]string{"a:x message.send", "b:x message.send!"},
			capability.Context{},
			arbitration.Request{Action: "message.send", Selector: sel("channel", "b")},
			"1 unsupported_action " + a,
			"1 " + a + " selector_mismatch, 1 " + b + " undecided",
		},
		{
			"explicit, down",
			catalog.Settings{},
			[]string{"a:x message.send", "b:x message.send unavailable"},
			capability.Context{},
			arbitration.Request{Action: "message.send", Selector: sel("channel", "b")},
			"1 provider_unavailable " + b,
			"1 " + a + " selector_mismatch, 1 " + b + " undecided",
		},
		{
			"explicit, soft, down: step 1 is always strict",
			catalog.Settings{},
			[]string{"a:x message.read", "b:x message.read unavailable"},
			capability.Context{},
			arbitration.Request{Action: "message.read", Selector: sel("channel", "b")},
			"1 provider_unavailable " + b,
			"1 " + a + " selector_mismatch, 1 " + b + " undecided",
		},

		{
			"none is well",
			catalog.Settings{},
			[]string{"a:x message.send unavailable", "b:x message.send!"},
			capability.Context{},
			arbitration.Request{Action: "message.send"},
			"4 no_eligible_provider " + a + "+" + b, "4 " + a + " unavailable, 4 " + b +
				" unsupported_by_account",
		},
		{
			"the only one",
			catalog.Settings{},
			[]string{"a:x message.send", "b:x message.send starting"},
			capability.Context{},
			arbitration.Request{Action: "message.send"},
			"4 only_supported " + a, "4 " + b + " unavailable",
		},
		{
			"the adapter",
			catalog.Settings{},
			three,
			capability.Context{Adapter: &capability.Adapter{Kind: "b"}},
			arbitration.Request{Action: "message.send"},
			"4 current_adapter " + b, "4 " + a + " outranked, 4 " + c + " outranked",
		},
		{
			"the adapter of another account",
			catalog.Settings{},
			three,
			capability.Context{Adapter: &capability.Adapter{Kind: "b", Account: "y"}},
			arbitration.Request{Action: "message.send", Caller: arbitration.Runtime},
			"7 deterministic_fallback " + a + " fallback",
			"7 " + b + " tie_break, 7 " + c + " tie_break",
		},
		{
			"two accounts of the adapter",
			catalog.Settings{},
			[]string{"b:x message.send", "b:y message.send rank=1", "a:x message.send rank=5"},
			capability.Context{Adapter: &capability.Adapter{Kind: "b"}},
			arbitration.Request{Action: "message.send"},
			"6 ranked_default messaging:b:y", "4 " + a + " not_current_adapter, 6 " + b + " lower_rank",
		},

		{
			"forced", forced(catalog.ForcedDefault{Action: "message.*", Provider: b}), three,
			capability.Context{},
			arbitration.Request{Action: "message.send"},
			"5 policy_forced_default " + b, "5 " + a + " outranked, 5 " + c + " outranked",
		},
		{
			"forced, the longer glob", forced(catalog.ForcedDefault{Action: "message.*", Provider: b},
				catalog.ForcedDefault{Action: "message.send", Provider: c}), three,
			capability.Context{},
			arbitration.Request{Action: "message.send"},
			"5 policy_forced_default " + c, "",
		},
		{
			"forced, for the agent", forced(catalog.ForcedDefault{Action: "message.send", Provider: b},
				catalog.ForcedDefault{Action: "*", Provider: c, Agent: "main"}), three,
			capability.Context{Agent: "main"},
			arbitration.Request{Action: "message.send"},
			"5 policy_forced_default " + c, "",
		},
		{
			"forced, for another agent", forced(catalog.ForcedDefault{Action: "*", Provider: c, Agent: "other"}), three,
			capability.Context{Agent: "main"},
			arbitration.Request{Action: "message.send"},
			"7 selection_required " + a + "+" + b + "+" + c +
				" would " + a, "",
		},
		{
			"forced, for another workspace", forced(catalog.ForcedDefault{Action: "*", Provider: c, Workspace: "w2"}), three,
			capability.Context{Workspace: "w1"},
			arbitration.Request{Action: "message.send"},
			"7 selection_required " + a + "+" + b + "+" + c +
				" would " + a, "",
		},
		{
			"forced, down", forced(catalog.ForcedDefault{Action: "*", Provider: c}),
			[]string{"a:x message.send rank=1", "b:x message.send", "c:x message.send unavailable"},
			capability.Context{},
			arbitration.Request{Action: "message.send"},
			"6 ranked_default " + a + " fallback", "4 " + c + " unavailable, 6 " + b + " lower_rank",
		},
		{
			"forced, not known at all", forced(catalog.ForcedDefault{Action: "*", Provider: "messaging:z:z"}),
			[]string{"a:x message.send rank=1", "b:x message.send"},
			capability.Context{},
			arbitration.Request{Action: "message.send"},
			"6 ranked_default " + a, "",
		},

		{
			"ranked",
			catalog.Settings{},
			[]string{"a:x message.send", "b:x message.send rank=5", "c:x message.send rank=-1"},
			capability.Context{},
			arbitration.Request{Action: "message.send"},
			"6 ranked_default " + b, "6 " + a + " lower_rank, 6 " + c + " lower_rank",
		},
		{
			"the operator's rank replaces the declared",
			catalog.Settings{Ranks: map[capability.ProviderKey]int{b: 3}},
			[]string{"a:x message.send rank=4", "b:x message.send rank=5"},
			capability.Context{},
			arbitration.Request{Action: "message.send"},
			"6 ranked_default " + a, "",
		},
		{
			"ranks that tie leave the others behind",
			catalog.Settings{},
			[]string{"a:x message.send", "b:x message.send rank=5", "c:x message.send rank=5"},
			capability.Context{},
			arbitration.Request{Action: "message.send"},
			"7 selection_required " + b + "+" + c + " would " + b,
			"6 " + a + " lower_rank, 7 " + b + " undecided, 7 " + c + " undecided",
		},
		{
			"slot", slot("a", ""),
			[]string{"a:x memory.search", "b:x memory.search rank=9"},
			capability.Context{},
			arbitration.Request{Action: "memory.search"},
			"6 slot_default memory:a:x", "0 memory:b:x slot_not_selected",
		},
		{
			"slot, down, exclusive", slot("a", ""),
			[]string{"a:x memory.search unavailable", "b:x memory.search"},
			capability.Context{},
			arbitration.Request{Action: "memory.search"},
			"0 no_provider", "",
		},
		{
			"slot, down, parallel", slot("a", "parallel"),
			[]string{"a:x memory.search unavailable", "b:x memory.search"},
			capability.Context{},
			arbitration.Request{Action: "memory.search"},
			"6 slot_provider_unavailable memory:b:x",
			"4 memory:a:x unavailable, 6 memory:b:x undecided",
		},
		{
			"slot, unknown, parallel", slot("z", "parallel"),
			[]string{"b:x memory.search"},
			capability.Context{},
			arbitration.Request{Action: "memory.search"},
			"6 slot_provider_unknown memory:b:x", "",
		},
		{
			"slot, parallel, selector", slot("a", "parallel"),
			[]string{"a:x memory.search", "b:x memory.search"},
			capability.Context{},
			arbitration.Request{Action: "memory.search", Selector: sel("store", "b")},
			"1 explicit_selector memory:b:x", "",
		},
		{
			"slot, the adapter at hand decides nothing", slot("a", "parallel"),
			[]string{"a:x memory.search", "b:x memory.search"},
			capability.Context{Adapter: &capability.Adapter{Kind: "b"}},
			arbitration.Request{Action: "memory.search"},
			"6 slot_default memory:a:x",
			"",
		},

		{
			"code gets the first",
			catalog.Settings{},
			three,
			capability.Context{},
			arbitration.Request{Action: "message.send", Caller: arbitration.Runtime},
			"7 deterministic_fallback " + a + " fallback",
			"7 " + b + " tie_break, 7 " + c + " tie_break",
		},
		{
			"a planner may be guessed for where it only reads",
			catalog.Settings{},
			[]string{"a:x message.read", "b:x message.read"},
			capability.Context{},
			arbitration.Request{Action: "message.read"},
			"7 deterministic_fallback " + a + " fallback", "",
		},
		{
			"a planner may be guessed for where providers are ranked",
			catalog.Settings{},
			[]string{"a:x fs.writeText", "b:x fs.writeText"},
			capability.Context{},
			arbitration.Request{Action: "fs.writeText"},
			"7 deterministic_fallback fs:a:x fallback", "",
		},
		{
			"one of two accounts, by key",
			catalog.Settings{},
			[]string{"a:y message.send", "a:x message.send"},
			capability.Context{},
			arbitration.Request{Action: "message.send", Caller: arbitration.Runtime},
			"7 deterministic_fallback messaging:a:y fallback", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := arbitration.NewFrame(adapters(t, tt.settings, tt.specs...), &tt.ctx).Select(tt.req)
			if told(got, err) != tt.want {
				t.Errorf("got  %s\nwant %s\n%v", told(got, err), tt.want, err)
			}
			if tt.fallen != "" && fallen(got) != tt.fallen {
				t.Errorf("got  %s\nwant %s", fallen(got), tt.fallen)
			}
			if err != nil && strings.Contains(got.Err.Message+got.Err.Hint, b) && strings.Contains(fallen(got), "0 "+b) {
				t.Errorf("a denied provider is named: %s", got.Err.Message)
			}
		})
	}
}

// TestReasons checks every reason in order: an entry that fails all tests fails with
// the first.
func TestReasons(t *testing.T) {
	t.Parallel()
	deny := []rules.Rule{{ID: "r7", Effect: "deny", Match: []string{"message.*"}}}
	session := []rules.Rule{{ID: "r8", Layer: "session", Session: "s", Effect: "deny", Match: []string{"message.*"}}}
	base := capability.Contribution{ID: "adapter", Kind: "adapter.runtime", Action: "message.send", Provider: "messaging:slack:work"}
	other := capability.Context{
		Route:  &capability.Route{Kind: "discord", Account: "home"},
		Blocks: []capability.Block{{Actions: []string{"message.*"}, By: "x/y"}}, Session: "s",
	}
	for _, tt := range []struct {
		name     string
		settings catalog.Settings
		change   func(*capability.Contribution)
		ctx      capability.Context
		reason   string
		rule     string
	}{
		{"withheld", catalog.Settings{Policy: deny}, func(c *capability.Contribution) {
			c.Depends = &capability.Depends{Requires: []string{"none/x"}}
			c.Visibility = "none"
		}, other, "dependency_missing", ""},
		{"not visible", catalog.Settings{Policy: deny}, func(c *capability.Contribution) {
			c.Visibility = capability.VisibleOperator
			c.Scope = &capability.Scope{Agent: []string{"x"}}
		}, other, arbitration.ReasonNotVisible, ""},
		{"another agent's", catalog.Settings{Policy: deny}, func(c *capability.Contribution) { c.Scope = &capability.Scope{Agent: []string{"x"}} }, other, arbitration.ReasonOutOfScope, ""},
		{
			"another workspace's",
			catalog.Settings{},
			func(c *capability.Contribution) { c.Scope = &capability.Scope{Workspace: []string{"x"}} },
			other, arbitration.ReasonOutOfScope, "",
		},
		{"denied", catalog.Settings{Policy: deny, CrossContext: "same-adapter"}, nil, other, arbitration.ReasonDenied, "r7"},
		{"denied in the session", catalog.Settings{Policy: session, CrossContext: "same-adapter"}, nil, other, arbitration.ReasonDenied, "r8"},
		{
			"out of the conversation's kind",
			catalog.Settings{Policy: session},
			func(c *capability.Contribution) { c.Scope = &capability.Scope{ConversationKind: []string{"dm"}} }, other, arbitration.ReasonOutOfScope,
			"",
		},
		{"blocked", catalog.Settings{CrossContext: "same-adapter"}, nil, other, arbitration.ReasonBlocked, ""},
		{
			"another adapter",
			catalog.Settings{CrossContext: "same-adapter"},
			nil,
			capability.Context{Route: other.Route},
			arbitration.ReasonCrossContext, "",
		},
		{
			"another adapter, by the adapter alone",
			catalog.Settings{CrossContext: "same-account"},
			nil,
			capability.Context{Adapter: &capability.Adapter{Kind: "discord"}},
			arbitration.ReasonCrossContext, "",
		},
		{
			"another account",
			catalog.Settings{CrossContext: "same-account"},
			nil,
			capability.Context{Route: &capability.Route{Kind: "slack", Account: "home"}},
			arbitration.ReasonCrossContext, "",
		},
		{
			"another account of one adapter",
			catalog.Settings{CrossContext: "same-adapter"},
			nil,
			capability.Context{Route: &capability.Route{Kind: "slack", Account: "home"}},
			"", "",
		},
		{"no conversation to cross", catalog.Settings{CrossContext: "same-account"}, nil, capability.Context{}, "", ""},
		{"anywhere", catalog.Settings{CrossContext: "any"}, nil, capability.Context{Route: other.Route}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := catalog.New(tt.settings, 0)
			if err != nil {
				t.Fatal(err)
			}
			con := base
			if tt.change != nil {
				tt.change(&con)
			}
			if _, _, err := c.Replace(capability.Batch{Source: "s", Modules: []capability.Module{{
				Extension: "slack", ID: "slack",
				Contributions: []capability.Contribution{con},
			}}}); err != nil {
				t.Fatal(err)
			}
			s := c.Snapshot()
			reason, rule := arbitration.NewFrame(s, &tt.ctx).Candidate(s.Action("message.send")[0], capability.AudienceAgent)
			if reason != tt.reason || rule != tt.rule {
				t.Errorf("%s (%s); want reason = %v, rule = %v", reason, rule, tt.reason, tt.rule)
			}
		})
	}
}
