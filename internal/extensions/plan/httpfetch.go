package plan

// This file downloads files of install plans and packages from URLs that extensions and
// operators name. It connects to public addresses only, and checks the address that is
// dialled, because a name may resolve differently each time.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// HTTPFetcher is a [Fetcher] for https URLs at public addresses, which it checks after
// resolving the name, also for each redirect. It is safe for concurrent use.
type HTTPFetcher struct {
	http *http.Client
	cfg  FetchConfig
}

// FetchConfig configures an [HTTPFetcher]. Its zero value is ready for use.
type FetchConfig struct {
	// Allow admits further addresses, and plain http to loopback ones; nil: none.
	Allow func(netip.Addr) bool
	// Pause waits before the n-th retry, from 1; nil: 1 s, 2 s, 4 s.
	Pause func(ctx context.Context, n int) error
}

// NewHTTPFetcher returns an HTTPFetcher.
func NewHTTPFetcher(cfg FetchConfig) *HTTPFetcher {
	if cfg.Allow == nil {
		cfg.Allow = func(netip.Addr) bool { return false }
	}
	if cfg.Pause == nil {
		cfg.Pause = pause
	}
	c := &HTTPFetcher{cfg: cfg}
	dialer := &net.Dialer{Timeout: 10 * time.Second, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return c.admit(address)
	}}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true, DisableKeepAlives: true,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return refusedURL("the address leads on more than %d times", maxRedirects)
			}
			return c.admitURL(req.URL)
		},
	}
	return c
}

func pause(ctx context.Context, n int) error {
	t := time.NewTimer(time.Second << (n - 1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func refusedURL(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeFailed, "fetch", format, args...).With(ReasonDownload, "")
}

// admit returns an error unless the address that is being dialled is public or allowed.
func (c *HTTPFetcher) admit(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return refusedURL("the address cannot be read")
	}
	ip := at.Addr().Unmap()
	if public(ip) || c.cfg.Allow(ip) {
		return nil
	}
	return refusedURL("the address leads into a private network").With(ReasonDownload,
		"give an address that everybody can reach, or install the file: junctor extensions install FILE.zip")
}

func public(ip netip.Addr) bool {
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.Zone() != "" {
		return false
	}
	// Shared, documentation, benchmark and reserved ranges, and IPv6 ranges that embed
	// IPv4 addresses.
	for _, p := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "2001:db8::/32", "::/96",
	} {
		if netip.MustParsePrefix(p).Contains(ip) {
			return false
		}
	}
	return true
}

// admitURL returns an error unless the URL is https, or http to an allowed loopback
// address, and has no user.
func (c *HTTPFetcher) admitURL(u *url.URL) error {
	switch {
	case u.User != nil || u.Host == "":
		return refusedURL("the address has no host, or holds a user or password").With(ReasonDownload, "write https://host/path")
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http":
		if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsLoopback() && c.cfg.Allow(ip) {
			return nil
		}
	}
	return refusedURL("only https addresses are fetched").With(ReasonDownload, "write https://host/path")
}

// Fetch downloads an https URL to to. More than limit bytes is too_large. After status
// 429 or 5xx it retries up to three times, each time after calling restart, which must
// discard what was written. Other errors have the reason download_failed.
func (c *HTTPFetcher) Fetch(ctx context.Context, address string, to io.Writer, limit int64, restart func() error) error {
	for n := 0; ; n++ {
		if n > 0 {
			if err := c.cfg.Pause(ctx, n); err != nil {
				return capability.AsError(err)
			}
			if err := restart(); err != nil {
				return err
			}
		}
		again, err := c.fetch(ctx, address, to, limit)
		if err == nil || !again || n == maxRetries {
			return err
		}
	}
}

func (c *HTTPFetcher) fetch(ctx context.Context, address string, to io.Writer, limit int64) (again bool, err error) {
	res, err := c.get(ctx, address)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return res.StatusCode == http.StatusTooManyRequests || res.StatusCode/100 == 5, refusedURL("the server answered %d", res.StatusCode)
	}
	if res.ContentLength > limit {
		return false, tooLong(limit)
	}
	n, err := io.Copy(to, io.LimitReader(res.Body, limit+1))
	switch {
	case n > limit:
		return false, tooLong(limit)
	case err != nil && ctx.Err() != nil:
		return false, capability.AsError(ctx.Err())
	case err != nil:
		return false, capability.Wrap(capability.CodeFailed, "fetch", "the download broke off", err).With(ReasonDownload, "try again")
	}
	return false, nil
}

func tooLong(limit int64) error {
	return capability.Errorf(capability.CodeTooLarge, "fetch", "the download has more than %d bytes", limit).With(ReasonDownload, "")
}

func (c *HTTPFetcher) get(ctx context.Context, address string) (*http.Response, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, refusedURL("the address cannot be read")
	}
	if err := c.admitURL(u); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, refusedURL("the address cannot be read")
	}
	req.Header.Set("User-Agent", "junctor")
	res, err := c.http.Do(req)
	if err == nil {
		return res, nil
	}
	if ctx.Err() != nil {
		return nil, capability.AsError(ctx.Err())
	}
	if own, ok := errors.AsType[*capability.Error](err); ok {
		return nil, own
	}
	return nil, capability.Wrap(capability.CodeFailed, "fetch", fmt.Sprintf("%.120s cannot be reached", u.Host), err).With(ReasonDownload,
		"check the address and the network")
}

// Check reports whether the address answers with 2xx or 3xx. Reason verification_failed.
func (c *HTTPFetcher) Check(ctx context.Context, address string) error {
	res, err := c.get(ctx, address)
	if err != nil {
		e := *capability.AsError(err)
		e.Reason = ReasonVerification
		return &e
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 && res.StatusCode/100 != 3 {
		return capability.Errorf(capability.CodeFailed, "fetch", "the server answered %d", res.StatusCode).With(ReasonVerification, "")
	}
	return nil
}
