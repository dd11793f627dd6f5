package tasks

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// own returns the entry of an open task of the owner, with e.mu locked. Errors: not_found;
// conflict, reason task_ended, for an ended task; unavailable for one of another gateway.
func (m *Manager) own(ctx context.Context, owner, id string) (*entry, error) {
	if e := m.entry(id); e != nil {
		e.mu.Lock()
		switch {
		case e.task.Owner != owner:
			e.mu.Unlock()
			return nil, notFound(id)
		case !e.task.State.Terminal():
			return e, nil
		}
		e.mu.Unlock()
	}
	t, err := m.Get(ctx, owner, id)
	switch {
	case err != nil:
		return nil, err
	case t.State.Terminal():
		return nil, capability.Errorf(capability.CodeConflict, "tasks", "the task has ended: it is %s", t.State).With("task_ended",
			"start another one")
	}
	return nil, capability.Errorf(capability.CodeUnavailable, "tasks", "the task is carried by another gateway").With("other_gateway",
		"ask that one")
}

// Answer records the owner's answer to an open question, the result of its method in MCP,
// and appends documents to the history. An empty key selects the only question. Questions
// about an approval accept {"action":"accept","content":{"decision":"once"}}; other actions
// deny. Errors: not_found; conflict if the task has not asked; the errors of Decide.
func (m *Manager) Answer(ctx context.Context, who capability.Principal, id, key string, answer json.RawMessage,
	docs ...json.RawMessage,
) (Task, error) {
	e, err := m.own(ctx, who.ID, id)
	if err != nil {
		return Task{}, err
	}
	if e.task.Kind.carried() {
		return m.answerCarried(ctx, who, e, key, answer)
	}
	defer e.mu.Unlock()
	r, ok := e.task.Request(key)
	if !ok || e.task.State == AuthRequired {
		return Task{}, capability.Errorf(capability.CodeConflict, "tasks.answer", "the task does not wait for an answer of yours: it is %s",
			e.task.State).With("not_asked", "")
	}
	if !e.task.called() {
		return Task{}, capability.Errorf(capability.CodeConflict, "tasks.answer", "the task has no call yet").With("no_call", "")
	}
	history := append(slices.Clip(e.task.History), docs...)
	if err := checkHistory(history); err != nil {
		return Task{}, err
	}
	if r.Approval != "" {
		decision, err := decisionOf(answer)
		if err != nil {
			return Task{}, err
		}
		if err := m.cfg.Decide(ctx, who, r.Approval, decision); err != nil {
			return Task{}, err
		}
		if err := m.change(ctx, e, func(t *Task) { t.History = history }); err != nil {
			return Task{}, err
		}
		if decision == policy.DecideDeny {
			m.end(ctx, e, e.task.Version, rejection(r.Approval))
		} else {
			m.present(who)
			m.again(ctx, e)
		}
		return e.task, nil
	}
	ch, ok := e.answers[r.Key]
	if !ok {
		return Task{}, capability.Errorf(capability.CodeConflict, "tasks.answer", "the question is not open any more").With("not_asked", "")
	}
	err = m.change(ctx, e, func(t *Task) {
		t.History = history
		t.Requests = slices.DeleteFunc(slices.Clone(t.Requests), func(o Request) bool { return o.Key == r.Key })
		if len(t.Requests) == 0 {
			t.State, t.Status = Working, ""
		} else {
			t.Status = sentence(t.Requests[0])
		}
	})
	if err != nil {
		return Task{}, err
	}
	delete(e.answers, r.Key)
	ch <- slices.Clone(answer) // capacity 1, and this is the only sender
	return e.task, nil
}

// decisionOf parses the decision in the answer to a question about an approval: deny unless the
// action is accept, and once by default.
func decisionOf(answer json.RawMessage) (policy.Decision, error) {
	var a struct {
		Action  string `json:"action"`
		Content struct {
			Decision policy.Decision `json:"decision"`
		} `json:"content"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return "", capability.Errorf(capability.CodeInvalidInput, "tasks.answer", "the answer is not the result of elicitation/create")
	}
	if a.Action != "accept" {
		return policy.DecideDeny, nil
	}
	if a.Content.Decision == "" {
		return policy.DecideOnce, nil
	}
	return a.Content.Decision, nil // Decide checks that it is valid
}

// Decided notifies the manager that an approval was decided. Tasks that wait for it continue
// at once. It never blocks.
func (m *Manager) Decided() { m.nudge() }

func (m *Manager) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Begin sets the call of a task that waits without one (see Options.Request), appends documents
// to the history, and runs the call.
func (m *Manager) Begin(ctx context.Context, id string, inv capability.Invocation, docs ...json.RawMessage) (Task, error) {
	e, err := m.own(ctx, inv.Principal.ID, id)
	if err != nil {
		return Task{}, err
	}
	defer e.mu.Unlock()
	if e.task.State != InputRequired || e.task.called() {
		return Task{}, capability.Errorf(capability.CodeConflict, "tasks.begin", "the task has its call already").With("not_asked", "")
	}
	if err := m.note(ctx, e, docs, func(t *Task) {
		t.Call, t.Input, t.State, t.Status, t.Requests = callOf(&inv), inv.Input, Submitted, "", nil
	}, func() error { return m.enter(e.task.Owner) }); err != nil {
		return Task{}, err
	}
	m.launch(e, inv)
	return e.task, nil
}

// Say appends documents to the history of an open task of the owner. A status that is not empty
// replaces the status text. Errors: those of own; too_large.
func (m *Manager) Say(ctx context.Context, owner, id, status string, docs ...json.RawMessage) (Task, error) {
	e, err := m.own(ctx, owner, id)
	if err != nil {
		return Task{}, err
	}
	defer e.mu.Unlock()
	err = m.note(ctx, e, docs, func(t *Task) {
		if status != "" {
			t.Status = status
		}
	}, nil)
	return e.task, err
}

// note appends documents to the history and applies f in one change. place, if not nil, acquires
// a slot before; the slot is released if the change fails. The caller holds e.mu.
func (m *Manager) note(ctx context.Context, e *entry, docs []json.RawMessage, f func(*Task), place func() error) error {
	history := append(slices.Clip(e.task.History), docs...)
	if err := checkHistory(history); err != nil {
		return err
	}
	if place != nil {
		if err := place(); err != nil {
			return err
		}
	}
	err := m.change(ctx, e, func(t *Task) {
		t.History = history
		f(t)
	})
	if err != nil && place != nil {
		m.leave(e.task.Owner)
	}
	return err
}

// Cancel ends a task of the owner and returns its final state: cancelled, or as it was if
// its work was done first. A task that does not end within 5 s is returned unchanged and
// ends later. Errors: not_found; conflict, reason task_ended.
func (m *Manager) Cancel(ctx context.Context, owner, id string) (Task, error) {
	if c := m.carriers[KindTurn]; c != nil && m.entry(id) == nil {
		if t, err := m.Get(ctx, owner, id); err == nil && t.Kind == KindTurn && !t.State.Terminal() {
			if err := c.Stop(ctx, owner, t); err != nil { // it notifies the gateway that carries it
				return Task{}, err
			}
			return m.outlast(ctx, owner, id)
		}
	}
	e, err := m.own(ctx, owner, id)
	if err != nil {
		return Task{}, err
	}
	if e.task.Kind.carried() {
		return m.cancelCarried(ctx, owner, e)
	}
	if e.cancel == nil && !e.until.IsZero() && e.task.resumable() {
		e.ending = true
		e.mu.Unlock()
		return m.outlast(ctx, owner, id)
	}
	if e.cancel == nil {
		defer e.mu.Unlock()
		err := m.change(ctx, e, func(t *Task) { t.State, t.Status, t.Requests = Cancelled, "cancelled", nil })
		return e.task, err
	}
	e.cancel(errCancelled)
	done := e.done
	e.mu.Unlock()
	late := time.NewTimer(cancelTimeout)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	case <-ctx.Done():
		return Task{}, capability.AsError(ctx.Err())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.task, nil
}

// outlast waits for the end of a task, at most for cancelTimeout, and returns its last state.
func (m *Manager) outlast(ctx context.Context, owner, id string) (last Task, err error) {
	waiting, stop := context.WithTimeout(ctx, cancelTimeout)
	defer stop()
	seq, err := m.Watch(waiting, owner, id)
	if err != nil {
		return Task{}, err
	}
	for last = range seq {
	}
	if ctx.Err() != nil {
		return Task{}, capability.AsError(ctx.Err())
	}
	return last, nil
}

// watcher receives every change of a task.
type watcher struct {
	mu    sync.Mutex
	queue []Task
	over  bool
	moved bool          // another gateway runs the task
	some  chan struct{} // capacity 1
}

// put queues a change. It returns false, and ends the watcher, if the watcher is maxBehind changes
// behind. over marks the last change.
func (w *watcher) put(t Task, over bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	fits := len(w.queue) < maxBehind
	if fits {
		w.queue = append(w.queue, t)
	}
	w.over = w.over || over || !fits
	select {
	case w.some <- struct{}{}:
	default:
	}
	return fits
}

// move ends the watcher, because another gateway runs the task from now on.
func (w *watcher) move() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over, w.moved = true, true
	select {
	case w.some <- struct{}{}:
	default:
	}
}

func (w *watcher) take() (list []Task, over, moved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list, w.queue = w.queue, nil
	return list, w.over, w.moved
}

// Watch yields the current task and then every change, the same for all watchers, until the
// task has ended, ctx ends or the watcher is 256 changes behind. Progress arrives as a task
// with another Status and the same Version. A task that another gateway runs is polled once
// a second. Error: not_found.
func (m *Manager) Watch(ctx context.Context, owner, id string) (iter.Seq[Task], error) {
	if _, err := m.Get(ctx, owner, id); err != nil {
		return nil, err
	}
	return func(yield func(Task) bool) {
		e := m.entry(id)
		if e == nil {
			m.watchStored(ctx, owner, id, 0, yield)
			return
		}
		w := &watcher{some: make(chan struct{}, 1)}
		e.mu.Lock()
		w.put(e.task, e.task.State.Terminal())
		if !e.task.State.Terminal() {
			e.subs[w] = struct{}{}
		}
		e.mu.Unlock()
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.subs, w)
		}()
		for seen := int64(0); ; {
			select {
			case <-ctx.Done():
				return
			case <-w.some:
			}
			list, over, moved := w.take()
			for _, t := range list {
				if seen = t.Version; !yield(t) {
					return
				}
			}
			if moved {
				m.watchStored(ctx, owner, id, seen, yield)
			}
			if over {
				return
			}
		}
	}, nil
}

// watchStored polls the store once a second and yields each version after seen of a task of another
// gateway, until it has ended.
func (m *Manager) watchStored(ctx context.Context, owner, id string, seen int64, yield func(Task) bool) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		t, err := m.Get(ctx, owner, id)
		if err != nil {
			return
		}
		if t.Version > seen && !yield(t) || t.State.Terminal() {
			return
		}
		seen = max(seen, t.Version)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
