package egress

import (
	"context"
	"errors"
	"net"
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
