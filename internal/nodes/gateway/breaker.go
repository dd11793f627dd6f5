package gateway

import (
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/breaker"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// BreakerConfig is when a node is left out for a function; zero values are the
// defaults.
type BreakerConfig struct {
	Failures int           // 5 in a row open the circuit
	Open     time.Duration // 60 s without a call
	HalfOpen int           // 3 calls then try whether it works again
}

// maxCircuits bounds what is remembered; beyond it nothing new is.
const maxCircuits = 1 << 16

// nodeBreaker counts, per node and function, what the transport and a full queue made
// fail. What a function answers is its own business and never counts.
type nodeBreaker struct {
	cfg breaker.Config
	now func() time.Time

	mu       sync.Mutex
	circuits map[circuitKey]*breaker.Breaker // of those that have failed
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

// open reports whether a node takes no call of a function now.
func (b *nodeBreaker) open(node, function string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[circuitKey{node, function}]
	return c != nil && c.Refuses(b.cfg, b.now())
}

// enter counts a call that tries an open circuit; false: it may not.
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
		case cmp.ReasonCancelled, cmp.ReasonTimeout: // says nothing of the way there
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

// abandon gives back the place of a call that has shown nothing.
func (b *nodeBreaker) abandon(node, function string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.circuits[circuitKey{node, function}]; c != nil {
		c.Abandon()
	}
}

// forget forgets a node that has left: another process answers when it comes back.
func (b *nodeBreaker) forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.circuits {
		if key.node == node {
			delete(b.circuits, key)
		}
	}
}
