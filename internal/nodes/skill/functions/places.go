package functions

import (
	"context"
	"errors"
	"sync"
)

var (
	errFull   = errors.New("the queue is full")
	errClosed = errors.New("nothing is taken any more")
)

// places are where calls run. Those that wait are served the more important first,
// then in the order they came; one whose function is at its own limit lets others
// pass.
type places struct {
	queue int
	limit func(function string) int // 0: none

	mu      sync.Mutex
	free    int
	running int
	active  map[string]int // by function
	waiting []*waiter      // in the order they are served
	idle    chan struct{}  // set when nothing is taken any more; closed when all is done
}

type waiter struct {
	function string
	priority int
	turn     chan struct{} // closed when the place is its own
}

// take waits for a place: errFull, errClosed, or the context's error.
func (p *places) take(ctx context.Context, function string, priority int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	if p.idle != nil {
		p.mu.Unlock()
		return errClosed
	}
	if p.fits(function) && !p.overtakes(priority) {
		p.occupy(function)
		p.mu.Unlock()
		return nil
	}
	if len(p.waiting) >= p.queue {
		p.mu.Unlock()
		return errFull
	}
	w := &waiter{function, priority, make(chan struct{})}
	at := len(p.waiting)
	for at > 0 && p.waiting[at-1].priority < priority {
		at--
	}
	p.waiting = append(p.waiting[:at], append([]*waiter{w}, p.waiting[at:]...)...)
	p.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.waiting {
		if other == w {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			p.settle()
			return ctx.Err()
		}
	}
	p.release(function) // its turn came at the same moment
	return ctx.Err()
}

// overtakes reports whether a waiting call could run and comes first.
func (p *places) overtakes(priority int) bool {
	for _, w := range p.waiting {
		if w.priority >= priority && p.fits(w.function) {
			return true
		}
	}
	return false
}

func (p *places) fits(function string) bool {
	if p.free <= 0 {
		return false
	}
	limit := p.limit(function)
	return limit <= 0 || p.active[function] < limit
}

func (p *places) occupy(function string) {
	p.free--
	p.running++
	p.active[function]++
}

// leave gives a place back.
func (p *places) leave(function string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(function)
}

func (p *places) release(function string) {
	p.free++
	p.running--
	if p.active[function]--; p.active[function] <= 0 {
		delete(p.active, function)
	}
	for i := 0; i < len(p.waiting); {
		w := p.waiting[i]
		if !p.fits(w.function) {
			i++
			continue
		}
		p.occupy(w.function)
		p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
		close(w.turn)
	}
	p.settle()
}

// settle tells that all is done, once it is.
func (p *places) settle() {
	if p.idle == nil || p.running > 0 || len(p.waiting) > 0 {
		return
	}
	select {
	case <-p.idle:
	default:
		close(p.idle)
	}
}

func (p *places) load() (active, queued int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running, len(p.waiting)
}

// close refuses what comes; what waits has its turn still. The channel is closed
// when nothing runs or waits.
func (p *places) close() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	p.settle()
	return p.idle
}
