package tasks

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

// Running is a task whose invocation is run by a surface: it began as a request that takes long.
// The caller of [Manager.Adopt] must call [Running.End] once.
type Running struct {
	m       *Manager
	e       *entry
	ctx     context.Context
	release func() bool
}

// Adopt makes a task of a running invocation and returns it as it was stored. ctx is the
// context of the invocation, and cancel ends it, with a cause that End understands; the
// manager also calls cancel when the server stops. Errors as of [Manager.Start].
func (m *Manager) Adopt(ctx context.Context, cancel context.CancelCauseFunc, inv capability.Invocation, o Options) (*Running, Task, error) {
	now := m.cfg.Now().UTC()
	keep := o.Keep
	if keep <= 0 {
		keep = TaskTTL
	}
	t := Task{
		ID: NewID(), Kind: KindCall, Owner: inv.Principal.ID, State: Working, Status: o.Status, Surface: inv.Surface, Context: o.Context,
		Invocation: inv.ID,
		Created:    now, Updated: now, Keep: min(keep, maxTaskTTL), Version: 1, History: o.History, Gateway: m.cfg.Gateway, Call: callOf(&inv),
		Input: inv.Input,
	}
	t.Expires = now.Add(t.Keep)
	if err := m.enter(t.Owner); err != nil {
		return nil, Task{}, err
	}
	// The task is stored even if the request has ended.
	if err := m.create(context.WithoutCancel(ctx), t); err != nil {
		m.leave(t.Owner)
		return nil, Task{}, err
	}
	m.record(ctx, audit.TaskCreated, t.ID, t.Owner, t.Surface, t.State)
	e := m.adopt(t)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancel, e.done = cancel, make(chan struct{})
	m.adopted(inv.Keep, e)
	m.cfg.Changed(e.task)
	return &Running{m: m, e: e, ctx: ctx, release: context.AfterFunc(m.ctx, func() { cancel(errStopping) })}, e.task, nil
}

// Progress sets the task's status from a provider's chunk.
func (r *Running) Progress(c capability.Chunk) { r.m.progress(r.e, c) }

// Ask adds a question of the provider to the task and waits for the answer.
func (r *Running) Ask(ctx context.Context, q capability.Question) (json.RawMessage, error) {
	return r.m.ask(ctx, r.e, q)
}

// End ends the task, or, if an approval is missing, makes it wait for the approval.
func (r *Running) End(reply invoke.Reply, err error) {
	r.release()
	r.m.ended(r.ctx, r.e, reply, err)
	close(r.e.done)
	r.m.leave(r.e.task.Owner)
}
