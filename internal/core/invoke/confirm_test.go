package invoke_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// teller is a provider that can say what its calls would do.
type teller struct {
	*fake
	preview capability.Preview
	fail    error
}

func (p *teller) Preview(context.Context, capability.Call) (capability.Preview, error) {
	return p.preview, p.fail
}

func (r *rig) tells(name string, c capability.Contribution, preview capability.Preview) *teller {
	r.Helper()
	p := &teller{fake: &fake{key: capability.NewProviderKey("ext", "node", name)}, preview: preview}
	r.publish(name, c, p)
	return p
}

func TestPeopleConfirmWhatAsksForIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		declared string
		preview  capability.Preview
		who      capability.Principal
		channel  string // "" if no approval is requested
		again    bool   // asked again for the next call
	}{
		{"nothing asks", "", capability.Preview{}, admin(), "", false},
		{"always, a person", "always", capability.Preview{}, admin(), "client", true},
		{"first, a person", "first", capability.Preview{}, operator(), "client", false},
		{"the preview, always", "", capability.Preview{Confirm: "always", Why: "it deletes"}, admin(), "client", true},
		{"the preview, first", "", capability.Preview{Confirm: "first", Why: "it is weak"}, admin(), "client", false},
		{"both, the stronger holds", "first", capability.Preview{Confirm: "always"}, admin(), "client", true},
		{"an agent is never its own judge", "always", capability.Preview{}, agent(), "operator", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, _ := withClock(t)
			p := r.tells("w", capability.Contribution{Effect: capability.EffectRead, Confirm: tt.declared}, tt.preview)
			inv := on(tt.who, "w", `{"a":1}`)
			if tt.channel == "" {
				r.passes(inv)
				return
			}
			reply, err := r.engine.Invoke(t.Context(), inv)
			e := fails(t, err, capability.CodeApprovalRequired, "confirmation_required")
			if e.Details["channel"] != tt.channel || p.calls.Load() != 0 || reply.State != invoke.StateFailed {
				t.Fatalf(`%v %v; want e.Details["channel"] = %v, p.calls.Load() = 0, reply.State = invoke.StateFailed`,
					e.Details, reply.State, tt.channel)
			}
			if why := tt.preview.Why; !strings.Contains(e.Details["summary"].(string), why) {
				t.Errorf(`e.Details["summary"] = %v, want strings.Contains(e.Details["summary"].(string), why)`, e.Details["summary"])
			}
			by := tt.who
			if tt.channel == "operator" {
				by = operator()
			}
			if _, _, err := r.policy.Decide(t.Context(), by, e.Details["approval"].(string), policy.DecideOnce); err != nil {
				t.Fatal(err)
			}
			r.passes(inv)
			_, err = r.engine.Invoke(t.Context(), on(tt.who, "w", `{"a":2}`))
			if asked := capability.CodeOf(err) == capability.CodeApprovalRequired; asked != tt.again || !asked && err != nil {
				t.Errorf("%v; want asked = %v, not (!asked && err != nil)", err, tt.again)
			}
		})
	}
}

func TestAYesHoldsForWhatWasShown(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	p := r.tells("w", capability.Contribution{Effect: capability.EffectRead, Confirm: "always"},
		capability.Preview{What: []string{"rm", "a"}, Binds: "one"})
	inv := on(admin(), "w", `{"a":1}`)
	_, err := r.engine.Invoke(t.Context(), inv)
	first := fails(t, err, capability.CodeApprovalRequired, "confirmation_required")
	if !strings.Contains(first.Details["summary"].(string), `to run: "rm" "a"`) {
		t.Errorf("summary = %q, want it to contain the quoted words", first.Details["summary"])
	}
	if _, _, err := r.policy.Decide(t.Context(), admin(), first.Details["approval"].(string), policy.DecideOnce); err != nil {
		t.Fatal(err)
	}
	p.preview.Binds = "two" // a setting has changed the words meanwhile
	_, err = r.engine.Invoke(t.Context(), inv)
	second := fails(t, err, capability.CodeApprovalRequired, "confirmation_required")
	if second.Details["approval"] == first.Details["approval"] {
		t.Error(`an answer to another question was taken; want second.Details["approval"] other than first.Details["approval"]`)
	}
	p.preview.Binds = "one"
	p.do = func(_ context.Context, c capability.Call) (capability.Result, error) {
		if c.Agreed != "one" {
			t.Errorf(`agreed to %q; want c.Agreed = "one"`, c.Agreed)
		}
		return capability.Result{Value: c.Input}, nil
	}
	r.passes(inv)
}

func TestAWideGrantIsNoAnswerToWhatAlwaysAsks(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	r.tells("w", capability.Contribution{Effect: capability.EffectRead, Confirm: "always"}, capability.Preview{})
	if _, err := r.policy.CreateGrant(t.Context(), operator(), policy.Grant{Module: "test.w"}); err != nil {
		t.Fatal(err)
	}
	_, err := r.engine.Invoke(t.Context(), on(admin(), "w", `{}`))
	e := fails(t, err, capability.CodeApprovalRequired, "confirmation_required")
	if _, _, err := r.policy.Decide(t.Context(), admin(), e.Details["approval"].(string), policy.DecideAlways); err != nil {
		t.Fatal(err)
	}
	r.passes(on(admin(), "w", `{"other":"input"}`)) // the decision always includes other inputs
}

func TestAPersonWhoSaidNoMayThinkAgainAndOneWhoIsGoneIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r, c := withClock(t)
	p := r.tells("w", capability.Contribution{Effect: capability.EffectRead, Confirm: "always"}, capability.Preview{})
	inv := on(admin(), "w", `{}`)
	ask := func() string {
		t.Helper()
		_, err := r.engine.Invoke(t.Context(), inv)
		return fails(t, err, capability.CodeApprovalRequired, "confirmation_required").Details["approval"].(string)
	}
	id := ask()
	if _, _, err := r.policy.Decide(t.Context(), admin(), id, policy.DecideDeny); err != nil {
		t.Fatal(err)
	}
	second := ask()
	if second == id {
		t.Errorf("the answer no was forgotten; got second = %v; want second other than %v", second, id)
	}
	c.advance(3 * time.Minute)
	if _, _, err := r.policy.Decide(t.Context(), admin(), second, policy.DecideOnce); err == nil {
		t.Error("an answer came after its time and was taken; want an error")
	}
	if p.calls.Load() != 0 {
		t.Error("it ran; want p.calls.Load() = 0")
	}
}

func TestWhatCannotBeForeseenDoesNotRun(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	p := r.tells("w", capability.Contribution{Effect: capability.EffectRead}, capability.Preview{})
	p.fail = capability.Errorf(capability.CodeInvalidInput, "t", "no such word").With("invalid_args", "")
	reply, err := r.engine.Invoke(t.Context(), on(admin(), "w", `{}`))
	fails(t, err, capability.CodeInvalidInput, "invalid_args")
	if p.calls.Load() != 0 || states(reply)[len(states(reply))-2] != invoke.StateValidating {
		t.Errorf("states(reply) = %v, want p.calls.Load() == 0 && states(reply)[len(states(reply))-2] == invoke.StateValidating", states(reply))
	}
}
