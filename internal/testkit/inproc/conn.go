package inproc

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"iter"
	"maps"
	mrand "math/rand/v2"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// conn is one session. What it has is guarded by the broker's lock.
type conn struct {
	b      *Broker
	o      messaging.DialOptions
	owner  bool // the gateway's own
	events messaging.Feed[messaging.Event]

	identity messaging.Identity
	session  messaging.Session
	up       bool
	ever     bool
	closed   bool
	last     error // why it is not up
	tries    int
	retry    *time.Timer
	subs     map[*subscription]struct{}
	broken   chan struct{} // closed when the session breaks
	inboxes  uint64
}

func (b *Broker) newConn(o messaging.DialOptions) *conn {
	c := &conn{
		b: b, o: o.WithDefaults(), subs: make(map[*subscription]struct{}), broken: make(chan struct{}),
		events: messaging.Feed[messaging.Event]{Lost: messaging.Event{Kind: messaging.Lost}},
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns[c] = struct{}{}
	return c
}

// connect tries once; it must not hold the lock, the Authorizer is foreign.
func (c *conn) connect() {
	id, err := c.identity, error(nil)
	if !c.owner {
		id, err = c.b.admit(c.o)
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.closed || c.up {
		return
	}
	if err != nil {
		c.last = messaging.ErrRefused(err)
		c.events.Publish(messaging.Event{Kind: messaging.Disconnected, Err: c.last})
		c.later()
		return
	}
	c.up, c.tries, c.last, c.identity = true, 0, nil, id
	c.broken = make(chan struct{})
	kind := messaging.Reconnected
	if !c.ever {
		c.ever, kind = true, messaging.Connected
	}
	c.session = c.b.newSession(id, c.o.Name)
	c.events.Publish(messaging.Event{Kind: kind})
	for s := range c.subs { // what it may do may have changed
		if s.refused = !coversAny(id.Subscribe, s.o.Pattern); s.refused {
			c.events.Publish(messaging.Event{Kind: messaging.Refused, Err: messaging.ErrDenied("subscribe", s.o.Pattern)})
		}
	}
	if c.owner {
		for _, k := range c.b.buckets {
			k.reset()
		}
		return
	}
	c.b.sessions.Publish(messaging.SessionEvent{Kind: messaging.SessionOpened, Session: c.session})
}

func (b *Broker) admit(o messaging.DialOptions) (messaging.Identity, error) {
	if b.authorize == nil {
		return messaging.Identity{}, errors.New("no client is let in")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	cred, err := credential(o, []byte(rand.Text()))
	if err != nil {
		return messaging.Identity{}, err
	}
	return b.authorize(ctx, cred)
}

// later tries again after a pause; the lock is held.
func (c *conn) later() {
	c.tries++
	c.retry = time.AfterFunc(c.o.Pause(c.tries, mrand.Float64()), c.connect)
}

// down breaks the session and has it come back; the lock is held.
func (c *conn) down(reason string) {
	c.up = false
	close(c.broken)
	c.last = fmt.Errorf("the session broke: %s", reason)
	if !c.owner {
		c.b.sessions.Publish(messaging.SessionEvent{Kind: messaging.SessionClosed, Session: c.session, Reason: reason})
	}
	if !c.closed {
		c.events.Publish(messaging.Event{Kind: messaging.Disconnected, Err: c.last})
		c.later()
	}
}

// close ends the session for good; the lock is held.
func (c *conn) close() {
	if c.closed {
		return
	}
	c.closed = true
	if c.retry != nil {
		c.retry.Stop()
	}
	if c.up {
		c.down("closed by the client")
	}
	for s := range c.subs {
		c.b.remove(s)
		s.end(true)
	}
	clear(c.subs)
	delete(c.b.conns, c)
	c.events.Publish(messaging.Event{Kind: messaging.Closed})
	c.events.Close(nil)
}

// usable reports why the session cannot be used; the lock is held.
func (c *conn) usable(op string) error {
	switch {
	case c.closed:
		return messaging.ErrClosed(op)
	case !c.up:
		return messaging.ErrDisconnected(op)
	}
	return nil
}

func (c *conn) Publish(ctx context.Context, m messaging.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := messaging.CheckMessage(m); err != nil {
		return err
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if err := c.usable("publish"); err != nil {
		return err
	}
	if !coversAny(c.identity.Publish, m.Subject) {
		c.events.Publish(messaging.Event{Kind: messaging.Refused, Err: messaging.ErrDenied("publish", m.Subject)})
		return nil
	}
	if c.b.deliver(clone(m)) == 0 && m.Reply != "" {
		c.b.sendBack(c, messaging.Message{Subject: m.Reply, Header: map[string]string{"Status": "503"}})
	}
	return nil
}

func clone(m messaging.Message) messaging.Message {
	m.Data, m.Header = bytes.Clone(m.Data), maps.Clone(m.Header)
	return m
}

func (c *conn) Request(ctx context.Context, m messaging.Message) (messaging.Message, error) {
	if err := ctx.Err(); err != nil {
		return messaging.Message{}, err
	}
	m.Reply = ""
	if err := messaging.CheckMessage(m); err != nil {
		return messaging.Message{}, err
	}
	answer, broken, err := c.ask(clone(m))
	if err != nil {
		return messaging.Message{}, err
	}
	defer answer.Close()
	for {
		if got, ok, _ := answer.take(); ok {
			return got, nil
		}
		select {
		case <-answer.wake:
		case <-broken:
			return messaging.Message{}, messaging.ErrBroken(m.Subject)
		case <-ctx.Done():
			return messaging.Message{}, ctx.Err()
		}
	}
}

// ask sends a request and returns where its answer will be.
func (c *conn) ask(m messaging.Message) (*subscription, <-chan struct{}, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if err := c.usable("request"); err != nil {
		return nil, nil, err
	}
	c.inboxes++
	m.Reply = fmt.Sprintf("%s.%s.%d", c.o.Inbox, c.session.ID, c.inboxes) // two sessions of one node receive their own answers
	if !coversAny(c.identity.Subscribe, m.Reply) {
		return nil, nil, messaging.ErrDenied("subscribe", c.o.Inbox+".*")
	}
	if !coversAny(c.identity.Publish, m.Subject) {
		err := messaging.ErrDenied("publish", m.Subject)
		c.events.Publish(messaging.Event{Kind: messaging.Refused, Err: err})
		return nil, nil, err
	}
	s := newSubscription(c, messaging.SubscribeOptions{Pattern: m.Reply, Pending: 1})
	c.b.add(s)
	if c.b.deliver(m) == 0 {
		c.b.remove(s)
		return nil, nil, messaging.ErrNoResponders(m.Subject)
	}
	return s, c.broken, nil
}

func (c *conn) Subscribe(ctx context.Context, o messaging.SubscribeOptions) (messaging.Subscription, error) {
	if err := errors.Join(ctx.Err(), messaging.CheckPattern(o.Pattern), messaging.CheckQueue(o.Queue)); err != nil {
		return nil, err
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if err := c.usable("subscribe"); err != nil {
		return nil, err
	}
	if !coversAny(c.identity.Subscribe, o.Pattern) {
		err := messaging.ErrDenied("subscribe", o.Pattern)
		c.events.Publish(messaging.Event{Kind: messaging.Refused, Err: err})
		return nil, err
	}
	limit := messaging.MaxSubscriptions
	if c.owner {
		limit = messaging.MaxGatewaySubscriptions
	}
	if len(c.subs) >= limit {
		return nil, messaging.ErrSubscriptions(limit)
	}
	s := newSubscription(c, o)
	c.subs[s] = struct{}{}
	c.b.add(s)
	return s, nil
}

func (c *conn) Flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return c.usable("flush")
}

func (c *conn) Events(ctx context.Context) iter.Seq2[messaging.Event, error] {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	now := messaging.Event{Kind: messaging.Disconnected, Err: c.last}
	switch {
	case c.closed:
		now = messaging.Event{Kind: messaging.Closed}
	case c.up:
		now = messaging.Event{Kind: messaging.Connected}
	}
	return c.events.Read(ctx, now)
}

func (c *conn) Drain(ctx context.Context) error {
	c.b.mu.Lock()
	var subs []*subscription
	for s := range c.subs {
		c.b.remove(s)
		s.end(false)
		subs = append(subs, s)
	}
	c.b.mu.Unlock()
	defer c.Close()
	for _, s := range subs {
		select {
		case <-s.empty:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *conn) Close() {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.close()
}

// verify checks a signature against a public key in NKey form: base32 of the
// kind, the key and a checksum, which the signature makes superfluous.
func verify(public string, challenge, sig []byte) bool {
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(public)
	const user = 20 << 3 // what makes it begin with U
	return err == nil && len(raw) == 1+ed25519.PublicKeySize+2 && raw[0] == user &&
		ed25519.Verify(raw[1:1+ed25519.PublicKeySize], challenge, sig)
}
