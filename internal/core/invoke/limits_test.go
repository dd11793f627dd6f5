package invoke_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

func TestProgressIncreasesAndEndsWithTheCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.offer("p", capability.Contribution{Effect: capability.EffectRead},
		func(_ context.Context, c capability.Call) (capability.Result, error) {
			var wg sync.WaitGroup
			for _, n := range []float64{0, 1, 1, 3, 2} {
				c.Progress(capability.Chunk{Progress: n})
			}
			for n := range 50 {
				wg.Go(func() { c.Progress(capability.Chunk{Progress: float64(4 + n)}) })
			}
			wg.Wait()
			return capability.Result{}, nil
		})
	var got []float64
	ended := false
	inv := on(agent(), "p", `{}`)
	inv.Progress = func(c capability.Chunk) {
		if ended {
			t.Error("progress after the end")
		}
		got = append(got, c.Progress) // serial: the race detector would tell
	}
	reply, err := r.engine.Invoke(t.Context(), inv)
	ended = true
	if err != nil || string(reply.Result) != "null" {
		t.Fatalf(`%s %v; want no error, string(reply.Result) = "null"`, reply.Result, err)
	}
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || !slices.Equal(got[:3], []float64{0, 1, 3}) {
		t.Errorf("got = %v, want slices.IsSorted(got) && len(slices.Compact(slices.Clone(got))) == len(got) && slices.Equal(got[:3], []float64{0, 1, 3})", got)
	}
}

func TestBytesPassThroughUnchanged(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.offer("echo", capability.Contribution{Effect: capability.EffectRead}, nil)
	for _, doc := range []string{
		`{"z":1,"a":12345678901234567890123,"m":1.0e+2}`, `{"s":"\ud800 \u0041"}`, `{ "b" : [ 1 , 2 ] , "a" : null }`, `[1]`, `"x"`,
	} {
		reply, err := r.engine.Invoke(t.Context(), on(agent(), "echo", doc))
		if err != nil || string(reply.Result) != doc {
			t.Errorf("%s became %s, %v; want no error, string(reply.Result) = %v", doc, reply.Result, err, doc)
		}
	}
}

func TestInputAndResultHaveLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: func(c *invoke.Config) { c.MaxInput, c.MaxResult = 100, 50 }})
	f := r.offer("echo", capability.Contribution{Effect: capability.EffectRead}, nil)
	doc := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	_, err := r.engine.Invoke(t.Context(), on(agent(), "echo", doc(101)))
	if fails(t, err, capability.CodeTooLarge, ""); f.calls.Load() != 0 {
		t.Error("it was sent; want f.calls.Load() = 0")
	}
	_, err = r.engine.Invoke(t.Context(), on(agent(), "echo", doc(51)))
	fails(t, err, capability.CodeTooLarge, "output_limit")
	if _, err = r.engine.Invoke(t.Context(), on(agent(), "echo", doc(50))); err != nil {
		t.Error(err)
	}
	bad := on(agent(), "echo", `{}`)
	bad.Timeout = -1
	_, err = r.engine.Invoke(t.Context(), bad)
	fails(t, err, capability.CodeInvalidInput, "")
}

func TestOneCallTooManyIsRefusedPerProvider(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: func(c *invoke.Config) { c.PerProvider = 2 }})
	in, out := make(chan struct{}), make(chan struct{})
	r.offer("busy", capability.Contribution{Effect: capability.EffectRead}, func(context.Context, capability.Call) (capability.Result, error) {
		in <- struct{}{}
		<-out
		return capability.Result{}, nil
	})
	r.offer("idle", capability.Contribution{Effect: capability.EffectRead}, nil)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _, _ = r.engine.Invoke(t.Context(), on(agent(), "busy", `{}`)) })
		<-in
	}
	reply, err := r.engine.Invoke(t.Context(), on(agent(), "busy", `{}`))
	if e := fails(t, err, capability.CodeOverloaded, "queue_full"); e.RetryAfter <= 0 {
		t.Errorf("no time to wait is named; got e.RetryAfter = %v; want e.RetryAfter more than 0", e.RetryAfter)
	}
	if d := cmp.Diff([]string{"queue_rejected"}, r.events(reply.Invocation)); d != "" {
		t.Errorf("r.events(reply.Invocation) differs from want (-want +got):\n%s", d)
	}
	if _, err := r.engine.Invoke(t.Context(), on(agent(), "idle", `{}`)); err != nil {
		t.Error(err)
	}
	close(out)
	wg.Wait()
	go func() { <-in }()
	if _, err := r.engine.Invoke(t.Context(), on(agent(), "busy", `{}`)); err != nil {
		t.Error(err)
	}
}

func TestOnePrincipalLeavesPlacesToOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: func(c *invoke.Config) { c.PerProvider = 8 }})
	in, out := make(chan struct{}), make(chan struct{})
	r.offer("busy", capability.Contribution{Effect: capability.EffectRead}, func(context.Context, capability.Call) (capability.Result, error) {
		in <- struct{}{}
		<-out
		return capability.Result{}, nil
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(out)
	for _, who := range []struct {
		principal capability.Principal
		most      int
	}{{agent(), 6}, {admin(), 2}} {
		for range who.most {
			wg.Go(func() { _, _ = r.engine.Invoke(t.Context(), on(who.principal, "busy", `{}`)) })
			<-in
		}
		if _, err := r.engine.Invoke(t.Context(), on(who.principal, "busy", `{}`)); capability.CodeOf(err) != capability.CodeOverloaded {
			t.Errorf("call %d of %s: got %v, want %s", who.most+1, who.principal.ID, err, capability.CodeOverloaded)
		}
	}
}

func TestTheObserverIsToldOnceWithTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.offer("echo", capability.Contribution{Effect: capability.EffectWrite}, nil)
	inv := on(admin(), "echo", `{}`)
	inv.IdempotencyKey = "k"
	for range 2 { // the second is a replay
		if _, err := r.engine.Invoke(t.Context(), inv); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = r.engine.Invoke(t.Context(), on(admin(), "absent", `{}`))
	var got []string
	for _, e := range r.counts.ended() {
		got = append(got, string(e.State)+" "+string(e.Code)+" "+e.ProviderKind+" "+string(e.Effect))
	}
	want := []string{"completed  node write", "completed  node write", "failed unknown_capability  "}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("result differs from want (-want +got):\n%s", d)
	}
}

func TestSlowCallsAreRecordedAsSuch(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: func(c *invoke.Config) { c.SlowAfter = time.Nanosecond; c.RecordReads = true }})
	r.offer("echo", capability.Contribution{Effect: capability.EffectRead}, nil)
	reply, err := r.engine.Invoke(t.Context(), on(agent(), "echo", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"capability_started", "capability_executed", "capability_slow"}, r.events(reply.Invocation)); d != "" {
		t.Errorf("r.events(reply.Invocation) differs from want (-want +got):\n%s", d)
	}
}

func TestReplyIsOneJSONObject(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	got, err := json.Marshal(invoke.Reply{
		Invocation: "run_1", State: invoke.StateCompleted, Provider: "fs:node:local", Capability: "local/fs.list#fs.list@local",
		Action:    "fs.list",
		Selection: invoke.Selection{Step: 4, DecidedBy: "only_supported"}, Duration: 1500 * time.Microsecond,
		History: []invoke.Transition{{State: invoke.StateCreated, At: at}},
	})
	want := `{"id":"run_1","state":"completed","provider":"fs:node:local","capability_id":"local/fs.list#fs.list@local","action":"fs.list",` +
		`"selection":{"step":4,"decided_by":"only_supported","fallback":false},"duration_ms":1.5,"history":[{"state":"created","at":"2026-01-02T03:04:05.000Z"}]}`
	if err != nil || !bytes.Equal(got, []byte(want)) {
		t.Errorf("%s %v; want no error, got = []byte(want)", got, err)
	}
}

// settler takes longer than others to end what it has started.
type settler struct{ *fake }

func (settler) Settle() time.Duration { return 5 * time.Second }

func TestWhatHasToBeStoppedIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	var stopped atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	p := settler{&fake{
		key: capability.NewProviderKey("ext", "node", "w"),
		do: func(ctx context.Context, _ capability.Call) (capability.Result, error) {
			cancel()
			<-ctx.Done()
			<-time.After(300 * time.Millisecond) // longer than one that says nothing may take
			stopped.Store(true)
			return capability.Result{}, ctx.Err()
		},
	}}
	r.publish("w", capability.Contribution{Effect: capability.EffectRead}, p)
	if _, err := r.engine.Invoke(ctx, on(admin(), "w", `{}`)); capability.CodeOf(err) != capability.CodeCancelled || !stopped.Load() {
		t.Errorf("%v, stopped %v; want capability.CodeOf(err) = capability.CodeCancelled, stopped.Load()", err, stopped.Load())
	}
}
