package inproc

import (
	"context"
	"sync"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

type subscription struct {
	c       *conn
	o       messaging.SubscribeOptions
	refused bool          // guarded by the broker's lock: no longer permitted
	wake    chan struct{} // holds one token when there is something to see
	empty   chan struct{} // closed when it ended and nothing is left to read

	mu    sync.Mutex
	queue []messaging.Message
	bytes int
	lost  int
	ended bool
}

func newSubscription(c *conn, o messaging.SubscribeOptions) *subscription {
	if o.Pending <= 0 {
		o.Pending = messaging.DefaultPending
	}
	if o.PendingBytes <= 0 {
		o.PendingBytes = messaging.DefaultPendingBytes
	}
	return &subscription{c: c, o: o, wake: make(chan struct{}, 1), empty: make(chan struct{})}
}

func (s *subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) push(m messaging.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return
	case len(s.queue) >= s.o.Pending, s.bytes+len(m.Data) > s.o.PendingBytes:
		s.lost++
	default:
		s.queue = append(s.queue, m)
		s.bytes += len(m.Data)
	}
	s.signal()
}

// end takes no more messages; drop forgets those that wait, too.
func (s *subscription) end(drop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if drop {
		s.queue, s.lost = nil, 0
	}
	s.ended = true
	s.settle()
	s.signal()
}

// settle closes empty when there is nothing left; the lock is held.
func (s *subscription) settle() {
	if !s.ended || len(s.queue) > 0 {
		return
	}
	select {
	case <-s.empty:
	default:
		close(s.empty)
	}
}

// take returns the next message, if there is one, or what else there is to say.
func (s *subscription) take() (messaging.Message, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lost > 0:
		n := s.lost
		s.lost = 0
		return messaging.Message{}, false, messaging.ErrLost(s.o.Pattern, n)
	case len(s.queue) > 0:
		m := s.queue[0]
		s.queue[0] = messaging.Message{}
		s.queue = s.queue[1:]
		s.bytes -= len(m.Data)
		s.settle()
		return m, true, nil
	case s.ended:
		s.signal() // for other waiters
		return messaging.Message{}, false, messaging.ErrClosed("next")
	}
	return messaging.Message{}, false, nil
}

func (s *subscription) Next(ctx context.Context) (messaging.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return messaging.Message{}, err
		}
		if m, ok, err := s.take(); ok || err != nil {
			return m, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

func (s *subscription) Close() {
	s.c.b.mu.Lock()
	defer s.c.b.mu.Unlock()
	s.c.b.remove(s)
	delete(s.c.subs, s)
	s.end(true)
}
