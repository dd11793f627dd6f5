package messagingtest

import (
	"errors"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// listen begins to listen to sessions now; the result waits for one event of one
// identity.
func (s *suite) listen(t *testing.T) func(*testing.T, messaging.SessionKind, string) messaging.SessionEvent {
	t.Helper()
	events := s.Broker.Sessions(within(t))
	out := make(chan messaging.SessionEvent, 1000)
	go func() {
		defer close(out)
		for e, err := range events {
			if err != nil {
				return
			}
			out <- e
		}
	}()
	return func(t *testing.T, kind messaging.SessionKind, identity string) messaging.SessionEvent {
		t.Helper()
		for e := range out {
			if e.Kind == kind && e.Session.Identity == identity {
				return e
			}
		}
		t.Fatalf("%s was never told to be %s", identity, kind)
		return messaging.SessionEvent{}
	}
}

func strangers(t *testing.T, s *suite) {
	c := s.dial(t, options("stranger", "a token nobody knows"))
	events := watchEvents(t, c)
	// The first event may come before the first try, and a try whose writing is slower than the refusal ends
	// with a broken connection.
	for i := 1; ; i++ {
		e := awaitEvent(t, events, messaging.Disconnected)
		if messaging.Is(e.Err, messaging.ReasonRefused) {
			break
		}
		if i == 10 {
			t.Fatalf("the tenth try of a stranger ended with %v, want %s", e.Err, messaging.ReasonRefused)
		}
	}
	if err := c.Publish(t.Context(), messaging.Message{Subject: "v1.gw.stranger.join"}); !messaging.Is(err, messaging.ReasonDisconnected) {
		t.Errorf("publish: %v", err)
	}
	if _, err := c.Request(t.Context(), messaging.Message{Subject: "v1.gw.stranger.join"}); !messaging.Is(err, messaging.ReasonDisconnected) {
		t.Errorf("request: %v", err)
	}
	// It does not give up: refusals may end, long after they began.
	for range 5 {
		awaitEvent(t, events, messaging.Disconnected)
	}
	s.guests.admitToken("a token nobody knows", node("stranger"))
	awaitEvent(t, events, messaging.Connected)
	if _, err := s.Dial(t.Context(), messaging.DialOptions{Inbox: "_INBOX.x"}); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("without any credential: %v", err)
	}
}

func keys(t *testing.T, s *suite) {
	key, thief := s.NewKey(), s.NewKey()
	s.guests.admitKey(key.Public, node("keyed"))
	o := options("keyed", "")
	o.Key = messaging.Key{Public: key.Public, Sign: thief.Sign}
	events := watchEvents(t, s.dial(t, o))
	for range 3 {
		e, err := events()
		if err != nil || e.Kind != messaging.Disconnected {
			t.Fatalf("somebody else's key was let in: %v %v", e, err)
		}
	}
	opened := s.listen(t)
	o.Key = key
	c := s.dial(t, o)
	await(t, c, messaging.Connected)
	if e := opened(t, messaging.SessionOpened, "keyed"); e.Session.Name != "keyed" || e.Session.ID == "" {
		t.Errorf("the session is told as %+v", e)
	}
	publish(t, c, "v1.gw.keyed.beat", "")
	flush(t, c)
}

func sessions(t *testing.T, s *suite) {
	wait := s.listen(t)
	c := s.join(t, "comes")
	opened := wait(t, messaging.SessionOpened, "comes")
	began := time.Now()
	c.Close()
	closed := wait(t, messaging.SessionClosed, "comes")
	t.Logf("told after %s", time.Since(began))
	if closed.Session.ID != opened.Session.ID {
		t.Errorf("session %s came and %s went", opened.Session.ID, closed.Session.ID)
	}
	// A server may announce the end of a session before it forgets it, so that the first
	// answers can be those of a session that is open. Each try is a request and its answer.
	ctx := within(t)
	err := s.Broker.Disconnect(ctx, closed.Session.ID)
	for err == nil && ctx.Err() == nil {
		err = s.Broker.Disconnect(ctx, closed.Session.ID)
	}
	if capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("closing it again: got %v, want %s", err, capability.CodeNotFound)
	}
	if err := s.Broker.Disconnect(within(t), "no such session"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("closing one that never was: %v", err)
	}
	again := s.join(t, "comes")
	if e := wait(t, messaging.SessionOpened, "comes"); e.Session.ID == opened.Session.ID {
		t.Error("two sessions have one id")
	}
	again.Close()
}

func takeover(t *testing.T, s *suite) {
	wait := s.listen(t)
	older := s.join(t, "twice")
	first := wait(t, messaging.SessionOpened, "twice").Session
	newer := s.join(t, "twice")
	second := wait(t, messaging.SessionOpened, "twice").Session
	if first.ID == second.ID {
		t.Fatal("two sessions have one id")
	}
	sub := subscribe(t, newer, "v1.host.twice.call", "")
	events := watchEvents(t, older)
	if err := s.Broker.Disconnect(within(t), first.ID); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, messaging.Disconnected)
	older.Close()
	if e := wait(t, messaging.SessionClosed, "twice"); e.Session.ID != first.ID {
		t.Errorf("session %s was closed, not %s", e.Session.ID, first.ID)
	}
	publish(t, s.Broker.Conn(), "v1.host.twice.call", "for the newer")
	if m := next(t, sub); string(m.Data) != "for the newer" {
		t.Errorf("got %q", m.Data)
	}
}

func reconnects(t *testing.T, s *suite) {
	wait := s.listen(t)
	n := s.join(t, "back")
	sub := subscribe(t, n, "v1.host.back.call", "")
	events := watchEvents(t, n)
	for range 2 {
		session := wait(t, messaging.SessionOpened, "back").Session.ID
		if err := s.Broker.Disconnect(within(t), session); err != nil {
			t.Fatal(err)
		}
		awaitEvent(t, events, messaging.Disconnected)
		awaitEvent(t, events, messaging.Reconnected)
		flush(t, n)
		publish(t, s.Broker.Conn(), "v1.host.back.call", session)
		if m := next(t, sub); string(m.Data) != session {
			t.Errorf("got %q", m.Data)
		}
	}
}

func drain(t *testing.T, s *suite) {
	gw, n := s.Broker.Conn(), s.join(t, "drains")
	sub := subscribe(t, n, "v1.host.drains.call", "")
	for _, data := range []string{"1", "2", "3"} {
		publish(t, gw, "v1.host.drains.call", data)
	}
	flush(t, gw, n)
	if m := next(t, sub); string(m.Data) != "1" {
		t.Fatalf("got %q", m.Data)
	}
	events := watchEvents(t, n)
	drained := make(chan error, 1)
	go func() { drained <- n.Drain(within(t)) }()
	for _, want := range []string{"2", "3"} {
		if m := next(t, sub); string(m.Data) != want {
			t.Errorf("got %q, want %s", m.Data, want)
		}
	}
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
	awaitEvent(t, events, messaging.Closed)
	if _, err := sub.Next(within(t)); !messaging.Is(err, messaging.ReasonClosed) {
		t.Errorf("after the last: %v", err)
	}
}

func closing(t *testing.T, s *suite) {
	n := s.join(t, "closes")
	sub := subscribe(t, n, "v1.host.closes.call", "")
	events := watchEvents(t, n)
	waiting := make(chan error, 1)
	go func() { _, err := sub.Next(within(t)); waiting <- err }()
	n.Close()
	n.Close()
	if err := <-waiting; !messaging.Is(err, messaging.ReasonClosed) {
		t.Errorf("next: %v", err)
	}
	awaitEvent(t, events, messaging.Closed)
	if _, err := events(); err == nil {
		t.Error("something happened after the end")
	}
	if e, err := watchEvents(t, n)(); err != nil || e.Kind != messaging.Closed {
		t.Errorf("who asks later hears %v, %v", e, err)
	}
	_, requested := n.Request(within(t), messaging.Message{Subject: "v1.gw.closes.join"})
	_, subscribed := n.Subscribe(within(t), messaging.SubscribeOptions{Pattern: "v1.host.closes.x"})
	for op, err := range map[string]error{
		"publish":   n.Publish(within(t), messaging.Message{Subject: "v1.gw.closes.join"}),
		"request":   requested,
		"subscribe": subscribed,
		"flush":     n.Flush(within(t)),
	} {
		if !messaging.Is(err, messaging.ReasonClosed) {
			t.Errorf("%s: %v", op, errors.Join(err))
		}
	}
}
