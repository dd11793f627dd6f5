package egress

import (
	"context"
	"errors"
	"net"
)

// Dial connects to target, which is host:port, by the rules of a proxy and
// without one: the name is resolved once, every address it has is judged, and one
// of those is dialled. Rate and number of connections are the caller's to bound.
// An error for which [Denied] is true is the policy's; others say nothing to a
// stranger.
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

// Denied reports whether an error of [Dial] is a refusal by the policy, and why.
func Denied(err error) (reason string, denied bool) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.reason, true
	}
	return "", false
}
