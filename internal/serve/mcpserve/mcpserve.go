// Package mcpserve implements the MCP endpoint, /mcp, where agents find the catalog as tools.
//
// One path serves two protocols that exclude each other. A legacy client opens a
// session with initialize and names it in every later request. A modern client
// (2026-07-28) sends independent requests that are described by their headers and
// _meta. The dispatcher inspects each request and decides which of the two it is.
//
// The methods that matter for fidelity and speed, tools/list and tools/call, are answered here from
// raw bytes: arguments and results are never decoded, only cut out and inserted. The SDK handles
// handshakes, streams, discovery and all rare methods; it holds one mcp.Server per principal behind
// a stateful and a stateless handler. Sessions are therefore stored twice: the SDK holds their
// streams, and the table here binds them to a principal, counts and expires them.
//
// Two things are returned to clients in sealed form, because the server does not hold a
// session for a modern client: the state of an unfinished call, which opens once, and the
// cursor of a list. Each is bound to its caller and its request.
//
// The surface decodes and encodes. The engine decides who may see or call a tool, with
// which provider and with whose approval.
package mcpserve

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// Config configures a [Surface]. Door, Engine, Catalog and Policy are required.
type Config struct {
	Door    *httpapi.Door
	Engine  *invoke.Engine
	Catalog *catalog.Catalog
	Policy  Policy
	Version string // of junctor, for serverInfo
	// MaxBody is the largest request body in bytes; 0 means 4 MiB.
	MaxBody int64
	// PageSize is how many tools one page of tools/list holds; 0 means 100.
	PageSize int
	// Exposure is how much of the default view is listed at once; "" is auto.
	Exposure compile.View
	// Views are the named ones, beside the default.
	Views map[string]View
	// Updates reports changed resources, and those that the catalog does not have. If nil, clients
	// cannot subscribe.
	Updates Updates
	// Own provides the server's own resources. If nil, the server has none, and results
	// above 1 MiB are errors.
	Own Own
	// Texts are further resources of the server.
	Texts []Text
	// Tasks stores calls that take longer than TaskAfter (default 2 s), for clients that
	// accept tasks. If nil, calls never become tasks.
	Tasks     Tasks
	TaskAfter time.Duration
	// ApprovalWait returns how long a call of a principal that needs an operator's approval is held; 0: not
	// at all. It may be nil, which is 0.
	ApprovalWait func(principal string) time.Duration
	// SessionIdle is how long an unused legacy session lasts; 0 means an hour.
	SessionIdle time.Duration
	// CursorKey authenticates cursors and seals states. Without one a random key is
	// used, and neither survives a restart.
	CursorKey []byte
	// Missing returns the number of providers that were not reached since the server started. If nil,
	// none is missing.
	Missing func() int
	Logger  *slog.Logger // nil: silent
}

// Policy receives the decisions of people whose own client requested them, and reports those of
// operators.
type Policy interface {
	// Decided waits until an approval is not pending and returns it.
	Decided(ctx context.Context, id string) (policy.Approval, error)
	Answer(ctx context.Context, who capability.Principal, id string, d policy.Decision) (policy.Approval, *policy.Grant, error)
}

// Updates subscribes a session of a principal to a resource of a module. The callback updated must
// not block; stop ends the subscription and is called once. Offering returns the modules whose
// upstreams offer a resource to that session although the catalog does not have it. A client without
// a session has "". Instructions returns the approved instructions of a module's upstream.
type Updates interface {
	Subscribe(ctx context.Context, who capability.Principal, session, module, uri string, updated func()) (stop func(), err error)
	Offering(ctx context.Context, who capability.Principal, session, uri string) (modules []string)
	Instructions(module string) string
}

// Surface serves MCP. Create it with [New]; it is safe for concurrent use.
type Surface struct {
	cfg  Config
	info []byte // serverInfo as JSON

	legacy, modern http.Handler // the SDK's two

	// base is the parent of every call in a session: such a call outlives its request, but not Run.
	base   context.Context
	cancel context.CancelFunc
	// open ends when streams must.
	open         context.Context
	closeStreams context.CancelFunc

	epoch   atomic.Uint64 // counts CatalogChanged
	changed chan struct{} // capacity 1: a change is waiting for delivery
	updated chan struct{} // capacity 1: a resource has changed

	lists  sync.Map // viewer key → *rendered
	leases *compile.Leases
	holds  holds
	links  links

	views  map[string]*view
	sealer *stateSealer

	mu       sync.Mutex
	viewers  map[string]*viewer
	sessions map[string]*session
	waiting  map[string]*waiting
	fresh    map[freshness]bool // changed resources whose notification is pending
	now      func() time.Time
}

// New returns the surface. [Surface.Run] must run so that list_changed is sent and idle
// sessions end; requests are answered without it.
func New(cfg Config) *Surface {
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = 4 << 20
	}
	if cfg.PageSize <= 0 {
		cfg.PageSize = 100
	}
	if cfg.TaskAfter <= 0 {
		cfg.TaskAfter = 2 * time.Second
	}
	if cfg.SessionIdle <= 0 {
		cfg.SessionIdle = sessionIdleTimeout
	}
	if len(cfg.CursorKey) == 0 {
		cfg.CursorKey = make([]byte, 32)
		_, _ = rand.Read(cfg.CursorKey) // crypto/rand.Read never fails: it crashes the program instead
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Surface{
		cfg: cfg, changed: make(chan struct{}, 1), updated: make(chan struct{}, 1), now: time.Now, fresh: make(map[freshness]bool),
		viewers: make(map[string]*viewer), sessions: make(map[string]*session), waiting: make(map[string]*waiting),
		views: map[string]*view{defaultView: newView(defaultView, View{Exposure: cfg.Exposure})},
	}
	for name, v := range cfg.Views {
		s.views[name] = newView(name, v)
	}
	s.sealer = newStateSealer(cfg.CursorKey, func() time.Time { return s.now() })
	s.leases = compile.NewLeases(func() time.Time { return s.now() })
	s.info, _ = jsonx.Marshal(map[string]string{"name": serverName, "title": serverName, "version": cfg.Version})
	s.base, s.cancel = context.WithCancel(context.Background())
	s.open, s.closeStreams = context.WithCancel(s.base)
	s.legacy = mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{
		JSONResponse: true, MaxRequestBodyBytes: cfg.MaxBody,
	})
	s.modern = mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: cfg.MaxBody, PropagateRequestCancellation: true,
	})
	return s
}

// Routes adds /mcp and /mcp/{view} to mux, for every HTTP method.
func (s *Surface) Routes(mux *http.ServeMux) {
	mux.HandleFunc("/mcp", s.serve)
	mux.HandleFunc("/mcp/{view}", s.serve)
}

// serve dispatches one request to the legacy or the modern protocol.
func (s *Surface) serve(w http.ResponseWriter, r *http.Request) {
	who, err := s.cfg.Door.Principal(r)
	if err != nil {
		if challenge := s.cfg.Door.Challenge(r, ""); challenge != "" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
		httpapi.WriteError(w, err)
		return
	}
	name := r.PathValue("view")
	if name == "" {
		name = cmp.Or(who.View, defaultView)
	}
	v := s.views[name]
	if v == nil {
		httpapi.WriteError(w, capability.Errorf(capability.CodeNotFound, "mcp", "there is no view %q", name).
			With("unknown_view", "views are named under mcp.views in config.yaml; the path /mcp and a token without a view lead to the default one"))
		return
	}
	if who.View = ""; name != defaultView {
		who.View = name // for the audit records
	}
	c := caller{who: who, key: viewerKey(who, v), view: v}
	if id := r.Header.Get(mcpwire.HeaderSession); id != "" {
		s.inSession(w, r, c, id)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		exchange.WriteFault(w, nil, &mcpwire.Fault{
			Status: http.StatusMethodNotAllowed, Code: jsonrpc.CodeInvalidRequest,
			Message: "GET and DELETE need the Mcp-Session-Id of a session; open one with a POST of initialize",
		})
		return
	}
	body, m, f := s.read(w, r)
	switch {
	case f != nil:
		exchange.WriteFault(w, m.ID, f)
	case m.Batch:
		exchange.WriteFault(w, nil, mcpwire.BadRequest("a batch needs a session of protocol version %s", mcpwire.Version20250326))
	case mcpwire.IsModern(r.Header, &m):
		s.serveModern(w, r, c, body, &m)
	default:
		s.serveSessionless(w, r, c, body, &m)
	}
}

// callDigest returns the digest of the part of a request that every round of a call repeats.
func callDigest(m *mcpwire.Message) string {
	arguments := []byte(m.Params.Arguments)
	if c, err := jsonx.Sorted(arguments); err == nil {
		arguments = c
	}
	return digest([]byte(m.Method), []byte(m.Params.Name), []byte(m.Params.URI), arguments)
}

// digest names the caller in states.
func (c caller) digest() string { return digest([]byte(c.key)) }

// read reads the body of a POST and parses it. A malformed message may still have an id
// for the error response.
func (s *Surface) read(w http.ResponseWriter, r *http.Request) ([]byte, mcpwire.Message, *mcpwire.Fault) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, mcpwire.Message{}, &mcpwire.Fault{
			Status: http.StatusUnsupportedMediaType, Code: jsonrpc.CodeInvalidRequest,
			Message: "the Content-Type must be application/json",
		}
	}
	body, err := httpapi.ReadBody(w, r, s.cfg.MaxBody)
	if err != nil {
		status := http.StatusBadRequest
		if capability.CodeOf(err) == capability.CodeTooLarge {
			status = http.StatusRequestEntityTooLarge
		}
		return nil, mcpwire.Message{}, &mcpwire.Fault{Status: status, Code: jsonrpc.CodeInvalidRequest, Message: capability.AsError(err).Message}
	}
	m, f := mcpwire.Parse(body)
	m.Traceparent = r.Header.Get("Traceparent")
	return body, m, f
}

// caller holds the attributes of a request's sender that the surface uses.
type caller struct {
	who     capability.Principal
	key     string // of the viewer
	view    *view
	client  string // the program's name for itself; displayed, never trusted
	session string // digest of the session id, "" in the modern protocol

	abilities abilities
	// pinned is the capability with which this round of a call continues.
	pinned capability.ID
}

// challenge names the required scope to a client whose token is too narrow, unless the
// answer has begun.
func (s *Surface) challenge(w http.ResponseWriter, r *http.Request, out exchange.Outcome) {
	if out.Narrow == "" {
		return
	}
	if challenge := s.cfg.Door.Challenge(r, out.Narrow); challenge != "" {
		w.Header().Set("WWW-Authenticate", challenge)
	}
}
