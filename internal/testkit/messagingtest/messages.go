package messagingtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

func ordered(t *testing.T, s *suite) {
	gw, n := s.Broker.Conn(), s.join(t, "ordered")
	sub := subscribe(t, gw, "v1.gw.ordered.beat", "")
	const count = 2000
	data := make([]byte, 8)
	for i := range count {
		copy(data, fmt.Sprintf("%08d", i)) // the sender's again after Publish
		m := messaging.Message{
			Subject: "v1.gw.ordered.beat", Reply: "v1.host.ordered.ctl",
			Header: map[string]string{"traceparent": "00-ab-cd-01"}, Data: data,
		}
		if err := n.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range count {
		m := next(t, sub)
		if want := fmt.Sprintf("%08d", i); string(m.Data) != want {
			t.Fatalf("message %d is %q", i, m.Data)
		}
		if m.Subject != "v1.gw.ordered.beat" || m.Reply != "v1.host.ordered.ctl" || m.Header["traceparent"] != "00-ab-cd-01" {
			t.Fatalf("message %d arrived as %+v", i, m)
		}
	}
	publish(t, n, "v1.gw.ordered.beat", "")
	if m := next(t, sub); len(m.Data) != 0 || len(m.Header) != 0 || m.Reply != "" {
		t.Errorf("an empty message arrived as %+v", m)
	}
}

func wildcards(t *testing.T, s *suite) {
	gw := s.Broker.Conn()
	star, rest, exact := subscribe(t, gw, "wild.*.join", ""), subscribe(t, gw, "wild.>", ""), subscribe(t, gw, "wild.a.join", "")
	for _, subject := range []string{"wild.a.join", "wild.b.join", "wild.a", "wild.a.join.x", "wilder.a.join"} {
		publish(t, gw, subject, "")
	}
	flush(t, gw)
	for name, c := range map[string]struct {
		sub  messaging.Subscription
		want []string
	}{
		"*":     {star, []string{"wild.a.join", "wild.b.join"}},
		">":     {rest, []string{"wild.a.join", "wild.b.join", "wild.a", "wild.a.join.x"}},
		"exact": {exact, []string{"wild.a.join"}},
	} {
		var got []string
		for range c.want {
			got = append(got, next(t, c.sub).Subject)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s got %v, want %v", name, got, c.want)
		}
		silent(t, c.sub)
	}
}

func queues(t *testing.T, s *suite) {
	gw, n := s.Broker.Conn(), s.join(t, "queues")
	one, two, all := subscribe(t, gw, "v1.gw.*.quest", "gateways"), subscribe(t, gw, "v1.gw.*.quest", "gateways"),
		subscribe(t, gw, "v1.gw.queues.quest", "")
	const count = 200
	for i := range count {
		publish(t, n, "v1.gw.queues.quest", fmt.Sprint(i))
	}
	for range count {
		next(t, all)
	}
	flush(t, n, gw)
	seen := make(map[string]int)
	for _, sub := range []messaging.Subscription{one, two} {
		got := 0
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			m, err := sub.Next(ctx)
			cancel()
			if err != nil {
				break
			}
			got++
			seen[string(m.Data)]++
		}
		if got == 0 || got == count {
			t.Errorf("one member got %d of %d", got, count)
		}
	}
	for i := range count {
		if seen[fmt.Sprint(i)] != 1 {
			t.Fatalf("message %d reached %d members", i, seen[fmt.Sprint(i)])
		}
	}
}

func answered(t *testing.T, s *suite) {
	gw, n := s.Broker.Conn(), s.join(t, "asks.α")
	id := messaging.Escape("asks.α")
	answer(t, gw, subscribe(t, gw, "v1.gw."+id+".join", "gateways"))
	for i := range 50 {
		m, err := n.Request(within(t), messaging.Message{
			Subject: "v1.gw." + id + ".join", Header: map[string]string{"tracestate": "x=y"},
			Data: fmt.Append(nil, i),
		})
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data) != fmt.Sprintf("answer to %d", i) || m.Header["tracestate"] != "x=y" {
			t.Fatalf("answer %d is %+v", i, m)
		}
	}
}

func noResponders(t *testing.T, s *suite) {
	n := s.join(t, "lonely")
	for who, c := range map[string]messaging.Conn{"gateway": s.Broker.Conn(), "node": n} {
		began := time.Now()
		_, err := c.Request(within(t), messaging.Message{Subject: "v1.gw.lonely.void"})
		if !messaging.Is(err, messaging.ReasonNoResponders) {
			t.Errorf("%s: %v", who, err)
		}
		if took := time.Since(began); took > waitTimeout/2 {
			t.Errorf("%s: told after %s", who, took)
		}
	}
}

func requestTimeout(t *testing.T, s *suite) {
	gw := s.Broker.Conn()
	subscribe(t, gw, "silence", "")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := gw.Request(ctx, messaging.Message{Subject: "silence"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	cancel()
	if _, err := gw.Request(ctx, messaging.Message{Subject: "silence"}); err == nil {
		t.Error("a request was made in a context that has ended")
	}
}

func requestBreaks(t *testing.T, s *suite) {
	gw := s.Broker.Conn()
	opened := s.listen(t)
	n := s.join(t, "breaks")
	session := opened(t, messaging.SessionOpened, "breaks").Session.ID
	sub := subscribe(t, gw, "v1.gw.breaks.ask", "")
	failed := make(chan error, 1)
	go func() {
		_, err := n.Request(context.WithoutCancel(t.Context()), messaging.Message{Subject: "v1.gw.breaks.ask"})
		failed <- err
	}()
	next(t, sub)
	if err := s.Broker.Disconnect(within(t), session); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if !messaging.Is(err, messaging.ReasonDisconnected) || capability.CodeOf(err) != capability.CodeFailed {
			t.Errorf("got %v", err)
		}
	case <-time.After(waitTimeout):
		t.Error("the request still waits on a session that is gone")
	}
}

func subscribeRefused(t *testing.T, s *suite) {
	gw, n := s.Broker.Conn(), s.join(t, "nosy")
	events := watchEvents(t, n)
	for _, pattern := range []string{"v1.host.other.>", "v1.host.*.call", "v1.gw.nosy.reply", ">", "_INBOX.>", "_INBOX.gateway.>"} {
		if _, err := n.Subscribe(within(t), messaging.SubscribeOptions{Pattern: pattern}); !messaging.Is(err, messaging.ReasonSubjectDenied) {
			t.Errorf("subscribe to %s: %v", pattern, err)
		}
		if e := awaitEvent(t, events, messaging.Refused); !strings.Contains(e.Err.Error(), pattern) {
			t.Errorf("the refusal of %s is told as %v", pattern, e.Err)
		}
	}
	own := subscribe(t, n, "v1.host.nosy.>", "")
	publish(t, gw, "v1.host.other.call", "not for you")
	publish(t, gw, "v1.host.nosy.call", "for you")
	if m := next(t, own); string(m.Data) != "for you" {
		t.Errorf("got %q", m.Data)
	}
}

func publishRefused(t *testing.T, s *suite) {
	gw, n := s.Broker.Conn(), s.join(t, "loud")
	all := subscribe(t, gw, "v1.*.quiet.>", "")
	mine := subscribe(t, gw, "v1.gw.loud.>", "")
	events := watchEvents(t, n)
	for _, subject := range []string{"v1.host.quiet.call", "v1.gw.quiet.join", "v1.gw.quiet.reply.g1.c1"} {
		publish(t, n, subject, "I am not quiet")
		if e := awaitEvent(t, events, messaging.Refused); !messaging.Is(e.Err, messaging.ReasonSubjectDenied) ||
			!strings.Contains(e.Err.Error(), subject) {
			t.Errorf("the refusal of %s is told as %v", subject, e.Err)
		}
		began := time.Now()
		if _, err := n.Request(within(t), messaging.Message{Subject: subject}); !messaging.Is(err, messaging.ReasonSubjectDenied) {
			t.Errorf("request to %s: %v", subject, err)
		}
		awaitEvent(t, events, messaging.Refused)
		if took := time.Since(began); took > waitTimeout/2 {
			t.Errorf("the refusal of a request took %s", took)
		}
	}
	publish(t, n, "v1.gw.loud.beat", "still here")
	if m := next(t, mine); string(m.Data) != "still here" {
		t.Errorf("got %q", m.Data)
	}
	silent(t, all)
}

func payload(t *testing.T, s *suite) {
	gw, n := s.Broker.Conn(), s.join(t, "heavy")
	sub := subscribe(t, gw, "v1.gw.heavy.beat", "")
	full := strings.Repeat("x", messaging.MaxPayload)
	publish(t, n, "v1.gw.heavy.beat", full)
	if m := next(t, sub); string(m.Data) != full {
		t.Errorf("%d bytes arrived", len(m.Data))
	}
	err := n.Publish(t.Context(), messaging.Message{Subject: "v1.gw.heavy.beat", Data: make([]byte, messaging.MaxPayload+1)})
	if !messaging.Is(err, messaging.ReasonTooLarge) || capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("one byte more: %v", err)
	}
	if _, err := n.Request(t.Context(), messaging.Message{
		Subject: "v1.gw.heavy.beat",
		Data:    make([]byte, messaging.MaxPayload+1),
	}); !messaging.Is(err, messaging.ReasonTooLarge) {
		t.Errorf("a request with one byte more: %v", err)
	}
	publish(t, n, "v1.gw.heavy.beat", "and on")
	if m := next(t, sub); string(m.Data) != "and on" {
		t.Errorf("got %d bytes", len(m.Data))
	}
}

func slow(t *testing.T, s *suite) {
	gw, n := s.Broker.Conn(), s.join(t, "slow")
	sub, err := n.Subscribe(within(t), messaging.SubscribeOptions{Pattern: "v1.host.slow.call", Pending: 10})
	if err != nil {
		t.Fatal(err)
	}
	heavy, err := n.Subscribe(within(t), messaging.SubscribeOptions{Pattern: "v1.host.slow.bulk", PendingBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	other := subscribe(t, n, "v1.host.slow.ctl", "")
	for i := range 30 {
		publish(t, gw, "v1.host.slow.call", fmt.Sprint(i))
		publish(t, gw, "v1.host.slow.bulk", strings.Repeat("x", 200))
		publish(t, gw, "v1.host.slow.ctl", fmt.Sprint(i))
	}
	flush(t, gw, n)
	for i := range 30 { // others are not held up
		if m := next(t, other); string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("got %s, want %d", m.Data, i)
		}
	}
	for name, c := range map[string]struct {
		sub  messaging.Subscription
		kept int
	}{"messages": {sub, 10}, "bytes": {heavy, 5}} {
		_, err := c.sub.Next(within(t))
		if !messaging.Is(err, messaging.ReasonLost) || capability.AsError(err).Details["lost"] != 30-c.kept {
			t.Errorf("%s: the loss of %d is told as %v %v", name, 30-c.kept, err, capability.AsError(err).Details)
		}
		for range c.kept {
			next(t, c.sub)
		}
		silent(t, c.sub)
	}
	publish(t, gw, "v1.host.slow.call", "after")
	if m := next(t, sub); string(m.Data) != "after" {
		t.Errorf("got %q", m.Data)
	}
}

func subscriptions(t *testing.T, s *suite) {
	n := s.join(t, "many")
	for i := range messaging.MaxSubscriptions + 1 {
		_, err := n.Subscribe(within(t), messaging.SubscribeOptions{Pattern: fmt.Sprintf("v1.host.many.%d", i)})
		if err == nil {
			continue
		}
		if !messaging.Is(err, messaging.ReasonSubscriptions) || i < messaging.MaxSubscriptions {
			t.Errorf("subscription %d: %v", i+1, err)
		}
		return
	}
	t.Errorf("%d subscriptions were taken", messaging.MaxSubscriptions+1)
}

func nextEnds(t *testing.T, s *suite) {
	sub := subscribe(t, s.Broker.Conn(), "nothing.comes", "")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := sub.Next(ctx); ended <- err }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { _, err := sub.Next(context.WithoutCancel(t.Context())); ended <- err }()
	sub.Close()
	sub.Close()
	if err := <-ended; !messaging.Is(err, messaging.ReasonClosed) {
		t.Errorf("got %v", err)
	}
}

func refusals(t *testing.T, s *suite) {
	gw := s.Broker.Conn()
	for _, subject := range []string{"", "a b", "a.*", "$SYS.REQ.SERVER.PING", "$JS.API.INFO", "a\r\nPUB b 0"} {
		if err := gw.Publish(t.Context(), messaging.Message{Subject: subject}); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("publish to %q: %v", subject, err)
		}
	}
	for _, o := range []messaging.SubscribeOptions{{Pattern: "$SYS.>"}, {Pattern: "a..b"}, {Pattern: "a", Queue: "two words"}} {
		if _, err := gw.Subscribe(t.Context(), o); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("subscribe with %+v: %v", o, err)
		}
	}
	if _, err := s.Broker.Bucket(t.Context(), messaging.BucketOptions{Name: "a.b"}); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("bucket: %v", err)
	}
}
