package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// thread is what carries a thread: it does with an answer what the test says.
type thread struct {
	answer func(tasks.Request) error
}

func (c thread) Answer(_ context.Context, _ capability.Principal, _ tasks.Task, r tasks.Request, _ json.RawMessage) error {
	return c.answer(r)
}

func (thread) Stop(context.Context, string, tasks.Task) error { return nil }

// An answered question is gone before any caller looks again, and nothing else is: neither
// the same one asked again meanwhile nor one whose answer was not taken.
func TestAnAnswerToAThreadWithdrawsItsQuestion(t *testing.T) {
	t.Parallel()
	asks := tasks.Movement{State: tasks.InputRequired, Requests: []tasks.Request{{
		Key: "s1", Method: "elicitation/create",
		Params: json.RawMessage(`{"message":"Go on?"}`),
	}}}
	refused := errors.New("that is not an answer")
	for name, c := range map[string]struct {
		meanwhile *tasks.Movement
		err       error
		state     tasks.State
		open      int
	}{
		"it goes on":                       {state: tasks.Working},
		"the same is asked again":          {meanwhile: &asks, state: tasks.InputRequired, open: 1},
		"it ends":                          {meanwhile: &tasks.Movement{State: tasks.Completed}, state: tasks.Completed},
		"the answer is not taken":          {err: refused, state: tasks.InputRequired, open: 1},
		"not taken, and it ends meanwhile": {meanwhile: &tasks.Movement{State: tasks.Completed}, err: refused, state: tasks.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			var id string
			look := func() tasks.Task {
				task, err := r.Get(t.Context(), ann().ID, id)
				if err != nil {
					t.Error(err)
				}
				return task
			}
			r.Carry(tasks.KindThread, thread{func(q tasks.Request) error {
				if q.Key != "s1" {
					t.Errorf(`%+v; want q.Key = "s1"`, q)
				}
				if task := look(); task.State != tasks.Working || len(task.Requests) != 0 {
					t.Errorf("while it is answered: %+v; want task.State = tasks.Working, len(task.Requests) = 0", task)
				}
				if c.meanwhile != nil {
					if _, err := r.Move(t.Context(), id, *c.meanwhile); err != nil {
						t.Error(err)
					}
				}
				return c.err
			}})
			made, err := r.OpenThread(t.Context(), ann().ID, "agents", "thr_1", "it begins")
			if err != nil {
				t.Fatal(err)
			}
			id = made.ID
			if _, err := r.Move(t.Context(), id, asks); err != nil {
				t.Fatal(err)
			}
			task, err := r.Answer(t.Context(), ann(), id, "s1", json.RawMessage(`{"action":"accept"}`))
			if !errors.Is(err, c.err) {
				t.Errorf("%v; want err is %v", err, c.err)
			}
			if err == nil && (task.State != c.state || len(task.Requests) != c.open) {
				t.Errorf("answered with %+v; want not (err == nil && (task.State != c.state || len(task.Requests) != c.open))", task)
			}
			if task := look(); task.State != c.state || len(task.Requests) != c.open {
				t.Errorf("%+v; want task.State = %v, len(task.Requests) = %v", task, c.state, c.open)
			}
			if c.open == 0 {
				if _, err := r.Answer(t.Context(), ann(), id, "s1", json.RawMessage(`{"action":"accept"}`)); capability.CodeOf(
					err) != capability.CodeConflict && capability.CodeOf(err) != capability.CodeNotFound {
					t.Error(err)
				}
			}
		})
	}
}

// A run that another gateway takes keeps its task: the watchers at the first one see its end, and the
// first one cannot change it any more.
func TestTheTaskOfARunMovesWithIt(t *testing.T) {
	t.Parallel()
	first := newRig(t, nil)
	second := newRig(t, first.db)
	made, err := first.OpenTurn(t.Context(), ann().ID, "c")
	if err != nil {
		t.Fatalf("open: got %v, want no error", err)
	}
	changes, err := first.Watch(t.Context(), ann().ID, made.ID)
	if err != nil {
		t.Fatalf("watch: got %v, want no error", err)
	}
	moved := false
	var last tasks.Task
	for last = range changes {
		if moved {
			continue
		}
		moved = true
		if err := second.TakeTurns(t.Context(), []string{made.ID, "tsk_none"}); err != nil {
			t.Fatalf("take: got %v, want no error", err)
		}
		if _, err := first.Move(t.Context(), made.ID, tasks.Movement{State: tasks.Failed}); capability.CodeOf(err) != capability.CodeConflict {
			t.Errorf("a change by the gateway that lost the task: got %v, want conflict", err)
		}
		first.ReleaseTurn(made.ID)
		if ok, err := second.Move(t.Context(), made.ID, tasks.Movement{State: tasks.Completed}); !ok || err != nil {
			t.Errorf("a change by the gateway that has the task: got %v and %v, want it made", ok, err)
		}
	}
	if last.State != tasks.Completed {
		t.Errorf("the last state that the watcher saw: got %+v, want completed", last)
	}
	if moved, err := first.Move(t.Context(), made.ID, tasks.Movement{State: tasks.Failed}); moved || err != nil {
		t.Errorf("a change after the release: got %v and %v, want none", moved, err)
	}
}

// A run that another gateway carries is cancelled through this one's carrier.
func TestTheTaskOfARunElsewhereIsCancelled(t *testing.T) {
	t.Parallel()
	first := newRig(t, nil)
	second := newRig(t, first.db)
	made, err := first.OpenTurn(t.Context(), ann().ID, "c")
	if err != nil {
		t.Fatalf("open: got %v, want no error", err)
	}
	second.Carry(tasks.KindTurn, elsewhere(func(id string) error {
		_, err := first.Move(t.Context(), id, tasks.Movement{State: tasks.Cancelled})
		return err
	}))
	second.ReleaseTurn(made.ID) // of the same name, so it was read at the start
	if got, err := second.Cancel(t.Context(), ann().ID, made.ID); err != nil || got.State != tasks.Cancelled {
		t.Errorf("cancel: got %+v and %v, want it cancelled", got, err)
	}
}

// elsewhere is a carrier that notifies another gateway.
type elsewhere func(id string) error

func (elsewhere) Answer(context.Context, capability.Principal, tasks.Task, tasks.Request, json.RawMessage) error {
	return nil
}

func (f elsewhere) Stop(_ context.Context, _ string, t tasks.Task) error { return f(t.ID) }
