package tasks

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// Threads runs tasks of kind thread. The Manager does not run them, and their state is set
// by [Manager.MoveThread].
type Threads interface {
	// Answer forwards an answer to a question of the thread.
	Answer(ctx context.Context, who capability.Principal, thread string, r Request, answer json.RawMessage) error
	// Stop ends the work of the thread.
	Stop(ctx context.Context, who, thread string) error
}

// Carry sets the implementation of threads. Call it before the first thread is opened.
func (m *Manager) Carry(t Threads) { m.threads = t }

// OpenThread creates the task of a thread. Errors: overloaded; unavailable once the server
// stops.
func (m *Manager) OpenThread(ctx context.Context, owner, surface, thread, status string) (Task, error) {
	now := m.cfg.Now().UTC()
	t := Task{
		ID: NewID(), Kind: KindThread, Thread: thread, Owner: owner, State: Submitted, Status: status, Surface: surface,
		Created: now, Updated: now, Keep: maxTaskTTL, Expires: now.Add(maxTaskTTL), Version: 1, Gateway: m.cfg.Gateway,
	}
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return Task{}, capability.Errorf(capability.CodeUnavailable, "tasks", "the server is stopping")
	}
	if err := m.create(ctx, t); err != nil {
		return Task{}, err
	}
	m.record(ctx, audit.TaskCreated, t.ID, t.Owner, t.Surface, t.State)
	m.adopt(t)
	m.cfg.Changed(t)
	return t, nil
}

// Movement is the current state of a thread.
type Movement struct {
	State    State
	Status   string
	Requests []Request       // its questions; the Manager sets their times
	Result   json.RawMessage // at its end
	Error    *capability.Error
}

// MoveThread sets the state of a thread. A task that has ended does not change. moved is
// false for such a task, and if the new state equals the old one.
func (m *Manager) MoveThread(ctx context.Context, id string, to Movement) (moved bool, err error) {
	e := m.entry(id)
	if e == nil {
		return false, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	same := func(a, b Request) bool { return a.Key == b.Key && string(a.Params) == string(b.Params) }
	t := &e.task
	if t.Kind != KindThread || t.State.Terminal() || t.State == to.State && t.Status == to.Status &&
		slices.EqualFunc(t.Requests, to.Requests, same) {
		return false, nil
	}
	now := m.cfg.Now().UTC()
	requests := slices.Clone(to.Requests[:min(len(to.Requests), MaxRequests)])
	for i := range requests {
		requests[i].Asked = now
		if old, ok := t.Request(requests[i].Key); ok && same(old, requests[i]) {
			requests[i].Asked = old.Asked
		}
	}
	return true, m.change(ctx, e, func(t *Task) {
		t.State, t.Status, t.Requests, t.Result, t.Error = to.State, to.Status, requests, to.Result, to.Error
	})
}

// OpenThreads returns the tasks of threads that have not ended.
func (m *Manager) OpenThreads() (list []Task) {
	m.mu.Lock()
	open := make([]*entry, 0, len(m.open))
	for _, e := range m.open {
		open = append(open, e)
	}
	m.mu.Unlock()
	for _, e := range open {
		e.mu.Lock()
		if e.task.Kind == KindThread {
			list = append(list, e.task)
		}
		e.mu.Unlock()
	}
	return list
}

// answerThread forwards an answer to the thread. It removes the question first, so that no other
// caller can answer it again, and so that a new question of the thread is not removed with it.
// If the answer is not accepted, it restores the question.
func (m *Manager) answerThread(ctx context.Context, who capability.Principal, e *entry, key string, answer json.RawMessage) (Task, error) {
	before := e.task
	r, ok := before.Request(key)
	if !ok {
		e.mu.Unlock()
		return Task{}, capability.Errorf(capability.CodeConflict, "tasks.answer", "the task does not wait for an answer of yours: it is %s",
			before.State).With("not_asked", "")
	}
	err := m.change(ctx, e, func(t *Task) {
		t.Requests = slices.DeleteFunc(slices.Clone(t.Requests), func(o Request) bool { return o.Key == r.Key })
		if len(t.Requests) == 0 {
			t.State, t.Status = Working, ""
		}
	})
	version := e.task.Version
	e.mu.Unlock()
	if err != nil {
		return Task{}, err
	}
	if err := m.threads.Answer(ctx, who, before.Thread, r, answer); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.task.Version == version {
			back := m.change(context.WithoutCancel(ctx), e, func(t *Task) {
				t.State, t.Status, t.Requests = before.State, before.Status,
					before.Requests
			})
			if back != nil {
				m.cfg.Logger.Error("a question whose answer was not taken is not asked again", "task", before.ID, "err", back)
			}
		}
		return Task{}, err
	}
	return m.Get(ctx, who.ID, before.ID)
}

// cancelThread stops the thread's work; the thread reports its end.
func (m *Manager) cancelThread(ctx context.Context, owner string, e *entry) (Task, error) {
	t := e.task
	e.mu.Unlock()
	if err := m.threads.Stop(ctx, owner, t.Thread); err != nil {
		return Task{}, err
	}
	return m.outlast(ctx, owner, t.ID)
}
