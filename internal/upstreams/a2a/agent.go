// Package a2a is an A2A client that makes a remote agent callable as a tool. It fetches the
// agent's card and, if a key is pinned, verifies it. Each skill becomes one definition in
// the form of an MCP tool; a call sends a message and follows its task to the end.
//
// A definition contains everything a call needs: the skill, the address, the binding, the
// version and the tenant. A call therefore uses the address that an operator approved, not
// that of a card changed later. Package upstream pins definitions, holds changed ones and
// manages the connection, as for MCP servers.
//
// The agent is not trusted. Its card and answers are limited in size, its addresses are checked
// when they are dialled, and credentials are sent to the card's own origin only. Answers are passed
// on unchanged; progress, questions and the end of the task become those of the call.
package a2a

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// Reasons of errors of this package.
const (
	ReasonAuthRequired = "upstream_auth_required"
	ReasonSignature    = "signature_invalid"

	reasonConnection = "connection_failed"
	reasonIdle       = "idle_timeout"
	reasonUpstream   = "upstream_error"
	reasonVersion    = "unsupported_version"
)

// WellKnown is the path of the card for an address without a path.
const WellKnown = "/.well-known/agent-card.json"

// Config of an Agent. Name and Card are required.
type Config struct {
	// Name is the upstream's id, as the operator wrote it.
	Name string
	// Card is the URL of the agent card; one without a path means [WellKnown].
	Card string
	// Header are the credentials for the agent, sent to the card's origin only; nil: none.
	Header func(ctx context.Context) (http.Header, error)
	// Keys are public keys as JWKs. Where there are any, a card is taken only with a
	// signature by one of them, and of such a card only what was signed.
	Keys [][]byte
	// Local lets the card's own host and port be on this machine or its network, over
	// plain http too. All other addresses are public and https, always.
	Local bool
	// Down is called when the agent cannot be reached any more; it returns at once. May be nil.
	Down func(error)
}

// Agent is one A2A agent. It is safe for concurrent use.
type Agent struct {
	cfg  Config
	at   *url.URL // of the card
	http *http.Client
	ids  atomic.Int64
	lost atomic.Bool

	base  context.Context // of calls and of what is sent after them
	stop  context.CancelFunc
	after sync.WaitGroup // what is sent after calls

	mu    sync.Mutex
	seen  *fetched
	fresh bool // seen is what Connect fetched just now
}

// New returns an Agent without contacting it. It fails with invalid_input if the address or
// a key cannot be used.
func New(cfg Config) (*Agent, error) {
	at, err := cardURL(&cfg)
	if err != nil {
		return nil, err
	}
	if err := checkKeys(cfg.Keys); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, at: at}
	a.base, a.stop = context.WithCancel(context.Background())
	a.http = &http.Client{
		Transport: &http.Transport{
			DialContext: a.dial, TLSHandshakeTimeout: connectTimeout, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second,
		},
		// A redirect would take the credentials, or the guard's word, somewhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return a, nil
}

// Config returns the configuration given to New.
func (a *Agent) Config() Config { return a.cfg }

func cardURL(cfg *Config) (*url.URL, error) {
	u, err := url.Parse(cfg.Card)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !cfg.Local) {
		return nil, capability.Errorf(capability.CodeInvalidInput, "upstream",
			"%.100q is not an address of an agent card: https, or http where the agent is local", cfg.Card)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = WellKnown
	}
	return u, nil
}

// dial connects to public addresses, and where the agent is local to the card's own
// host and port wherever they are; never to a metadata service.
func (a *Agent) dial(ctx context.Context, _, target string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	policy := egress.Policy{Allow: []string{"*:" + port}, BytesPerSecond: -1}
	if a.cfg.Local && target == hostPort(a.at) {
		policy.Addresses = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := egress.Dial(ctx, target, egress.Config{Policy: policy})
	if reason, denied := egress.Denied(err); denied {
		return nil, capability.Errorf(capability.CodeUnavailable, "upstream", "the address of the agent may not be connected to: %s", reason).
			With("address_denied", "an agent on this machine or its network is added with --local")
	}
	if err != nil {
		return nil, &dialError{err}
	}
	return c, nil
}

// dialError marks failures before a byte went out.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		if port = "443"; u.Scheme == "http" {
			port = "80"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// reachable reports whether messages may be sent to an address that a card names.
func (a *Agent) reachable(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || len(text) > 2048 {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && a.cfg.Local && hostPort(u) == hostPort(a.at)
}

// own reports whether an address has the card's origin.
func (a *Agent) own(u *url.URL) bool { return u.Scheme == a.at.Scheme && hostPort(u) == hostPort(a.at) }

// credentials are what is sent to an address.
func (a *Agent) credentials(ctx context.Context, to *url.URL) (http.Header, error) {
	if a.cfg.Header == nil || !a.own(to) {
		return nil, nil
	}
	h, err := a.cfg.Header(ctx)
	if err != nil {
		return nil, capability.AsError(err)
	}
	return h, nil
}

// down tells once that the agent cannot be reached.
func (a *Agent) down(err error) {
	if a.base.Err() == nil && a.lost.CompareAndSwap(false, true) && a.cfg.Down != nil {
		a.cfg.Down(err)
	}
}

// Close ends all running calls and waits until their tasks' cancellations were sent. After a
// loss that was reported by Down, calls continue on their own connections or fail.
func (a *Agent) Close() error {
	if !a.lost.Load() {
		a.stop()
	}
	a.after.Wait()
	a.stop()
	a.http.CloseIdleConnections()
	return nil
}
