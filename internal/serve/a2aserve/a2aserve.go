// Package a2aserve implements the A2A endpoint: other agents find junctor as an agent, whose
// skills are the capabilities that they may call.
//
// One URL serves two versions. /a2a accepts JSON-RPC of A2A v1.0 and v0.3, distinguished
// only by the A2A-Version header; the paths below it are the HTTP+JSON binding of v1.0. The
// card under /.well-known/ lists all three, is readable by clients of both versions, and is
// signed. Internally there is one set of operations on the documents of v1.0; v0.3 is
// translated at the edge (legacy.go).
//
// A message becomes a task ([tasks]), which runs one call on the governed path. A message names its
// capability by skill id. A message that names none is for the agent of the server or, if the
// agent is off, creates a task that asks for the name of a skill. Questions of
// providers, and approvals that the caller may give, are input-required; approvals of an operator
// are auth-required, and the caller cannot change those. The result is one artifact.
//
// The surface decodes and encodes. The engine decides who may call a capability, and the
// task store who may see a task. The SDK provides the types of cards and the names of errors
// and states; its server is not used (see docs/a2a.md).
package a2aserve

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/a2aserve/push"
)

// Config configures a [Surface]. All fields except Push, Logger and the numbers are required.
type Config struct {
	Door   *httpapi.Door
	Engine *invoke.Engine
	Tasks  *tasks.Manager
	Push   *push.Sender // nil: no push notifications
	// Key signs cards: ECDSA on P-256.
	Key *ecdsa.PrivateKey
	// URL is the public base URL of this server, without a path.
	URL     string
	Version string // of junctor
	// MaxBody is the largest request body in bytes; 0 means 4 MiB.
	MaxBody  int64
	Exposure compile.View // how much of the catalog the extended card lists; "" is auto
	Logger   *slog.Logger
	// Beat is the interval of comments on a quiet stream; 0 means 15 s.
	Beat time.Duration
}

// Surface serves A2A. Create it with [New]; it is safe for concurrent use.
type Surface struct {
	cfg    Config
	leases *compile.Leases
	card   func() (signed, error) // once

	open  context.Context // ends when streams and waits must end
	drain context.CancelFunc
}

// New returns a surface with the given configuration.
func New(cfg Config) *Surface {
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = 4 << 20
	}
	cfg.Beat = cmp.Or(cfg.Beat, 15*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	s := &Surface{cfg: cfg, leases: compile.NewLeases(time.Now)}
	s.card = sync.OnceValues(s.publicCard)
	s.open, s.drain = context.WithCancel(context.Background())
	return s
}

// Drain ends the open streams and answers requests that wait for a task with its current
// state, so that an HTTP server can shut down. Tasks continue. It may be called again.
func (s *Surface) Drain() { s.drain() }

// Routes adds the card, its keys, /a2a and the paths below it to mux.
func (s *Surface) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /.well-known/agent-card.json", s.serveCard)
	mux.HandleFunc("GET /.well-known/jwks.json", s.serveKeys)
	mux.HandleFunc("/a2a", s.serveRPC)
	for pattern, f := range s.paths() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serveREST(w, r, f) })
	}
}

// The versions spoken here.
const (
	version10 = "1.0"
	version03 = "0.3"
)

// Versions returns the supported versions of A2A, the newest first.
func Versions() []string { return []string{version10, version03} }

// versionOf returns the version that a request declares in the header, or in the query
// parameter of the same name. Without a declaration it returns otherwise.
func versionOf(h http.Header, q url.Values, otherwise string) (string, *fault) {
	v := h.Get("A2A-Version")
	v = cmp.Or(v, q.Get("A2A-Version"))
	switch strings.TrimSpace(v) {
	case "":
		return otherwise, nil
	case version10:
		return version10, nil
	case version03:
		return version03, nil
	}
	return "", unsupportedVersion(v)
}

// caller is the sender of a request.
type caller struct {
	who    capability.Principal
	legacy bool
}

func (c *caller) invocation() capability.Invocation {
	return capability.Invocation{Surface: surfaceName, Principal: c.who, Audience: capability.AudienceAgent}
}

func (c *caller) lease() compile.LeaseKey {
	return compile.LeaseKey{
		Token: strings.Join(append([]string{surfaceName, c.who.ID, string(c.who.Role)}, c.who.Labels...), "\x00"),
		View:  c.who.View,
	}
}

// spelling returns the form of skill ids. It is the form of tool names over MCP, so that an
// agent that uses both protocols sees one name.
func spelling() compile.Spelling { return compile.Spelling{Dialect: naming.Strict64, Limit: 48} }
