package invoke

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// errDeadline is the cause of a context whose deadline passed, as opposed to a
// disconnected caller.
var errDeadline = errors.New("the deadline of the call passed")

// execute sends the call to the chosen provider with its deadline and limits. If a provider
// reports that it did not start (code unavailable) and the action permits it, execute tries
// the entries of rest.
func (r *run) execute(ctx context.Context, rest []*catalog.Entry) (capability.Result, error) {
	if err := r.ended(ctx); err != nil {
		return capability.Result{}, err
	}
	if err := r.engine.cfg.Log.Ready(r.entry.Effect.Mutates()); err != nil {
		return capability.Result{}, err
	}
	// A provider that ignores its context may read the input after Invoke has returned, when
	// the surface reuses its buffer.
	r.inv.Input = slices.Clone(r.inv.Input)
	r.fire(EventValidated, "")
	for {
		result, err := r.attempt(ctx)
		if err == nil || !r.mayFallBack(err) {
			return result, err
		}
		next := slices.IndexFunc(rest, r.callable)
		if next < 0 {
			return result, err
		}
		r.choose(rest[next])
		r.consent, r.preview = policy.Consent{}, capability.Preview{}
		r.selection.Fallback = true
		rest = rest[next+1:]
	}
}

// giveBack restores a one-time consent if the call was rejected before it started, because the
// approver would otherwise be asked again about a call that never happened. The codes
// overloaded and unavailable guarantee that a provider did not start.
func (r *run) giveBack(ctx context.Context, agreed policy.Consent, err error) {
	if code := capability.CodeOf(err); err == nil || r.started && code != capability.CodeOverloaded && code != capability.CodeUnavailable {
		return
	}
	if err := r.engine.cfg.Policy.Return(context.WithoutCancel(ctx), agreed); err != nil {
		r.log().Error("an approval that was not used is spent", "approval", agreed.Approval, "err", err)
	}
}

// callable reports whether a fallback may go to e. It must be permitted without a new
// approval, which a fallback never requests, and accept the input.
func (r *run) callable(e *catalog.Entry) bool {
	v := r.engine.cfg.Policy.Authorize(r.inv.Principal, e)
	asks := !human(r.inv.Principal) && r.agent.Frame.Approval(e, v.Waives) || r.inv.Tainted && e.Effect.AtLeast(capability.EffectExternal)
	return v.Permitted && v.Consent == "" && e.Contribution.Confirm == "" && !asks && checkSchema(e, r.inv.Input) == nil
}

// attempt makes the call at r.entry: it acquires a slot, writes the begin record if required,
// and waits for the provider. After the deadline the error is timeout, whatever the provider
// returns. It clears r.started if the provider reports that it did not start.
func (r *run) attempt(ctx context.Context) (capability.Result, error) {
	e := r.engine
	key := r.entry.Key()
	if err := e.places.take(key, r.inv.Principal.Person(), e.cfg.PerProvider); err != nil {
		return capability.Result{}, err
	}
	r.within = r.timeout()
	ctx, cancel := context.WithTimeoutCause(ctx, r.within, errDeadline)
	defer cancel()
	if r.entry.Effect.Mutates() || e.cfg.RecordReads {
		if err := r.recordStart(ctx); err != nil {
			e.places.free(key, r.inv.Principal.Person())
			return capability.Result{}, err
		}
	}
	progress := &relay{to: r.inv.Progress}
	defer progress.close()
	call := r.call()
	call.Progress = progress.send
	if id := r.entry.ID; r.inv.Keep != nil {
		call.Keep = func(upstream string) { r.inv.Keep.Keep(capability.Kept{Capability: id, UpstreamCall: upstream}) }
	}
	began := e.cfg.Now()
	r.started = true
	result, err := r.carry(ctx, call)
	r.providerTime += e.cfg.Now().Sub(began)
	r.ran, r.login = result.Ran, result.Login
	if err != nil {
		// A provider that stops because of the deadline may report its own error; the cause of
		// the context takes precedence.
		if err := r.ended(ctx); err != nil {
			return capability.Result{}, err
		}
		err := asFailure(err)
		if err.Code == capability.CodeUnavailable {
			r.started = false
		}
		return capability.Result{Value: result.Value}, err
	}
	r.upstream = result.UpstreamCall
	return result, nil
}

// call returns the call for the provider of r.entry.
func (r *run) call() capability.Call {
	return capability.Call{
		Invocation: r.inv.ID, Capability: r.entry.ID, Action: r.entry.Action, Member: r.entry.Contribution.Member,
		Principal: r.inv.Principal, Session: r.inv.Session, Context: r.context, Input: r.inv.Input, Progress: func(capability.Chunk) {},
		Idempotent: !r.entry.Effect.Mutates(), Agreed: r.preview.Binds, Key: r.inv.IdempotencyKey, Watched: r.inv.Progress != nil,
		Meta: r.meta(), Ask: r.inv.Ask, Relay: r.inv.Relay, Within: r.inv.Within,
	}
}

// carry runs the provider, or resumes its work, and releases its slot when it returns. A
// provider that is not Prompt runs in its own goroutine. When ctx ends, carry waits for it at
// most for its settle time, discards its result, and returns ctx's error. A panic of the
// provider is returned as an error.
func (r *run) carry(ctx context.Context, call capability.Call) (capability.Result, error) {
	// The provider's goroutine must not use r.
	provider, key, resume, person := r.entry.Provider, r.entry.Key(), r.inv.Resume, r.inv.Principal.Person()
	work := func() (result capability.Result, err error) {
		defer r.engine.places.free(key, person)
		defer func() {
			if p := recover(); p != nil {
				err = r.panicked(p)
			}
		}()
		if resume == "" {
			return provider.Invoke(ctx, call)
		}
		if p, ok := provider.(capability.Resumer); ok {
			return p.Resume(ctx, call, resume)
		}
		return result, capability.Errorf(capability.CodeFailed, "execute", "%s cannot go on with what was begun before", key).
			With(ReasonInterrupted,
				"look at what it was to change before you start it again")
	}
	if _, ok := provider.(capability.Prompt); ok {
		return work()
	}
	type answer struct {
		result capability.Result
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		result, err := work()
		done <- answer{result, err}
	}()
	select {
	case a := <-done:
		return a.result, a.err
	case <-ctx.Done():
	}
	wait := settleTimeout
	if s, ok := provider.(capability.Settler); ok {
		wait = min(s.Settle(), maxSettleTimeout)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-done: // the provider reacted, but its result is too late
	case <-timer.C:
	}
	return capability.Result{}, ctx.Err()
}

// timeout returns the shorter of the caller's and the capability's timeout, otherwise the
// default of the provider kind; never more than the maximum.
func (r *run) timeout() time.Duration {
	t := r.inv.Timeout
	if own := r.entry.Contribution.Timeout; t == 0 || own > 0 && own < t {
		t = own
	}
	if t == 0 {
		_, kind, _ := r.entry.Key().Parts()
		t = r.engine.cfg.ProviderTimeout[kind]
	}
	t = cmp.Or(t, r.engine.cfg.DefaultTimeout)
	return min(t, r.engine.cfg.MaxTimeout)
}

// ended returns the error of a call whose context is over, or nil if it is not. The cause of
// a foreign context is for operators; the caller's error is cancelled or timeout.
func (r *run) ended(ctx context.Context) error {
	err := ctx.Err()
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errDeadline):
		return capability.Errorf(capability.CodeTimeout, "execute", "no answer within %s", r.within).
			With("timeout", "raise the timeout, or ask for less")
	case errors.Is(err, context.DeadlineExceeded):
		return capability.AsError(err)
	}
	return capability.Wrap(capability.CodeCancelled, "execute", "the request was cancelled", context.Cause(ctx))
}

// asFailure returns a provider's *capability.Error unchanged. Any other error becomes the cause
// of a failed one, whose message does not contain its text.
func asFailure(err error) *capability.Error {
	if e, ok := errors.AsType[*capability.Error](err); ok {
		return e
	}
	return capability.Wrap(capability.CodeFailed, "execute", "the provider reported a failure", err).With("execution_failed", "")
}

// places counts the running calls of each provider, and of each principal at it. A provider
// without calls uses no memory.
type places struct {
	mu    sync.Mutex
	taken map[place]int
}

// place is a person at a provider, or all of them.
type place struct {
	provider capability.ProviderKey
	person   string
	all      bool
}

// take acquires one of the provider's slots. One person gets three quarters of what the others
// leave of most, so that it cannot take them all. Otherwise it fails with overloaded, reason
// queue_full, without waiting.
func (p *places) take(key capability.ProviderKey, person string, most int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := place{provider: key, all: true}
	all, own := p.taken[total], p.taken[place{provider: key, person: person}]
	if own < ((most-all+own)*3+3)/4 {
		p.taken[total], p.taken[place{provider: key, person: person}] = all+1, own+1
		return nil
	}
	err := capability.Errorf(capability.CodeOverloaded, "execute", "%s has %d calls running already, %d of them yours", key, all, own).
		With("queue_full", "try again in a second")
	err.RetryAfter = time.Second
	return err
}

func (p *places) free(key capability.ProviderKey, person string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range []place{{provider: key, all: true}, {provider: key, person: person}} {
		if p.taken[one]--; p.taken[one] == 0 {
			delete(p.taken, one)
		}
	}
}

// recordStart writes the begin record. Without it the call must not start: the error is
// unavailable, reason audit_unavailable, or that of the ended context.
func (r *run) recordStart(ctx context.Context) error {
	rec := r.record()
	rec.Event = audit.CapabilityStarted
	rec.Metadata.State = string(StateExecuting)
	if _, err := r.engine.cfg.Log.Append(ctx, rec, audit.Buffered); err != nil {
		if err := r.ended(ctx); err != nil {
			return err
		}
		return capability.Wrap(capability.CodeUnavailable, "audit",
			"the audit log cannot be written, so nothing that changes anything is started", err).
			With("audit_unavailable", "junctor doctor says what is wrong with the log")
	}
	return nil
}

// relay passes progress to the caller, one chunk at a time, with increasing values, and never
// after the call has ended.
type relay struct {
	mu     sync.Mutex
	to     func(capability.Chunk)
	last   float64
	any    bool
	closed bool
}

// send passes a chunk on. It drops chunks after close, and those without a stage whose progress
// is not higher than the last.
func (p *relay) send(c capability.Chunk) {
	if p.to == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Stage != "" && !p.closed {
		p.to(c)
		return
	}
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
