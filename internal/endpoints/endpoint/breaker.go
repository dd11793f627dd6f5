package endpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

const (
	// breakAfter calls in a row that lost their connection open the breaker.
	breakAfter = 5
	// firstOpen is how long it stays open at first, lastOpen at most.
	firstOpen = time.Second
	lastOpen  = time.Minute
)

// reasonOpen is the reason of a call that an open breaker refuses.
const reasonOpen = "circuit_open"

// breaker is for an endpoint that answers when it is asked what it offers, and
// breaks when it is called. One that does not answer at all needs none: its
// watcher marks it unavailable. Open, the endpoint is unavailable and is not
// asked; after a while it is asked again, and the first call that gets an answer
// closes the breaker, while the first that is lost opens it for twice as long.
// Each endpoint has its own. Guarded by Endpoint.mu.
type breaker struct {
	lost  int           // calls in a row
	open  time.Time     // until then; zero: closed
	pause time.Duration // of the last opening
}

// heard notes how a call ended: lost, or with an answer of whatever kind. It
// reports whether that opened the breaker.
func (b *breaker) heard(lost bool, now time.Time) (opened bool) {
	if !lost {
		*b = breaker{}
		return false
	}
	if b.lost++; b.lost < breakAfter || now.Before(b.open) {
		return false
	}
	b.pause = min(max(2*b.pause, firstOpen), lastOpen)
	b.open = now.Add(b.pause)
	b.lost = breakAfter - 1 // half-open: the next one decides
	return true
}

// shut is how long the breaker is open still.
func (ep *Endpoint) shut(now time.Time) time.Duration {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return max(0, ep.breaker.open.Sub(now))
}

// circuit is the error of an open breaker; nil when it is closed.
func (ep *Endpoint) circuit() error {
	now := ep.registry.cfg.Now()
	left := ep.shut(now)
	if left == 0 {
		return nil
	}
	e := capability.Errorf(capability.CodeUnavailable, "endpoint", "endpoint %s broke %d calls in a row; it is left alone for a moment", ep.id, breakAfter).
		With(reasonOpen, "see its state with: junctor endpoints show "+ep.id)
	e.RetryAfter = left
	return e
}

// heard tells the breaker of a call's end, and the catalog when that opens it.
func (ep *Endpoint) heard(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return // the caller left, or its time was up: says nothing
	}
	r := ep.registry
	ep.mu.Lock()
	opened := ep.breaker.heard(lost(err), r.cfg.Now())
	ep.mu.Unlock()
	if !opened {
		return
	}
	reason := fmt.Sprintf("circuit open: %d calls in a row lost their connection", breakAfter)
	r.changing.Lock()
	defer r.changing.Unlock()
	publish, gone := r.current(ep)
	if gone != nil || !ep.mark(capability.StateUnavailable, reason, r.cfg.Now()) {
		return
	}
	r.cfg.Logger.Warn("endpoint breaks calls", "endpoint", ep.id, "err", err)
	r.record(context.WithoutCancel(ctx), audit.EndpointDown, ep.id, capability.Principal{}, reason)
	if err := publish(ep.batch()); err != nil {
		r.cfg.Logger.Error("endpoint state not published", "endpoint", ep.id, "err", err)
	}
	r.publishModels(publish)
}
