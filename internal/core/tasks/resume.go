package tasks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// Keeper stores where the work of a call is, for a call that becomes a task later. Set it in
// the invocation, and pass the invocation to [Manager.Adopt].
type Keeper struct {
	mu   sync.Mutex
	kept capability.Kept
	to   func(capability.Kept)
}

// Keep implements [capability.Keeper].
func (k *Keeper) Keep(of capability.Kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept = of; k.to != nil {
		k.to(of)
	}
}

// keeping stores in a task where its work is performed.
type keeping struct {
	m *Manager
	e *entry
}

// Keep implements capability.Keeper.
func (k keeping) Keep(of capability.Kept) {
	k.e.mu.Lock()
	defer k.e.mu.Unlock()
	k.keep(of)
}

// keep is Keep for callers that hold e.mu.
func (k keeping) keep(of capability.Kept) {
	if k.e.ending && k.e.cancel != nil {
		k.e.cancel(errCancelled) // the far side performs the work again and can be notified of the cancellation
	}
	if k.e.task.State.Terminal() || k.e.task.Call.Kept == of {
		return
	}
	if err := k.m.change(context.Background(), k.e, func(t *Task) { t.Call.Kept = of }); err != nil {
		k.m.cfg.Logger.Warn("a task will not outlive a restart", "task", k.e.task.ID, "err", err)
	}
}

// adopted makes k write its current and future state into e. The caller holds e.mu.
func (m *Manager) adopted(k capability.Keeper, e *entry) {
	keeper, ok := k.(*Keeper)
	if !ok {
		return
	}
	// Keep acquires the locks in this order too; e is not shared yet.
	keeper.mu.Lock()
	defer keeper.mu.Unlock()
	keeper.to = keeping{m, e}.Keep
	if keeper.kept.UpstreamCall != "" {
		keeping{m, e}.keep(keeper.kept)
	}
}

// resumable reports whether a far side may still perform the work of t.
func (t *Task) resumable() bool {
	return t.Call.Kept.UpstreamCall != "" && !t.State.Terminal() && !parked(t)
}

// goesOn reports whether work whose call ended here continues at its far side, because the server
// stops or the far side cannot be reached yet. In the second case it sets e.next to the time
// of the next attempt. The task is not changed. The caller holds e.mu.
func (m *Manager) goesOn(ctx context.Context, e *entry, err error) bool {
	if err == nil || !e.task.resumable() {
		return false
	}
	if errors.Is(context.Cause(ctx), errStopping) {
		return true
	}
	code := capability.CodeOf(err)
	if e.until.IsZero() || code != capability.CodeUnavailable && code != capability.CodeUnknownCapability &&
		code != capability.CodeOverloaded {
		return false
	}
	now := m.cfg.Now()
	e.next = now.Add(resumeInterval)
	return now.Before(e.until) && context.Cause(ctx) == nil
}

// goOn resumes the work of an earlier process if it is due and its owner is present. After
// e.until it ends the task as interrupted.
func (m *Manager) goOn(ctx context.Context, e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := m.cfg.Now()
	if e.cancel != nil || e.until.IsZero() || !e.task.resumable() || now.Before(e.next) {
		return
	}
	e.next = now.Add(resumeInterval)
	if now.After(e.until) {
		if err := m.change(ctx, e, func(t *Task) { t.interrupt() }); err == nil {
			m.record(ctx, audit.TaskRecovered, e.task.ID, e.task.Owner, e.task.Surface, Failed)
		}
		return
	}
	who, err := m.standing(e.task.Owner)
	switch {
	case capability.CodeOf(err) == capability.CodeUnavailable:
		return // the owner must be seen first
	case err != nil:
		failure := capability.AsError(err)
		_ = m.change(ctx, e, func(t *Task) { t.State, t.Error, t.Status, t.Requests = Failed, failure, failure.Message, nil })
		return
	}
	whole, ok, err := m.cfg.Store.Task(ctx, e.task.ID)
	if err != nil || !ok || m.enter(e.task.Owner) != nil {
		return // retried by the next look
	}
	inv := whole.invocation(who)
	inv.Target, inv.Resume, inv.IdempotencyKey = capability.Target{Capability: e.task.Call.Kept.Capability}, e.task.Call.Kept.UpstreamCall, ""
	m.launch(e, inv)
}

// seen is a principal that exists only while it is connected, as of its last connection.
type seen struct {
	who capability.Principal
	at  time.Time
}

// Seen notifies the manager that a principal is connected. The work of principals that exist
// only while they are connected, because another server issues their tokens, is resumed only
// then, because their permissions are unknown at other times.
func (m *Manager) Seen(who capability.Principal) {
	m.mu.Lock()
	awaited := m.absent[who.ID]
	m.mu.Unlock()
	if awaited {
		m.present(who)
		m.nudge()
	}
}

// present marks a principal as present.
func (m *Manager) present(who capability.Principal) {
	now := m.cfg.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[who.ID] = seen{who, now}
	for id, s := range m.seen {
		if now.Sub(s.at) > seenTTL {
			delete(m.seen, id)
		}
	}
}

// standing returns the current state of a principal. Errors: unauthenticated; unavailable if it
// must connect first, in which case its next connection wakes the manager.
func (m *Manager) standing(owner string) (capability.Principal, error) {
	who, err := m.cfg.Standing(owner)
	if capability.CodeOf(err) != capability.CodeUnavailable {
		return who, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.seen[owner]; ok && m.cfg.Now().Sub(s.at) <= seenTTL {
		delete(m.absent, owner)
		return s.who, nil
	}
	m.absent[owner] = true
	return capability.Principal{}, err
}
