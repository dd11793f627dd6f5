package endpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/breaker"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// breakAfter is the number of consecutive calls with a lost connection that opens the breaker.
const breakAfter = 5

// reasonOpen is the reason in the error of a call that an open breaker refuses.
const reasonOpen = "circuit_open"

// limits returns the configuration of an endpoint's breaker. The breaker is for endpoints
// that answer requests for their manifests but lose the connection of calls; an endpoint
// that answers nothing is marked unavailable by its watcher. While the breaker is open,
// the endpoint is unavailable and gets no request. After the delay it is tried again: the
// first answered call closes the breaker, and the first lost call opens it for twice as
// long. Each endpoint has its own breaker.
func limits() breaker.Config {
	return breaker.Config{Failures: breakAfter, Open: minOpenDelay, MaxOpen: maxOpenDelay}
}

// shut returns how long the breaker will still be open.
func (ep *Endpoint) shut(now time.Time) time.Duration {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.breaker.Wait(now)
}

// circuit returns an error with [reasonOpen] while the breaker is open, else nil.
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

// recordEnd reports a call's outcome to the breaker, and tells the catalog if that opens
// the breaker.
func (ep *Endpoint) recordEnd(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return // cancelled or timed out by the caller: no evidence about the endpoint
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
