package gateway

import (
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// BreakerConfig is when a node is left out for a function (N15); zero values are the
// defaults.
type BreakerConfig struct {
	Failures int           // 5 in a row open the circuit
	Open     time.Duration // 60 s without a call
	HalfOpen int           // 3 calls then try whether it works again
}

// maxCircuits bounds what is remembered; beyond it nothing new is.
const maxCircuits = 1 << 16

// breaker counts, per node and function, what the transport and a full queue made
// fail. What a function answers is its own business and never counts.
type breaker struct {
	cfg BreakerConfig
	now func() time.Time

	mu       sync.Mutex
	circuits map[circuitKey]*circuit // of those that have failed
}

type circuitKey struct{ node, function string }

type circuit struct {
	failures int
	until    time.Time // open so long; zero: closed
	trials   int       // since then
}

func newBreaker(cfg BreakerConfig, now func() time.Time) *breaker {
	if cfg.Failures <= 0 {
		cfg.Failures = 5
	}
	if cfg.Open <= 0 {
		cfg.Open = 60 * time.Second
	}
	if cfg.HalfOpen <= 0 {
		cfg.HalfOpen = 3
	}
	return &breaker{cfg: cfg, now: now, circuits: make(map[circuitKey]*circuit)}
}

// open reports whether a node takes no call of a function now.
func (b *breaker) open(node, function string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[circuitKey{node, function}]
	return c != nil && !c.until.IsZero() && (b.now().Before(c.until) || c.trials >= b.cfg.HalfOpen)
}

// enter counts a call that tries an open circuit; false: it may not.
func (b *breaker) enter(node, function string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[circuitKey{node, function}]
	if c == nil || c.until.IsZero() {
		return true
	}
	if b.now().Before(c.until) || c.trials >= b.cfg.HalfOpen {
		return false
	}
	c.trials++
	return true
}

// count hears what came of a call.
func (b *breaker) count(node, function string, err error) {
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
			c = &circuit{}
			b.circuits[key] = c
		}
		if c.failures++; c.failures >= b.cfg.Failures {
			c.until, c.trials = b.now().Add(b.cfg.Open), 0
		}
	}
}

// abandon gives back the place of a call that has shown nothing.
func (b *breaker) abandon(node, function string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.circuits[circuitKey{node, function}]; c != nil && c.trials > 0 {
		c.trials--
	}
}

// forget forgets a node that has left: another process answers when it comes back.
func (b *breaker) forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.circuits {
		if key.node == node {
			delete(b.circuits, key)
		}
	}
}
