package tasks

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// Carrier runs the tasks of one kind, thread or turn. The Manager does not run them, and their
// state is set by [Manager.Move].
type Carrier interface {
	// Answer forwards an answer to a question of the task.
	Answer(ctx context.Context, who capability.Principal, t Task, r Request, answer json.RawMessage) error
	// Stop ends the work of the task.
	Stop(ctx context.Context, who string, t Task) error
}

// Carry sets the carrier of a kind. Call it before the first such task is opened.
func (m *Manager) Carry(k Kind, c Carrier) { m.carriers[k] = c }

// OpenThread creates the task of a thread. Errors: overloaded; unavailable once the server
// stops.
func (m *Manager) OpenThread(ctx context.Context, owner, surface, thread, status string) (Task, error) {
	return m.openCarried(ctx, Task{Kind: KindThread, Thread: thread, Owner: owner, Surface: surface, Status: status})
}

// OpenTurn creates the task of a run in a conversation. Errors: as of OpenThread.
func (m *Manager) OpenTurn(ctx context.Context, owner, conversation string) (Task, error) {
	return m.openCarried(ctx, Task{Kind: KindTurn, Owner: owner, Surface: "agent", Context: conversation})
}

// openCarried stores the task t, completed with its id, times and first state.
func (m *Manager) openCarried(ctx context.Context, t Task) (Task, error) {
	now := m.cfg.Now().UTC()
	t.ID, t.State, t.Version, t.Gateway = NewID(), Submitted, 1, m.cfg.Gateway
	t.Created, t.Updated, t.Keep, t.Expires = now, now, maxTaskTTL, now.Add(maxTaskTTL)
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

// Movement is the current state of a thread or a turn.
type Movement struct {
	State    State
	Status   string
	Requests []Request       // its questions; the Manager sets their times
	Result   json.RawMessage // at its end
	Error    *capability.Error
}

// Move sets the state of a thread or a turn. A task that has ended does not change. moved is
// false for such a task, and if the new state equals the old one.
func (m *Manager) Move(ctx context.Context, id string, to Movement) (moved bool, err error) {
	e := m.entry(id)
	if e == nil {
		return false, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	same := func(a, b Request) bool { return a.Key == b.Key && string(a.Params) == string(b.Params) }
	t := &e.task
	if !t.Kind.carried() || t.State.Terminal() || t.State == to.State && t.Status == to.Status &&
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

// TakeTurns registers the tasks of runs that this process carries from now on.
func (m *Manager) TakeTurns(ctx context.Context, ids []string) error {
	missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return m.entry(id) != nil })
	for part := range slices.Chunk(missing, maxTaken) {
		list, err := m.cfg.Store.TakeTasks(ctx, m.cfg.Gateway, part)
		if err != nil {
			return wrap(err)
		}
		for _, t := range list {
			m.adopt(t)
		}
	}
	return nil
}

// ReleaseTurn forgets the task of a run that another process carries from now on. Its watchers continue
// with what is stored.
func (m *Manager) ReleaseTurn(id string) {
	e := m.entry(id)
	if e == nil {
		return
	}
	m.mu.Lock()
	delete(m.open, id)
	m.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.subs {
		w.move()
		delete(e.subs, w)
	}
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

// answerCarried forwards an answer to the carrier. It removes the question first, so that no other
// caller can answer it again, and so that a new question of the task is not removed with it.
// If the answer is not accepted, it restores the question.
func (m *Manager) answerCarried(ctx context.Context, who capability.Principal, e *entry, key string, answer json.RawMessage) (Task, error) {
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
	if err := m.carriers[before.Kind].Answer(ctx, who, before, r, answer); err != nil {
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

// cancelCarried stops the task's work; its carrier reports the end.
func (m *Manager) cancelCarried(ctx context.Context, owner string, e *entry) (Task, error) {
	t := e.task
	e.mu.Unlock()
	if err := m.carriers[t.Kind].Stop(ctx, owner, t); err != nil {
		return Task{}, err
	}
	return m.outlast(ctx, owner, t.ID)
}
