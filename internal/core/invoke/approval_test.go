package invoke_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// clock is the time of a test.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.at.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.at.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// asked makes the call, which must need consent, and returns the approval's id.
func (r *rig) asked(inv capability.Invocation) string {
	r.Helper()
	reply, err := r.engine.Invoke(r.Context(), inv)
	e := fails(r, err, capability.CodeApprovalRequired, "confirmation_required")
	id, _ := e.Details["approval"].(string)
	if !strings.HasPrefix(id, "apr_") || !strings.Contains(e.Hint, id) || reply.State != invoke.StateFailed {
		r.Fatalf("%v, %s, state %s", e.Details, e.Hint, reply.State)
	}
	want := []invoke.State{"created", "validating", "awaiting_confirmation", "failed"}
	if d := cmp.Diff(want, states(reply)); d != "" {
		r.Error(d)
	}
	rec := r.records(reply.Invocation)[0]
	if rec["event"] != "approval_required" || rec["level"] != "INFO" || rec["success"] != nil {
		r.Errorf("a call that needs an approval is recorded as %v, %v, success %v; want approval_required, INFO, success <nil>",
			rec["event"], rec["level"], rec["success"])
	}
	return id
}

func (r *rig) decide(id string, d policy.Decision) *policy.Grant {
	r.Helper()
	_, g, err := r.policy.Decide(r.Context(), operator(), id, d)
	if err != nil {
		r.Fatal(err)
	}
	return g
}

func (r *rig) passes(inv capability.Invocation) map[string]any {
	r.Helper()
	reply, err := r.engine.Invoke(r.Context(), inv)
	if err != nil {
		r.Fatal(err)
	}
	all := r.records(reply.Invocation)
	return all[len(all)-1]["metadata"].(map[string]any)["decision"].(map[string]any)
}

func withClock(t *testing.T) (*rig, *clock) {
	t.Helper()
	c := newClock()
	r := newRig(t, options{now: c.now})
	return r, c
}

func TestAnApprovalOnceLetsTheSameCallPassOnce(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	f := r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	inv := on(agent(), "w", `{"id":9007199254740993,"b":true}`)
	id := r.asked(inv)
	if again := r.asked(inv); again != id {
		t.Errorf("asked twice for one call: %s and %s; want again = %v", id, again, id)
	}
	if other := r.asked(on(agent(), "w", `{"id":9007199254740992,"b":true}`)); other == id {
		t.Errorf("two calls share an approval; got other = %v; want other other than %v", other, id)
	}
	if f.calls.Load() != 0 {
		t.Fatal("it was called without consent; want f.calls.Load() = 0")
	}
	r.decide(id, policy.DecideOnce)
	r.asked(on(agent(), "w", `{"id":9007199254740992,"b":true}`))
	other := inv
	other.Principal = capability.Principal{ID: "agent:other", Role: capability.RoleAgent}
	r.asked(other)
	inv.Input = []byte(`{ "b": true, "id": 9007199254740993 }`) // the same value
	if got := r.passes(inv); got["approval"] != id {
		t.Errorf(`r.passes(inv) = %v, want got["approval"] == id`, got)
	}
	if next := r.asked(inv); next == id || f.calls.Load() != 1 {
		t.Errorf("%s again after %d calls; want next other than %v, f.calls.Load() = 1", next, f.calls.Load(), id)
	}
}

func TestAnApprovalOnceIsSpentByOneOfManyRacingCalls(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	f := r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	inv := on(agent(), "w", `{}`)
	r.decide(r.asked(inv), policy.DecideOnce)
	var wg sync.WaitGroup
	var passed atomic.Int64
	for range 20 {
		wg.Go(func() {
			if _, err := r.engine.Invoke(t.Context(), inv); err == nil {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	if passed.Load() != 1 || f.calls.Load() != 1 {
		t.Errorf("%d passed, %d calls; want passed.Load() = 1, f.calls.Load() = 1", passed.Load(), f.calls.Load())
	}
}

func TestADenialStandsAsLongAsTheQuestionWould(t *testing.T) {
	t.Parallel()
	r, c := withClock(t)
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	inv := on(agent(), "w", `{}`)
	id := r.asked(inv)
	r.decide(id, policy.DecideDeny)
	for range 2 {
		reply, err := r.engine.Invoke(t.Context(), inv)
		if e := fails(t, err, capability.CodeDenied, "confirmation_rejected"); e.Details["approval"] != id {
			t.Errorf(`e.Details = %v, want e.Details["approval"] == id`, e.Details)
		}
		if d := cmp.Diff([]string{"permission_denied"}, r.events(reply.Invocation)); d != "" {
			t.Errorf("r.events(reply.Invocation) differs from want (-want +got):\n%s", d)
		}
	}
	r.asked(on(agent(), "w", `{"another":1}`))
	c.advance(24*time.Hour + time.Second)
	if r.asked(inv) == id {
		t.Errorf("the old question was asked again; want r.asked(inv) other than %v", id)
	}
}

func TestApprovalsExpireAskedAndAnswered(t *testing.T) {
	t.Parallel()
	r, c := withClock(t)
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	inv := on(agent(), "w", `{}`)
	id := r.asked(inv)
	c.advance(24*time.Hour + time.Second)
	_, _, err := r.policy.Decide(t.Context(), operator(), id, policy.DecideOnce)
	if e := fails(t, err, capability.CodeConflict, ""); !strings.Contains(e.Message, "expired") {
		t.Errorf(`e.Message = %v, want strings.Contains(e.Message, "expired")`, e.Message)
	}
	next := r.asked(inv)
	if next == id {
		t.Errorf("an expired question is still open; got next = %v; want next other than %v", next, id)
	}
	r.decide(next, policy.DecideOnce)
	c.advance(15*time.Minute + time.Second)
	r.asked(inv)
}

func TestStandingGrantsLastAsLongAsTheySay(t *testing.T) {
	t.Parallel()
	t.Run("timed", func(t *testing.T) {
		t.Parallel()
		r, c := withClock(t)
		r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
		g := r.decide(r.asked(on(agent(), "w", `{}`)), policy.DecideTimed)
		if got := r.passes(on(agent(), "w", `{"any":"input"}`)); got["grant"] != g.ID {
			t.Errorf(`r.passes(...) = %v, want got["grant"] == g.ID`, got)
		}
		c.advance(time.Hour + time.Second)
		r.asked(on(agent(), "w", `{}`))
		if all, err := r.policy.Grants(t.Context()); err != nil || all[0].State != "expired" {
			t.Errorf(`%+v %v; want no error, all[0].State = "expired"`, all, err)
		}
	})
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		r, _ := withClock(t)
		r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
		in := func(session string) capability.Invocation {
			inv := on(agent(), "w", `{}`)
			inv.Session = session
			return inv
		}
		r.decide(r.asked(in("s1")), policy.DecideSession)
		r.passes(in("s1"))
		id := r.asked(in("s2"))
		if got := r.asked(in("")); got != id {
			t.Errorf("%s %s; want got = %v", got, id, id) // an approval is bound to the call, not to its session
		}
	})
	t.Run("session asked outside one", func(t *testing.T) {
		t.Parallel()
		r, _ := withClock(t)
		r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
		_, _, err := r.policy.Decide(t.Context(), operator(), r.asked(on(agent(), "w", `{}`)), policy.DecideSession)
		fails(t, err, capability.CodeInvalidInput, "")
	})
	t.Run("always, until it is revoked", func(t *testing.T) {
		t.Parallel()
		r, c := withClock(t)
		r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
		r.offer("v", capability.Contribution{Effect: capability.EffectWrite}, nil)
		g := r.decide(r.asked(on(agent(), "w", `{}`)), policy.DecideAlways)
		c.advance(1000 * time.Hour)
		r.passes(on(agent(), "w", `{}`))
		r.asked(on(agent(), "v", `{}`))
		r.asked(on(capability.Principal{ID: "agent:other", Role: capability.RoleAgent}, "w", `{}`))
		if _, err := r.policy.RevokeGrant(t.Context(), operator(), g.ID); err != nil {
			t.Fatal(err)
		}
		r.asked(on(agent(), "w", `{}`))
	})
	t.Run("always, until what it was given for changes", func(t *testing.T) {
		t.Parallel()
		r, _ := withClock(t)
		r.offer("w", capability.Contribution{Effect: capability.EffectWrite, Description: "adds a note"}, nil)
		id := r.asked(on(agent(), "w", `{}`))
		r.decide(id, policy.DecideAlways)
		r.passes(on(agent(), "w", `{}`))
		r.offer("w", capability.Contribution{Effect: capability.EffectWrite, Description: "deletes all notes"}, nil)
		r.asked(on(agent(), "w", `{}`))
	})
}

func TestOnlyAnotherOperatorDecides(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{rules: `@consent("operator") permit (principal, action, resource);`})
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	id := r.asked(on(operator(), "w", `{}`))
	_, _, err := r.policy.Decide(t.Context(), operator(), id, policy.DecideOnce)
	fails(t, err, capability.CodeDenied, "forbidden")
	for _, role := range []capability.Role{capability.RoleAgent, capability.RoleTask, capability.RoleNode} {
		_, _, err = r.policy.Decide(t.Context(), capability.Principal{ID: string(role) + ":x", Role: role}, id, policy.DecideOnce)
		fails(t, err, capability.CodeDenied, "forbidden")
	}
	_, _, err = r.policy.Decide(t.Context(), admin(), id, "perhaps")
	fails(t, err, capability.CodeInvalidInput, "")
	if _, _, err = r.policy.Decide(t.Context(), admin(), id, policy.DecideOnce); err != nil {
		t.Error(err)
	}
	r.passes(on(operator(), "w", `{}`))
}

func TestAGrantForNCallsIsUsedNTimes(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	f := r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	if _, err := r.policy.CreateGrant(t.Context(), admin(), policy.Grant{Module: "test.w", MaxUses: 7}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			_, err := r.engine.Invoke(t.Context(), on(agent(), "w", fmt.Sprintf(`{"n":%d}`, i)))
			if err != nil && capability.CodeOf(err) != capability.CodeApprovalRequired {
				t.Errorf("%v; want not (err != nil && capability.CodeOf(err) != capability.CodeApprovalRequired)", err)
			}
		})
	}
	wg.Wait()
	if f.calls.Load() != 7 {
		t.Errorf("%d calls with a grant for 7; want f.calls.Load() = 7", f.calls.Load())
	}
}

func TestAnApprovalOnceIsNotSpentByACallThatNeverStarted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fails capability.Code
		back  bool
	}{
		{"the rate is exceeded, or the queue is full", capability.CodeOverloaded, true},
		{"there is no sandbox", capability.CodeUnavailable, true},
		{"it ran and failed", capability.CodeFailed, false},
		{"it may have run", capability.CodeTimeout, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, c := withClock(t)
			var refuse atomic.Bool
			refuse.Store(true)
			r.offer("w", capability.Contribution{Effect: capability.EffectWrite},
				func(_ context.Context, c capability.Call) (capability.Result, error) {
					if refuse.Load() {
						return capability.Result{}, capability.Errorf(tt.fails, "test", "no")
					}
					return capability.Result{Value: []byte("{}")}, nil
				})
			inv := on(agent(), "w", `{}`)
			id := r.asked(inv)
			r.decide(id, policy.DecideOnce)
			_, err := r.engine.Invoke(t.Context(), inv)
			fails(t, err, tt.fails, "")
			if !tt.back {
				if r.asked(inv) == id {
					t.Errorf("a spent approval is asked about again; want r.asked(inv) other than %v", id)
				}
				return
			}
			_, err = r.engine.Invoke(t.Context(), inv)
			fails(t, err, tt.fails, "")
			refuse.Store(false)
			if got := r.passes(inv); got["approval"] != id {
				t.Errorf(`r.passes(inv) = %v, want got["approval"] == id`, got)
			}
			again := r.asked(inv) // it was good for one call
			r.decide(again, policy.DecideOnce)
			refuse.Store(true)
			_, err = r.engine.Invoke(t.Context(), inv)
			fails(t, err, tt.fails, "")
			refuse.Store(false)
			c.advance(15*time.Minute + time.Second)
			r.asked(inv) // and for as long as it was
		})
	}
}

func TestAnApprovalOnceIsNotSpentWhereThereIsNoPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: func(c *invoke.Config) { c.PerProvider = 1 }})
	inside, leave := make(chan struct{}), make(chan struct{})
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite},
		func(_ context.Context, c capability.Call) (capability.Result, error) {
			if string(c.Input) == `{"slow":1}` {
				inside <- struct{}{}
				<-leave
			}
			return capability.Result{Value: []byte("{}")}, nil
		})
	inv := on(agent(), "w", `{}`)
	id := r.asked(inv)
	r.decide(id, policy.DecideOnce)
	var slow sync.WaitGroup
	slow.Go(func() { _, _ = r.engine.Invoke(t.Context(), on(operator(), "w", `{"slow":1}`)) })
	<-inside
	_, err := r.engine.Invoke(t.Context(), inv)
	fails(t, err, capability.CodeOverloaded, "queue_full")
	close(leave)
	slow.Wait()
	if got := r.passes(inv); got["approval"] != id {
		t.Errorf(`r.passes(inv) = %v, want got["approval"] == id`, got)
	}
}

func TestEveryUseOfAGrantIsCountedAndSaysForWhat(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	g, err := r.policy.CreateGrant(t.Context(), admin(), policy.Grant{Module: "test.w"})
	if err != nil {
		t.Fatal(err)
	}
	var run string
	for range 3 {
		reply, err := r.engine.Invoke(t.Context(), on(agent(), "w", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		run = reply.Invocation
	}
	first := r.records(run)[0]
	if first["event"] != "grant_used" || first["extension_id"] != "test.w" || first["action"] != "ext.test.w.work" {
		t.Errorf(`%v; want first["event"] = "grant_used", first["extension_id"] = "test.w", first["action"] = "ext.test.w.work"`, first)
	}
	if m := first["metadata"].(map[string]any); m["grant"] != g.ID || m["run_id"] != run || m["capability_id"] == nil {
		t.Errorf(`%v; want m["grant"] = %v, m["run_id"] = %v, m["capability_id"] not nil`, m, g.ID, run)
	}
	uses := func(want int) {
		t.Helper()
		if all, err := r.policy.Grants(t.Context()); err != nil || all[0].Uses != want {
			t.Errorf("%+v %v; want no error, all[0].Uses = %v", all, err, want)
		}
	}
	uses(3)
	for range 2 {
		if err := r.policy.SaveUses(t.Context()); err != nil {
			t.Fatal(err)
		}
		uses(3)
	}
	if kept, err := r.db.Grants(t.Context()); err != nil || kept[0].Uses != 3 {
		t.Errorf("%+v %v; want no error, kept[0].Uses = 3", kept, err)
	}
}

// What a caller that has read foreign text sends out needs an approval of its own, and what it
// reads or writes here does not.
func TestATaintedCallNeedsAFreshApproval(t *testing.T) {
	t.Parallel()
	const open = `permit (principal, action, resource);`
	for name, c := range map[string]struct {
		effect  capability.Effect
		tainted bool
		asks    bool
	}{
		"a read":                 {capability.EffectRead, true, false},
		"a write":                {capability.EffectWrite, true, false},
		"sent out":               {capability.EffectExternal, true, true},
		"administration":         {capability.EffectAdmin, true, true},
		"sent out, not tainted":  {capability.EffectExternal, false, false},
		"an effect not declared": {"", true, true},
	} {
		r := newRig(t, options{rules: open})
		r.offer("x", capability.Contribution{Effect: c.effect}, nil)
		inv := on(agent(), "x", `{}`)
		inv.Tainted = c.tainted
		_, err := r.engine.Invoke(t.Context(), inv)
		if asks := capability.CodeOf(err) == capability.CodeApprovalRequired; asks != c.asks {
			t.Errorf("%s under rules that permit everything: got %v, want an approval asked for: %v", name, err, c.asks)
		}
	}

	r, _ := withClock(t)
	f := r.offer("mail", capability.Contribution{Effect: capability.EffectExternal}, nil)
	plain := on(agent(), "mail", `{"to":"ann"}`)
	r.decide(r.asked(plain), policy.DecideAlways)
	r.passes(plain)
	tainted := plain
	tainted.Tainted = true
	id := r.asked(tainted) // although there is a grant
	tainted.Approval = "apr_of_another_call"
	r.asked(tainted)
	r.decide(id, policy.DecideAlways)
	tainted.Approval = id
	r.passes(tainted)
	if f.calls.Load() != 2 {
		t.Errorf("calls that were made: got %d, want 2", f.calls.Load())
	}
}
