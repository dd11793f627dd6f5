package tasks

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// Threads is who carries tasks of kind thread: nothing of the Manager's runs for them,
// and their state is what [Manager.MoveThread] says.
type Threads interface {
	// Answer gives an answer to what the thread asks.
	Answer(ctx context.Context, who capability.Principal, thread string, r Request, answer json.RawMessage) error
	// Stop ends the work of the thread.
	Stop(ctx context.Context, who, thread string) error
}

// Carry says who carries threads. It comes before the first of them.
func (m *Manager) Carry(t Threads) { m.threads = t }

// OpenThread makes the task that a thread is. Errors: overloaded; unavailable once
// the server stops.
func (m *Manager) OpenThread(ctx context.Context, owner, surface, thread, status string) (Task, error) {
	now := m.cfg.Now().UTC()
	t := Task{
		ID: NewID(), Kind: KindThread, Thread: thread, Owner: owner, State: Submitted, Status: status, Surface: surface,
		Created: now, Updated: now, Keep: maxKeep, Expires: now.Add(maxKeep), Version: 1, Gateway: m.cfg.Gateway,
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

// Movement is how a thread stands now.
type Movement struct {
	State    State
	Status   string
	Requests []Request       // what it asks; their times are the Manager's
	Result   json.RawMessage // at its end
	Error    *capability.Error
}

// MoveThread says how a thread stands. What has ended stays as it ended: moved is false
// then, and where nothing is different.
func (m *Manager) MoveThread(ctx context.Context, id string, to Movement) (moved bool, err error) {
	e := m.entry(id)
	if e == nil {
		return false, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	same := func(a, b Request) bool { return a.Key == b.Key && string(a.Params) == string(b.Params) }
	t := &e.task
	if t.Kind != KindThread || t.State.Terminal() || t.State == to.State && t.Status == to.Status && slices.EqualFunc(t.Requests, to.Requests, same) {
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

// OpenThreads are the tasks of threads that have not ended.
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

// answerThread hands an answer on. The question is withdrawn before, so that whoever
// looks or waits then finds no question that has its answer, and one that the thread
// asks meanwhile is not lost with it; it is back when the answer was not taken.
func (m *Manager) answerThread(ctx context.Context, who capability.Principal, e *entry, key string, answer json.RawMessage) (Task, error) {
	before := e.task
	r, ok := before.Request(key)
	if !ok {
		e.mu.Unlock()
		return Task{}, capability.Errorf(capability.CodeConflict, "tasks.answer", "the task does not wait for an answer of yours: it is %s", before.State).With("not_asked", "")
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
			back := m.change(context.WithoutCancel(ctx), e, func(t *Task) { t.State, t.Status, t.Requests = before.State, before.Status, before.Requests })
			if back != nil {
				m.cfg.Logger.Error("a question whose answer was not taken is not asked again", "task", before.ID, "err", back)
			}
		}
		return Task{}, err
	}
	return m.Get(ctx, who.ID, before.ID)
}

// cancelThread stops the thread's work; its end is told by the thread.
func (m *Manager) cancelThread(ctx context.Context, owner string, e *entry) (Task, error) {
	t := e.task
	e.mu.Unlock()
	if err := m.threads.Stop(ctx, owner, t.Thread); err != nil {
		return Task{}, err
	}
	return m.outlast(ctx, owner, t.ID)
}
