package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// engine ends a run when it is told to, or cancelled.
type runEngine struct {
	mu    sync.Mutex
	n     int
	value string
	fail  error
	hold  chan struct{} // nil: it ends at once
}

func (e *runEngine) Verify(context.Context, capability.Invocation) error { return nil }

func (e *runEngine) NewID() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n++
	return fmt.Sprintf("run_%03d", e.n)
}

func (e *runEngine) Follow(ctx context.Context, inv capability.Invocation, moved func(invoke.State)) (invoke.Reply, error) {
	moved(invoke.StateValidating)
	moved(invoke.StateExecuting)
	inv.Progress(capability.Chunk{Message: "half way"})
	if e.hold != nil {
		select {
		case <-e.hold:
		case <-ctx.Done():
			moved(invoke.StateCancelled)
			return invoke.Reply{Invocation: inv.ID, State: invoke.StateCancelled}, capability.Errorf(capability.CodeCancelled, "t", "cancelled")
		}
	}
	moved(invoke.StateLogging)
	if e.fail != nil {
		state := invoke.StateFailed
		if capability.CodeOf(e.fail) == capability.CodeTimeout {
			state = invoke.StateTimeout
		}
		moved(state)
		return invoke.Reply{Invocation: inv.ID, State: state}, e.fail
	}
	moved(invoke.StateCompleted)
	return invoke.Reply{Invocation: inv.ID, State: invoke.StateCompleted, Result: json.RawMessage(e.value)}, nil
}

func runCaller() capability.Principal {
	return capability.Principal{ID: "agent:runCaller", Role: capability.RoleAgent}
}

func ben() capability.Principal {
	return capability.Principal{ID: "agent:ben", Role: capability.RoleAgent}
}

func boss() capability.Principal {
	return capability.Principal{ID: "admin:boss", Role: capability.RoleAdmin}
}

func TestWhatPollersAreTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		fail   error
		status tasks.RunStatus
	}{
		{"it ends well", nil, tasks.RunSucceeded},
		{"it fails", capability.Errorf(capability.CodeFailed, "t", "no"), tasks.RunFailed},
		{"it is denied", capability.Errorf(capability.CodeDenied, "t", "no"), tasks.RunFailed},
		{"its time is over", capability.Errorf(capability.CodeTimeout, "t", "late"), tasks.RunTimedOut},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := &runEngine{value: `{"output":"x"}`, fail: tt.fail, hold: make(chan struct{})}
				r := tasks.NewRuns(e, time.Now)
				begun, err := r.Start(capability.Invocation{Principal: runCaller(), Session: "s"},
					tasks.RunLabel{Extension: "tools.x", Command: "/x", Action: "a"})
				if err != nil || begun.Status.Over() || begun.ID != "run_001" {
					t.Fatalf(`begun = %v, err = %v, want err == nil && !begun.Status.Over() && begun.ID == "run_001"`, begun, err)
				}
				synctest.Wait()
				half, err := r.Get(runCaller(), begun.ID)
				if err != nil || half.Status != tasks.RunRunning || half.Stage != "EXECUTING" || half.Progress != 60 || half.Message != "half way" ||
					half.Command != "/x" {
					t.Errorf(`%+v %v; want no error, half.Status = tasks.RunRunning, half.Stage = "EXECUTING", half.Progress = `+
						`60, half.Message = "half way", half.Command = "/x"`, half, err)
				}
				close(e.hold)
				synctest.Wait()
				end, err := r.Get(runCaller(), begun.ID)
				if err != nil || end.Status != tt.status || end.Stage != "DONE" || end.Progress != 100 || end.Ended.IsZero() ||
					(end.Error == nil) != (tt.fail == nil) {
					t.Errorf(`%+v %v; want no error, end.Status = %v, end.Stage = "DONE", end.Progress = 100, not `+
						"end.Ended.IsZero(), (end.Error == nil) = (tt.fail == nil)", end, err, tt.status)
				}
				if tt.fail == nil && string(end.Result) != e.value {
					t.Errorf("%s; want not (tt.fail == nil && string(end.Result) != e.value)", end.Result)
				}
				if err := r.Cancel(runCaller(), begun.ID); capability.CodeOf(err) != capability.CodeConflict {
					t.Errorf("a run that is over was cancelled: %v; want capability.CodeOf(err) = capability.CodeConflict", err)
				}
				time.Sleep(tasks.RunTTL + time.Second)
				if _, err := r.Get(runCaller(), begun.ID); capability.CodeOf(err) != capability.CodeNotFound {
					t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
				}
				r.Close(t.Context())
			})
		})
	}
}

func TestRunsAreTheirOwners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &runEngine{hold: make(chan struct{})}
		r := tasks.NewRuns(e, time.Now)
		mine, err := r.Start(capability.Invocation{Principal: runCaller(), Session: "s"}, tasks.RunLabel{Extension: "tools.x"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Get(ben(), mine.ID); capability.CodeOf(err) != capability.CodeNotFound {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
		}
		if err := r.Cancel(ben(), mine.ID); capability.CodeOf(err) != capability.CodeNotFound {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
		}
		for who, want := range map[string]int{"runCaller": 1, "ben": 0, "boss": 1} {
			p := map[string]capability.Principal{"runCaller": runCaller(), "ben": ben(), "boss": boss()}[who]
			if got := r.List(p, tasks.RunFilter{}); len(got) != want {
				t.Errorf("%s: %+v; want len(got) = %v", who, got, want)
			}
		}
		for _, f := range []tasks.RunFilter{{Extension: "tools.y"}, {Session: "t"}, {Status: tasks.RunFailed}} {
			if got := r.List(boss(), f); len(got) != 0 {
				t.Errorf("%+v: %+v; want len(got) = 0", f, got)
			}
		}
		if err := r.Cancel(boss(), mine.ID); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got, err := r.Get(runCaller(), mine.ID); err != nil || got.Status != tasks.RunCanceled {
			t.Errorf("%+v %v; want no error, got.Status = tasks.RunCanceled", got, err)
		}
		r.Close(t.Context())
	})
}

func TestWhatNobodyWaitsForIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &runEngine{hold: make(chan struct{})}
		r := tasks.NewRuns(e, time.Now)
		for range tasks.MaxDetachedRuns {
			if _, err := r.Start(capability.Invocation{Principal: runCaller()}, tasks.RunLabel{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Start(capability.Invocation{Principal: runCaller()}, tasks.RunLabel{}); capability.AsError(err).Reason != "queue_full" {
			t.Errorf(`%v; want capability.AsError(err).Reason = "queue_full"`, err)
		}
		// A stop waits for what is under way as long as it may, and ends the rest.
		stop, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		r.Close(stop)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("time.Since(began) = %v, want %v", took, 10*time.Second)
		}
		if _, err := r.Start(capability.Invocation{Principal: runCaller()},
			tasks.RunLabel{}); capability.CodeOf(err) != capability.CodeUnavailable {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
		}
		for _, one := range r.List(runCaller(), tasks.RunFilter{Limit: 1000}) {
			if one.Status != tasks.RunCanceled {
				t.Errorf("%+v; want one.Status = tasks.RunCanceled", one)
			}
		}
	})
}

func TestOldResultsGoFirst(t *testing.T) {
	t.Parallel()
	e := &runEngine{value: `"` + strings.Repeat("x", 1<<20) + `"`}
	r := tasks.NewRuns(e, time.Now)
	for range 70 {
		if _, err := r.Do(t.Context(), capability.Invocation{Principal: runCaller()}, tasks.RunLabel{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(r.List(runCaller(), tasks.RunFilter{Limit: 1000})); got != 63 { // 64 MiB and not one byte more
		t.Errorf("len(r.List(runCaller(), tasks.RunFilter{Limit: 1000})) = %v, want %v", got, 63)
	}
	if _, err := r.Get(runCaller(), "run_001"); err == nil {
		t.Error("the oldest is still there; want an error")
	}
	e.value = "1"
	for range tasks.MaxEndedRuns + 10 {
		if _, err := r.Do(t.Context(), capability.Invocation{Principal: runCaller()}, tasks.RunLabel{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(r.List(runCaller(), tasks.RunFilter{Limit: 5000})); got != tasks.MaxEndedRuns {
		t.Errorf("len(r.List(runCaller(), tasks.RunFilter{Limit: 5000})) = %v, want %v", got, tasks.MaxEndedRuns)
	}
	r.Close(t.Context())
}
