package invoke_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func states(reply invoke.Reply) (out []invoke.State) {
	for _, t := range reply.History {
		out = append(out, t.State)
	}
	return out
}

func TestACompletedCallPassesEveryStateInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.offer("echo", capability.Contribution{Effect: capability.EffectRead}, nil)
	reply, err := r.engine.Invoke(t.Context(), on(agent(), "echo", `{"a":1}`))
	if err != nil || string(reply.Result) != `{"a":1}` {
		t.Fatalf(`%s, %v; want no error, string(reply.Result) = "{\"a\":1}"`, reply.Result, err)
	}
	want := []invoke.State{"created", "validating", "executing", "processing", "logging", "completed"}
	if d := cmp.Diff(want, states(reply)); d != "" {
		t.Errorf("states(reply) differs from want (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"capability_executed"}, r.events(reply.Invocation)); d != "" {
		t.Errorf("r.events(reply.Invocation) differs from want (-want +got):\n%s", d)
	}
}

func TestExactlyOneEndWhenExitDeadlineAndCancelRace(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.offer("race", capability.Contribution{Effect: capability.EffectRead},
		func(ctx context.Context, _ capability.Call) (capability.Result, error) {
			time.Sleep(time.Duration(rand.IntN(400)) * time.Microsecond)
			if rand.IntN(4) == 0 {
				return capability.Result{}, errors.New("broke")
			}
			return capability.Result{Value: json.RawMessage(`1`)}, ctx.Err()
		})
	const runs = 1000
	seen := make(map[invoke.State]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	gate := make(chan struct{}, 16)
	for i := range runs {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			inv := on(agent(), "race", `{}`)
			inv.ID, inv.Timeout = "run_"+string(rune('a'+i%26))+time.Duration(i).String(), time.Duration(rand.IntN(500)+1)*time.Microsecond
			cancelled := make(chan struct{})
			go func() {
				defer close(cancelled)
				time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
				r.engine.Cancel(inv.ID)
				r.engine.Cancel(inv.ID) // a second cancel does not cause an event
			}()
			reply, err := r.engine.Invoke(t.Context(), inv)
			<-cancelled
			ends := 0
			for _, s := range states(reply) {
				if s.Terminal() {
					ends++
				}
			}
			last := reply.History[len(reply.History)-1].State
			if ends != 1 || last != reply.State || !reply.State.Terminal() || (err == nil) != (reply.State == invoke.StateCompleted) {
				t.Errorf("%v: %v, %v; want ends = 1, last = %v, reply.State.Terminal(), (err == nil) = (reply.State == "+
					"invoke.StateCompleted)", states(reply), reply.State, err, reply.State)
			}
			mu.Lock()
			seen[reply.State]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(r.counts.ended()) != runs {
		t.Errorf("observed %d of %d; want len(r.counts.ended()) = %v", len(r.counts.ended()), runs, runs)
	}
	for _, s := range []invoke.State{"completed", "failed", "timeout", "cancelled"} {
		if seen[s] == 0 {
			t.Errorf("no run ended as %s: %v; want seen[s] other than 0", s, seen)
		}
	}
	if r.engine.Cancel("run_a0s") {
		t.Error("a finished run can still be cancelled")
	}
}

func TestTheNearestDeadlineWinsBeneathTheCeiling(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name             string
		caller, own, ctx time.Duration
		want             time.Duration
	}{
		{"provider kind's default when nobody says", 0, 0, 0, 7 * time.Second},
		{"caller", 2 * time.Second, 0, 0, 2 * time.Second},
		{"caller beyond the default", 9 * time.Second, 0, 0, 9 * time.Second},
		{"capability", 0, 3 * time.Second, 0, 3 * time.Second},
		{"capability nearer than caller", 5 * time.Second, 3 * time.Second, 0, 3 * time.Second},
		{"caller nearer than capability", 3 * time.Second, 5 * time.Second, 0, 3 * time.Second},
		{"the ceiling", time.Hour, 0, 0, 10 * time.Second},
		{"the caller's context", 5 * time.Second, 0, time.Second, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, options{tune: func(c *invoke.Config) {
				c.ProviderTimeout = map[string]time.Duration{"node": 7 * time.Second}
				c.MaxTimeout = 10 * time.Second
			}})
			var got time.Duration
			r.offer("slow", capability.Contribution{Effect: capability.EffectRead, Timeout: tt.own},
				func(ctx context.Context, _ capability.Call) (capability.Result, error) {
					deadline, _ := ctx.Deadline()
					got = time.Until(deadline)
					return capability.Result{}, nil
				})
			ctx := t.Context()
			if tt.ctx > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.ctx)
				defer cancel()
			}
			inv := on(agent(), "slow", `{}`)
			inv.Timeout = tt.caller
			if _, err := r.engine.Invoke(ctx, inv); err != nil {
				t.Fatal(err)
			}
			if got > tt.want || got < tt.want-500*time.Millisecond {
				t.Errorf("the provider had %s, want %s", got, tt.want)
			}
		})
	}
}

func TestADeadlineEndsACallWhoseProviderIgnoresIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	release, left := make(chan struct{}), make(chan struct{})
	var input []byte
	r.offer("deaf", capability.Contribution{Effect: capability.EffectWrite},
		func(_ context.Context, c capability.Call) (capability.Result, error) {
			defer close(left)
			<-release
			input = slices.Clone(c.Input)
			c.Progress(capability.Chunk{Progress: 1}) // too late, so it must not be visible
			return capability.Result{Value: json.RawMessage(`"late"`)}, nil
		})
	inv := on(admin(), "deaf", `{"keep":"me"}`)
	inv.Timeout = 20 * time.Millisecond
	inv.Progress = func(capability.Chunk) { t.Error("progress after the end") }
	reply, err := r.engine.Invoke(t.Context(), inv)
	e := fails(t, err, capability.CodeTimeout, "timeout")
	if reply.State != invoke.StateTimeout || !strings.Contains(e.Message, "20ms") {
		t.Errorf(`%s: %s; want reply.State = invoke.StateTimeout, e.Message with "20ms"`, reply.State, e.Message)
	}
	if d := cmp.Diff([]string{"capability_started", "capability_timeout"}, r.events(reply.Invocation)); d != "" {
		t.Errorf("r.events(reply.Invocation) differs from want (-want +got):\n%s", d)
	}
	copy(inv.Input, "overwritten!!!!") // as a surface does with its buffer
	close(release)
	<-left
	if string(input) != `{"keep":"me"}` {
		t.Errorf(`the provider left behind read %s; want string(input) = "{\"keep\":\"me\"}"`, input)
	}
}

func TestCancelBeforeAndDuringExecution(t *testing.T) {
	t.Parallel()
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{})
		f := r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the listener closed"))
		reply, err := r.engine.Invoke(ctx, on(admin(), "w", `{}`))
		fails(t, err, capability.CodeCancelled, "")
		if reply.State != invoke.StateCancelled || f.calls.Load() != 0 {
			t.Errorf("%s, %d calls; want reply.State = invoke.StateCancelled, f.calls.Load() = 0", reply.State, f.calls.Load())
		}
		if d := cmp.Diff([]string{"capability_cancelled"}, r.events(reply.Invocation)); d != "" {
			t.Errorf("r.events(reply.Invocation) differs from want (-want +got):\n%s", d)
		}
	})
	t.Run("during", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{})
		r.offer("w", capability.Contribution{Effect: capability.EffectWrite},
			func(ctx context.Context, c capability.Call) (capability.Result, error) {
				r.engine.Cancel(c.Invocation)
				<-ctx.Done()
				return capability.Result{}, errors.New("I was told to stop, in my own words")
			})
		reply, err := r.engine.Invoke(t.Context(), on(admin(), "w", `{}`))
		fails(t, err, capability.CodeCancelled, "")
		if reply.State != invoke.StateCancelled {
			t.Errorf("reply.State = %v, want %v", reply.State, invoke.StateCancelled)
		}
	})
}

func TestAPanicIsContainedAndRecorded(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, r *rig, reply invoke.Reply, err error) {
		t.Helper()
		e := fails(t, err, capability.CodeInternal, "panic")
		if reply.State != invoke.StateFailed || !strings.Contains(e.Message, reply.Invocation) || strings.Contains(e.Message, "secret") {
			t.Errorf(`%s: %s; want reply.State = invoke.StateFailed, e.Message with %v, e.Message without "secret"`,
				reply.State, e.Message, reply.Invocation)
		}
		if got := r.events(reply.Invocation); got[len(got)-1] != "capability_failed" {
			t.Errorf(`r.events(reply.Invocation) = %v, want got[len(got)-1] == "capability_failed"`, got)
		}
		if n := len(r.counts.ended()); n != 1 {
			t.Errorf("observed %d times; want n = 1", n)
		}
	}
	t.Run("in the provider", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{})
		r.offer("bad", capability.Contribution{Effect: capability.EffectWrite},
			func(context.Context, capability.Call) (capability.Result, error) { panic("secret") })
		reply, err := r.engine.Invoke(t.Context(), on(admin(), "bad", `{}`))
		check(t, r, reply, err)
	})
	t.Run("in the core", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{tune: func(c *invoke.Config) { c.Outcomes = panicking{c.Outcomes} }})
		r.offer("fine", capability.Contribution{Effect: capability.EffectWrite}, nil)
		inv := on(admin(), "fine", `{}`)
		inv.IdempotencyKey = "k"
		for range 2 { // the second would wait for ever if the first had kept the key
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			reply, err := r.engine.Invoke(ctx, inv)
			cancel()
			fails(t, err, capability.CodeInternal, "panic")
			if reply.State != invoke.StateFailed {
				t.Errorf("reply.State = %v, want %v", reply.State, invoke.StateFailed)
			}
		}
	})
	t.Run("while finishing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{tune: func(c *invoke.Config) { c.Observer = panickingObserver{} }})
		r.offer("fine", capability.Contribution{Effect: capability.EffectRead}, nil)
		_, err := r.engine.Invoke(t.Context(), on(admin(), "fine", `{}`))
		fails(t, err, capability.CodeInternal, "panic")
	})
}

type panicking struct{ invoke.OutcomeStore }

func (panicking) BeginOutcome(context.Context, invoke.Outcome, time.Duration, int) (invoke.Outcome, bool, error) {
	panic("secret")
}

type panickingObserver struct{}

func (panickingObserver) Finished(invoke.Ended) { panic("secret") }

func TestForeignErrorsKeepTheirTextInside(t *testing.T) {
	t.Parallel()
	var told bytes.Buffer
	r := newRig(t, options{tune: func(c *invoke.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}})
	r.offer("bad", capability.Contribution{Effect: capability.EffectRead}, func(context.Context, capability.Call) (capability.Result, error) {
		return capability.Result{}, errors.New("open the inner file")
	})
	reply, err := r.engine.Invoke(t.Context(), on(admin(), "bad", `{}`))
	e := fails(t, err, capability.CodeFailed, "execution_failed")
	recorded := r.records(reply.Invocation)[0]["error"].(string)
	if strings.Contains(e.Message, "inner") || strings.Contains(recorded, "inner") || !strings.Contains(told.String(), "inner file") {
		t.Errorf(`told the caller %q, the record %q and the operator's log %q; want e.Message without "inner", recorded without `+
			`"inner", told.String() with "inner file"`, e.Message, recorded, told.String())
	}
}

// The deadline of the caller covers the whole path, also a question to a
// provider that is away.
func TestTheCallersDeadlineCoversTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := &sleeper{fake: fake{key: "ext:node:away"}, probe: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		r.publish("away", capability.Contribution{
			Effect:       capability.EffectRead,
			Availability: capability.Availability{State: capability.StateUnavailable},
		}, p)
		inv := on(agent(), "away", `{}`)
		inv.Timeout = 300 * time.Millisecond
		began := time.Now()
		reply, err := r.engine.Invoke(t.Context(), inv)
		fails(t, err, capability.CodeTimeout, "timeout")
		if took := time.Since(began); took != inv.Timeout || reply.State != invoke.StateTimeout {
			t.Errorf("%s after %s; want took = %v, reply.State = invoke.StateTimeout", reply.State, took, inv.Timeout)
		}
		_ = r.db.Close() // its goroutine would outlive the bubble
		_ = r.log.Close()
	})
}

type sleeper struct {
	fake
	probe func(context.Context) error
}

func (s *sleeper) Probe(ctx context.Context) error { return s.probe(ctx) }
