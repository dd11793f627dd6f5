package natsbus

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
)

// direct carries messages between this gateway and the sessions that it relays to its embedded
// server, past that server: calls to a session that subscribes to them, and answers that one
// subscription of the gateway receives. Everything else goes through the server, which also decides
// who is admitted and what a session may do; direct carries nothing that the server would refuse.
// A message never overtakes an earlier one of the same subject: whether a subject is relayed
// directly is known before its first message.
type direct struct {
	mu       sync.Mutex
	sessions map[uint64]*relayed   // by the server's number of the client
	nodes    map[string][]*relayed // by the beginning of their subjects, such as "v1.host.a."
	own      []*ownSubscription    // of the gateway
}

func newDirect() *direct {
	return &direct{sessions: make(map[uint64]*relayed), nodes: make(map[string][]*relayed)}
}

// relayed is one session that the gateway relays to the server. direct.mu guards its fields, except id and out.
type relayed struct {
	id       uint64
	out      *backlog
	identity *messaging.Identity // nil until it is admitted, and after its end
	subs     map[string]string   // pattern by the session's number of the subscription
	starts   []string            // keys of direct.nodes where it is listed
	// opaque means that it has subscriptions which are not in subs: messages to its node go through the server.
	opaque bool
	closed bool
}

// open adds a session by the first line that the server sent it; nil if that cannot be read.
func (d *direct) open(first []byte, out *backlog) *relayed {
	text, ok := bytes.CutPrefix(first, []byte("INFO "))
	var info struct {
		ID uint64 `json:"client_id"`
	}
	if d == nil || !ok || json.Unmarshal(text, &info) != nil || info.ID == 0 {
		return nil
	}
	c := &relayed{id: info.ID, out: out, subs: make(map[string]string)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions[info.ID] = c
	return c
}

// admit records who a session is. The server forgets what a session was that it admits again.
func (d *direct) admit(client uint64, id messaging.Identity) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.sessions[client]; c != nil {
		d.unregister(c)
		c.identity = &id
		d.register(c)
	}
}

// register lists a session below its subjects, if it subscribes to any.
func (d *direct) register(c *relayed) {
	if c.closed || c.identity == nil || len(c.subs) == 0 && !c.opaque {
		return
	}
	for _, own := range c.identity.Subscribe {
		if start, all := strings.CutSuffix(own, ">"); all && !slices.Contains(c.starts, start) {
			d.nodes[start] = append(d.nodes[start], c)
			c.starts = append(c.starts, start)
		}
	}
}

func (d *direct) unregister(c *relayed) {
	for _, start := range c.starts {
		list := slices.DeleteFunc(d.nodes[start], func(o *relayed) bool { return o == c })
		if d.nodes[start] = list; len(list) == 0 {
			delete(d.nodes, start)
		}
	}
	c.starts = nil
}

func (d *direct) close(c *relayed) {
	if c == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, c.id)
	d.unregister(c)
	c.closed, c.identity, c.subs = true, nil, nil
}

// subscribe records a subscription of a session; false if it has too many.
func (d *direct) subscribe(c *relayed, number, pattern string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, again := c.subs[number]; c.closed || again || len(c.subs) >= maxSubs {
		return false
	}
	c.subs[number] = pattern
	d.register(c)
	return true
}

// unsubscribe records the end of a subscription.
func (d *direct) unsubscribe(c *relayed, number string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(c.subs, number)
}

// markOpaque records that the subscriptions of a session are not known.
func (d *direct) markOpaque(c *relayed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.opaque, c.subs = true, nil
	d.register(c)
}

// publish sends a message to the sessions that subscribe to its subject; false if it must go through the server.
func (d *direct) publish(m messaging.Message) bool {
	type subscriber struct {
		out    *backlog
		number string
	}
	if len(m.Header) > 0 {
		return false
	}
	var to []subscriber
	d.mu.Lock()
	for _, c := range d.nodes[m.Subject[:strings.LastIndexByte(m.Subject, '.')+1]] {
		if c.opaque {
			to = nil
			break
		}
		for number, pattern := range c.subs {
			if matches(pattern, m.Subject) {
				to = append(to, subscriber{c.out, number})
			}
		}
	}
	d.mu.Unlock()
	for _, s := range to {
		s.out.send(s.number, m)
	}
	return len(to) > 0
}

// receiver returns the one subscription of the gateway that a session's message is for; nil if it must
// go through the server.
func (d *direct) receiver(c *relayed, subject string) *ownSubscription {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.identity == nil || messaging.CheckSubject(subject) != nil ||
		!slices.ContainsFunc(c.identity.Publish, func(own string) bool { return matches(own, subject) }) {
		return nil
	}
	var one *ownSubscription
	for _, s := range d.own {
		switch {
		case !matches(s.pattern, subject):
		case one != nil:
			return nil
		default:
			one = s
		}
	}
	return one
}

// matches reports whether a subject matches a pattern.
func matches(pattern, subject string) bool {
	for {
		want, patterns, more := strings.Cut(pattern, ".")
		got, subjects, deeper := strings.Cut(subject, ".")
		switch {
		case want == ">" && !more:
			return true
		case want != "*" && want != got, more != deeper:
			return false
		case !more:
			return true
		}
		pattern, subject = patterns, subjects
	}
}

// directConn is the gateway's own session beside an embedded server.
type directConn struct {
	*natsdial.Conn
	direct *direct
}

// Publish implements messaging.Conn.
func (c *directConn) Publish(ctx context.Context, m messaging.Message) error {
	if ctx.Err() == nil && messaging.CheckMessage(m) == nil && c.Usable("publish") == nil && c.direct.publish(m) {
		return nil
	}
	return c.Conn.Publish(ctx, m)
}

// Subscribe implements messaging.Conn.
func (c *directConn) Subscribe(ctx context.Context, o messaging.SubscribeOptions) (messaging.Subscription, error) {
	sub, err := c.Conn.Subscribe(ctx, o)
	to, ok := sub.(interface{ Push(messaging.Message) })
	if err != nil || !ok {
		return sub, err
	}
	s := &ownSubscription{Subscription: sub, pattern: o.Pattern, push: to.Push, direct: c.direct}
	c.direct.mu.Lock()
	defer c.direct.mu.Unlock()
	c.direct.own = append(c.direct.own, s)
	return s, nil
}

// ownSubscription is a subscription of the gateway.
type ownSubscription struct {
	messaging.Subscription
	pattern string
	push    func(messaging.Message)
	direct  *direct
}

// Close implements messaging.Subscription.
func (s *ownSubscription) Close() {
	s.direct.mu.Lock()
	s.direct.own = slices.DeleteFunc(s.direct.own, func(o *ownSubscription) bool { return o == s })
	s.direct.mu.Unlock()
	s.Subscription.Close()
}

// splitter passes what a session sends on to the server, except messages that the gateway
// receives directly. What it cannot read it leaves to the server, from then on opaque.
type splitter struct {
	direct *direct
	c      *relayed
	to     io.Writer

	pending   []byte // a line whose end has not come, or the payload of a message to the gateway
	want      int    // the length of that payload; 0: a line is pending
	head      []byte // the line before that payload
	receiver  *ownSubscription
	skip      int  // bytes of a payload to pass on
	connected bool // the session has sent CONNECT
	opaque    bool
}

// Write takes the next bytes of a session.
func (s *splitter) Write(p []byte) (int, error) {
	size, from := len(p), 0 // p[from:i] is to be passed on
	for i := 0; ; {
		switch {
		case s.c == nil || s.opaque:
			return size, s.forward(p[from:])
		case i == len(p):
			return size, s.forward(p[from:i])
		case s.skip > 0:
			n := min(s.skip, len(p)-i)
			s.skip, i = s.skip-n, i+n
		case s.want > 0:
			n := min(s.want-len(s.pending), len(p)-i)
			s.pending, i = append(s.pending, p[i:i+n]...), i+n
			from = i
			if len(s.pending) == s.want {
				if err := s.deliver(); err != nil {
					return 0, err
				}
			}
		default:
			end := bytes.IndexByte(p[i:], '\n') + 1
			if end == 0 || len(s.pending) > 0 { // the line began or ends in another write
				if err := s.forward(p[from:i]); err != nil {
					return 0, err
				}
				if end == 0 {
					end = len(p) - i
				}
				s.pending, i = append(s.pending, p[i:i+end]...), i+end
				from = i
				if s.pending[len(s.pending)-1] != '\n' && len(s.pending) <= maxLine {
					return size, nil
				}
				if err := s.handleLine(s.pending, true); err != nil {
					return 0, err
				}
				continue
			}
			line := p[i : i+end]
			if err := s.handleLine(line, false); err != nil {
				return 0, err
			}
			if s.want > 0 {
				if err := s.forward(p[from:i]); err != nil {
					return 0, err
				}
				from = i + end
			}
			i += end
		}
	}
}

func (s *splitter) forward(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := s.to.Write(p)
	return err
}

// handleLine parses the line of an operation. One that begins a message to the gateway is kept with it; any
// other is passed on, here if it was pending.
func (s *splitter) handleLine(line []byte, pending bool) error {
	s.parseLine(line)
	switch {
	case s.want > 0:
		s.head, s.pending = bytes.Clone(line), make([]byte, 0, s.want)
		return nil
	case pending:
		s.pending = nil
		return s.forward(line)
	}
	return nil
}

// parseLine sets want and receiver, skip or opaque. It reads less than servers do: what it might read in another
// way is opaque.
func (s *splitter) parseLine(line []byte) {
	text, ended := bytes.CutSuffix(line, []byte("\r\n"))
	odd := func(c rune) bool { return c < ' ' && c != '\t' || c > '~' }
	connects := bytes.HasPrefix(bytes.ToUpper(text[:min(len(text), len("CONNECT "))]), []byte("CONNECT "))
	switch {
	case !ended, len(line) > maxLine, !connects && bytes.ContainsFunc(text, odd), len(text) == 0 || text[0] == ' ' || text[0] == '\t',
		connects && s.connected: // from now on it could be another node
		s.markOpaque()
		return
	case connects:
		s.connected = true
		return
	}
	fields := strings.Fields(string(text))
	n := len(fields)
	switch operation := strings.ToUpper(fields[0]); {
	case operation == "PUB" && n <= 4 && n >= 3, operation == "HPUB" && n <= 5 && n >= 4:
		size, err := strconv.ParseUint(fields[n-1], 10, 31)
		if err != nil || size > maxWire {
			s.markOpaque()
			return
		}
		if operation == "PUB" && n == 3 && size <= messaging.MaxPayload {
			s.receiver = s.direct.receiver(s.c, fields[1])
		}
		if s.receiver != nil {
			s.want = int(size) + len("\r\n")
		} else {
			s.skip = int(size) + len("\r\n")
		}
	case operation == "SUB" && n == 3 && len(fields[1]) <= messaging.MaxSubject && len(fields[2]) <= maxNumber:
		if !s.direct.subscribe(s.c, fields[2], fields[1]) {
			s.markOpaque()
		}
	case operation == "UNSUB" && n == 2:
		s.direct.unsubscribe(s.c, fields[1])
	case operation != "PING" && operation != "PONG":
		s.markOpaque() // also for UNSUB with a number, which counts messages that the server does not see
	}
}

func (s *splitter) markOpaque() {
	s.opaque = true
	s.direct.markOpaque(s.c)
}

// deliver gives a message to the gateway. One without its end goes to the server, which refuses it.
func (s *splitter) deliver() error {
	head, payload, to := s.head, s.pending, s.receiver
	s.head, s.pending, s.want, s.receiver = nil, nil, 0, nil
	body, ended := bytes.CutSuffix(payload, []byte("\r\n"))
	if !ended {
		s.markOpaque()
		if err := s.forward(head); err != nil {
			return err
		}
		return s.forward(payload)
	}
	to.push(messaging.Message{Subject: strings.Fields(string(head))[1], Data: body})
	return nil
}

// boundary finds where the operations of a server end.
type boundary struct {
	line []byte // whose end has not come
	skip int    // bytes of a payload still to come
}

// whole reports whether an operation ends with p.
func (b *boundary) whole(p []byte) bool {
	for len(p) > 0 {
		if b.skip > 0 {
			n := min(b.skip, len(p))
			b.skip, p = b.skip-n, p[n:]
			continue
		}
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			b.line = append(b.line, p...)
			return false
		}
		b.line, p = append(b.line, p[:end]...), p[end:]
		if bytes.HasPrefix(b.line, []byte("MSG ")) || bytes.HasPrefix(b.line, []byte("HMSG ")) {
			text := bytes.TrimSpace(b.line)
			size, err := strconv.Atoi(string(text[bytes.LastIndexByte(text, ' ')+1:]))
			if err == nil {
				b.skip = size + len("\r\n")
			}
		}
		b.line = b.line[:0]
	}
	return b.skip == 0
}
