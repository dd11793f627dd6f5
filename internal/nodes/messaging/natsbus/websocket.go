package natsbus

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// chunk is how much is read from a server at once.
const chunk = 16 << 10

// Handler serves nodes that use the NATS protocol inside binary WebSocket
// messages. Each request is first shown to admit, whose error is answered with
// the status of its code and ends it; that keeps strangers from the servers.
// Who the session is, the Authorizer decides from the credential inside the
// protocol. A session that lets more than messaging.MaxPendingBytes pile up is
// closed.
func (b *Broker) Handler(admit func(*http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := admit(r); err != nil {
			e := capability.AsError(err)
			http.Error(w, e.Message, e.Code.Row().HTTP)
			return
		}
		if !b.enter() {
			http.Error(w, "the server is shutting down", http.StatusServiceUnavailable)
			return
		}
		defer b.wg.Done()
		in, err := b.turn(r.Context())
		if err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many nodes come at once; try again", http.StatusServiceUnavailable)
			return
		}
		defer in()
		link, err := b.link(r.Context())
		if err != nil {
			b.cfg.Logger.Warn("a node's connection cannot be passed on", "err", err)
			http.Error(w, "the message bus cannot be reached", http.StatusServiceUnavailable)
			return
		}
		defer link.Close()
		// Browsers are not nodes: a page of another origin is refused by Accept.
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
		if err != nil {
			return // it has been answered
		}
		defer func() { _ = ws.CloseNow() }()
		ws.SetReadLimit(maxFrame)
		b.carry(r.Context(), ws, link, in)
	})
}

// opening is how many sessions are let in at once. A server waits three seconds
// for the answer who a session is, and tells one whose answer is late what it
// tells one that is refused; so a client whose answer could be late does not get this far.
const opening = 128

// turn waits for a session's turn to be let in; done ends it, and may be called more
// than once.
func (b *Broker) turn(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	select {
	case b.opening <- struct{}{}:
		return sync.OnceFunc(func() { <-b.opening }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-b.ctx.Done():
		return nil, b.ctx.Err()
	}
}

// carry copies both ways until one side ends, or the broker closes. in is called
// when the server has said something the second time: first it states who it is, then
// whether it takes the session.
func (b *Broker) carry(ctx context.Context, ws *websocket.Conn, link net.Conn, in func()) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(b.ctx, cancel)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = link.Close() })()
	out := &backlog{wake: make(chan struct{}, 1), onOverflow: cancel}
	buf := make([]byte, chunk)
	n, err := link.Read(buf) // who the server is
	if err != nil {
		return
	}
	c := b.direct.open(buf[:n], out)
	defer b.direct.close(c)
	out.add(buf[:n], true)
	var both sync.WaitGroup
	both.Go(func() { // server → backlog
		defer out.close()
		defer b.direct.close(c) // calls to it have no subscriber from now on
		var ends boundary
		for said := 2; ; said++ {
			n, err := link.Read(buf)
			if said == 2 {
				in()
			}
			if n > 0 && !out.add(buf[:n], ends.whole(buf[:n])) || err != nil {
				return
			}
		}
	})
	both.Go(func() { // backlog → node
		defer cancel()
		for {
			data, ok := out.take(ctx)
			if !ok || send(ctx, ws, data) != nil {
				return
			}
		}
	})
	if b.receive(ctx, ws, link, c) { // node → server
		cancel()
	} else {
		// The server has gone: why, its last words say, and they must arrive.
		_ = link.SetReadDeadline(time.Now().Add(time.Second))
	}
	both.Wait()
	if out.overflowed() {
		b.cfg.Logger.Warn("a node's session was closed because it does not take what is sent to it", "limit", messaging.MaxPendingBytes)
	}
	if b.ctx.Err() == nil {
		defer context.AfterFunc(b.ctx, func() { _ = ws.CloseNow() })()
		_ = ws.Close(websocket.StatusNormalClosure, "") // at most 5 s; a node that is gone does not answer
	}
}

func send(ctx context.Context, ws *websocket.Conn, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return ws.Write(ctx, websocket.MessageBinary, data)
}

// receive copies until one side ends, and reports whether that was the node's. It
// borrows its buffer only while there is something to copy: most sessions are
// idle most of the time.
func (b *Broker) receive(ctx context.Context, ws *websocket.Conn, link net.Conn, c *relayed) (node bool) {
	to := &towards{ctx: ctx, link: &splitter{direct: b.direct, c: c, to: link}, limit: rate.NewLimiter(maxLines, burstLines)}
	for {
		kind, r, err := ws.Reader(ctx)
		if err != nil || kind != websocket.MessageBinary {
			return true
		}
		buf, _ := b.buffers.Get().(*[chunk]byte)
		if buf == nil {
			buf = new([chunk]byte)
		}
		_, err = io.CopyBuffer(to, r, buf[:])
		b.buffers.Put(buf)
		if err != nil {
			return !to.failed
		}
	}
}

// towards is the server's side of a session: it knows which side of a copy
// failed, keeps io.CopyBuffer to its buffer, and slows a node that floods the
// gateway's queues, which all nodes share.
type towards struct {
	ctx    context.Context //nolint:containedctx // Write has none
	link   io.Writer
	limit  *rate.Limiter
	failed bool
}

func (t *towards) Write(p []byte) (int, error) {
	// A message is two lines, and large ones cost by their size.
	lines := bytes.Count(p, []byte{'\n'}) + len(p)/lineSize
	if err := t.limit.WaitN(t.ctx, min(lines, burstLines)); err != nil {
		return 0, err
	}
	n, err := t.link.Write(p)
	t.failed = t.failed || err != nil
	return n, err
}

// backlog is what waits to be sent to one node, at most MaxPendingBytes.
type backlog struct {
	wake       chan struct{}
	onOverflow func() // called when more would wait, with the lock held

	mu           sync.Mutex
	data         []byte
	spare        []byte
	midOperation bool   // data ends inside an operation of the server
	deferred     []byte // operations to send when that one has ended
	closed       bool
	lost         bool
}

func (q *backlog) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// add takes what the server sends; whole means that an operation ends with it.
func (q *backlog) add(p []byte, whole bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.fits(len(p)) {
		return false
	}
	q.data = append(q.data, p...)
	if q.midOperation = !whole; whole && len(q.deferred) > 0 {
		q.data, q.deferred = append(q.data, q.deferred...), nil
	}
	q.signal()
	return true
}

// send adds a message to a subscription, as the server would send it.
func (q *backlog) send(number string, m messaging.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	to := &q.data
	if q.midOperation {
		to = &q.deferred
	}
	if q.closed || !q.fits(len(m.Data)+maxLine) {
		return
	}
	b := append(append(append(append(*to, "MSG "...), m.Subject...), ' '), number...)
	if m.Reply != "" {
		b = append(append(b, ' '), m.Reply...)
	}
	b = append(strconv.AppendInt(append(b, ' '), int64(len(m.Data)), 10), "\r\n"...)
	*to = append(append(b, m.Data...), "\r\n"...)
	q.signal()
}

func (q *backlog) fits(n int) bool {
	ok := len(q.data)+len(q.deferred)+n <= messaging.MaxPendingBytes
	if !ok {
		q.lost = true
		q.onOverflow()
	}
	return ok
}

// overflowed reports whether there was more than may wait.
func (q *backlog) overflowed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost
}

func (q *backlog) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// take returns all that waits; it is the caller's until the next call.
func (q *backlog) take(ctx context.Context) ([]byte, bool) {
	for {
		q.mu.Lock()
		data, closed := q.data, q.closed
		if len(data) > 0 {
			q.data, q.spare = q.spare[:0], nil
			if cap(data) <= chunk {
				q.spare = data // swapped in at the next call, when it has been sent
			}
		}
		q.mu.Unlock()
		switch {
		case len(data) > 0:
			return data, true
		case closed:
			return nil, false
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return nil, false
		}
	}
}
