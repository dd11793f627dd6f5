package natsdial

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// Conn is one session; it implements messaging.Conn.
type Conn struct {
	inbox   string
	own     bool // the gateway's
	maxSubs int
	events  messaging.Feed[messaging.Event]
	nc      *nats.Conn
	trying  atomic.Pointer[nats.Conn] // nc, for callbacks that may come before it is set

	mu      sync.Mutex
	now     messaging.Event // how the session is
	closed  bool
	broken  chan struct{} // closed when the session breaks
	back    chan struct{} // closed when it is there (again), or closed for good
	subs    map[*subscription]struct{}
	waiting map[string]map[*context.CancelCauseFunc]struct{} // requests by subject
}

var _ messaging.Conn = (*Conn)(nil)

func newConn(inbox string, maxSubs int) *Conn {
	return &Conn{
		inbox: inbox, maxSubs: maxSubs, broken: make(chan struct{}), back: make(chan struct{}),
		events: messaging.Feed[messaging.Event]{Lost: messaging.Event{Kind: messaging.Lost}},
		now:    messaging.Event{Kind: messaging.Disconnected},
		subs:   make(map[*subscription]struct{}), waiting: make(map[string]map[*context.CancelCauseFunc]struct{}),
	}
}

// Open connects a gateway's own session and keeps it connected. Answers to its requests
// arrive at inbox, and it may have maxSubs subscriptions. options are the NATS library's.
func Open(url, inbox string, maxSubs int, options ...nats.Option) (*Conn, error) {
	c := newConn(inbox, maxSubs)
	c.own = true
	if err := c.open(url, options...); err != nil {
		return nil, err
	}
	return c, nil
}

// NATS returns the library's connection, for requests that only NATS servers answer.
func (c *Conn) NATS() *nats.Conn { return c.nc }

func (c *Conn) open(url string, options ...nats.Option) error {
	options = append(options,
		nats.CustomInboxPrefix(c.inbox),
		nats.ConnectHandler(func(*nats.Conn) { c.came(messaging.Connected) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.came(messaging.Reconnected) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.went(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.went(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.failed(err) }),
		nats.ClosedHandler(func(*nats.Conn) { c.finish() }),
	)
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return err
	}
	c.nc = nc
	c.trying.Store(nc)
	if !nc.IsConnected() && nc.LastError() != nil {
		c.went(nc.LastError())
	}
	return nil
}

func (c *Conn) came(kind messaging.EventKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.now.Kind == messaging.Connected {
		return
	}
	c.now = messaging.Event{Kind: messaging.Connected}
	c.broken = make(chan struct{})
	close(c.back)
	c.events.Publish(messaging.Event{Kind: kind})
}

// went marks the session as broken by err, fails the waiting requests and publishes Disconnected.
func (c *Conn) went(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if Refused(err) {
		err = messaging.ErrRefused(err)
	}
	if c.now.Kind == messaging.Connected {
		close(c.broken)
		c.back = make(chan struct{})
		for subject, requests := range c.waiting {
			for cancel := range requests {
				(*cancel)(messaging.ErrBroken(subject))
			}
		}
	}
	c.now = messaging.Event{Kind: messaging.Disconnected, Err: err}
	c.events.Publish(c.now)
}

// tried is called before each pause. The library has no callback for a try that
// the server refused, but it keeps the error until the next one.
func (c *Conn) tried() {
	if nc := c.trying.Load(); nc != nil {
		if err := nc.LastError(); err != nil {
			c.went(err)
		}
	}
}

// The two refusals that a server reports without naming the call.
var (
	publishDenied   = regexp.MustCompile(`(?i)Publish to "([^"\s]+)"`)
	subscribeDenied = regexp.MustCompile(`(?i)Subscription to "([^"\s]+)"`)
)

// failed handles the refusals of the server.
func (c *Conn) failed(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	text := err.Error()
	if m := subscribeDenied.FindStringSubmatch(text); m != nil {
		c.events.Publish(messaging.Event{Kind: messaging.Refused, Err: messaging.ErrDenied("subscribe", m[1])})
		return
	}
	m := publishDenied.FindStringSubmatch(text)
	if m == nil {
		c.events.Publish(messaging.Event{Kind: messaging.Refused, Err: err})
		return
	}
	denied := messaging.ErrDenied("publish", m[1])
	c.events.Publish(messaging.Event{Kind: messaging.Refused, Err: denied})
	c.mu.Lock()
	defer c.mu.Unlock()
	for cancel := range c.waiting[m[1]] {
		(*cancel)(denied)
	}
}

// Refused reports whether err means that the servers, or the gateway's HTTP handler, do not
// admit the session.
func Refused(err error) bool {
	if err == nil {
		return false
	}
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) ||
		errors.Is(err, errHTTPRefused) ||
		strings.Contains(strings.ToLower(err.Error()), "authorization violation")
}

// Fault converts an error of the NATS library to one of package messaging.
func (c *Conn) Fault(op, subject string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrBadSubscription), errors.Is(err, nats.ErrConnectionDraining):
		return messaging.ErrClosed(op)
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrDisconnected):
		return messaging.ErrDisconnected(op)
	case errors.Is(err, nats.ErrNoResponders):
		return messaging.ErrNoResponders(subject)
	case errors.Is(err, nats.ErrPermissionViolation):
		return messaging.ErrDenied(op, subject)
	}
	return err
}

// Usable fails while the session is broken or closed.
func (c *Conn) Usable(op string) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return messaging.ErrClosed(op)
	case !c.nc.IsConnected():
		return messaging.ErrDisconnected(op)
	}
	return nil
}

// Publish implements messaging.Conn.
func (c *Conn) Publish(ctx context.Context, m messaging.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := messaging.CheckMessage(m); err != nil {
		return err
	}
	if err := c.Usable("publish"); err != nil {
		return err
	}
	return c.Fault("publish", m.Subject, c.nc.PublishMsg(outgoing(m)))
}

func outgoing(m messaging.Message) *nats.Msg {
	out := &nats.Msg{Subject: m.Subject, Reply: m.Reply, Data: m.Data}
	if len(m.Header) > 0 {
		out.Header = make(nats.Header, len(m.Header))
		for k, v := range m.Header {
			out.Header[k] = []string{v}
		}
	}
	return out
}

func incoming(m *nats.Msg) messaging.Message {
	in := messaging.Message{Subject: m.Subject, Reply: m.Reply, Data: m.Data}
	if len(m.Header) > 0 {
		in.Header = make(map[string]string, len(m.Header))
		for k, v := range m.Header {
			if len(v) > 0 {
				in.Header[k] = v[0]
			}
		}
	}
	return in
}

// Request implements messaging.Conn.
func (c *Conn) Request(ctx context.Context, m messaging.Message) (messaging.Message, error) {
	m.Reply = ""
	if err := messaging.CheckMessage(m); err != nil {
		return messaging.Message{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := c.wait(m.Subject, &cancel); err != nil {
		return messaging.Message{}, err
	}
	defer c.forget(m.Subject, &cancel)
	answer, err := c.nc.RequestMsgWithContext(ctx, outgoing(m))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return messaging.Message{}, cause
		}
		return messaging.Message{}, c.Fault("request", m.Subject, err)
	}
	return incoming(answer), nil
}

// wait notifies a request of the end of its session and of a refusal of its subject.
func (c *Conn) wait(subject string, cancel *context.CancelCauseFunc) error {
	if err := c.Usable("request"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.Kind != messaging.Connected {
		return messaging.ErrDisconnected("request")
	}
	if c.waiting[subject] == nil {
		c.waiting[subject] = make(map[*context.CancelCauseFunc]struct{})
	}
	c.waiting[subject][cancel] = struct{}{}
	return nil
}

func (c *Conn) forget(subject string, cancel *context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting[subject], cancel)
	if len(c.waiting[subject]) == 0 {
		delete(c.waiting, subject)
	}
}

// Flush implements messaging.Conn.
func (c *Conn) Flush(ctx context.Context) error {
	if err := c.Usable("flush"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	return c.Fault("flush", "", c.nc.FlushWithContext(ctx))
}

// Events implements messaging.Conn.
func (c *Conn) Events(ctx context.Context) iter.Seq2[messaging.Event, error] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events.Read(ctx, c.now)
}

// Drain drains every subscription, waits until they have been read or ctx ends, and closes.
func (c *Conn) Drain(ctx context.Context) error {
	defer c.Close()
	c.mu.Lock()
	subs := make([]*subscription, 0, len(c.subs))
	for s := range c.subs {
		subs = append(subs, s)
	}
	c.mu.Unlock()
	for _, s := range subs {
		if err := s.sub.Drain(); err != nil && !errors.Is(err, nats.ErrBadSubscription) {
			return c.Fault("drain", s.o.Pattern, err)
		}
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond) // the library has no signal for it
	defer tick.Stop()
	for _, s := range subs {
		for s.left() > 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// Close implements messaging.Conn.
func (c *Conn) Close() {
	if c.nc != nil { // else it never was
		c.nc.Close()
	}
	c.finish()
}

// finish marks the session as closed for good, fails the waiting requests and publishes Closed.
func (c *Conn) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	if c.now.Kind == messaging.Connected {
		close(c.broken)
	} else {
		close(c.back)
	}
	for subject, requests := range c.waiting {
		for cancel := range requests {
			(*cancel)(messaging.ErrBroken(subject))
		}
	}
	c.now = messaging.Event{Kind: messaging.Closed}
	c.events.Publish(c.now)
	c.events.Close(nil)
}

// Watch returns channels that are closed when the session is there, and when it is broken.
func (c *Conn) Watch() (back, broken <-chan struct{}, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.back, c.broken, c.closed
}
