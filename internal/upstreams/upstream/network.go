package upstream

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/http1"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// newHTTP returns the client for an upstream's URL. It connects to that host and port only, and to
// public addresses only, which are checked when they are dialled. With private_network it may also
// connect to this machine and its network, but not to a metadata service. It follows redirects
// within the same origin only, so that no other one receives a credential.
func newHTTP(rec *record.Record) (*http.Client, error) {
	u, err := url.Parse(rec.URL)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "upstreams", "the URL of upstream "+rec.Name+" cannot be read", err)
	}
	port := u.Port()
	if port == "" {
		if port = "443"; u.Scheme == "http" {
			port = "80"
		}
	}
	transport, err := guarded(rec, net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http1.Transport{Rest: transport}, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > 3 || req.URL.Scheme != u.Scheme || req.URL.Host != u.Host {
			return http.ErrUseLastResponse // the caller sees the redirect itself
		}
		return nil
	}}, nil
}

// guarded returns a transport that dials one host and port, or any if only is "".
func guarded(rec *record.Record, only string) (*http.Transport, error) {
	policy := egress.Policy{Allow: []string{only}, BytesPerSecond: -1}
	if rec.PrivateNetwork {
		policy.Addresses = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	if only != "" {
		if err := policy.Check(); err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "upstreams", "the URL of upstream "+rec.Name+
				" names no host that can be reached", err)
		}
	}
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			policy := policy
			if only == "" { // the address itself is still checked
				policy.Allow = []string{address}
			}
			c, err := egress.Dial(ctx, address, egress.Config{Policy: policy})
			if reason, denied := egress.Denied(err); denied {
				return nil, capability.Errorf(capability.CodeUnavailable, "upstreams", "%s may not be connected to: %s", address, reason).
					With("address_denied", "an upstream on this machine or its network is added with --local")
			}
			return c, err
		},
		TLSHandshakeTimeout: dialTimeout, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 256, DisableCompression: true, IdleConnTimeout: 90 * time.Second,
	}, nil
}
