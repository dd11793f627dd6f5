package httpapi

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
)

const (
	bodyTimeout = time.Minute // a request may take to send its body
	// What is left of a refused body is read up to here before the answer goes
	// out: a peer that is still writing would see a broken pipe instead of it.
	restSize    = 8 << 20
	restTimeout = 2 * time.Second
)

// Bounded gives every body a deadline and every answer nosniff. The deadline is
// taken back when the body has been read, or it would end long calls.
func Bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff") // what endpoints answer is never a page of ours
		if r.ContentLength != 0 {
			body := &timedBody{ReadCloser: r.Body, rc: http.NewResponseController(w)}
			_ = body.rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // unsupported only in tests without a connection
			r.Body = body
			defer body.discard()
		}
		h.ServeHTTP(w, r)
	})
}

type timedBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	done bool
}

func (b *timedBody) discard() {
	if !b.done && b.rc.SetReadDeadline(time.Now().Add(restTimeout)) == nil {
		_, _ = io.CopyN(io.Discard, b.ReadCloser, restSize)
	}
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.done = true
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// LoopbackOrToken lets a scraper on this machine in without a token.
func (d *Door) LoopbackOrToken(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			if _, err := d.Principal(r); err != nil {
				WriteError(w, err)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// HostGuard protects a listener from web pages.
type HostGuard struct {
	Loopback       bool   // only this machine can reach the listener
	PublicURL      string // of a proxy in front, or ""
	AllowedOrigins []string
	Logger         *slog.Logger
}

// Wrap refuses requests that a web page could have made behind the user's
// back: on loopback, a Host that is not local is DNS rebinding, and a browser's
// cross-origin request is refused wherever it goes.
func (g HostGuard) Wrap(h http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	for _, origin := range g.AllowedOrigins {
		if err := crossOrigin.AddTrustedOrigin(origin); err != nil {
			g.Logger.Error("allowed origin ignored", "origin", origin, "err", err)
		}
	}
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		WriteError(w, capability.Errorf(capability.CodeDenied, "origin", "requests of other web origins are refused").
			With("origin_not_allowed", "add the origin to mcp.allowed_origins"))
	}))
	inner := crossOrigin.Handler(h)
	var public string // host of a proxy in front of us
	if u, err := url.Parse(g.PublicURL); err == nil {
		public = u.Host
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.Loopback && !localHost(r.Host) && (public == "" || !strings.EqualFold(r.Host, public)) {
			WriteError(w, capability.Errorf(capability.CodeDenied, "host", "this server answers to local names only").With("host_not_allowed",
				"use 127.0.0.1 or localhost in the URL, or set public_url to the address of the proxy in front"))
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func localHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
