package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// approvalKey is the key of the question whether a call may be made.
const approvalKey = "approval"

// launch runs inv for e in a goroutine. The caller holds e.mu and has acquired a slot with enter,
// which the run releases.
func (m *Manager) launch(e *entry, inv capability.Invocation) {
	ctx, cancel := context.WithCancelCause(m.ctx)
	e.cancel, e.done = cancel, make(chan struct{})
	inv.ID = m.cfg.Engine.NewID()
	if inv.Timeout == 0 {
		inv.Timeout = Timeout
	}
	inv.Relay = nil
	inv.Keep = keeping{m, e}
	inv.Ask = func(ctx context.Context, q capability.Question) (json.RawMessage, error) { return m.ask(ctx, e, q) }
	heard := inv.Progress
	inv.Progress = func(c capability.Chunk) {
		m.progress(e, c)
		if heard != nil {
			heard(c)
		}
	}
	done := e.done
	go func() {
		defer m.leave(inv.Principal.ID)
		defer close(done)
		defer cancel(nil)
		e.mu.Lock()
		err := m.change(ctx, e, func(t *Task) { t.State, t.Invocation, t.Status, t.Error, t.Requests = Working, inv.ID, "", nil, nil })
		e.mu.Unlock()
		var reply invoke.Reply
		if err == nil {
			reply, err = m.cfg.Engine.Follow(ctx, inv, nil)
		}
		m.ended(ctx, e, reply, err)
	}()
}

// progress sets the status from a provider's chunk.
func (m *Manager) progress(e *entry, c capability.Chunk) {
	if c.Stage == capability.StageLog || (c.Message == "" && c.Total == 0) {
		return
	}
	text := c.Message
	if text == "" {
		text = fmt.Sprintf("%g of %g", c.Progress, c.Total)
	}
	if len(text) > maxStatus {
		text = text[:maxStatus]
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if e.task.State != Working || text == e.task.Status || now.Sub(e.spoke) < progressInterval {
		return
	}
	e.spoke = now
	e.task.Status = text
	m.tell(e)
}

// ask adds a question of the provider to the task and waits for the answer.
func (m *Manager) ask(ctx context.Context, e *entry, q capability.Question) (json.RawMessage, error) {
	owner := e.task.Owner // never changes
	m.mu.Lock()
	full := m.asking[owner] >= MaxAsking
	if !full {
		m.asking[owner]++
	}
	m.mu.Unlock()
	if full {
		return nil, capability.Errorf(capability.CodeUnavailable, "tasks.ask", "%d tasks wait for an answer of theirs already",
			MaxAsking).With("queue_full", "")
	}
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.asking[owner]--; m.asking[owner] == 0 {
			delete(m.asking, owner)
		}
	}()
	e.mu.Lock()
	if len(e.task.Requests) >= MaxRequests {
		e.mu.Unlock()
		return nil, capability.Errorf(capability.CodeUnavailable, "tasks.ask", "%d questions of this task are open already", MaxRequests)
	}
	e.asked++
	key, answer := "q"+strconv.Itoa(e.asked), make(chan json.RawMessage, 1)
	err := m.change(ctx, e, func(t *Task) {
		r := Request{Key: key, Method: q.Method, Params: slices.Clone(q.Params), Asked: m.cfg.Now().UTC()}
		t.State, t.Requests = InputRequired, append(slices.Clone(t.Requests), r)
		t.Status = sentence(r)
	})
	if err == nil {
		e.answers[key] = answer
	}
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.answers, key)
		select {
		case a := <-answer: // the answer arrived at the same time
			return a, nil
		default:
		}
		return nil, ctx.Err()
	}
}

// sentence returns the text of a question for users.
func sentence(r Request) string {
	var p struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(r.Params, &p) == nil && p.Message != "" {
		return p.Message
	}
	return "an answer to " + r.Method + " is needed"
}

// ended sets the task's state after its invocation has ended. If the store fails three times, the
// state is set in memory only, so that watchers end.
func (m *Manager) ended(ctx context.Context, e *entry, reply invoke.Reply, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancel = nil
	clear(e.answers)
	if m.goesOn(ctx, e, err) {
		return
	}
	f := func(t *Task) {
		t.Requests, t.Provider, t.Result = nil, reply.Provider, reply.Result
		t.outcome(ctx, err, m.cfg.Now())
		if t.State.Waiting() && reply.Capability != "" {
			// The approval is for this capability, so the repeated call must not choose another one.
			t.Call.Target = capability.Target{Capability: reply.Capability}
		}
	}
	for attempt := 1; ; attempt++ {
		failed := m.change(ctx, e, f)
		if failed == nil {
			return
		}
		if attempt == 3 {
			m.cfg.Logger.Error("the end of a task cannot be kept", "task", e.task.ID, "err", failed)
			f(&e.task) // otherwise watchers would wait forever
			m.tell(e)
			return
		}
	}
}

// outcome sets the state that follows from the end of the invocation. A missing approval makes the
// task wait; a call rejected before it started ends as rejected.
func (t *Task) outcome(ctx context.Context, err error, now time.Time) {
	if err == nil {
		t.State, t.Status, t.Error = Completed, "", nil
		return
	}
	failure := capability.AsError(err)
	if errors.Is(context.Cause(ctx), errStopping) {
		t.interrupt()
		return
	}
	if errors.Is(context.Cause(ctx), errCancelled) {
		t.State, t.Error, t.Status = Cancelled, nil, "cancelled"
		return
	}
	t.Error, t.Status = failure, failure.Message
	id, _ := failure.Details["approval"].(string)
	switch failure.Code {
	case capability.CodeApprovalRequired:
		if id == "" {
			t.State = Failed
			return
		}
		t.State, t.Error = AuthRequired, nil
		r := Request{Key: approvalKey, Method: "elicitation/create", Approval: id, Asked: now.UTC()}
		if failure.Details["channel"] == string(policy.ChannelClient) {
			t.State = InputRequired
			r.Params = consentForm(failure)
		}
		t.Requests = []Request{r}
	case capability.CodeCancelled:
		t.State, t.Error, t.Status = Cancelled, nil, "cancelled"
	case capability.CodeDenied, capability.CodeInvalidInput, capability.CodeUnknownCapability, capability.CodeSelectionRequired,
		capability.CodeTooLarge:
		t.State = Rejected
		if t.Provider != "" && t.Result != nil {
			t.State = Failed
		}
	default:
		t.State = Failed
	}
}

// consentForm returns the question for an approval, as an MCP form.
func consentForm(failure *capability.Error) json.RawMessage {
	form, err := jsonx.Marshal(map[string]any{
		"message": failure.Message,
		"requestedSchema": map[string]any{
			"type": "object", "required": []string{"decision"},
			"properties": map[string]any{"decision": map[string]any{
				"type": "string",
				"enum": []policy.Decision{policy.DecideOnce, policy.DecideTimed, policy.DecideAlways, policy.DecideDeny},
			}},
		},
	})
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return form
}

// look checks the waiting tasks: it resumes those whose approval was granted, and ends those whose
// approval was denied or whose time is over.
func (m *Manager) look(ctx context.Context) {
	m.mu.Lock()
	open := slices.Collect(maps.Values(m.open))
	m.mu.Unlock()
	for _, e := range open {
		e.mu.Lock()
		t, busy := e.task, e.cancel != nil
		e.mu.Unlock()
		if !busy && ctx.Err() == nil && t.resumable() {
			m.goOn(ctx, e)
			continue
		}
		if busy || !parked(&t) || ctx.Err() != nil {
			continue
		}
		if !m.cfg.Now().Before(t.Expires) {
			m.fail(ctx, e, t.Version, capability.Errorf(capability.CodeTimeout, "tasks", "no answer came in time").With("expired", ""))
			continue
		}
		if len(t.Requests) != 1 || t.Requests[0].Approval == "" {
			continue
		}
		a, err := m.cfg.Approval(ctx, t.Requests[0].Approval)
		switch {
		case capability.CodeOf(err) == capability.CodeNotFound:
			m.fail(ctx, e, t.Version, capability.Errorf(capability.CodeTimeout, "tasks", "the approval is gone").With("confirmation_expired", ""))
		case err != nil:
			m.cfg.Logger.Error("an approval cannot be read", "task", t.ID, "err", err)
		case a.State == policy.ApprovalApproved:
			m.resume(ctx, e)
		case a.State == policy.ApprovalDenied:
			m.fail(ctx, e, t.Version, rejection(a.ID))
		case a.State != policy.ApprovalPending || !m.cfg.Now().Before(a.Expires):
			m.fail(ctx, e, t.Version, capability.Errorf(capability.CodeDenied, "tasks", "it was not approved in time").With("confirmation_expired",
				"start it again to ask again"))
		}
	}
}

func rejection(approval string) *capability.Error {
	return capability.Errorf(capability.CodeDenied, "tasks", "this call was rejected (%s)", approval).With("confirmation_rejected",
		"do something else, or ask an operator for a grant")
}

// fail ends a waiting task with a failure, unless its version is no longer version.
func (m *Manager) fail(ctx context.Context, e *entry, version int64, failure *capability.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m.end(ctx, e, version, failure)
}

// end is like fail, for callers that hold e.mu.
func (m *Manager) end(ctx context.Context, e *entry, version int64, failure *capability.Error) {
	if e.task.Version != version || e.cancel != nil || e.task.State.Terminal() {
		return
	}
	state := Failed
	if failure.Code == capability.CodeDenied { // nothing was started
		state = Rejected
	}
	if err := m.change(ctx, e, func(t *Task) {
		t.State, t.Error, t.Status, t.Requests = state, failure, failure.Message, nil
	}); err != nil {
		m.cfg.Logger.Error("the end of a task cannot be kept", "task", e.task.ID, "err", err)
	}
}

// resume repeats the call of a waiting task with the current rights of its owner.
func (m *Manager) resume(ctx context.Context, e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m.again(ctx, e)
}

// again is like resume, for callers that hold e.mu. If the owner is not present or no slot is
// free, the task keeps waiting.
func (m *Manager) again(ctx context.Context, e *entry) {
	if e.cancel != nil || !parked(&e.task) {
		return
	}
	who, err := m.standing(e.task.Owner)
	if capability.CodeOf(err) == capability.CodeUnavailable {
		return // the owner must be seen first
	}
	if err != nil {
		failure := capability.AsError(err)
		_ = m.change(ctx, e, func(t *Task) { t.State, t.Error, t.Status, t.Requests = Failed, failure, failure.Message, nil })
		return
	}
	whole, ok, err := m.cfg.Store.Task(ctx, e.task.ID)
	if err != nil || !ok {
		m.cfg.Logger.Error("a task that waited cannot be read", "task", e.task.ID, "err", err)
		return
	}
	if m.enter(e.task.Owner) != nil {
		return // the next look finds it again
	}
	if err := m.change(ctx, e, func(t *Task) { t.State, t.Status, t.Requests = Submitted, "", nil }); err != nil {
		m.leave(e.task.Owner)
		m.cfg.Logger.Error("a task that waited cannot go on", "task", e.task.ID, "err", err)
		return
	}
	m.launch(e, whole.invocation(who))
}

// invocation returns the task's call, as the given principal.
func (t *Task) invocation(who capability.Principal) capability.Invocation {
	return capability.Invocation{
		Surface: t.Surface, Client: t.Call.Client, Principal: who, Session: t.Call.Session, Target: t.Call.Target, Context: t.Call.Context,
		Input: t.Input, Timeout: t.Call.Timeout, IdempotencyKey: t.Call.Key, Audience: t.Call.Audience,
	}
}
