package natsdial

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

type subscription struct {
	c      *Conn
	o      messaging.SubscribeOptions
	sub    *nats.Subscription
	pushed *pushed   // of the gateway's own session
	once   sync.Once // Close

	mu   sync.Mutex
	held *nats.Msg // taken while looking for a refusal
	lost int       // of the dropped ones, those that were told
}

// Subscribe implements messaging.Conn.
func (c *Conn) Subscribe(ctx context.Context, o messaging.SubscribeOptions) (messaging.Subscription, error) {
	if err := errors.Join(ctx.Err(), messaging.CheckPattern(o.Pattern), messaging.CheckQueue(o.Queue)); err != nil {
		return nil, err
	}
	if err := c.Usable("subscribe"); err != nil {
		return nil, err
	}
	s := &subscription{c: c, o: o}
	if err := c.enlist(s); err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		s.Close()
		return nil, c.Fault("subscribe", o.Pattern, err)
	}
	return s, nil
}

func (c *Conn) enlist(s *subscription) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.subs) >= c.maxSubs {
		return messaging.ErrSubscriptions(c.maxSubs)
	}
	c.subs[s] = struct{}{}
	return nil
}

// begin subscribes and waits until the server has accepted or refused the subscription.
func (s *subscription) begin(ctx context.Context) (err error) {
	pending, bytes := s.o.Pending, s.o.PendingBytes
	if pending <= 0 || pending > messaging.DefaultPending {
		pending = messaging.DefaultPending
	}
	if bytes <= 0 {
		bytes = messaging.DefaultPendingBytes
	}
	if s.c.own {
		s.sub, err = s.c.push(s, pending, bytes)
	} else {
		s.sub, err = s.c.nc.QueueSubscribeSync(s.o.Pattern, s.o.Queue)
	}
	if err != nil {
		return err
	}
	if err = s.sub.SetPendingLimits(pending, bytes); err != nil {
		return err
	}
	if err = s.c.Flush(ctx); err != nil || s.pushed != nil { // the gateway's own is refused nothing
		return err
	}
	// A refusal arrives before the answer to Flush, and only asking for a message shows it.
	m, err := s.sub.NextMsg(time.Nanosecond)
	switch {
	case err == nil:
		s.held = m
	case errors.Is(err, nats.ErrPermissionViolation):
		return err
	}
	return nil
}

func (s *subscription) Next(ctx context.Context) (messaging.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return messaging.Message{}, err
		}
		m, err := s.before()
		if err != nil {
			return messaging.Message{}, err
		}
		switch {
		case m != nil:
		case s.pushed != nil:
			m, err = s.pushed.next(ctx)
		default:
			m, err = s.sub.NextMsgWithContext(ctx)
		}
		switch {
		case err == nil:
			return incoming(m), nil
		case errors.Is(err, nats.ErrSlowConsumer):
			continue // before has the number
		case ctx.Err() != nil:
			return messaging.Message{}, ctx.Err()
		}
		return messaging.Message{}, s.c.Fault("subscribe", s.o.Pattern, err)
	}
}

// before returns an error for messages lost since the last call, or a message that begin
// has already received; nil and nil for neither.
func (s *subscription) before() (*nats.Msg, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped, err := s.sub.Dropped()
	if s.pushed != nil {
		dropped += int(s.pushed.dropped.Load())
	}
	if err == nil && dropped > s.lost {
		n := dropped - s.lost
		s.lost = dropped
		return nil, messaging.ErrLost(s.o.Pattern, n)
	}
	m := s.held
	s.held = nil
	return m, nil
}

// left returns the number of messages that wait to be read.
func (s *subscription) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, _, err := s.sub.Pending()
	if err != nil {
		n = 0
	}
	if s.pushed != nil {
		n += len(s.pushed.direct)
	}
	if s.held != nil {
		n++
	}
	return n
}

func (s *subscription) Close() {
	s.c.mu.Lock()
	delete(s.c.subs, s)
	s.c.mu.Unlock()
	if s.pushed != nil {
		s.once.Do(func() { close(s.pushed.quit) })
	}
	if s.sub != nil {
		_ = s.sub.Unsubscribe() // fails only when it is gone already
	}
}
