package tasks_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/tasksql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine does what the input says.
type engine struct {
	mu       sync.Mutex
	n        int
	approved map[string]bool
	hold     chan struct{}
	away     bool
	resumed  string
}

func (e *engine) NewID() string { return "run_x" }

func (e *engine) Follow(ctx context.Context, inv capability.Invocation, _ func(invoke.State)) (invoke.Reply, error) {
	e.mu.Lock()
	e.n++
	e.mu.Unlock()
	r := invoke.Reply{Invocation: inv.ID, Provider: "fs:local:x"}
	switch inv.Target.Action {
	case "wait":
		select {
		case <-e.hold:
		case <-ctx.Done():
			return r, capability.AsError(ctx.Err())
		}
	case "talk":
		for i := range 5 {
			inv.Progress(capability.Chunk{Progress: float64(i), Message: strings.Repeat("x", i+1)})
		}
	case "ask":
		a, err := inv.Ask(ctx, capability.Question{Method: "elicitation/create", Params: json.RawMessage(`{"message":"which?"}`)})
		if err != nil {
			return r, capability.AsError(err)
		}
		r.Result = a
		return r, nil
	case "consent", "client":
		e.mu.Lock()
		ok := e.approved["apr_1"]
		e.mu.Unlock()
		if !ok {
			channel := string(policy.ChannelOperator)
			if inv.Target.Action == "client" {
				channel = string(policy.ChannelClient)
			}
			return r, capability.Errorf(capability.CodeApprovalRequired, "", "needs a yes").Detail("approval", "apr_1").Detail("channel", channel)
		}
	case "far", "":
		if inv.Target.Capability == "" && inv.Target.Action == "" {
			break
		}
		if inv.Resume == "" {
			inv.Keep.Keep(capability.Kept{Capability: "far/x", UpstreamCall: "there"})
			<-ctx.Done()
			return r, capability.AsError(ctx.Err())
		}
		e.mu.Lock()
		e.n--
		away := e.away
		e.resumed = string(inv.Target.Capability) + " " + inv.Resume + " " + string(inv.Input)
		e.mu.Unlock()
		if away {
			return r, capability.Errorf(capability.CodeUnavailable, "", "not connected yet")
		}
		inv.Keep.Keep(capability.Kept{Capability: "far/x", UpstreamCall: "there"})
		if ctx.Err() != nil {
			return r, capability.AsError(ctx.Err())
		}
		r.Result = json.RawMessage(`"resumed"`)
		return r, nil
	case "deny":
		return r, capability.Errorf(capability.CodeDenied, "", "no")
	case "fail":
		r.Result = json.RawMessage(`{"isError":true}`)
		return r, capability.Errorf(capability.CodeFailed, "", "broken")
	}
	r.Result = inv.Input
	return r, nil
}

type rig struct {
	*tasks.Manager
	engine *engine
	db     *store.DB
	mu     sync.Mutex
	state  policy.ApprovalState
	absent bool // principals are known only while they come
	kept   []tasks.Task
}

func ann() capability.Principal {
	return capability.Principal{ID: "agent:ann", Role: capability.RoleAgent}
}

// newRig has a Manager over db, or a new one.
func newRig(t *testing.T, db *store.DB, tune ...func(*rig)) *rig {
	t.Helper()
	if db == nil {
		var err error
		if db, err = store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
	}
	s, err := tasksql.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{engine: &engine{approved: map[string]bool{}, hold: make(chan struct{})}, db: db, state: policy.ApprovalPending}
	for _, f := range tune {
		f(r)
	}
	r.Manager = tasks.New(tasks.Config{
		Store: s, Engine: r.engine, Poll: 5 * time.Millisecond,
		Standing: func(id string) (capability.Principal, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.absent {
				return capability.Principal{}, capability.Errorf(capability.CodeUnavailable, "", "not here")
			}
			return capability.Principal{ID: id, Role: capability.RoleAgent}, nil
		},
		Approval: func(context.Context, string) (policy.Approval, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return policy.Approval{ID: "apr_1", State: r.state, Expires: time.Now().Add(time.Hour)}, nil
		},
		Decide: func(_ context.Context, _ capability.Principal, _ string, d policy.Decision) error {
			r.decide(d != policy.DecideDeny)
			return nil
		},
		Changed: func(t tasks.Task) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.kept = append(r.kept, t)
		},
	})
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	over := make(chan error, 1)
	go func() { over <- r.Run(ctx) }()
	t.Cleanup(func() {
		now, stop := context.WithCancel(ctx)
		stop()
		r.Close(now)
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) decide(yes bool) {
	r.mu.Lock()
	r.state = policy.ApprovalDenied
	if yes {
		r.state = policy.ApprovalApproved
	}
	r.mu.Unlock()
	r.engine.mu.Lock()
	r.engine.approved["apr_1"] = yes
	r.engine.mu.Unlock()
}

func (r *rig) start(t *testing.T, who capability.Principal, action, input string) tasks.Task {
	t.Helper()
	got, err := r.Start(t.Context(), capability.Invocation{
		Surface: "a2a", Principal: who, Target: capability.Target{Action: capability.Action(action)}, Input: json.RawMessage(input),
	}, tasks.Options{Context: "c"})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// until watches a task until it is in the state and returns it.
func (r *rig) until(t *testing.T, id string, want tasks.State) tasks.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seq, err := r.Watch(ctx, "agent:ann", id)
	if err != nil {
		t.Fatal(err)
	}
	var last tasks.Task
	for last = range seq {
		if last.State == want {
			return last
		}
	}
	t.Fatalf("it never became %s: %+v", want, last)
	return last
}

func TestHowTasksEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, tt := range []struct {
		action string
		want   tasks.State
		result string
		code   capability.Code
	}{
		{"ok", tasks.Completed, `{"n":9007199254740993}`, ""},
		{"fail", tasks.Failed, `{"isError":true}`, capability.CodeFailed},
		{"deny", tasks.Rejected, ``, capability.CodeDenied},
	} {
		begun := r.start(t, ann(), tt.action, `{"n":9007199254740993}`)
		if len(begun.ID) != 36 || begun.State != tasks.Submitted {
			t.Errorf("%+v; want len(begun.ID) = 36, begun.State = tasks.Submitted", begun)
		}
		got := r.until(t, begun.ID, tt.want)
		stored, err := r.Get(t.Context(), "agent:ann", begun.ID)
		if err != nil || string(got.Result) != tt.result || string(stored.Result) != tt.result || stored.State != tt.want ||
			capability.CodeOf(asError(stored.Error)) != tt.code || stored.Invocation != "run_x" {
			t.Errorf("%s: %+v %+v %v; want no error, string(got.Result) = %v, string(stored.Result) = %v, stored.State = %v, "+
				`capability.CodeOf(asError(stored.Error)) = %v, stored.Invocation = "run_x"`, tt.action, got, stored, err, tt.result,
				tt.result, tt.want, tt.code)
		}
		if _, err := r.Cancel(t.Context(), "agent:ann", begun.ID); capability.CodeOf(err) != capability.CodeConflict {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeConflict", err)
		}
	}
}

func asError(e *capability.Error) error {
	if e == nil {
		return nil
	}
	return e
}

func TestQuestionsWaitForAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	begun := r.start(t, ann(), "ask", `{}`)
	asked := r.until(t, begun.ID, tasks.InputRequired)
	if asked.Status != "which?" || len(asked.Requests) != 1 || string(asked.Requests[0].Params) != `{"message":"which?"}` {
		t.Errorf(`%+v; want asked.Status = "which?", len(asked.Requests) = 1, string(asked.Requests[0].Params) = `+
			`"{\"message\":\"which?\"}"`, asked)
	}
	if _, err := r.Answer(t.Context(), capability.Principal{ID: "agent:ben"}, begun.ID, "",
		json.RawMessage(`{}`)); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("a stranger answered: %v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	if _, err := r.Answer(t.Context(), ann(), begun.ID, "q9", json.RawMessage(`{}`)); capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeConflict", err)
	}
	if _, err := r.Answer(t.Context(), ann(), begun.ID, "", json.RawMessage(`{"action":"accept"}`),
		json.RawMessage(`{"said":1}`)); err != nil {
		t.Fatal(err)
	}
	if end := r.until(t, begun.ID, tasks.Completed); string(end.Result) != `{"action":"accept"}` || len(end.History) != 1 {
		t.Errorf(`%+v; want string(end.Result) = "{\"action\":\"accept\"}", len(end.History) = 1`, end)
	}
}

func TestApprovals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, action string
		yes          bool
		want         tasks.State
	}{
		{"an operator says yes", "consent", true, tasks.Completed},
		{"an operator says no", "consent", false, tasks.Rejected},
		{"the caller says yes", "client", true, tasks.Completed},
		{"the caller says no", "client", false, tasks.Rejected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			begun := r.start(t, ann(), tt.action, `{"a":1}`)
			if tt.action == "consent" {
				waits := r.until(t, begun.ID, tasks.AuthRequired)
				if waits.Requests[0].Approval != "apr_1" {
					t.Errorf(`%+v; want waits.Requests[0].Approval = "apr_1"`, waits)
				}
				if _, err := r.Answer(t.Context(), ann(), begun.ID, "", json.RawMessage(`{"action":"accept"}`)); capability.CodeOf(
					err) != capability.CodeConflict {
					t.Errorf("the caller answered for the operator: %v; want capability.CodeOf( err) = capability.CodeConflict", err)
				}
				r.decide(tt.yes)
				r.Decided()
			} else {
				r.until(t, begun.ID, tasks.InputRequired)
				answer := `{"action":"accept","content":{"decision":"once"}}`
				if !tt.yes {
					answer = `{"action":"decline"}`
				}
				if _, err := r.Answer(t.Context(), ann(), begun.ID, "approval", json.RawMessage(answer)); err != nil {
					t.Fatal(err)
				}
			}
			end := r.until(t, begun.ID, tt.want)
			if tt.yes && string(end.Result) != `{"a":1}` {
				t.Errorf("%+v; want not (tt.yes && string(end.Result) != `{\"a\":1}`)", end)
			}
		})
	}
}

func TestCancelling(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for action, in := range map[string]tasks.State{"wait": tasks.Working, "ask": tasks.InputRequired, "consent": tasks.AuthRequired} {
		begun := r.start(t, ann(), action, `{}`)
		r.until(t, begun.ID, in)
		if _, err := r.Cancel(t.Context(), "agent:ben", begun.ID); capability.CodeOf(err) != capability.CodeNotFound {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
		}
		got, err := r.Cancel(t.Context(), "agent:ann", begun.ID)
		if err != nil || got.State != tasks.Cancelled || len(got.Requests) != 0 {
			t.Errorf("%s: %+v %v; want no error, got.State = tasks.Cancelled, len(got.Requests) = 0", action, got, err)
		}
	}
}

func TestAllWatchersSeeTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	begun := r.start(t, ann(), "ask", `{}`)
	r.until(t, begun.ID, tasks.InputRequired)
	var all sync.WaitGroup
	seen := make([][]int64, 4)
	ready := make(chan struct{}, len(seen))
	for i := range seen {
		all.Go(func() {
			seq, err := r.Watch(t.Context(), "agent:ann", begun.ID)
			if err != nil {
				t.Error(err)
				return
			}
			for got := range seq {
				if seen[i] = append(seen[i], got.Version); len(seen[i]) == 1 {
					ready <- struct{}{}
				}
			}
		})
	}
	for range seen {
		<-ready
	}
	if _, err := r.Answer(t.Context(), ann(), begun.ID, "", json.RawMessage(`1`)); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for _, one := range seen {
		if !slices.Equal(one, seen[0]) || len(one) != 3 || !slices.IsSorted(one) {
			t.Errorf("seen = %v, want slices.Equal(one, seen[0]) && len(one) == 3 && slices.IsSorted(one)", seen)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, kept := range r.kept {
		if kept.Version != int64(i+1) {
			t.Errorf("change %d has version %d; want kept.Version = int64(i + 1)", i, kept.Version)
		}
	}
}

func TestProgressIsTheStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	begun := r.start(t, ann(), "talk", `{}`)
	if end := r.until(t, begun.ID, tasks.Completed); end.Status != "" {
		t.Errorf(`%+v; want end.Status = ""`, end)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	inv := capability.Invocation{Surface: "a2a", Principal: ann(), Target: capability.Target{Action: "wait"}}
	for range tasks.MaxRunningOf {
		if _, err := r.Start(t.Context(), inv, tasks.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Start(t.Context(), inv, tasks.Options{}); capability.CodeOf(err) != capability.CodeOverloaded {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeOverloaded", err)
	}
	inv.Principal.ID, inv.Target.Action = "agent:ben", "ok"
	if _, err := r.Start(t.Context(), inv, tasks.Options{History: make([]json.RawMessage,
		tasks.MaxHistory+1)}); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTooLarge", err)
	}
	if _, err := r.Start(t.Context(), inv, tasks.Options{}); err != nil {
		t.Error("another principal has places of its own:", err)
	}
	close(r.engine.hold)
}

func TestOnlyMayBeAskedSoOften(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for range tasks.MaxAsking {
		r.until(t, r.start(t, ann(), "ask", `{}`).ID, tasks.InputRequired)
	}
	if end := r.until(t, r.start(t, ann(), "ask", `{}`).ID, tasks.Failed); end.Error.Reason != "queue_full" {
		t.Errorf(`%+v; want end.Error.Reason = "queue_full"`, end)
	}
}

func TestATaskCanBeginLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	got, err := r.Start(t.Context(), capability.Invocation{Surface: "a2a", Principal: ann()},
		tasks.Options{Request: &tasks.Request{Key: "capability"}, Status: "which one?"})
	if err != nil || got.State != tasks.InputRequired {
		t.Fatalf("%+v %v; want no error, got.State = tasks.InputRequired", got, err)
	}
	if _, err := r.Answer(t.Context(), ann(), got.ID, "", json.RawMessage(`{}`)); capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeConflict", err)
	}
	inv := capability.Invocation{Surface: "a2a", Principal: ann(), Target: capability.Target{Action: "ok"}, Input: json.RawMessage(`[1]`)}
	if _, err := r.Begin(t.Context(), got.ID, inv); err != nil {
		t.Fatal(err)
	}
	if end := r.until(t, got.ID, tasks.Completed); string(end.Result) != `[1]` {
		t.Errorf(`%+v; want string(end.Result) = "[1]"`, end)
	}
	if _, err := r.Begin(t.Context(), got.ID, inv); capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeConflict", err)
	}
}

func TestARestart(t *testing.T) {
	t.Parallel()
	first := newRig(t, nil)
	asks := first.start(t, ann(), "ask", `{}`)
	waits := first.start(t, ann(), "consent", `{"kept":1}`)
	works := first.start(t, ann(), "wait", `{}`)
	done := first.start(t, ann(), "ok", `{}`)
	first.until(t, asks.ID, tasks.InputRequired)
	first.until(t, waits.ID, tasks.AuthRequired)
	first.until(t, works.ID, tasks.Working)
	first.until(t, done.ID, tasks.Completed)
	second := newRig(t, first.db) // as if the first had been killed
	for id, want := range map[string]tasks.State{
		asks.ID: tasks.Failed, works.ID: tasks.Failed, waits.ID: tasks.AuthRequired,
		done.ID: tasks.Completed,
	} {
		got, err := second.Get(t.Context(), "agent:ann", id)
		if err != nil || got.State != want || want == tasks.Failed && got.Error.Reason != "interrupted" {
			t.Errorf(`%+v %v; want no error, got.State = %v, not (want == tasks.Failed && got.Error.Reason != "interrupted")`,
				got, err, want)
		}
	}
	second.decide(true)
	if end := second.until(t, waits.ID, tasks.Completed); string(end.Result) != `{"kept":1}` {
		t.Errorf(`%+v; want string(end.Result) = "{\"kept\":1}"`, end)
	}
}

// TestWorkAtAFarSideOutlivesTheProcess, whether it is killed or stops.
func TestWorkAtAFarSideOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		first := newRig(t, nil)
		works := first.start(t, ann(), "far", `{"n":1}`)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seq, err := first.Watch(ctx, ann().ID, works.ID)
		if err != nil {
			t.Fatal(err)
		}
		for got := range seq {
			if got.Call.Kept.UpstreamCall == "there" {
				break
			}
		}
		if stops {
			now, stop := context.WithCancel(t.Context())
			stop()
			first.Close(now)
		}
		second := newRigAway(t, first.db)
		eventually(t, "it was tried", func() bool {
			second.engine.mu.Lock()
			defer second.engine.mu.Unlock()
			return second.engine.resumed == `far/x there {"n":1}`
		})
		if got, err := second.Get(t.Context(), ann().ID, works.ID); err != nil || got.State != tasks.Working {
			t.Errorf("%+v %v; want no error, got.State = tasks.Working", got, err)
		}
		second.engine.mu.Lock()
		second.engine.away = false
		second.engine.mu.Unlock()
		if end := second.until(t, works.ID, tasks.Completed); string(end.Result) != `"resumed"` {
			t.Errorf(`%+v; want string(end.Result) = "\"resumed\""`, end)
		}
	}
}

// TestWhatIsNotTakenUpYetCanBeCancelled: the far side is told when it is there again.
func TestWhatIsNotTakenUpYetCanBeCancelled(t *testing.T) {
	t.Parallel()
	first := newRig(t, nil)
	works := first.start(t, ann(), "far", `{}`)
	eventually(t, "it is kept", func() bool {
		got, err := first.Get(t.Context(), ann().ID, works.ID)
		return err == nil && got.Call.Kept.UpstreamCall == "there"
	})
	second := newRigAway(t, first.db)
	hurry, stop := context.WithCancel(t.Context())
	stop()
	_, _ = second.Cancel(hurry, ann().ID, works.ID) // it is said, and not waited for
	eventually(t, "it was tried", func() bool {
		second.engine.mu.Lock()
		defer second.engine.mu.Unlock()
		return second.engine.resumed != ""
	})
	second.engine.mu.Lock()
	second.engine.away = false
	second.engine.mu.Unlock()
	second.until(t, works.ID, tasks.Cancelled)
}

// TestACallThatBecomesATaskTakesAlongWhereItIs: the far side's name comes before the
// task, or after it.
func TestACallThatBecomesATaskTakesAlongWhereItIs(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		r := newRig(t, nil)
		k := new(tasks.Keeper)
		kept := capability.Kept{Capability: "far/x", UpstreamCall: "there"}
		if before {
			k.Keep(kept)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		running, got, err := r.Adopt(ctx, cancel, capability.Invocation{ID: "run_1", Principal: ann(), Keep: k}, tasks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !before {
			k.Keep(kept)
			if got, err = r.Get(t.Context(), ann().ID, got.ID); err != nil {
				t.Fatal(err)
			}
		}
		if got.Call.Kept != kept {
			t.Errorf("%+v; want got.Call.Kept = %v", got, kept)
		}
		running.End(invoke.Reply{}, nil)
		cancel(nil)
	}
}

// TestWhoIsKnownOnlyWhilePresentGoesOnThen: principals of another server's tokens.
func TestWhoIsKnownOnlyWhilePresentGoesOnThen(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	waits := r.start(t, ann(), "consent", `{}`)
	r.until(t, waits.ID, tasks.AuthRequired)
	r.mu.Lock()
	r.absent = true
	r.mu.Unlock()
	r.Seen(capability.Principal{ID: "agent:bob"})
	r.decide(true)
	for range 3 {
		r.Decided()
		if got, err := r.Get(t.Context(), ann().ID, waits.ID); err != nil || got.State != tasks.AuthRequired {
			t.Fatalf("%+v %v; want no error, got.State = tasks.AuthRequired", got, err)
		}
	}
	eventually(t, "it goes on when its owner comes", func() bool {
		r.Seen(ann())
		got, err := r.Get(t.Context(), ann().ID, waits.ID)
		return err == nil && got.State == tasks.Completed
	})
	asked := r.start(t, ann(), "client", `{}`) // agreed to already: it runs through
	r.until(t, asked.ID, tasks.Completed)
}

// newRigAway is a rig whose providers are not connected yet.
func newRigAway(t *testing.T, db *store.DB) *rig {
	t.Helper()
	return newRig(t, db, func(r *rig) { r.engine.away = true })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s; want not time.Now().After(end)", what)
		}
	}
}

func TestAStopIsAnInterruption(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	works := r.start(t, ann(), "wait", `{}`)
	r.until(t, works.ID, tasks.Working)
	now, stop := context.WithCancel(t.Context())
	stop()
	r.Close(now)
	got, err := r.Get(t.Context(), "agent:ann", works.ID)
	if err != nil || got.State != tasks.Failed || got.Error.Reason != "interrupted" {
		t.Errorf(`%+v %v; want no error, got.State = tasks.Failed, got.Error.Reason = "interrupted"`, got, err)
	}
	if _, err := r.Start(t.Context(), capability.Invocation{Principal: ann()},
		tasks.Options{}); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for range 5 {
		r.until(t, r.start(t, ann(), "ok", `{}`).ID, tasks.Completed)
	}
	var ids []string
	q := tasks.Query{Owner: "agent:ann", Limit: 2}
	for {
		p, err := r.List(t.Context(), q)
		if err != nil || p.Total != 5 {
			t.Fatalf("p = %v, err = %v, want err == nil && p.Total == 5", p, err)
		}
		for _, one := range p.Tasks {
			ids = append(ids, one.ID)
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			break
		}
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 5 {
		t.Errorf("ids = %v, want len(slices.Compact(ids)) == 5", ids)
	}
	for _, cursor := range []string{"x", "MQ", strings.Repeat("a", 200)} {
		if _, err := r.List(t.Context(), tasks.Query{Owner: "agent:ann", Cursor: cursor}); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("cursor = %v, err = %v, want capability.CodeOf(err) == capability.CodeInvalidInput", cursor, err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("MTIzLnRza18x")
	f.Add("")
	m := tasks.New(tasks.Config{Store: nothing{}})
	f.Fuzz(func(_ *testing.T, s string) {
		_, _ = m.List(context.Background(), tasks.Query{Owner: "a", Cursor: s})
	})
}

type nothing struct{ tasks.Store }

func (nothing) Tasks(context.Context, tasks.Query, time.Time, string) ([]tasks.Task, int, error) {
	return nil, 0, nil
}
