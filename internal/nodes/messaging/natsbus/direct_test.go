package natsbus

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

func take(t *testing.T, sub messaging.Subscription) string {
	t.Helper()
	m, err := sub.Next(t.Context())
	if err != nil {
		t.Fatalf("next message: got %v, want no error", err)
	}
	return string(m.Data)
}

// TestCallsAndAnswersBypassTheServer holds what is relayed directly by the messages that the server
// has from the gateway and has for it.
func TestCallsAndAnswersBypassTheServer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		queue    string   // of the session
		patterns []string // of the gateway
		direct   bool
	}{
		{"to a session that subscribes to them", "", []string{"v1.gw.*.reply.me.>"}, true},
		{"to one that shares them with others", "workers", []string{"v1.gw.*.reply.me.>"}, false},
		{"and for two subscriptions of the gateway", "", []string{"v1.gw.*.reply.me.>", "v1.gw.n.>"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := embed(t, anybody)
			gateway := b.Conn()
			var answers []messaging.Subscription
			for _, pattern := range tt.patterns {
				sub, err := gateway.Subscribe(t.Context(), messaging.SubscribeOptions{Pattern: pattern})
				if err != nil {
					t.Fatalf("subscribing to %s: got %v, want no error", pattern, err)
				}
				defer sub.Close()
				answers = append(answers, sub)
			}
			node, err := dialer(t, serveWeb(t, b))(t.Context(), options("n"))
			if err != nil {
				t.Fatalf("dialing: got %v, want no error", err)
			}
			defer node.Close()
			await(t, eventsOf(t, node), messaging.Connected)
			calls := subscribed(t, node, tt.queue)
			before := b.own.NATS().Stats()
			const n = 100
			large := strings.Repeat("x", 100<<10) // in several reads and writes
			for i := range n {
				text := fmt.Sprint(i, large[:i*1000])
				call := messaging.Message{Subject: "v1.host.n.call", Reply: "v1.gw.n.reply.me.1", Data: []byte(text)}
				if err := gateway.Publish(t.Context(), call); err != nil {
					t.Fatalf("calling: got %v, want no error", err)
				}
				if got := take(t, calls); got != text {
					t.Fatalf("call %d: got %d bytes, want %d", i, len(got), len(text))
				}
				if err := node.Publish(t.Context(), messaging.Message{Subject: "v1.gw.n.reply.me.1", Data: []byte(text)}); err != nil {
					t.Fatalf("answering: got %v, want no error", err)
				}
				for _, sub := range answers {
					if got := take(t, sub); got != text {
						t.Fatalf("answer %d: got %d bytes, want %d", i, len(got), len(text))
					}
				}
			}
			after := b.own.NATS().Stats()
			out, in := after.OutMsgs-before.OutMsgs, after.InMsgs-before.InMsgs
			if tt.direct && out+in > 0 || !tt.direct && out+in < n {
				t.Errorf("through the server: got %d calls and %d answers, want none: %t", out, in, tt.direct)
			}
		})
	}
}

func subscribed(t *testing.T, c messaging.Conn, queue string) messaging.Subscription {
	t.Helper()
	sub, err := c.Subscribe(t.Context(), messaging.SubscribeOptions{Pattern: "v1.host.n.>", Queue: queue})
	if err != nil {
		t.Fatalf("subscribing: got %v, want no error", err)
	}
	t.Cleanup(sub.Close)
	return sub
}

// TestASessionThatEndedReceivesNothingDirectly: its calls have no subscriber.
func TestASessionThatEndedReceivesNothingDirectly(t *testing.T) {
	t.Parallel()
	b := embed(t, anybody)
	gateway := b.Conn()
	node, err := dialer(t, serveWeb(t, b))(t.Context(), options("n"))
	if err != nil {
		t.Fatalf("dialing: got %v, want no error", err)
	}
	await(t, eventsOf(t, node), messaging.Connected)
	subscribed(t, node, "")
	replies, err := gateway.Subscribe(t.Context(), messaging.SubscribeOptions{Pattern: "v1.gw.*.reply.me.>"})
	if err != nil {
		t.Fatalf("subscribing: got %v, want no error", err)
	}
	defer replies.Close()
	sessions := b.Sessions(t.Context())
	node.Close()
	for e := range sessions {
		if e.Kind == messaging.SessionClosed {
			break
		}
	}
	if err := gateway.Publish(t.Context(), messaging.Message{Subject: "v1.host.n.call", Reply: "v1.gw.n.reply.me.1"}); err != nil {
		t.Fatalf("calling: got %v, want no error", err)
	}
	m, err := replies.Next(t.Context())
	if err != nil || !messaging.IsNobody(m) {
		t.Errorf("answer: got %+v and %v, want the no-subscriber message", m, err)
	}
}

// split feeds what a node sends to a splitter in the given pieces, and returns what it passed on and what it handed over.
func split(d *direct, pieces ...[]byte) (passed string, handed []string) {
	var to bytes.Buffer
	d.own = []*ownSubscription{{pattern: "v1.gw.*.reply.me.>", push: func(m messaging.Message) {
		handed = append(handed, m.Subject+" "+string(m.Data))
	}}}
	c := &relayed{id: 1, out: &backlog{wake: make(chan struct{}, 1), onOverflow: func() {}}, subs: make(map[string]string)}
	d.sessions[1] = c
	d.admit(1, messaging.Identity{ID: "n", Publish: []string{"v1.gw.n.>"}, Subscribe: []string{"v1.host.n.>"}})
	s := &splitter{direct: d, c: c, to: &to}
	for _, p := range pieces {
		_, _ = s.Write(p) // a buffer takes all
	}
	return to.String() + string(s.head) + string(s.pending), handed
}

// TestSubscriptionsOfASessionAreBounded: what is above the limits goes through the server.
func TestSubscriptionsOfASessionAreBounded(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]func(i int) string{
		"many":  func(i int) string { return fmt.Sprintf("SUB v1.host.n.%d %d\r\n", i, i) },
		"long":  func(int) string { return "SUB v1.host.n.a " + strings.Repeat("1", 3000) + "\r\n" },
		"again": func(int) string { return "SUB v1.host.n.a 1\r\n" },
	} {
		d := newDirect()
		var input strings.Builder
		for i := range 1000 {
			input.WriteString(line(i))
		}
		if passed, _ := split(d, []byte(input.String())); passed != input.String() {
			t.Errorf("%s: passed %d bytes, want all %d", name, len(passed), input.Len())
		}
		if c := d.sessions[1]; !c.opaque || len(c.subs) != 0 || d.publish(messaging.Message{Subject: "v1.host.n.a"}) {
			t.Errorf("%s: got %d subscriptions and opaque %t, want none, and that messages go through the server", name, len(c.subs), c.opaque)
		}
	}
}

// TestASessionThatIsAdmittedAgain has nothing of what it was before, and leaves nothing when it ends.
func TestASessionThatIsAdmittedAgain(t *testing.T) {
	t.Parallel()
	d := newDirect()
	split(d, []byte("SUB v1.host.n.> 1\r\n"))
	d.admit(1, messaging.Identity{ID: "m", Publish: []string{"v1.gw.m.>"}, Subscribe: []string{"v1.host.m.>"}})
	if d.publish(messaging.Message{Subject: "v1.host.n.call"}) {
		t.Error("a call of the node that it was is sent to it, want not")
	}
	c := d.sessions[1]
	d.close(c)
	if len(d.nodes)+len(d.sessions) != 0 || d.receiver(c, "v1.gw.m.reply.me.1") != nil {
		t.Errorf("after its end: got nodes %v and sessions %v, want none, and no receiver", d.nodes, d.sessions)
	}
}

func TestSplitterTakesOutMessagesForTheGateway(t *testing.T) {
	t.Parallel()
	const mine = "PUB v1.gw.n.reply.me.1 4\r\nPUB \r\n"
	for _, tt := range []struct {
		name, input, passed string
		handed              []string
	}{
		{"an answer", mine, "", []string{"v1.gw.n.reply.me.1 PUB "}},
		{
			"between others", "PING\r\n" + mine + "SUB v1.host.n.> 1\r\n" + mine + "PONG\r\n", "PING\r\nSUB v1.host.n.> 1\r\nPONG\r\n",
			[]string{"v1.gw.n.reply.me.1 PUB ", "v1.gw.n.reply.me.1 PUB "},
		},
		{"of another node", "PUB v1.gw.m.reply.me.1 1\r\nx\r\n", "PUB v1.gw.m.reply.me.1 1\r\nx\r\n", nil},
		{"for no subscription", "PUB v1.gw.n.beat 1\r\nx\r\n", "PUB v1.gw.n.beat 1\r\nx\r\n", nil},
		{"to a pattern", "PUB v1.gw.n.reply.me.> 1\r\nx\r\n", "PUB v1.gw.n.reply.me.> 1\r\nx\r\n", nil},
		{"with a reply", "PUB v1.gw.n.reply.me.1 a 1\r\nx\r\n", "PUB v1.gw.n.reply.me.1 a 1\r\nx\r\n", nil},
		{"inside another one's payload", "PUB v1.gw.n.beat 32\r\n" + mine + "\r\n", "PUB v1.gw.n.beat 32\r\n" + mine + "\r\n", nil},
		{
			"with a header", "HPUB v1.gw.n.reply.me.1 12 13\r\nNATS/1.0\r\n\r\nx\r\n" + mine,
			"HPUB v1.gw.n.reply.me.1 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
			[]string{"v1.gw.n.reply.me.1 PUB "},
		},
		{"without its end", "PUB v1.gw.n.reply.me.1 1\r\nxyzPING\r\n", "PUB v1.gw.n.reply.me.1 1\r\nxyzPING\r\n", nil},
		{"after what cannot be read", "HELLO\r\n" + mine, "HELLO\r\n" + mine, nil},
		{"after an invalid size", "PUB a -1\r\n" + mine, "PUB a -1\r\n" + mine, nil},
		{"after a line that servers read in another way", "PING\r\r\n" + mine, "PING\r\r\n" + mine, nil},
		{"after a space", " PING\r\n" + mine, " PING\r\n" + mine, nil},
		{
			"after the session became another one", "CONNECT {}\r\n" + mine + "CONNECT {}\r\n" + mine, "CONNECT {}\r\nCONNECT {}\r\n" + mine,
			[]string{"v1.gw.n.reply.me.1 PUB "},
		},
		{"after a line without end", strings.Repeat("x", 2*maxLine) + "\r\n" + mine, strings.Repeat("x", 2*maxLine) + "\r\n" + mine, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1, 2, 3, 7, 30, len(tt.input)} {
				pieces := slices.Collect(slices.Chunk([]byte(tt.input), size))
				if passed, handed := split(newDirect(), pieces...); passed != tt.passed || !slices.Equal(handed, tt.handed) {
					t.Errorf("in pieces of %d: passed %.200q and handed over %q, want %.200q and %q", size, passed, handed, tt.passed, tt.handed)
				}
			}
		})
	}
}

// FuzzSplitter holds that nothing depends on how the bytes arrive, and that none is lost or made.
func FuzzSplitter(f *testing.F) {
	for _, seed := range []string{
		"PUB v1.gw.n.reply.me.1 4\r\nPUB \r\nPING\r\n", "SUB v1.host.n.> 1\r\nUNSUB 1 1\r\nHPUB a 2 3\r\nabc\r\n",
		"pub\tv1.gw.n.reply.me.2 0\r\n\r\n", "PUB a 1\nx",
	} {
		f.Add([]byte(seed), uint16(5))
	}
	f.Fuzz(func(t *testing.T, input []byte, at uint16) {
		cut := int(at) % (len(input) + 1)
		passed, handed := split(newDirect(), bytes.Clone(input))
		again, twice := split(newDirect(), bytes.Clone(input[:cut]), bytes.Clone(input[cut:]))
		if passed != again || !slices.Equal(handed, twice) {
			t.Errorf("cut at %d: got %q and %q, want %q and %q", cut, again, twice, passed, handed)
		}
		n := len(passed)
		for _, m := range handed {
			n += len("PUB \r\n\r\n") + len(m)
		}
		if n > len(input) || len(handed) == 0 && n != len(input) {
			t.Errorf("%q: got %d bytes, want %d", input, n, len(input))
		}
	})
}

// TestMessagesAreSentBetweenOperations: one inside an operation of the server would be read as a part of it.
func TestMessagesAreSentBetweenOperations(t *testing.T) {
	t.Parallel()
	const whole = "PING\r\nMSG v1.host.n.call 1 12\r\nMSG a 1 2\r\nx\r\n-ERR 'no'\r\n"
	for cut := range len(whole) {
		q := &backlog{wake: make(chan struct{}, 1), onOverflow: func() { t.Error("more than may wait; want less") }}
		var ends boundary
		for _, p := range []string{whole[:cut], whole[cut:]} {
			if len(p) > 0 {
				q.add([]byte(p), ends.whole([]byte(p)))
			}
			q.send("1", messaging.Message{Subject: "v1.host.n.ctl", Data: []byte("y")})
		}
		data, _ := q.take(t.Context())
		const mine = "MSG v1.host.n.ctl 1 1\r\ny\r\n"
		if got := strings.ReplaceAll(string(data), mine, ""); got != whole || strings.Count(string(data), mine) != 2 {
			t.Errorf("cut at %d: got %q, want %q with %q between operations", cut, data, whole, mine)
		}
	}
}

func TestSubjectsMatchPatterns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.c", false},
		{"a.b", "a.b.c", false},
		{"a.b.c", "a.b", false},
		{"a.*", "a.b", true},
		{"*.b", "a.b", true},
		{"a.*", "a", false},
		{"a.*", "a.b.c", false},
		{"a.>", "a.b", true},
		{"a.>", "a.b.c", true},
		{"a.>", "a", false},
		{">", "a.b", true},
		{"a.>", "b.a", false},
	} {
		if got := matches(tt.pattern, tt.subject); got != tt.want {
			t.Errorf("matches(%q, %q) = %t, want %t", tt.pattern, tt.subject, got, tt.want)
		}
	}
}
