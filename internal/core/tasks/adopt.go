package tasks

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

// Running is a task whose invocation somebody else carries: a surface that began it
// as a request and found that it takes its time. Whoever adopts must call
// [Running.End] once.
type Running struct {
	m       *Manager
	e       *entry
	ctx     context.Context
	release func() bool
}

// Adopt makes a task of an invocation that is under way, and returns it as it was
// kept. ctx is the invocation's and cancel ends it, with a cause that End
// understands; a server that stops ends it too. Errors as of [Manager.Start].
func (m *Manager) Adopt(ctx context.Context, cancel context.CancelCauseFunc, inv capability.Invocation, o Options) (*Running, Task, error) {
	now := m.cfg.Now().UTC()
	keep := o.Keep
	if keep <= 0 {
		keep = Keep
	}
	t := Task{
		ID: NewID(), Kind: KindCall, Owner: inv.Principal.ID, State: Working, Status: o.Status, Surface: inv.Surface, Context: o.Context, Invocation: inv.ID,
		Created: now, Updated: now, Keep: min(keep, maxKeep), Version: 1, History: o.History, Gateway: m.cfg.Gateway, Call: callOf(&inv), Input: inv.Input,
	}
	t.Expires = now.Add(t.Keep)
	if err := m.enter(t.Owner); err != nil {
		return nil, Task{}, err
	}
	// The request may be gone by now; its task is kept all the same.
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

// Progress turns what the provider says into the task's status.
func (r *Running) Progress(c capability.Chunk) { r.m.progress(r.e, c) }

// Ask puts a question of the provider into the task and waits for the answer.
func (r *Running) Ask(ctx context.Context, q capability.Question) (json.RawMessage, error) {
	return r.m.ask(ctx, r.e, q)
}

// End gives the task its end, or, where an approval is missing, the wait for it.
func (r *Running) End(reply invoke.Reply, err error) {
	r.release()
	r.m.ended(r.ctx, r.e, reply, err)
	close(r.e.done)
	r.m.leave(r.e.task.Owner)
}
