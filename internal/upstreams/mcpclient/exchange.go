package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// exchange is one request of the client until it has its answer.
type exchange struct {
	id   int64 // of the request, and its progress token
	out  outgoing
	call *Request        // nil for a request of the client itself, which has no caller to ask or notify
	ctx  context.Context // ends with the exchange
	// leave ends ctx when the caller no longer waits for the answer.
	leave func()

	events    chan message // progress and log messages; dropped if full or nil
	answer    chan answer  // exactly one, unless the context ends before
	ended     atomic.Bool
	replied   atomic.Bool   // the answer came from the server
	sent      atomic.Bool   // the server may have received it
	questions atomic.Int32  // of the server in this call, so far
	asking    atomic.Int32  // questions of the server that a user is answering
	asked     chan struct{} // receives when one of them has ended
	// direct, while set, receives notifications instead of events. It is set before any
	// can arrive, and events is created before direct is cleared.
	direct atomic.Pointer[directly]
}

// outgoing is a request in the form that every transport can send.
type outgoing struct {
	method string
	params json.RawMessage // complete, with _meta
	name   string          // for Mcp-Name
	header map[string][]string
	// version is set during the handshake, before the connection has a version.
	version string
}

// answer is the end of an exchange: a result, a fault, an HTTP status without either, or
// the loss of the connection.
type answer struct {
	result json.RawMessage
	fault  *fault
	status int // of HTTP; 0 elsewhere
	wait   time.Duration
	err    error
	// session is the transport's id of the session that began with this answer.
	session string
}

// errSessionGone reports that an HTTP server rejected the request because it does not have
// the session.
var errSessionGone = errors.New("the server has forgotten the session")

func newExchange(ctx context.Context, id int64, out outgoing, call *Request) *exchange {
	return &exchange{id: id, out: out, call: call, ctx: ctx, leave: func() {}, answer: make(chan answer, 1), asked: make(chan struct{}, 1)}
}

// end ends the exchange with its answer. Further calls are ignored.
func (ex *exchange) end(a answer) {
	if ex.ended.CompareAndSwap(false, true) {
		ex.replied.Store(a.err == nil)
		ex.answer <- a
	}
}

// tell forwards a notification. It is dropped if the caller is too slow, or if it is
// larger than maxNotice.
func (ex *exchange) tell(m message) {
	if len(m.params) > maxNotice {
		return
	}
	if d := ex.direct.Load(); d != nil {
		d.tell(m)
		return
	}
	select {
	case ex.events <- m:
	default:
	}
}

// body returns the encoded request.
func (ex *exchange) body() []byte {
	return jsonrpc.AppendRequest(make([]byte, 0, len(ex.out.params)+96), strconv.AppendInt(nil, ex.id, 10), ex.out.method, ex.out.params)
}

// flight holds the exchanges of one connection that have no answer yet.
type flight struct {
	mu   sync.Mutex
	open map[int64]*exchange
	dead error // set when nothing more can be sent
}

func newFlight() *flight { return &flight{open: make(map[int64]*exchange)} }

func (f *flight) add(ex *exchange) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead != nil {
		return f.dead
	}
	f.open[ex.id] = ex
	return nil
}

func (f *flight) remove(ex *exchange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, ex.id)
}

func (f *flight) get(id int64) *exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[id]
}

// only returns the one call in flight, or nil unless there is exactly one. Requests of the
// client itself, subscriptions and the log level do not count.
func (f *flight) only() *exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found *exchange
	for _, ex := range f.open {
		if ex.call == nil || ex.out.method == "resources/subscribe" || ex.out.method == "resources/unsubscribe" ||
			ex.out.method == "logging/setLevel" {
			continue
		}
		if found != nil {
			return nil
		}
		found = ex
	}
	return found
}

// sole returns the one exchange in flight, of any kind, or nil unless there is exactly one.
func (f *flight) sole() *exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.open) != 1 {
		return nil
	}
	for _, ex := range f.open {
		return ex
	}
	return nil
}

// kill ends all exchanges, and later ones, with err. It returns false if it was called before.
func (f *flight) kill(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead != nil {
		return false
	}
	f.dead = err
	for _, ex := range f.open {
		ex.end(answer{err: err})
	}
	return true
}

// end returns why nothing more can be sent, or nil.
func (f *flight) end() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

func (f *flight) alive() bool { return f.end() == nil }

// link is one established connection.
type link interface {
	// start sends the request of ex and ends ex with the answer, unless ctx ends first.
	start(ctx context.Context, ex *exchange)
	// post sends a notification, or an answer to a request of the server.
	post(ctx context.Context, body []byte) error
	// close ends the link within the time limits of its transport; forgotten is true if the
	// server has dropped it already. It is called once.
	close(forgotten bool)
	// begin starts the background work of a link that is now in use.
	begin(renewed bool)
	shared() *conn
}

// conn is the part that all kinds of link share.
type conn struct {
	c      *Client
	ctx    context.Context // ends with the link
	stop   context.CancelFunc
	flight *flight
	// server is set by the handshake, before another caller sees the link.
	server Server
	// explicit is true if requests are cancelled by a notification; otherwise by closing
	// their stream.
	explicit bool
	listener listener

	mu        sync.Mutex
	questions map[string]context.CancelFunc // of the server, by id
}

func (c *Client) newConn() *conn {
	k := &conn{c: c, flight: newFlight(), questions: make(map[string]context.CancelFunc)}
	k.ctx, k.stop = context.WithCancel(c.ctx)
	return k
}
