package invoke_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

func keyed(who capability.Principal, name, input, key string) capability.Invocation {
	inv := on(who, name, input)
	inv.IdempotencyKey = key
	return inv
}

func TestARepeatedKeyGivesTheFirstOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	f := r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	first, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{"a":1,"b":2}`, "k"))
	if err != nil || first.Replayed {
		t.Fatalf("%v; want no error, first.Replayed = false", err)
	}
	again, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{"b":2, "a":1}`, "k"))
	if err != nil || !again.Replayed || again.Invocation != first.Invocation || string(again.Result) != string(first.Result) ||
		again.Capability != first.Capability || again.Action != first.Action || again.State != invoke.StateCompleted || f.calls.Load() != 1 {
		t.Errorf("%+v %v, %d calls", again, err, f.calls.Load())
	}
	for _, other := range []capability.Invocation{keyed(admin(), "w", `{"a":2}`, "k"), keyed(admin(), "v", `{"a":1,"b":2}`, "k")} {
		r.offer("v", capability.Contribution{Effect: capability.EffectWrite}, nil)
		_, err = r.engine.Invoke(t.Context(), other)
		fails(t, err, capability.CodeConflict, "key_reused")
	}
	if _, err = r.engine.Invoke(t.Context(), keyed(operator(), "w", `{"a":2}`, "k")); err != nil {
		t.Errorf("keys of two principals meet: %v", err)
	}
}

func TestAFailureIsRememberedAndSoIsTheOutcomeOfAProviderThatLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	f := r.offer("w", capability.Contribution{Effect: capability.EffectWrite},
		func(context.Context, capability.Call) (capability.Result, error) {
			return capability.Result{}, errors.New("half of it was done")
		})
	for range 2 {
		reply, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k"))
		if fails(t, err, capability.CodeFailed, "execution_failed"); reply.State != invoke.StateFailed {
			t.Errorf("reply.State = %v, want %v", reply.State, invoke.StateFailed)
		}
	}
	r.offer("w", capability.Contribution{
		Effect:       capability.EffectWrite,
		Availability: capability.Availability{State: capability.StateUnavailable},
	}, nil)
	reply, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k"))
	if fails(t, err, capability.CodeFailed, "execution_failed"); !reply.Replayed || f.calls.Load() != 1 {
		t.Errorf("replayed %v after %d calls; want reply.Replayed = true, f.calls.Load() = 1", reply.Replayed, f.calls.Load())
	}
}

func TestACallThatNeverStartedFreesItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	down := true
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, func(context.Context, capability.Call) (capability.Result, error) {
		if down {
			return capability.Result{}, notStarted()
		}
		return capability.Result{}, nil
	})
	_, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k"))
	fails(t, err, capability.CodeUnavailable, "connection_failed")
	_, err = r.engine.Invoke(t.Context(), keyed(agent(), "w", `{}`, "k"))
	fails(t, err, capability.CodeApprovalRequired, "confirmation_required")
	_, err = r.engine.Invoke(t.Context(), keyed(agent(), "w", `{}`, "k"))
	fails(t, err, capability.CodeApprovalRequired, "confirmation_required")
	down = false
	if reply, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k")); err != nil || reply.Replayed {
		t.Errorf("%v, replayed %v; want no error, reply.Replayed = false", err, reply.Replayed)
	}
}

func TestCallsWithOneKeyInFlightDoTheWorkOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	in, out := make(chan struct{}), make(chan struct{})
	f := r.offer("w", capability.Contribution{Effect: capability.EffectWrite},
		func(context.Context, capability.Call) (capability.Result, error) {
			close(in)
			<-out
			return capability.Result{Value: json.RawMessage(`42`)}, nil
		})
	var wg sync.WaitGroup
	replies := make(chan invoke.Reply, 10)
	call := func() {
		reply, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k"))
		if err != nil || string(reply.Result) != `42` {
			t.Errorf(`%s %v; want no error, string(reply.Result) = "42"`, reply.Result, err)
		}
		replies <- reply
	}
	wg.Go(call)
	<-in
	for range 9 {
		wg.Go(call)
	}
	_, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{"other":1}`, "k"))
	fails(t, err, capability.CodeConflict, "key_reused")
	impatient := keyed(admin(), "w", `{}`, "k")
	impatient.Timeout = 10 * time.Millisecond
	_, err = r.engine.Invoke(t.Context(), impatient)
	fails(t, err, capability.CodeTimeout, "timeout")
	close(out)
	wg.Wait()
	close(replies)
	original := 0
	for reply := range replies {
		if !reply.Replayed {
			original++
		}
	}
	if original != 1 || f.calls.Load() != 1 {
		t.Errorf("%d originals, %d calls; want original = 1, f.calls.Load() = 1", original, f.calls.Load())
	}
}

func TestWhoWaitsForACallThatNeverStartedTriesItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: func(c *invoke.Config) { c.PerProvider = 1 }})
	in, out := make(chan struct{}), make(chan struct{})
	first := true
	var mu sync.Mutex
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, func(context.Context, capability.Call) (capability.Result, error) {
		mu.Lock()
		mine := first
		first = false
		mu.Unlock()
		if mine {
			close(in)
			<-out
			return capability.Result{}, notStarted()
		}
		return capability.Result{Value: json.RawMessage(`"second"`)}, nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k"))
		fails(t, err, capability.CodeUnavailable, "connection_failed")
	})
	<-in
	wg.Go(func() {
		reply, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k"))
		if err != nil || string(reply.Result) != `"second"` {
			t.Errorf(`%s %v; want no error, string(reply.Result) = "\"second\""`, reply.Result, err)
		}
	})
	close(out)
	wg.Wait()
}

func TestAKeyWhoseProcessDiedIsAConflict(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: func(c *invoke.Config) { c.Outcomes = forgetful{c.Outcomes} }})
	f := r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	if _, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k")); err != nil {
		t.Fatal(err)
	}
	_, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k"))
	if fails(t, err, capability.CodeConflict, "interrupted"); f.calls.Load() != 1 {
		t.Errorf("%d calls; want f.calls.Load() = 1", f.calls.Load())
	}
}

func TestAKeyIsOneCallOnTwoServersThatShareAStore(t *testing.T) {
	t.Parallel()
	shared := func(c *invoke.Config) { c.SharedOutcomes = true }
	a := newRig(t, options{tune: shared})
	b := newRig(t, options{tune: func(c *invoke.Config) { shared(c); c.Outcomes = a.db }})
	in, out := make(chan struct{}), make(chan struct{})
	here := a.offer("w", capability.Contribution{Effect: capability.EffectWrite},
		func(context.Context, capability.Call) (capability.Result, error) {
			close(in)
			<-out
			return capability.Result{Value: json.RawMessage(`"done"`)}, nil
		})
	there := b.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	var wg sync.WaitGroup
	call := func(r *rig) {
		reply, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k"))
		if err != nil || string(reply.Result) != `"done"` {
			t.Errorf(`%s %v; want no error, string(reply.Result) = "\"done\""`, reply.Result, err)
		}
	}
	wg.Go(func() { call(a) })
	<-in
	// Another input is told at once, and a caller who leaves is not held.
	_, err := b.engine.Invoke(t.Context(), keyed(admin(), "w", `{"x":1}`, "k"))
	fails(t, err, capability.CodeConflict, "key_reused")
	ctx, leave := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer leave()
	if _, err := b.engine.Invoke(ctx, keyed(admin(), "w", `{}`, "k")); capability.CodeOf(err) != capability.CodeTimeout {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTimeout", err)
	}
	wg.Go(func() { call(b) })
	close(out)
	wg.Wait()
	if here.calls.Load() != 1 || there.calls.Load() != 0 {
		t.Errorf("%d calls here, %d there; want here.calls.Load() = 1, there.calls.Load() = 0", here.calls.Load(), there.calls.Load())
	}
}

// forgetful never stores an end, as a process that was killed.
type forgetful struct{ invoke.OutcomeStore }

func (forgetful) FinishOutcome(context.Context, invoke.Outcome) error { return errors.New("killed") }

func TestKeysAreRefusedWhereNobodyKeepsThemAndWhenTooLong(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: func(c *invoke.Config) { c.Outcomes = nil }})
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	_, err := r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, "k"))
	fails(t, err, capability.CodeInvalidInput, "")
	r = newRig(t, options{})
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	_, err = r.engine.Invoke(t.Context(), keyed(admin(), "w", `{}`, string(make([]byte, 201))))
	fails(t, err, capability.CodeInvalidInput, "")
}
