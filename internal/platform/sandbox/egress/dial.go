package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Dial connects to target, which is host:port, by the rules of a proxy but without a proxy:
// the name is resolved once, each of its addresses is checked, and one of those is dialled.
// The caller must bound rate and number of connections. The policy denied the target if
// [Denied] is true of the error; other errors come from cfg, the resolver or the dialer.
func Dial(ctx context.Context, target string, cfg Config) (net.Conn, error) {
	f, err := compile(cfg.Policy)
	if err != nil {
		return nil, err
	}
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	if cfg.Dialer == nil {
		cfg.Dialer = &net.Dialer{Timeout: dialTimeout}
	}
	p := &proxy{cfg: cfg, filter: f, ranges: special(), ctx: ctx}
	return p.dial(ctx, target, 0)
}

// Denied reports whether an error of [Dial] is a denial by the policy, and the reason.
func Denied(err error) (reason string, denied bool) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.reason, true
	}
	return "", false
}

// ErrRedirect is the error of a client of [NewClient] whose server redirects.
var ErrRedirect = errors.New("the server redirects")

// NewClient returns a client for URLs that strangers chose: every connection dials an address that
// was checked, which is public or in addresses. It follows no redirect and uses no proxy.
func NewClient(addresses []netip.Prefix, timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, target string) (net.Conn, error) {
				_, port, err := net.SplitHostPort(target)
				if err != nil {
					return nil, err
				}
				return Dial(ctx, target, Config{Policy: Policy{Allow: []string{"*:" + port}, Addresses: addresses}})
			},
			TLSHandshakeTimeout: dialTimeout, MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return ErrRedirect },
	}
}
