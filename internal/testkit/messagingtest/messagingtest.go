// Package messagingtest is the contract of a message bus as one suite, which
// every bus and every way to reach it must pass.
package messagingtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/secret"
)

// Rig is one bus under test.
type Rig struct {
	Broker messaging.Broker
	Dial   messaging.Dialer
	// NewKey makes a key pair.
	NewKey func() messaging.Key
	// Interrupt breaks at least the gateway's own session and lets it come back;
	// nil where it cannot be done.
	Interrupt func()
}

// waitTimeout is how long a test waits for what must happen; what must happen at
// once is measured on its own.
const waitTimeout = 10 * time.Second

// Run opens one bus and tries everything on it. The parts of the suite use
// identities and subjects of their own, so they may run side by side.
func Run(t *testing.T, open func(t *testing.T, a messaging.Authorizer) Rig) {
	guests := &guestList{tokens: make(map[string]messaging.Identity), keys: make(map[string]messaging.Identity)}
	s := &suite{Rig: open(t, guests.authorize), guests: guests}
	for name, part := range map[string]func(*testing.T, *suite){
		"messages arrive whole and in order":                 ordered,
		"wildcards":                                          wildcards,
		"queue groups share, others get all":                 queues,
		"a request is answered":                              answered,
		"nobody there is told at once":                       noResponders,
		"a message for nobody comes back":                    nobodyThere,
		"a request ends with its context":                    requestTimeout,
		"a request fails when its session breaks":            requestBreaks,
		"a node hears its own subjects only":                 subscribeRefused,
		"a node speaks on its own subjects only":             publishRefused,
		"limits of messages":                                 payload,
		"a slow subscription is told what it lost":           slow,
		"limit of subscriptions":                             subscriptions,
		"a credential that is not known stays out":           strangers,
		"a key is proven":                                    keys,
		"sessions are seen as they come and go":              sessions,
		"the older of two sessions can be closed":            takeover,
		"a session comes back with its subscriptions":        reconnects,
		"drain reads to the end":                             drain,
		"close ends everything":                              closing,
		"a subscription ends with its context":               nextEnds,
		"entries are compared and set":                       compareAndSet,
		"a watch begins with a snapshot":                     watch,
		"entries are forgotten in time and watchers told":    ttl,
		"what cannot be a subject, key or bucket is refused": refusals,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); part(t, s) })
	}
	// Parallel parts run when the function returns; what breaks every session
	// comes after them all.
	t.Cleanup(func() {
		if s.Interrupt != nil && !t.Failed() {
			watchComesBack(t, s)
		}
	})
}

type suite struct {
	Rig
	guests *guestList
}

// guestList is the Authorizer of the suite.
type guestList struct {
	mu     sync.Mutex
	tokens map[string]messaging.Identity
	keys   map[string]messaging.Identity
}

func (g *guestList) authorize(_ context.Context, c messaging.Credential) (messaging.Identity, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id, ok := g.tokens[c.Token.Reveal()]
	if c.Key != "" {
		id, ok = g.keys[c.Key]
	}
	if !ok {
		return id, capability.Errorf(capability.CodeUnauthenticated, "bus", "not on the list")
	}
	return id, nil
}

func (g *guestList) admitToken(token string, id messaging.Identity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens[token] = id
}

func (g *guestList) admitKey(public string, id messaging.Identity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys[public] = id
}

// node is an identity as nodes have them.
func node(id string) messaging.Identity {
	id = messaging.Escape(id)
	return messaging.Identity{
		ID:        id,
		Publish:   []string{"v1.gw." + id + ".>", "v1.node." + id + ".call"},
		Subscribe: []string{"v1.host." + id + ".>", "_INBOX." + id + ".>"},
	}
}

func options(id, token string) messaging.DialOptions {
	return messaging.DialOptions{
		Name: id, Inbox: "_INBOX." + messaging.Escape(id), Token: secret.New(token),
		ReconnectWait: 50 * time.Millisecond, ReconnectMax: 200 * time.Millisecond,
	}
}

// join connects a node that is let in and waits until it is.
func (s *suite) join(t *testing.T, id string) messaging.Conn {
	t.Helper()
	token := "token of " + id
	s.guests.admitToken(token, node(id))
	c := s.dial(t, options(id, token))
	await(t, c, messaging.Connected)
	return c
}

func (s *suite) dial(t *testing.T, o messaging.DialOptions) messaging.Conn {
	t.Helper()
	c, err := s.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

// await reads events until one is of that kind.
func await(t *testing.T, c messaging.Conn, kind messaging.EventKind) messaging.Event {
	t.Helper()
	return awaitEvent(t, watchEvents(t, c), kind)
}

// watchEvents begins to listen now.
func watchEvents(t *testing.T, c messaging.Conn) func() (messaging.Event, error) {
	t.Helper()
	events := c.Events(within(t))
	out := make(chan messaging.Event, 100)
	go func() {
		defer close(out)
		for e, err := range events {
			if err != nil {
				return
			}
			out <- e
		}
	}()
	return func() (messaging.Event, error) {
		e, ok := <-out
		if !ok {
			return e, errors.New("there are no more events")
		}
		return e, nil
	}
}

func awaitEvent(t *testing.T, next func() (messaging.Event, error), kind messaging.EventKind) messaging.Event {
	t.Helper()
	var seen []messaging.EventKind
	for {
		e, err := next()
		if err != nil {
			t.Fatalf("no event %s came, only %v: %v", kind, seen, err)
		}
		if e.Kind == kind {
			return e
		}
		seen = append(seen, e.Kind)
	}
}

func subscribe(t *testing.T, c messaging.Conn, pattern, queue string) messaging.Subscription {
	t.Helper()
	sub, err := c.Subscribe(within(t), messaging.SubscribeOptions{Pattern: pattern, Queue: queue})
	if err != nil {
		t.Fatalf("subscribe to %s: %v", pattern, err)
	}
	t.Cleanup(sub.Close)
	return sub
}

func next(t *testing.T, sub messaging.Subscription) messaging.Message {
	t.Helper()
	m, err := sub.Next(within(t))
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	return m
}

func publish(t *testing.T, c messaging.Conn, subject, data string) {
	t.Helper()
	if err := c.Publish(within(t), messaging.Message{Subject: subject, Data: []byte(data)}); err != nil {
		t.Fatalf("publish to %s: %v", subject, err)
	}
}

func flush(t *testing.T, conns ...messaging.Conn) {
	t.Helper()
	for _, c := range conns {
		if err := c.Flush(within(t)); err != nil {
			t.Fatalf("flush: %v", err)
		}
	}
}

// silent fails if anything waits in sub, once all that was sent has arrived.
func silent(t *testing.T, sub messaging.Subscription) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if m, err := sub.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %s %q, %v; want nothing", m.Subject, m.Data, err)
	}
}

// answer serves requests until the test ends.
func answer(t *testing.T, c messaging.Conn, sub messaging.Subscription) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := sub.Next(ctx)
			if err != nil {
				return
			}
			_ = c.Publish(ctx, messaging.Message{Subject: m.Reply, Header: m.Header, Data: fmt.Appendf(nil, "answer to %s", m.Data)})
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}
