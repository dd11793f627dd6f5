package upstream

import (
	"context"
	"errors"

	"github.com/junctor-run/junctor/capability"
)

// Probe implements capability.Prober: it waits for the main connection.
func (p *provider) Probe(ctx context.Context) error {
	c, err := p.main(ctx)
	if err != nil {
		return err
	}
	p.release(c)
	return nil
}

// unreachable returns the error of a failed connection, always with the code unavailable.
func (u *upstream) unreachable(err error) error {
	if e, ok := errors.AsType[*capability.Error](err); ok && e.Code != capability.CodeTimeout {
		if e.Code == capability.CodeUnavailable {
			return e
		}
		return capability.Wrap(capability.CodeUnavailable, "upstreams", e.Message, err).With(e.Reason, e.Hint)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return capability.Wrap(capability.CodeUnavailable, "upstreams", "it did not answer within "+u.patience().String(),
			err).With("connection_failed", "")
	}
	return capability.Wrap(capability.CodeUnavailable, "upstreams", "the connection failed", err).With("connection_failed", "")
}

// unavailable returns the error of calls that were not sent for lack of a connection.
func (u *upstream) unavailable() *capability.Error {
	u.mu.Lock()
	defer u.mu.Unlock()
	reason := u.state.Reason
	if reason == "" {
		reason = "its connection is being made"
	}
	return capability.Errorf(capability.CodeUnavailable, "execute", "the upstream %s cannot be called: %s", u.record.Name, reason).
		With("upstream_unavailable", "see what it wrote with: junctor mcp logs "+u.record.Name)
}

// tail returns the end of a text.
func tail(s string) string {
	if len(s) > maxTail {
		s = s[len(s)-maxTail:]
	}
	return s
}
