// Package api runs api.get, api.post and the other calls to HTTP services that an
// extension declares. A call reaches only the hosts of its policy: it goes through
// package egress, which checks every address that a name resolves to and dials the
// checked address, so that neither a redirect nor a changing DNS answer leads to an
// internal network. Redirects are followed on the same host only. Bodies, durations,
// attempts and rates are limited, and the secret of a call is removed from its result.
package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/queue"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/secret"
)

const op = "api"

// Config holds the settings that all calls of a Client share.
type Config struct {
	Resolver   egress.Resolver // nil means the system's
	Dialer     egress.Dialer   // nil means the system's
	OnDecision func(extension string, d egress.Decision)
	// Transport may change the transport of a call before it is used, for example to
	// trust other certificates. It may be nil.
	Transport func(*http.Transport)
	// Wait pauses between attempts. If nil, the real clock is used.
	Wait func(ctx context.Context, d time.Duration) error
	// Now is the clock of the cache; nil means [time.Now].
	Now func() time.Time
}

// Client makes calls. It is safe for concurrent use.
type Client struct {
	cfg     Config
	limiter *queue.Limiter
	cache   cache
}

// New makes a Client.
func New(cfg Config) *Client {
	if cfg.Wait == nil {
		cfg.Wait = func(ctx context.Context, d time.Duration) error {
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-t.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Dialer == nil {
		cfg.Dialer = &net.Dialer{Timeout: connectTimeout}
	}
	return &Client{cfg: cfg, limiter: queue.NewLimiter(queue.Rates{}, time.Now), cache: cache{entries: make(map[string]*stored)}}
}

// Auth holds the credentials of a call. The secret comes from the extension's settings
// or from a stored secret.
type Auth struct {
	Kind   string // bearer, basic, header, query
	Name   string // of the header or query parameter
	User   string // of basic
	Secret secret.Value
}

// Request is one call.
type Request struct {
	Extension string
	Version   string        // of the extension; part of the cache key
	User      string        // part of the cache key: cached answers are never shared between users
	Person    string        // whose rate the call counts for: the task agents of a person share one; "" is User
	Policy    egress.Policy // the manifest's hosts, and the operator's addresses
	Method    string
	URL       string // absolute; see [FromRoute]
	Query     []string
	Header    http.Header
	Body      []byte
	BodyType  string // content type of Body
	Auth      *Auth
	Timeout   time.Duration // 0 is DefaultTimeout
	Raw       bool          // the output is the body alone
	NoCache   bool          // do not use the cache
	CacheTTL  time.Duration // used if the response headers name no lifetime
}

// Result is the response of the service.
type Result struct {
	Output   string
	Body     string // the body alone, as it is shown
	Status   int
	Type     string // media type
	Metadata map[string]any
}

// Do makes a call. A status of 400 or more is the error failed, reason execution_failed, returned
// together with the Result. Other errors: invalid_input (a bad URL or header); too_large; denied,
// reason security_violation (the policy refuses the host or address); overloaded, reason
// rate_limited (more than 60 calls a minute of one extension to one host); unavailable (not
// reachable); failed (the connection broke); timeout; cancelled. Error messages contain no text
// from the service or the network, except the status line.
func (c *Client) Do(ctx context.Context, req Request) (Result, error) {
	u, err := target(req)
	if err != nil {
		return Result{}, err
	}
	if len(req.Body) > MaxBody {
		return Result{}, capability.Errorf(capability.CodeTooLarge, op, "the body has %d bytes; %d are the most", len(req.Body), MaxBody)
	}
	if err := req.Policy.Check(); err != nil {
		return Result{}, capability.Wrap(capability.CodeInvalidInput, op, "the hosts that the extension declares cannot be read",
			err).With("invalid_args", "")
	}
	key := cacheKey(req, u)
	kept := c.cache.get(key)
	if kept != nil && c.cfg.Now().Before(kept.fresh) {
		return kept.answer(c.cfg.Now()), nil
	}
	if kept != nil && kept.etag != "" {
		if req.Header = req.Header.Clone(); req.Header == nil {
			req.Header = make(http.Header)
		}
		req.Header.Set("If-None-Match", kept.etag)
	} else {
		kept = nil
	}
	if wait := c.limit(cmp.Or(req.Person, req.User), req.Extension, strings.ToLower(u.Host)); wait > 0 {
		e := capability.Errorf(capability.CodeOverloaded, op, "too many calls to %s in a short time", u.Host).With("rate_limited", "")
		e.RetryAfter = wait
		return Result{}, e
	}
	if req.Timeout <= 0 {
		req.Timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	way := c.open(ctx, req)
	defer way.close()
	for attempt := 1; ; attempt++ {
		got, err := c.attempt(ctx, way, req, u)
		if err != nil {
			if ctx.Err() != nil {
				return Result{}, capability.AsError(ctx.Err())
			}
			return Result{}, err
		}
		got.Metadata["attempts"] = attempt
		if kept != nil && got.Status == http.StatusNotModified {
			c.cache.renew(key, got.header, req.CacheTTL, c.cfg.Now())
			return kept.answer(c.cfg.Now()), nil
		}
		pause, again := got.again(req.Method)
		if !again || attempt == maxAttempts || pause > maxRetryDelay {
			c.cache.put(key, got, req.CacheTTL, c.cfg.Now())
			return got.finish()
		}
		if err := c.cfg.Wait(ctx, max(pause, time.Duration(attempt)*500*time.Millisecond)); err != nil {
			return Result{}, capability.AsError(err)
		}
	}
}

// limit takes one call from the rate limit of the extension and host, of which one user may use a
// part. It returns 0, or how long to wait if the limit is reached; then it takes nothing.
func (c *Client) limit(user, extension, host string) time.Duration {
	place := extension + " " + host
	if user != "" {
		user += " " + place // not a limit of all hosts together
	}
	if err := c.limiter.Take(user, place); err != nil {
		return capability.AsError(err).RetryAfter
	}
	return 0
}

// way is the HTTP client and egress proxy of one call. Connections are never shared
// between calls, because their policies may differ.
type way struct {
	client *http.Client
	close  func()
	mu     sync.Mutex
	denied *egress.Decision
	opened bool
}

// open starts the proxy of a call and returns a client that connects through it only.
// The caller must call close, which ends the proxy.
func (c *Client) open(ctx context.Context, req Request) *way {
	w := &way{}
	ctx, cancel := context.WithCancel(ctx)
	door := newDoor()
	done := make(chan struct{})
	policy := req.Policy
	if policy.BytesPerSecond == 0 {
		policy.BytesPerSecond = -1 // bodies are bounded here
	}
	go func() {
		defer close(done)
		// Serve fails only on an invalid policy, and the policy was checked before.
		_ = egress.Serve(ctx, door, egress.Config{
			Policy: policy, Resolver: c.cfg.Resolver, Dialer: c.cfg.Dialer,
			OnDecision: func(d egress.Decision) {
				w.mu.Lock()
				if d.Allowed {
					w.opened = true
				} else {
					w.denied = &d
				}
				w.mu.Unlock()
				if c.cfg.OnDecision != nil {
					c.cfg.OnDecision(req.Extension, d)
				}
			},
		})
	}()
	transport := &http.Transport{
		Proxy:               http.ProxyURL(&url.URL{Scheme: "http", Host: "egress.invalid:80"}),
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return door.dial(ctx) },
		TLSHandshakeTimeout: connectTimeout, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
	}
	if c.cfg.Transport != nil {
		c.cfg.Transport(transport)
	}
	w.client = &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		from := via[0].URL
		same := strings.EqualFold(next.URL.Host, from.Host) && next.URL.Scheme == from.Scheme
		upgrade := strings.EqualFold(next.URL.Hostname(), from.Hostname()) && from.Scheme == "http" && next.URL.Scheme == "https" &&
			next.URL.Port() == "" && from.Port() == ""
		if len(via) > maxRedirects || !same && !upgrade {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	w.close = func() {
		transport.CloseIdleConnections()
		cancel()
		<-done
	}
	return w
}

// failure returns the error of a call without a response: denied if the policy refused
// a host, unavailable if no connection was opened, else failed.
func (w *way) failure(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.denied != nil:
		return capability.Wrap(capability.CodeDenied, op, "the extension may not reach "+w.denied.Host+": "+w.denied.Reason, err).
			With("security_violation", "the hosts an extension may reach are in its manifest").Detail("host", w.denied.Host)
	case !w.opened:
		return capability.Wrap(capability.CodeUnavailable, op, "the service cannot be reached", err)
	}
	return capability.Wrap(capability.CodeFailed, op, "the connection to the service broke off", err).With("execution_failed", "")
}

// attempt sends the request once. Any status is an answer; an error means that no
// complete response arrived.
func (c *Client) attempt(ctx context.Context, w *way, req Request, u *url.URL) (answer, error) {
	r, err := build(ctx, req, u)
	if err != nil {
		return answer{}, err
	}
	res, err := w.client.Do(r)
	if err != nil {
		return answer{}, w.failure(err)
	}
	defer res.Body.Close()
	w.mu.Lock()
	outside := w.opened && w.denied == nil
	w.mu.Unlock()
	if !outside { // the proxy's own answer to a plain request
		return answer{}, w.failure(errors.New(res.Status))
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, MaxBody+1))
	if err != nil {
		return answer{}, w.failure(err)
	}
	return read(req, u, res, body), nil
}

// again reports whether the call is retried (idempotent, and status 429, 502, 503 or
// 504), and the pause that Retry-After requests, 0 without one.
func (a *answer) again(method string) (time.Duration, bool) {
	idempotent := slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete}, method)
	if !idempotent || !slices.Contains([]int{429, 502, 503, 504}, a.Status) {
		return 0, false
	}
	n, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || n < 0 || n > 86400 {
		n = 0
	}
	return time.Duration(n) * time.Second, true
}
