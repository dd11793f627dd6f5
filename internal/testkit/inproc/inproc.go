// Package inproc is the message bus in memory: the same behaviour as NATS,
// permissions included, for tests and for what needs no other process. It has no
// goroutines, and its clocks are those of testing/synctest.
//
// One thing cannot happen here: messages cross no wire, so nothing piles up before a
// session, only inside its subscriptions.
package inproc

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// Broker is a bus in memory. Create it with New.
type Broker struct {
	authorize messaging.Authorizer
	sessions  messaging.Feed[messaging.SessionEvent]
	own       *conn

	mu      sync.Mutex
	exact   map[string][]*subscription
	wild    []*subscription
	conns   map[*conn]struct{}
	buckets map[string]*bucket
	made    uint64 // sessions ever
	turn    uint64 // of queue groups
	closed  bool
}

var _ messaging.Broker = (*Broker)(nil)

// New returns a bus that accepts the clients that authorize accepts; nil accepts none.
func New(authorize messaging.Authorizer) *Broker {
	b := &Broker{
		authorize: authorize,
		sessions:  messaging.Feed[messaging.SessionEvent]{Lost: messaging.SessionEvent{Kind: messaging.SessionsLost}},
		exact:     make(map[string][]*subscription), conns: make(map[*conn]struct{}), buckets: make(map[string]*bucket),
	}
	b.own = b.newConn(messaging.DialOptions{Name: "gateway", Inbox: "_INBOX.gateway", ReconnectWait: 10 * time.Millisecond})
	b.own.owner = true
	b.own.identity = messaging.Identity{ID: "gateway", Publish: []string{">"}, Subscribe: []string{">"}}
	b.own.connect()
	return b
}

// Conn is the gateway's own session.
func (b *Broker) Conn() messaging.Conn { return b.own }

// Dial opens a session, trying for the first time before it returns.
func (b *Broker) Dial(_ context.Context, o messaging.DialOptions) (messaging.Conn, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return nil, messaging.ErrClosed("connect")
	}
	c := b.newConn(o)
	c.connect()
	return c, nil
}

// Sessions yields sessions as they come and go.
func (b *Broker) Sessions(ctx context.Context) iter.Seq2[messaging.SessionEvent, error] {
	return b.sessions.Read(ctx)
}

// Disconnect breaks one session.
func (b *Broker) Disconnect(_ context.Context, session string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		if c.session.ID == session && c.up && !c.owner {
			c.down("closed by the gateway")
			return nil
		}
	}
	return capability.Errorf(capability.CodeNotFound, "bus.disconnect", "there is no session %.100q", session)
}

// Interrupt breaks every session, as a restart of a server does.
func (b *Broker) Interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		if c.up {
			c.down("the bus was interrupted")
		}
	}
}

// Close ends all sessions and forgets all buckets.
func (b *Broker) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	for c := range b.conns {
		c.close()
	}
	for _, k := range b.buckets {
		k.close()
	}
	b.sessions.Close(messaging.ErrClosed("sessions"))
}

// newSession numbers a session; b.mu is held.
func (b *Broker) newSession(id messaging.Identity, name string) messaging.Session {
	b.made++
	return messaging.Session{ID: strconv.FormatUint(b.made, 10), Identity: id.ID, Name: name, Address: "inproc"}
}

// add makes s receive; b.mu is held.
func (b *Broker) add(s *subscription) {
	if messaging.CheckSubject(s.o.Pattern) == nil {
		b.exact[s.o.Pattern] = append(b.exact[s.o.Pattern], s)
	} else {
		b.wild = append(b.wild, s)
	}
}

// remove makes s receive no more; b.mu is held.
func (b *Broker) remove(s *subscription) {
	drop := func(list []*subscription) []*subscription {
		for i, x := range list {
			if x == s {
				return append(list[:i:i], list[i+1:]...)
			}
		}
		return list
	}
	b.wild = drop(b.wild)
	if left := drop(b.exact[s.o.Pattern]); len(left) > 0 {
		b.exact[s.o.Pattern] = left
	} else {
		delete(b.exact, s.o.Pattern)
	}
}

// deliver hands m to all who match and returns how many they were; b.mu is held.
func (b *Broker) deliver(m messaging.Message) int {
	var all []*subscription
	groups := make(map[string][]*subscription)
	take := func(s *subscription) {
		switch {
		case !s.c.up || s.refused:
		case s.o.Queue == "":
			all = append(all, s)
		default:
			groups[s.o.Queue] = append(groups[s.o.Queue], s)
		}
	}
	for _, s := range b.exact[m.Subject] {
		take(s)
	}
	for _, s := range b.wild {
		if covers(s.o.Pattern, m.Subject) {
			take(s)
		}
	}
	for _, members := range groups {
		b.turn++
		all = append(all, members[b.turn%uint64(len(members))])
	}
	for _, s := range all {
		s.push(m)
	}
	return len(all)
}

// sendBack hands m to one subscription of a session that matches; b.mu is held.
func (b *Broker) sendBack(c *conn, m messaging.Message) {
	for s := range c.subs {
		if covers(s.o.Pattern, m.Subject) && !s.refused {
			s.push(m)
			return
		}
	}
}

// credential is what a session shows, with a key's possession proven.
func credential(o messaging.DialOptions, challenge []byte) (messaging.Credential, error) {
	cred := messaging.Credential{Token: o.Token, Name: o.Name, Address: "inproc"}
	if o.Key.Sign == nil {
		return cred, nil
	}
	sig, err := o.Key.Sign(challenge)
	if err != nil {
		return cred, err
	}
	if !verify(o.Key.Public, challenge, sig) {
		return cred, fmt.Errorf("the signature is not of the key %s", o.Key.Public)
	}
	cred.Key = o.Key.Public
	return cred, nil
}
