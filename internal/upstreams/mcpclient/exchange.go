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

// exchange is one request of ours on its way, until it has its answer.
type exchange struct {
	id   int64 // of the request, and its progress token
	out  outgoing
	call *Request        // nil: not a call, so a caller to ask or notify is missing
	ctx  context.Context // ends with the exchange
	// leave ends ctx when the caller no longer waits for the answer.
	leave func()

	events    chan message // what the server tells of it meanwhile; overflow is dropped; nil: all of it
	answer    chan answer  // exactly one, unless the context ends before
	ended     atomic.Bool
	replied   atomic.Bool   // with a word of the server
	sent      atomic.Bool   // the server may have seen it
	questions atomic.Int32  // of the server in this call, so far
	asking    atomic.Int32  // questions of the server that a user is answering
	asked     chan struct{} // one of them has ended
	// direct takes what the server tells in place of events, while it is there. It is
	// there before anything can be told, and events before it is taken away.
	direct atomic.Pointer[directly]
}

// outgoing is a request in the form that every transport can send.
type outgoing struct {
	method string
	params json.RawMessage // whole, with _meta
	name   string          // for Mcp-Name
	header map[string][]string
	// version is set before there is a connection's own: in the handshake.
	version string
}

// answer is how an exchange ended: with a result, with a fault, with an HTTP status
// that is neither, or with the loss of the connection.
type answer struct {
	result json.RawMessage
	fault  *fault
	status int // of HTTP; 0 elsewhere
	wait   time.Duration
	err    error
	// session is what the transport calls the session that began with this answer.
	session string
}

// errSessionGone is an HTTP server's word that it knows no such session: it did not
// take the request.
var errSessionGone = errors.New("the server has forgotten the session")

func newExchange(ctx context.Context, id int64, out outgoing, call *Request) *exchange {
	return &exchange{id: id, out: out, call: call, ctx: ctx, leave: func() {}, answer: make(chan answer, 1), asked: make(chan struct{}, 1)}
}

// end gives the exchange its answer; only the first counts.
func (ex *exchange) end(a answer) {
	if ex.ended.CompareAndSwap(false, true) {
		ex.replied.Store(a.err == nil)
		ex.answer <- a
	}
}

// tell passes a notification on; a caller too slow for them misses some, and no goroutine
// keeps one that is as large as a result.
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

// body is the request as it goes out.
func (ex *exchange) body() []byte {
	return jsonrpc.AppendRequest(make([]byte, 0, len(ex.out.params)+96), strconv.AppendInt(nil, ex.id, 10), ex.out.method, ex.out.params)
}

// flight is the exchanges of one connection that have no answer yet.
type flight struct {
	mu   sync.Mutex
	open map[int64]*exchange
	dead error // set once: nothing more can be sent
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

// only is the one call in flight; nil unless there is exactly one. What we
// ask for ourselves beside the calls, such as the end of a subscription, does not count.
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

// sole is the one exchange in flight, of whatever kind.
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

// kill ends all exchanges, and those to come, with err. It reports whether it was the first.
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

// end is why nothing more can be sent; nil while it can.
func (f *flight) end() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

func (f *flight) alive() bool { return f.end() == nil }

// link is one established connection.
type link interface {
	// start sends the request of ex, which gets its one answer unless ctx ends.
	start(ctx context.Context, ex *exchange)
	// post sends a notification, or an answer to a request of the server.
	post(ctx context.Context, body []byte) error
	// close ends it, within the bounds of its transport; forgotten reports that the far
	// side has dropped it already. It is called once.
	close(forgotten bool)
	// begin starts what runs beside the calls of a link in use.
	begin(renewed bool)
	shared() *conn
}

// conn is what all kinds of link have: who speaks, and what is in flight.
type conn struct {
	c      *Client
	ctx    context.Context // ends with the link
	stop   context.CancelFunc
	flight *flight
	// server is set by the handshake, before another caller sees the link.
	server Server
	// explicit reports that a request is withdrawn by saying so; otherwise its stream is closed.
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
