// Package upstream turns the MCP servers that an operator added into providers. It stores
// their records, manages the connections to them, publishes their definitions as modules
// of the catalog, and forwards calls to them.
//
// A record holds the operator's settings: the address of the server, the owner of its connections,
// its trust. A connection is a process or an HTTP session; its loss affects the calls on it only. A
// pin is the digest of a definition as agents see it, so that a changed definition can be held
// until the operator approves it. Package ingest checks the definitions.
//
// An unreachable upstream delays only the calls to it: the server starts without a
// connection, and the catalog lists its pinned definitions.
package upstream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
	"github.com/junctor-run/junctor/secret"
)

// Server is what an upstream reported about itself when it was connected.
type Server struct {
	Version      string          `json:"version"` // the revision spoken
	Name         string          `json:"name,omitempty"`
	Title        string          `json:"title,omitempty"`
	Release      string          `json:"release,omitempty"`
	Instructions string          `json:"instructions,omitempty"`
	Capabilities json.RawMessage `json:"-"`
}

// Caller is who makes a call, as far as it decides which connection carries it.
type Caller struct {
	Principal, Session string
	For                string // the principal for whom it acts, or ""
}

// Page describes how a list was read: which limit ended it early, and its TTL.
type Page struct {
	Truncated string
	TTL       time.Duration
}

// Request is one call of a method. Params and Meta are the objects that are sent.
type Request struct {
	Method       string
	Params, Meta json.RawMessage
	Name         string      // tool, prompt or address, for headers
	Headers      http.Header // Mcp-Param-*, values in plain text
	Idle         time.Duration
	Progress     func(capability.Chunk)
	Ask          capability.Asker
	Relay        *capability.Relay
	// Definition is the approved definition of a tool. Keep and Resume are those of a call
	// that the upstream can continue after a restart of this server.
	Definition json.RawMessage
	Keep       func(upstreamCall string)
	Resume     string
}

// Client is one connection to one upstream. It is safe for concurrent use. Concurrent
// calls of Connect share one attempt, which takes ConnectTimeout at most; Connect also connects
// again after a loss. Call returns the raw result, together with
// [capability.InputRequired] if the upstream asks a question first. Close ends all calls.
type Client interface {
	Connect(ctx context.Context) (Server, error)
	Has(feature string) bool // of the server connected last: "tools", "prompts", "resources", "completions"
	List(ctx context.Context, kind ingest.Kind, each func(definition json.RawMessage) error) (Page, error)
	Call(ctx context.Context, r Request) (json.RawMessage, error)
	Close() error
	Stderr() string
}

// ClientConfig configures a connection. The callbacks are called from goroutines of the
// client and must not block.
type ClientConfig struct {
	Name    string
	Kind    string            // of the record: mcp, a2a or openapi
	Keys    []json.RawMessage // keys of which one must have signed the card
	Local   bool              // the upstream may be on this machine or its network
	Command []string
	Dir     string
	Env     []string // the whole environment
	// ConnectTimeout bounds one attempt to connect; 0 means 10 s.
	ConnectTimeout time.Duration
	// Errors receives the error output of a program, and Unreadable each line of its output that is
	// not a message; the slice is only valid during the call.
	Errors     io.Writer
	Unreadable func(line []byte)
	// Start starts Command confined; if nil, it is started as this server's user.
	Start  func(stdin, stdout, stderr *os.File) (mcpclient.Process, error)
	URL    string
	SSE    bool
	HTTP   *http.Client
	Header func(context.Context) (http.Header, error)
	// SecretHeaders names those of Header whose values are secrets, besides Authorization.
	SecretHeaders []string
	// Document, Fetch and Secret are those of an API: its OpenAPI document, the client for a
	// document on another host than URL, and the secret for its security scheme or "".
	Document string
	Fetch    *http.Client
	Secret   func() (string, error)
	Roots    []string
	Sampling bool
	Changed  func(ingest.Kind)
	Updated  func(uri string)
	Down     func(error)
	Logger   *slog.Logger
}

// Secrets is the store of the secrets that records name.
type Secrets interface {
	Get(name string) (secret.Value, error)
}

// Config configures a Registry. Intervals and limits have defaults.
type Config struct {
	Store   Store // nil: upstreams are lost on a restart
	Secrets Secrets
	// Tokens stores OAuth tokens; nil: they are lost on a restart.
	Tokens Tokens
	// LoginKey encrypts the tokens of logins of one principal; nil: a random one.
	LoginKey []byte
	People   People     // nil: principals do not end
	Log      *audit.Log // nil: nothing is recorded
	Logger   *slog.Logger
	// Dial returns a client that is not connected.
	Dial func(ClientConfig) (Client, error)
	// Dir holds a folder for each upstream that is a program; "" in tests.
	Dir string
	// Environment is part of the environment of every program; records add to it.
	Environment []string
	// Walls confines programs; nil: only unconfined ones can be started.
	Walls Walls
	// Registries are variables of confined programs by which package runners find registries,
	// and CA is a file with certificates that such programs may read, or "".
	Registries []string
	CA         string
	Now        func() time.Time
	// Publish sends an event to the live feed and must not block; nil: none are sent.
	Publish func(event string, data any)

	// ConnectTimeout bounds one attempt to connect if the record has no timeout of its own; 0: 60 s.
	ConnectTimeout time.Duration

	Refresh    time.Duration // how often lists are read again; 0: 10 min
	Degraded   time.Duration // how long a lost upstream's definitions stay listed; 0: 5 min
	Idle       time.Duration // when connections of one principal or session are closed; 0: 10 min
	FirstPause time.Duration // before a lost connection is made again, doubling to 30 s; 0: 500 ms
}

// Registry holds the upstreams. It is a capability.Source: calls fail before Run and after its end.
type Registry struct {
	cfg   Config
	total places

	mu        sync.Mutex
	upstreams map[string]*upstream
	adding    map[string]bool
	logs      map[string]*outputLog
	publish   func(capability.Batch) error // nil unless Run runs
	shown     bool                         // the stored upstreams are in the catalog
	ctx       context.Context
	group     *errgroup.Group
}

// NewRegistry returns an empty registry.
func NewRegistry(cfg Config) *Registry {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.LoginKey == nil {
		cfg.LoginKey = make([]byte, 32)
		_, _ = rand.Read(cfg.LoginKey)
	}
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&cfg.ConnectTimeout, connectTimeout},
		{&cfg.Refresh, 10 * time.Minute},
		{&cfg.Degraded, 5 * time.Minute},
		{&cfg.Idle, 10 * time.Minute},
		{&cfg.FirstPause, 500 * time.Millisecond},
	} {
		if *d.value == 0 {
			*d.value = d.otherwise
		}
	}
	return &Registry{
		cfg: cfg, upstreams: make(map[string]*upstream), adding: make(map[string]bool), logs: make(map[string]*outputLog),
		total: places{most: maxTotal},
	}
}

// Run publishes the stored definitions of all upstreams, and connects and watches each in
// its own goroutine until ctx ends. It closes all connections before it returns.
func (r *Registry) Run(ctx context.Context, publish func(capability.Batch) error) error {
	saved, err := r.restore(ctx)
	if err != nil {
		r.cfg.Logger.Error("saved upstreams could not be read", "err", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	r.mu.Lock()
	r.publish, r.ctx, r.group = publish, ctx, group
	for _, u := range saved {
		r.upstreams[u.record.Name] = u
	}
	r.mu.Unlock()
	if err := r.EndLogins(ctx); err != nil {
		r.cfg.Logger.Error("logins to upstreams were not compared with the tokens", "err", err)
	}
	for _, u := range saved {
		u.show()
		r.start(u, nil)
	}
	r.mu.Lock()
	r.shown = true
	r.mu.Unlock()
	group.Go(func() error { // keeps the group open for upstreams that are added later
		<-ctx.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.publish, r.shown = nil, false
		clear(r.upstreams)
		return nil
	})
	return group.Wait()
}

// Running reports whether upstreams can be added and the stored ones are published.
func (r *Registry) Running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.publish != nil && r.shown
}

func (r *Registry) running() (func(capability.Batch) error, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.publish == nil {
		return nil, capability.Errorf(capability.CodeUnavailable, "upstreams", "the server is starting or stopping").With("service_unavailable",
			"try again in a moment")
	}
	return r.publish, nil
}

// start watches an upstream in a goroutine. c is its connection, or nil. It returns false
// if the registry has ended; then the caller closes c.
func (r *Registry) start(u *upstream, c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.publish == nil {
		close(u.dead)
		return false
	}
	ctx, cancel := context.WithCancel(r.ctx)
	u.mu.Lock()
	u.cancel = cancel
	u.mu.Unlock()
	r.group.Go(func() error {
		defer close(u.dead)
		defer cancel()
		u.watch(ctx, c)
		return nil
	})
	return true
}

func (r *Registry) get(name string) (*upstream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u, ok := r.upstreams[name]; ok {
		return u, nil
	}
	return nil, capability.Errorf(capability.CodeNotFound, "upstreams", "no upstream has the name %q", name).
		With("upstream_not_found", "list them with: junctor mcp list")
}

// record appends an event of an upstream to the audit log.
func (r *Registry) record(ctx context.Context, ev audit.Event, of *record.Record, by capability.Principal, success audit.Outcome,
	attrs ...audit.Attr,
) {
	if r.cfg.Log == nil {
		return
	}
	rec := audit.Record{
		Event: ev, Logger: "upstream", Extension: extensionID(of.Origin(), of.Name), Runner: of.Origin(), User: by.ID, Success: success,
		Metadata: audit.Metadata{
			Principal: audit.Principal{ID: by.ID, Role: by.Role},
			Attrs:     append([]audit.Attr{{Key: "upstream", Value: of.Name}}, attrs...),
		},
	}
	if _, err := r.cfg.Log.Append(context.WithoutCancel(ctx), rec, audit.Synced); err != nil {
		r.cfg.Logger.Error("audit record not written", "event", string(ev), "err", err)
	}
}
