package queue

import (
	"context"
	"sync"
)

// Shares bounds what is under way: so many together, and so many of one owner, so that what one owner began does not
// hold up that of others. Make one with [NewShares].
type Shares struct {
	all chan struct{}
	own int

	mu sync.Mutex
	of map[string]*share
}

// share is the places of one owner.
type share struct {
	taken chan struct{}
	users int // that hold a place or wait for one
}

// NewShares returns shares with all places together, of which one owner has at most own.
func NewShares(all, own int) *Shares {
	return &Shares{all: make(chan struct{}, all), own: own, of: make(map[string]*share)}
}

// Take waits for one of the owner's places and then for one of all. The caller gives both back with release, which is
// not nil. The error is that of ctx.
func (s *Shares) Take(ctx context.Context, owner string) (release func(), err error) {
	s.mu.Lock()
	own := s.of[owner]
	if own == nil {
		own = &share{taken: make(chan struct{}, s.own)}
		s.of[owner] = own
	}
	own.users++
	s.mu.Unlock()
	var held []chan struct{}
	release = func() {
		for _, places := range held {
			<-places
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(s.of, owner)
		}
	}
	for _, places := range []chan struct{}{own.taken, s.all} {
		select {
		case places <- struct{}{}:
			held = append(held, places)
		case <-ctx.Done():
			release()
			return func() {}, ctx.Err()
		}
	}
	return release, nil
}
