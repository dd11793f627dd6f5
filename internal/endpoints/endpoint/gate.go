package endpoint

import (
	"context"
	"sync"
)

// gates serialise starting and stopping of modules at one server, identified by its URL: two
// endpoints may briefly be the same server, whose modules do not distinguish their ids. A gate is
// taken before Registry.changing and held while hooks run; no goroutine holds two.
type gates struct {
	mu sync.Mutex
	m  map[string]*gate
}

type gate struct {
	held  chan struct{} // of one
	users int
}

// lock waits for the gate of key; it fails if ctx ends first.
func (g *gates) lock(ctx context.Context, key string) (unlock func(), err error) {
	g.mu.Lock()
	if g.m == nil {
		g.m = make(map[string]*gate)
	}
	one := g.m[key]
	if one == nil {
		one = &gate{held: make(chan struct{}, 1)}
		g.m[key] = one
	}
	one.users++
	g.mu.Unlock()
	leave := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(g.m, key)
		}
	}
	select {
	case one.held <- struct{}{}:
		return func() { <-one.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
