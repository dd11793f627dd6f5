package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// poster sends to untrusted addresses.
type poster struct {
	addresses []netip.Prefix
	http      *http.Client
}

func newPoster(addresses []netip.Prefix) poster {
	return poster{addresses: addresses, http: egress.NewClient(addresses, Timeout)}
}

// refused returns the reason why a URL whose host is an address is never dialled, or why
// plain http is not. It returns "" if that is not known before dialling.
func (p *poster) refused(u *url.URL) string {
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		if u.Scheme == "http" {
			return "plain http goes to listed addresses only"
		}
		return ""
	}
	ip = ip.Unmap()
	if slices.ContainsFunc(p.addresses, func(r netip.Prefix) bool { return r.Contains(ip) }) {
		return ""
	}
	if u.Scheme == "http" || !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return "it leads into a private network"
	}
	return ""
}

// send makes one attempt to deliver a body. A status outside 2xx is an error.
func (p *poster) send(ctx context.Context, c *Config, event string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	h := req.Header
	h.Set("Content-Type", "application/a2a+json")
	h.Set("A2A-Version", "1.0")
	if c.Legacy {
		h.Set("A2A-Version", "0.3")
	}
	h.Set("X-A2A-Event-Id", event)
	if c.Token != "" {
		h.Set("X-A2A-Notification-Token", c.Token)
	}
	if c.Scheme != "" && c.Credentials != "" {
		h.Set("Authorization", c.Scheme+" "+c.Credentials)
	}
	res, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the receiver answered %d", res.StatusCode)
	}
	return nil
}

// permanent reports whether a retry cannot succeed, because the policy refuses the
// address or the receiver redirects.
func permanent(err error) bool {
	if _, denied := egress.Denied(err); denied {
		return true
	}
	return errors.Is(err, egress.ErrRedirect)
}
