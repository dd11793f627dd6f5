package gateway

import (
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/breaker"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// BreakerConfig configures when a node is excluded for a function. Zero values mean the defaults.
type BreakerConfig struct {
	Failures int           // consecutive failures that open the circuit; 0: 5
	Open     time.Duration // time without calls; 0: 60 s
	HalfOpen int           // trial calls after that; 0: 3
}

// nodeBreaker counts, per node and function, the calls that failed because of the transport
// or a full queue. Errors of the function itself do not count.
type nodeBreaker struct {
	cfg breaker.Config
	now func() time.Time

	mu       sync.Mutex
	circuits map[circuitKey]*breaker.Breaker // only where calls have failed
}

type circuitKey struct{ node, function string }

func newBreaker(cfg BreakerConfig, now func() time.Time) *nodeBreaker {
	if cfg.Failures <= 0 {
		cfg.Failures = 5
	}
	if cfg.Open <= 0 {
		cfg.Open = 60 * time.Second
	}
	if cfg.HalfOpen <= 0 {
		cfg.HalfOpen = 3
	}
	return &nodeBreaker{
		cfg: breaker.Config{Failures: cfg.Failures, Open: cfg.Open, Trials: cfg.HalfOpen, Extend: true}, now: now,
		circuits: make(map[circuitKey]*breaker.Breaker),
	}
}

// open reports whether calls of a function to a node are refused now.
func (b *nodeBreaker) open(node, function string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[circuitKey{node, function}]
	return c != nil && c.Refuses(b.cfg, b.now())
}

// enter reports whether a call may be sent; on an open circuit it counts as a trial.
func (b *nodeBreaker) enter(node, function string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[circuitKey{node, function}]
	return c == nil || c.Admit(b.cfg, b.now())
}

// count records the result of a call.
func (b *nodeBreaker) count(node, function string, err error) {
	failed := false
	if err != nil {
		switch capability.AsError(err).Reason {
		case cmp.ReasonNodeNotFound, cmp.ReasonNodeLost, cmp.ReasonConnection, cmp.ReasonOverloaded:
			failed = true
		case cmp.ReasonCancelled, cmp.ReasonTimeout: // does not indicate a transport failure
			b.abandon(node, function)
			return
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := circuitKey{node, function}
	c := b.circuits[key]
	switch {
	case !failed:
		delete(b.circuits, key)
	case c == nil && len(b.circuits) >= maxCircuits:
	default:
		if c == nil {
			c = &breaker.Breaker{}
			b.circuits[key] = c
		}
		c.Fail(b.cfg, b.now())
	}
}

// abandon releases the trial of a call without a meaningful result.
func (b *nodeBreaker) abandon(node, function string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.circuits[circuitKey{node, function}]; c != nil {
		c.Abandon()
	}
}

// forget removes the circuits of a node that has left.
func (b *nodeBreaker) forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.circuits {
		if key.node == node {
			delete(b.circuits, key)
		}
	}
}

// Unhealthy reports whether the circuit of a function on a node is open, because too many
// calls failed in transport.
func (g *Gateway) Unhealthy(function, node string) bool { return g.breaker.open(node, function) }
