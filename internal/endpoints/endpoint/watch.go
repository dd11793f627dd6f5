package endpoint

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
)

const (
	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = 15 * time.Second
	// probeTimeout bounds one question to an endpoint that is down, so that a silent
	// host does not hold its watcher for the whole call timeout.
	probeTimeout = 5 * time.Second
)

// watch starts the endpoint's watcher, which ends with the registry or the
// endpoint; false when the registry has ended.
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

// watching reads the manifest again every SyncInterval while the endpoint is up,
// and asks with growing pauses while it is down. A kick makes it ask at once.
// That the endpoint is there is news to everybody who waits; that it is not, only
// to those who waited when the question was put: the others get one of their own.
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
				pause = min(2*pause, maxRetryDelay) // callers who ask do not make it slower
			}
			timer.Stop()
		}
		if ctx.Err() != nil {
			return // the waiting callers see that it is dead
		}
		waiting = append(waiting, ep.kicks()...)
		err := ep.circuit() // asking would close what is to stay open
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
				answer <- err // buffered by the one who asked
			}
		}
		// What woke the watcher meanwhile is most often its own failure.
		waiting = slices.DeleteFunc(late, func(answer chan error) bool { return answer == nil })
	}
}

// kicks are those that are there now; nil for a wake, which no caller waits for.
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

// wake asks the watcher to look without waiting for it.
func (ep *Endpoint) wake() {
	select {
	case ep.kick <- nil:
	default: // another goroutine has asked already
	}
}
