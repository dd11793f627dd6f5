package invoke

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// finish is the last step, audit. It decides the terminal state, writes the record, stores the
// outcome of an idempotency key, notifies the observer, and returns the reply. If a
// successful call cannot be recorded, the error is failed, reason audit_unavailable.
func (r *run) finish(ctx context.Context, result capability.Result, err error) (Reply, error) {
	e := r.engine
	failure := toError(err)
	if failure == nil {
		r.fire(EventSuccess, "")
		failure = r.process(result)
	}
	if failure == nil {
		r.fire(EventProcessed, "")
	}
	end := r.ending(failure)
	rec := r.record()
	r.describeEnd(&rec, end, result, failure)
	// The record is written even if the caller has disconnected.
	logCtx := context.WithoutCancel(ctx)
	receipt, logErr := e.cfg.Log.Append(logCtx, rec, r.durability(failure))
	degraded := logErr == nil && receipt.Seq == 0
	switch {
	case logErr == nil && failure == nil && degraded:
		r.fire(EventLogTolerated, "")
	case logErr == nil && failure == nil:
		r.fire(EventLogged, "")
	case failure == nil:
		// The work is done but cannot be recorded. Report that, and store a digest so that the
		// result can be recognized later.
		r.fire(EventLogFailed, "audit_unavailable")
		failure = capability.Wrap(capability.CodeFailed, "audit", "the work was done, but its audit record could not be written", logErr).
			With("audit_unavailable", "junctor doctor says what is wrong with the log").
			Detail("result_digest", e.cfg.Log.Digest(result.Value))
	default:
		r.fire(r.endEvent(failure), failure.Reason)
	}
	if logErr != nil {
		r.log().Error("audit record not written", "err", logErr)
	}
	reply := r.reply()
	reply.AuditDegraded = degraded
	if err != nil && len(result.Value) <= e.cfg.MaxResult {
		reply.Result = result.Value // the provider's description of the failure
	}
	if failure == nil {
		if reply.Result = result.Value; len(reply.Result) == 0 {
			reply.Result = json.RawMessage("null") // every result is one JSON value
		}
		if reply.Duration > e.cfg.SlowAfter {
			r.recordSlow(logCtx)
		}
	}
	r.finishKey(logCtx, reply, failure)
	r.observe(reply, failure)
	if failure == nil {
		return reply, nil
	}
	return reply, failure
}

func toError(err error) *capability.Error {
	if err == nil {
		return nil
	}
	return capability.AsError(err)
}

// process applies the limits to a result.
func (r *run) process(result capability.Result) *capability.Error {
	if limit := r.engine.cfg.MaxResult; len(result.Value) > limit {
		return capability.Errorf(capability.CodeTooLarge, "process", "the result has %d bytes; the limit is %d", len(result.Value), limit).
			With("output_limit", "ask for less at a time")
	}
	return nil
}

// endEvent returns the event for this failure in the current state.
func (r *run) endEvent(failure *capability.Error) Event {
	if failure.Reason == capability.ReasonPanic {
		return EventPanic
	}
	state := r.machine.state
	switch {
	case failure.Code == capability.CodeTimeout && state != StateLogging:
		return EventTimeout
	case failure.Code == capability.CodeCancelled && state != StateProcessing && state != StateLogging:
		return EventCancel
	case state == StateValidating:
		return EventInvalid
	case state == StateAwaiting:
		return EventExpire
	}
	return EventError
}

// ending returns the terminal state of the call for a failure, or Completed for nil.
func (r *run) ending(failure *capability.Error) State {
	if failure == nil {
		return StateCompleted
	}
	to, ok := next(r.machine.state, r.endEvent(failure))
	if !ok {
		return StateFailed
	}
	return to
}

// durability returns Synced for denials, security violations and started calls that mutate,
// else Written.
func (r *run) durability(failure *capability.Error) audit.Durability {
	if failure != nil {
		switch failure.Code {
		case capability.CodeDenied, capability.CodeApprovalRequired:
			return audit.Synced
		}
		if r.hidden || failure.Reason == capability.ReasonSecurityViolation {
			return audit.Synced
		}
	}
	if r.entry != nil && r.started && r.entry.Effect.Mutates() {
		return audit.Synced
	}
	return audit.Written
}

// record returns the fields that begin and end records share.
func (r *run) record() audit.Record {
	inv := &r.inv
	if r.argsHash == "" {
		r.argsHash = r.engine.cfg.Log.Digest(inv.Input)
		r.engine.cfg.Log.KeepArguments(r.argsHash, inv.Input)
	}
	rec := audit.Record{
		Logger: "invoke", Session: inv.Session, User: inv.Principal.ID,
		Metadata: audit.Metadata{
			RunID: inv.ID, Surface: inv.Surface, Client: inv.Client, Parent: inv.Parent, View: inv.Principal.View, TraceID: inv.Trace,
			Principal: audit.Principal{ID: inv.Principal.ID, Role: inv.Principal.Role, OnBehalfOf: inv.Principal.OnBehalfOf},
			BytesIn:   int64(len(inv.Input)), ArgsHash: r.argsHash,
		},
	}
	if r.via != "" {
		rec.Metadata.Attrs = append(rec.Metadata.Attrs, audit.Attr{Key: "via", Value: string(r.via)})
	}
	if r.entry == nil {
		rec.Action = inv.Target.String()
		return rec
	}
	_, kind, _ := r.entry.Key().Parts()
	rec.Extension, rec.Action, rec.Runner = r.entry.Module.Extension, string(r.entry.Action), r.entry.Module.Origin
	rec.Runner = cmp.Or(rec.Runner, kind)
	if ran := r.preview.Ran; ran != nil {
		rec.Command, rec.Action, rec.Runner = ran.Command, ran.Action, ran.Runner
		rec.Metadata.ArgsCount = ran.Args
	}
	m := &rec.Metadata
	m.CapabilityID, m.CanonicalAction, m.Provider = string(r.entry.ID), string(r.entry.Action), string(r.entry.Key())
	m.Effect, m.Permissions = r.entry.Effect, r.entry.Contribution.Permissions
	m.Decision = audit.Decision{Effect: "permit", PolicyIDs: r.verdict.Policies, Grant: r.consent.Grant, Approval: r.consent.Approval}
	if !r.verdict.Permitted {
		m.Decision.Effect = "forbid"
	}
	if r.selection.DecidedBy != "" {
		m.Selection = audit.Selection(r.selection)
	}
	return rec
}

// describeEnd completes an end record with the event, the outcome, and the program that ran.
func (r *run) describeEnd(rec *audit.Record, end State, result capability.Result, failure *capability.Error) {
	rec.Duration = r.engine.cfg.Now().Sub(r.began)
	rec.Success = audit.OutcomeOf(failure == nil)
	rec.Metadata.State = string(end)
	rec.Metadata.BytesOut = int64(len(result.Value))
	rec.Metadata.Timings = audit.Timings{Provider: r.providerTime}
	rec.Metadata.UpstreamCallID = r.upstream
	if r.login != "" {
		rec.Metadata.Attrs = append(rec.Metadata.Attrs, audit.Attr{Key: "login", Value: r.login})
	}
	if ran := r.ran; ran != nil {
		rec.Command, rec.ExitCode = ran.Command, ran.ExitCode
		if ran.Action != "" {
			rec.Action = ran.Action
		}
		if ran.Runner != "" {
			rec.Runner = ran.Runner
		}
		m := &rec.Metadata
		m.WorkDir = ran.WorkDir
		m.Tool, m.ArgsCount, m.Sandbox, m.Truncated = ran.Tool, ran.Args, ran.Sandbox, ran.Truncated
		if n := ran.Node; n != nil {
			m.Node = audit.Node{ID: n.ID, Epoch: uint64(max(n.Epoch, 0)), Function: n.Function, Skill: n.Skill, PayloadDigest: n.PayloadDigest}
		}
		if ran.Output != "" {
			m.StdoutHash = r.engine.cfg.Log.Digest([]byte(ran.Output))
		}
	}
	switch end {
	case StateCompleted:
		rec.Event = audit.CapabilityExecuted
		return
	case StateTimeout:
		rec.Event = audit.CapabilityTimeout
	case StateCancelled:
		rec.Event = audit.CapabilityCancelled
	default:
		rec.Event = audit.CapabilityFailed
	}
	switch {
	case failure.Reason == capability.ReasonSecurityViolation && !r.hidden: // with any code, because it is more than a missing permission
		rec.Event = audit.SecurityViolation
	case r.hidden, failure.Code == capability.CodeDenied:
		rec.Event = audit.PermissionDenied
	case failure.Code == capability.CodeApprovalRequired:
		rec.Event, rec.Success = audit.ApprovalRequired, audit.OutcomeNone
	case failure.Reason == capability.ReasonRateLimited:
		rec.Event = audit.RateLimited
	case failure.Code == capability.CodeOverloaded:
		rec.Event = audit.QueueRejected
	}
	rec.Metadata.Code, rec.Metadata.Reason = failure.Code, failure.Reason
	rec.Error = r.recordable(failure)
	if failure.Err != nil && !errors.Is(failure.Err, context.Canceled) {
		// A cause may quote the caller's input, and arguments are never recorded.
		r.log().Debug("cause of a failed call", "cap", rec.Metadata.CapabilityID, "err", failure.Err)
	}
}

// recordable returns the text of a failure for the record. A message from an extension may quote
// its program's output and thereby its arguments, which must not be recorded; then it returns
// only the reason and the exit code.
func (r *run) recordable(failure *capability.Error) string {
	quotes := failure.Code == capability.CodeFailed || failure.Code == capability.CodeInvalidInput || failure.Code == capability.CodeInternal
	if r.entry == nil || r.entry.Module.Origin != "extension" || !quotes {
		return failure.Error()
	}
	text := string(failure.Code)
	if failure.Reason != "" {
		text = failure.Reason
	}
	if code, ok := failure.Details["exit_code"]; ok {
		text += fmt.Sprintf(": exit code %v", code)
	}
	return text
}

// recordSlow adds a record of a call that took longer than Config.SlowAfter.
func (r *run) recordSlow(ctx context.Context) {
	rec := r.record()
	rec.Event = audit.CapabilitySlow
	rec.Duration = r.engine.cfg.Now().Sub(r.began)
	if _, err := r.engine.cfg.Log.Append(ctx, rec, audit.Buffered); err != nil {
		r.log().Error("audit record not written", "err", err)
	}
}

// finishReplay returns the stored outcome of an idempotency key, and records that.
func (r *run) finishReplay(ctx context.Context, reply Reply, err error) (Reply, error) {
	if e, ok := r.agent.Snapshot().Capability(reply.Capability); ok { // it may no longer exist
		r.choose(e)
		reply.Action = e.Action
	}
	reply.Replayed = true
	reply.Duration = r.engine.cfg.Now().Sub(r.began)
	failure := toError(err)
	rec := r.record()
	rec.Event = audit.CapabilityExecuted
	rec.Success = audit.OutcomeOf(reply.State == StateCompleted)
	rec.Duration = reply.Duration
	rec.Metadata.State = string(reply.State)
	rec.Metadata.Attrs = []audit.Attr{{Key: "replay_of", Value: reply.Invocation}}
	if _, err := r.engine.cfg.Log.Append(context.WithoutCancel(ctx), rec, audit.Written); err != nil {
		r.log().Error("audit record not written", "err", err)
	}
	r.observe(reply, failure)
	if failure == nil {
		return reply, nil
	}
	return reply, failure
}

// reply returns the current state of the call. The provider of a hidden entry is omitted.
func (r *run) reply() Reply {
	reply := Reply{
		Invocation: r.inv.ID, State: r.machine.state, Selection: r.selection,
		Duration: r.engine.cfg.Now().Sub(r.began), History: r.machine.history,
	}
	if r.entry != nil && !r.hidden {
		reply.Provider, reply.Capability, reply.Action = r.entry.Key(), r.entry.ID, r.entry.Action
	}
	return reply
}

// observe notifies the Observer, if any, of the finished call.
func (r *run) observe(reply Reply, failure *capability.Error) {
	if r.engine.cfg.Observer == nil {
		return
	}
	ended := Ended{
		Surface: r.inv.Surface, State: reply.State, Duration: reply.Duration, Provider: r.providerTime,
		ID: r.inv.ID, Parent: r.inv.Parent, Trace: r.inv.Trace, TraceParent: r.inv.TraceParent,
		Principal: r.inv.Principal.ID, Client: r.inv.Client, Session: r.inv.Session, History: reply.History,
		Capability: string(reply.Capability), Provided: string(reply.Provider), Target: r.inv.Target,
	}
	if r.entry != nil {
		_, ended.ProviderKind, _ = r.entry.Key().Parts()
		ended.Action, ended.Effect = string(r.entry.Action), r.entry.Effect
	}
	if failure != nil {
		ended.Code = failure.Code
	}
	if r.ran != nil && r.entry != nil {
		ended.Extension, ended.Runner, ended.Sandbox = r.entry.Module.Extension, r.ran.Runner, r.ran.Sandbox
	}
	r.engine.cfg.Observer.Finished(ended)
}

// MarshalJSON implements [json.Marshaler]. It encodes the "invocation" member of every JSON
// answer.
func (r Reply) MarshalJSON() ([]byte, error) {
	return jsonx.Answer(struct {
		ID         string                 `json:"id"`
		State      State                  `json:"state"`
		Provider   capability.ProviderKey `json:"provider,omitempty"`
		Capability capability.ID          `json:"capability_id,omitempty"`
		Action     capability.Action      `json:"action,omitempty"`
		Selection  *Selection             `json:"selection,omitempty"`
		Duration   float64                `json:"duration_ms"`
		Replayed   bool                   `json:"replayed,omitzero"`
		Degraded   bool                   `json:"audit_degraded,omitzero"`
		History    []Transition           `json:"history,omitempty"`
	}{
		r.Invocation, r.State, r.Provider, r.Capability, r.Action, r.selectionOrNil(),
		float64(r.Duration) / float64(time.Millisecond), r.Replayed, r.AuditDegraded, r.History,
	})
}

func (r Reply) selectionOrNil() *Selection {
	if r.Selection.DecidedBy == "" {
		return nil
	}
	return &r.Selection
}
