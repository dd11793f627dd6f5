package endpoint

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// watch starts the endpoint's watcher, which ends with the registry or the endpoint. It
// returns false if the registry has ended.
func (r *Registry) watch(ep *Endpoint) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.publish == nil {
		close(ep.dead)
		return false
	}
	ctx, cancel := context.WithCancel(r.ctx)
	ep.mu.Lock()
	ep.cancel = cancel
	ep.mu.Unlock()
	r.group.Go(func() error {
		defer close(ep.dead)
		defer cancel()
		r.watching(ctx, ep)
		return nil
	})
	return true
}

// watching syncs the endpoint every SyncInterval while it is up, and tries it with growing
// pauses while it is down. A kick makes it try at once. A success answers all waiting
// callers. A failure answers only the callers that waited when the request was sent; for
// the others it sends another request.
func (r *Registry) watching(ctx context.Context, ep *Endpoint) {
	pause := minRetryDelay
	var waiting []chan error
	for {
		if len(waiting) == 0 {
			wait := r.cfg.SyncInterval
			if ep.availability().State == capability.StateReady {
				pause = minRetryDelay
			} else {
				wait = time.Duration(float64(pause) * (0.8 + 0.4*rand.Float64())) // keeps many watchers apart
				wait = max(wait, ep.shut(r.cfg.Now()))
			}
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case answer := <-ep.kick:
				waiting = append(waiting, answer)
			case <-timer.C:
				pause = min(2*pause, maxRetryDelay) // kicks of callers do not increase the pause
			}
			timer.Stop()
		}
		if ctx.Err() != nil {
			return // the waiting callers see that it is dead
		}
		waiting = append(waiting, ep.kicks()...)
		err := ep.circuit() // while the breaker is open, no request is sent
		if err == nil {
			before := ep.offer.Load().decisions
			var synced Synced
			synced, err = r.refresh(ctx, ep, probeTimeout)
			if err == nil && (synced.changed() || !slices.Equal(before, synced.TrustDecisions)) {
				r.recordTrust(ctx, capability.Principal{}, synced.TrustDecisions)
			}
		}
		late := ep.kicks()
		if err == nil {
			waiting, late = append(waiting, late...), nil
		}
		for _, answer := range waiting {
			if answer != nil {
				answer <- err // the caller's channel is buffered
			}
		}
		// A wake without a caller is dropped: mostly it was caused by this failure itself.
		waiting = slices.DeleteFunc(late, func(answer chan error) bool { return answer == nil })
	}
}

// kicks returns the pending kicks without waiting. A nil element is a wake, for which no
// caller waits.
func (ep *Endpoint) kicks() (list []chan error) {
	for {
		select {
		case answer := <-ep.kick:
			list = append(list, answer)
		default:
			return list
		}
	}
}

// wake makes the watcher try the endpoint, without waiting for it.
func (ep *Endpoint) wake() {
	select {
	case ep.kick <- nil:
	default: // a kick is already pending
	}
}
