package endpoint

import (
	"context"
	"errors"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// refresh reads the endpoint's offer again, within the given time, and applies the
// changes. After a collision or a refusal by the catalog the previous offer stays. A module
// that cannot be started is left out in both its old and new form; the endpoint is then
// degraded, and the module is tried again with growing pauses.
func (r *Registry) refresh(ctx context.Context, ep *Endpoint, within time.Duration) (Synced, error) {
	if ep.tokenless {
		var err error
		if ep, err = r.redeem(ep); err != nil {
			return Synced{}, err
		}
	}
	askCtx, cancel := context.WithTimeout(ctx, within)
	o, err := ep.ask(askCtx)
	cancel()
	if err != nil {
		// A cancelled caller shows nothing about the endpoint.
		if !errors.Is(ctx.Err(), context.Canceled) {
			r.down(ep, err)
		}
		return Synced{}, err
	}
	unlock, err := r.gates.lock(ctx, ep.baseURL)
	if err != nil {
		return Synced{}, err
	}
	defer unlock()
	s := syncing{r: r, ep: ep, next: o}
	synced, err := s.apply(ctx)
	if s.inForce {
		r.dispose(ctx, s.change.gone)
	}
	return synced, err
}

// syncing is the state of one refresh after the endpoint has answered.
type syncing struct {
	r       *Registry
	ep      *Endpoint
	next    *offering
	before  *offering
	synced  Synced
	change  *change
	inForce bool
}

// apply takes one step if no hook has to be called. Otherwise it takes three: judge, call
// the hooks without the lock, and judge again, because endpoints may have changed meanwhile.
func (s *syncing) apply(ctx context.Context) (Synced, error) {
	r, ep := s.r, s.ep
	r.changing.Lock()
	defer r.changing.Unlock()
	publish, err := r.current(ep)
	if err != nil {
		return Synced{}, err
	}
	s.before = ep.offer.Load()
	s.synced = ep.judge(s.next, s.before, ep.keepMissing)
	if err := r.collides(ep, s.next.modules); err != nil {
		return Synced{}, s.refuse(ctx, publish, err)
	}
	began := ep.started()
	if was := ep.availability().State; was == capability.StateUnavailable || was == capability.StateStarting {
		began = nil // the server may have restarted and lost all module state
	}
	s.change = r.plan(ep, began, s.next)
	if s.change.calls() {
		ep.setDraining(s.change.reloading())
		defer ep.setDraining(nil)
		if err := publish(ep.batch()); err != nil {
			return Synced{}, s.refuse(ctx, publish, err)
		}
		r.changing.Unlock()
		_ = s.change.run(ctx, false)
		r.changing.Lock()
		ep.setDraining(nil)
		if publish, err = r.current(ep); err != nil { // the goroutine that replaced it stopped the modules started before
			s.change.stopped(ctx)
			return Synced{}, err
		}
		s.change.keep(s.next, s.before, &s.synced)
		if err := r.collides(ep, s.next.modules); err != nil {
			return Synced{}, s.refuse(ctx, publish, err)
		}
	}
	return s.commit(ctx, publish)
}

// refuse keeps the previous offer, without the modules that had to be stopped, and returns
// the error.
func (s *syncing) refuse(ctx context.Context, publish func(capability.Batch) error, cause error) error {
	r, ep := s.r, s.ep
	before := s.before
	if s.change != nil {
		r.changing.Unlock() // no request is sent with the lock held
		lost := s.change.stopped(ctx)
		r.changing.Lock()
		var err error
		if publish, err = r.current(ep); err != nil {
			return err
		}
		before = before.lose(lost)
		ep.setStarted(dropLive(ep.started(), lost))
	}
	ep.offer.Store(before)
	ep.setDraining(nil)
	ep.settle(capability.StateDegraded, capability.AsError(cause).Message, r.cfg.Now())
	_ = publish(ep.batch())
	r.publishModels(publish)
	r.trust.add(r.trustRecord(ep, modeSync, s.synced, cause))
	ep.wake()
	return cause
}

// commit publishes the new offer and stores it if the endpoint is saved.
func (s *syncing) commit(ctx context.Context, publish func(capability.Batch) error) (Synced, error) {
	r, ep := s.r, s.ep
	was := ep.availability().State
	ep.offer.Store(s.next)
	ep.markUp(r.cfg.Now(), s.change.err())
	if err := publish(ep.batch()); err != nil {
		return Synced{}, s.refuse(ctx, publish, err)
	}
	r.publishModels(publish)
	ep.setStarted(s.change.after)
	s.inForce = true
	if ep.saved && ep.distrust == "" && (s.synced.changed() || ep.unsaved) {
		// The saved offer only determines the listing while the endpoint is down.
		err := r.saveOffer(ctx, ep)
		if ep.unsaved = err != nil; err != nil {
			r.cfg.Logger.Error("the manifest of an endpoint could not be saved", "endpoint", ep.id, "err", err)
		}
	}
	if was == capability.StateUnavailable && ep.availability().State != was {
		r.record(ctx, audit.EndpointUp, ep.id, capability.Principal{}, "")
	}
	if len(s.synced.Failed) > 0 {
		ep.wake() // a sync requested by a caller: the watcher restarts its interval
	}
	if s.synced.changed() || len(s.synced.Failed) > 0 {
		r.trust.add(r.trustRecord(ep, modeSync, s.synced, s.change.err()))
	}
	return s.synced, nil
}

// current returns the function that publishes ep's batches. It fails if ep was disconnected or
// replaced meanwhile, so that no goroutine publishes it again. The caller holds changing.
func (r *Registry) current(ep *Endpoint) (func(capability.Batch) error, error) {
	if now, ok := r.get(ep.id); !ok || now != ep {
		return nil, noEndpoint(ep.id)
	}
	return r.running()
}

// down marks the endpoint unavailable and tells the catalog, once per outage.
func (r *Registry) down(ep *Endpoint, cause error) {
	reason := capability.AsError(cause).Message
	r.changing.Lock()
	defer r.changing.Unlock()
	publish, err := r.current(ep)
	if err != nil || !ep.mark(capability.StateUnavailable, reason, r.cfg.Now()) {
		return
	}
	r.cfg.Logger.Warn("endpoint is down", "endpoint", ep.id, "err", cause)
	r.record(context.Background(), audit.EndpointDown, ep.id, capability.Principal{}, reason)
	if err := publish(ep.batch()); err != nil {
		r.cfg.Logger.Error("endpoint state not published", "endpoint", ep.id, "err", err)
	}
	r.publishModels(publish)
}

// markUp sets the state of an endpoint that answered: ready, or degraded if failed is not
// nil. It does not close the breaker.
func (ep *Endpoint) markUp(now time.Time, failed error) {
	ep.mu.Lock()
	ep.synced = now
	open := ep.breaker.Wait(now) > 0
	ep.mu.Unlock()
	switch {
	case open:
	case ep.distrust != "":
		ep.settle(capability.StateUnconfigured, ep.distrust, now)
	case failed != nil:
		ep.settle(capability.StateDegraded, capability.AsError(failed).Message, now)
	default:
		ep.settle(capability.StateReady, "", now)
	}
}

// settle sets the state and reason. The time is only set if the state changes.
func (ep *Endpoint) settle(state capability.State, reason string, now time.Time) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.state.State == state && ep.state.Reason == reason {
		return
	}
	if ep.state.State == state {
		now = ep.state.Since
	}
	ep.state = capability.Availability{State: state, Reason: reason, Since: now}
}

// mark sets a bad state and wakes the watcher, and reports whether the state changed.
func (ep *Endpoint) mark(state capability.State, reason string, now time.Time) (changed bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.state.State == state {
		return false
	}
	ep.state = capability.Availability{State: state, Reason: reason, Since: now}
	ep.wake()
	return true
}

func (ep *Endpoint) setDraining(modules map[string]bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.draining = modules
}

func (ep *Endpoint) drains() map[string]bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.draining
}
