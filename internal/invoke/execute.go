package invoke

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/audit"
	"github.com/junctor-run/junctor/internal/catalog"
)

// settle is how long a provider may take to notice that its call is over before
// it is left behind; its goroutine ends when it returns.
const settle = 100 * time.Millisecond

// errDeadline is the cause of a context whose own time ran out, as opposed to a
// caller who went away.
var errDeadline = errors.New("the deadline of the call passed")

// execute sends the call to the chosen provider under its deadline and limits.
// A provider that promises it did not start (code unavailable) may be followed
// by another one where the action allows it.
func (r *run) execute(ctx context.Context, rest []*catalog.Entry) (capability.Result, error) {
	if err := context.Cause(ctx); err != nil {
		return capability.Result{}, endOf(err, 0)
	}
	if err := r.engine.cfg.Log.Ready(r.entry.Effect.Mutates()); err != nil {
		return capability.Result{}, err
	}
	r.fire(EventValidated, "")
	for {
		result, err := r.attempt(ctx)
		if err == nil || len(rest) == 0 || !r.mayFallBack(err) {
			return result, err
		}
		r.choose(rest[0])
		rest = rest[1:]
		if r.verdict.Consent != "" {
			return result, err // a fallback never asks for a new yes
		}
		r.selection.Fallback = true
	}
}

func (r *run) attempt(ctx context.Context) (capability.Result, error) {
	e := r.engine
	release, err := e.acquire(r.entry.Key())
	if err != nil {
		return capability.Result{}, err
	}
	timeout := r.timeout()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errDeadline)
	defer cancel()
	if r.entry.Effect.Mutates() || e.cfg.RecordReads {
		if err := r.recordStart(ctx); err != nil {
			release()
			return capability.Result{}, err
		}
	}
	progress := &relay{to: r.inv.Progress}
	defer progress.close()
	call := capability.Call{
		Invocation: r.inv.ID, Capability: r.entry.ID, Action: r.entry.Action, Member: r.entry.Contribution.Member,
		Principal: r.inv.Principal, Session: r.inv.Session, Input: r.inv.Input, Progress: progress.send,
		Idempotent: !r.entry.Effect.Mutates(),
	}
	type answer struct {
		result capability.Result
		err    error
	}
	done := make(chan answer, 1)
	began := e.cfg.Now()
	r.started = true
	go func() {
		var a answer
		defer release()
		defer func() {
			if p := recover(); p != nil {
				a.err = r.panicked(p)
			}
			done <- a
		}()
		a.result, a.err = r.entry.Provider.Invoke(ctx, call)
	}()
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		a = answer{err: context.Cause(ctx)}
		timer := time.NewTimer(settle)
		defer timer.Stop()
		select {
		case <-done: // it noticed; what it says comes too late
		case <-timer.C:
		}
	}
	r.providerTime += e.cfg.Now().Sub(began)
	if a.err != nil {
		// A provider that gives up because the time is over may report it in its
		// own words; the cause of the context is the truth.
		if cause := context.Cause(ctx); cause != nil {
			return capability.Result{}, endOf(cause, timeout)
		}
		err := asFailure(a.err)
		if err.Code == capability.CodeUnavailable {
			r.started = false
		}
		return capability.Result{}, err
	}
	r.upstream = a.result.UpstreamCall
	return a.result, nil
}

// timeout is the nearest of caller, capability and provider default, never above
// the ceiling (decision R28).
func (r *run) timeout() time.Duration {
	t := r.inv.Timeout
	if t == 0 {
		t = r.entry.Contribution.Timeout
	}
	if t == 0 {
		_, kind, _ := r.entry.Key().Parts()
		t = r.engine.cfg.ProviderTimeout[kind]
	}
	if t == 0 {
		t = r.engine.cfg.DefaultTimeout
	}
	return min(t, r.engine.cfg.MaxTimeout)
}

// endOf turns the cause of an ended context into the error of the call.
func endOf(cause error, timeout time.Duration) *capability.Error {
	if errors.Is(cause, errDeadline) {
		return capability.Errorf(capability.CodeTimeout, "execute", "no answer within %s", timeout).
			With("timeout", "raise the timeout, or ask for less")
	}
	return capability.AsError(cause)
}

// asFailure makes a provider's error safe: its own *capability.Error as it is, a
// foreign one without its text.
func asFailure(err error) *capability.Error {
	if e, ok := errors.AsType[*capability.Error](err); ok {
		return e
	}
	return capability.Wrap(capability.CodeFailed, "execute", "the provider reported a failure", err).With("execution_failed", "")
}

// acquire takes one of the provider's places or refuses at once: waiting would
// only move the queue into memory.
func (e *Engine) acquire(key capability.ProviderKey) (release func(), err error) {
	v, ok := e.limits.Load(key)
	if !ok {
		v, _ = e.limits.LoadOrStore(key, make(chan struct{}, e.cfg.PerProvider))
	}
	places := v.(chan struct{})
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		err := capability.Errorf(capability.CodeOverloaded, "execute", "%s has %d calls running already", key, e.cfg.PerProvider).
			With("queue_full", "try again in a second")
		err.RetryAfter = time.Second
		return nil, err
	}
}

func (r *run) recordStart(ctx context.Context) error {
	rec := r.record()
	rec.Event = audit.CapabilityStarted
	rec.Metadata.State = string(StateExecuting)
	if _, err := r.engine.cfg.Log.Append(ctx, rec, audit.Buffered); err != nil {
		return capability.Wrap(capability.CodeUnavailable, "audit", "the audit log cannot be written, so nothing that changes anything is started", err).
			With("audit_unavailable", "junctor doctor says what is wrong with the log")
	}
	return nil
}

// relay hands progress to the caller, serially, increasing, and never after the
// call has ended.
type relay struct {
	mu     sync.Mutex
	to     func(capability.Chunk)
	last   float64
	any    bool
	closed bool
}

func (p *relay) send(c capability.Chunk) {
	if p.to == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || (p.any && c.Progress <= p.last) {
		return
	}
	p.any, p.last = true, c.Progress
	p.to(c)
}

func (p *relay) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
}
