package endpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/breaker"
	"github.com/junctor-run/junctor/internal/core/audit"
)

const (
	// breakAfter calls in a row that lost their connection open the breaker.
	breakAfter = 5
	// minOpenDelay is how long it stays open at first, maxOpenDelay at most.
	minOpenDelay = time.Second
	maxOpenDelay = time.Minute
)

// reasonOpen is the reason of a call that an open breaker refuses.
const reasonOpen = "circuit_open"

// limits are those of a breaker for an endpoint that answers when it is asked what it
// offers, and breaks when it is called. One that does not answer at all needs none: its
// watcher marks it unavailable. Open, the endpoint is unavailable and is not
// asked; after a while it is asked again, and the first call that gets an answer
// closes the breaker, while the first that is lost opens it for twice as long.
// Each endpoint has its own.
func limits() breaker.Config {
	return breaker.Config{Failures: breakAfter, Open: minOpenDelay, MaxOpen: maxOpenDelay}
}

// shut is how long the breaker is open still.
func (ep *Endpoint) shut(now time.Time) time.Duration {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.breaker.Wait(now)
}

// circuit is the error of an open breaker; nil when it is closed.
func (ep *Endpoint) circuit() error {
	now := ep.registry.cfg.Now()
	left := ep.shut(now)
	if left == 0 {
		return nil
	}
	e := capability.Errorf(capability.CodeUnavailable, "endpoint", "endpoint %s broke %d calls in a row; it is left alone for a moment",
		ep.id, breakAfter).
		With(reasonOpen, "see its state with: junctor endpoints show "+ep.id)
	e.RetryAfter = left
	return e
}

// recordEnd reports a call's end to the breaker, and to the catalog when that opens it.
func (ep *Endpoint) recordEnd(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return // the caller left, or its time was up: says nothing
	}
	r := ep.registry
	ep.mu.Lock()
	opened := false
	if lost(err) {
		opened = ep.breaker.Fail(limits(), r.cfg.Now())
	} else {
		ep.breaker.Reset()
	}
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
