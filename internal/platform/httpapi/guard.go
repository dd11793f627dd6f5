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

// Bounded adds a read deadline to every request body and nosniff to every response. The deadline
// is removed when the body has been read, so that it does not end long calls.
func Bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff") // responses of endpoints must not be interpreted as pages
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
		_, _ = io.CopyN(io.Discard, b.ReadCloser, maxRest)
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

// LoopbackOrToken requires authentication, except for requests from this machine, such as those of a
// metrics scraper.
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

// HostGuard protects a listener from requests of web pages.
type HostGuard struct {
	Loopback       bool   // only this machine can reach the listener
	PublicURL      string // of a proxy in front, or ""
	AllowedOrigins []string
	Logger         *slog.Logger
}

// Wrap rejects requests that a web page could have made without the user's knowledge: on loopback,
// those with a Host that is neither local nor that of PublicURL (DNS rebinding), and
// everywhere a browser's cross-origin requests, unless the origin is allowed.
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
