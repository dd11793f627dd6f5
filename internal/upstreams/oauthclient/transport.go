package oauthclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Transport sends requests by base, which must not follow redirects itself, with the
// token of the upstream. What the upstream refuses for its lack is sent again, twice at
// most, with another one. Requests to other origins go out as they are.
//
// Its errors are [capability.Error]: unavailable, with the reasons login_required,
// unauthenticated, connection_failed.
func (s *Source) Transport(base http.RoundTripper) http.RoundTripper {
	return &transport{s: s, base: base}
}

type transport struct {
	s    *Source
	base http.RoundTripper
}

// CloseIdleConnections lets the client's own reach the transport below.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.s.home(req.URL) {
		return t.base.RoundTrip(req)
	}
	body := req.Body
	defer func() {
		if body != nil {
			body.Close() // also where it was never sent
		}
	}()
	token, err := t.s.token(req.Context())
	if err != nil {
		return nil, err
	}
	for renewals := 0; ; renewals++ {
		out := req.Clone(req.Context())
		if token != "" {
			out.Header.Set("Authorization", "Bearer "+token)
		}
		if renewals > 0 && req.GetBody != nil {
			if out.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
		resp, err := t.base.RoundTrip(out)
		if err != nil {
			return nil, err
		}
		ch := readChallenge(resp.Header)
		more := resp.StatusCode == http.StatusForbidden && ch.code == "insufficient_scope"
		if resp.StatusCode != http.StatusUnauthorized && !more || body != nil && req.GetBody == nil {
			return resp, nil
		}
		_, _ = io.CopyN(io.Discard, resp.Body, 16<<10) // its connection serves on
		resp.Body.Close()
		if renewals == maxRenewals {
			return nil, t.s.refused("%s is not content with any token that is to be had (HTTP %d)", t.s.cfg.Name, resp.StatusCode)
		}
		if token, err = t.s.renew(req.Context(), token, &ch, more); err != nil {
			return nil, err
		}
	}
}

// home reports whether the token may be sent there.
func (s *Source) home(u *url.URL) bool {
	return strings.EqualFold(u.Scheme, s.resource.Scheme) && strings.EqualFold(u.Host, s.resource.Host)
}

// token is the one to be sent; "" if it is missing. One that is about to end is
// renewed first, if that needs no user.
func (s *Source) token(ctx context.Context) (string, error) {
	now := s.cfg.Now()
	if k := s.peek(); k != nil && !k.ends(now) {
		return k.Access, nil
	}
	if err := s.take(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	if err := s.load(false); err != nil {
		return "", err
	}
	k := s.kept
	if !k.ends(now) {
		return k.Access, nil
	}
	if err := s.load(true); err != nil { // another process may have been faster
		return "", err
	}
	if !s.kept.ends(now) {
		return s.kept.Access, nil
	}
	if s.kept.Refresh == "" && s.cfg.Grant == AuthorizationCode {
		return s.kept.Access, nil // the upstream states what it wants
	}
	err := s.obtain(ctx, s.last, false)
	if err != nil && k.Access != "" && now.Before(k.Expires) {
		return k.Access, nil
	}
	return s.kept.Access, err
}

// ends reports whether the token is about to.
func (k *kept) ends(now time.Time) bool {
	return k.Access != "" && !k.Expires.IsZero() && !now.Before(k.Expires.Add(-renewGrace))
}

// renew gets another token than the one that was refused.
func (s *Source) renew(ctx context.Context, used string, ch *challenge, more bool) (string, error) {
	if err := s.take(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	if err := s.load(false); err != nil {
		return "", err
	}
	if s.kept.Access == used {
		if err := s.load(true); err != nil {
			return "", err
		}
	}
	s.last = ch
	if s.kept.Access != "" && s.kept.Access != used {
		return s.kept.Access, nil // another goroutine was faster
	}
	err := s.obtain(ctx, ch, more)
	return s.kept.Access, err
}

// obtain gets a token, or one that may do more. The caller has taken busy.
func (s *Source) obtain(ctx context.Context, ch *challenge, more bool) error {
	if s.cfg.Now().Before(s.quiet) {
		return s.silence // those who waited for the last attempt need none of their own
	}
	err := s.attempt(ctx, ch, more)
	if e, ok := errors.AsType[*capability.Error](err); ok && e.Reason == reasonSilent {
		s.silence, s.quiet = e, s.cfg.Now().Add(quietTimeout)
	}
	return err
}

func (s *Source) attempt(ctx context.Context, ch *challenge, more bool) error {
	at, err := s.discover(ctx, ch)
	if err == nil {
		err = s.settle(at)
	}
	if err != nil {
		return err
	}
	needsLogin := s.cfg.Grant == AuthorizationCode && s.cfg.Visit == nil
	scopes := s.scopes(at, ch)
	switch {
	case more:
		wanted := union(s.kept.Scopes, ch.scopes)
		s.last = &challenge{metadata: ch.metadata, scopes: wanted} // for a login
		switch {
		case len(wanted) == len(s.kept.Scopes) || !soundScopes(wanted) || len(s.cfg.Scopes) > 0:
			return s.refused("%s wants scopes that were asked for and not given, or that may not be asked for", s.cfg.Name)
		case needsLogin:
			return s.loginRequired()
		case !s.stepUp():
			return s.refused("%s wanted more scopes %d times within %s", s.cfg.Name, maxStepUps, stepUpInterval)
		}
		scopes = wanted
	case s.kept.Refresh != "":
		err := s.refresh(ctx, at)
		if err == nil || !isRefusal(err) {
			return err
		}
		s.cfg.Logger.Warn("the tokens of an upstream could not be renewed", "upstream", s.cfg.Name, "err", err)
		scopes = union(s.kept.Scopes, scopes)
		if err := s.save(&kept{Issuer: s.kept.Issuer}); err != nil { // whose client we are is not forgotten
			return err
		}
	}
	switch {
	case needsLogin:
		return s.loginRequired()
	case s.cfg.Grant == AuthorizationCode:
		return s.visit(ctx, at, scopes)
	}
	c, _ := s.identity(at)
	params := url.Values{"grant_type": {ClientCredentials}}
	if s.cfg.Grant == TokenExchange {
		if params, err = s.exchange(); err != nil {
			return err
		}
	}
	return s.ask(ctx, at, c, scopes, params)
}

// settle judges an authorization server that is not the one of before. A client that
// the operator was given belongs to the first: shown to whichever server an upstream
// names, its secret would be any caller's. All else is dropped and requested again.
func (s *Source) settle(at *servers) error {
	switch was := s.kept.Issuer; {
	case was == "" || sameIssuer(was, at.Issuer):
		return nil
	case s.cfg.ClientID != "":
		return s.refused("%s has another authorization server now, %.200s; its client belongs to %.200s", s.cfg.Name, at.Issuer, was)
	default:
		s.cfg.Logger.Warn("an upstream has another authorization server now; what the former one gave is dropped", "upstream", s.cfg.Name, "was",
			was, "is", at.Issuer)
		return s.drop()
	}
}

// probe asks the upstream what it wants, without a token.
func (s *Source) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.Resource, nil)
	if err != nil {
		return
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := s.http.Do(req)
	if err != nil {
		return // the metadata may be there all the same
	}
	defer resp.Body.Close()
	if ch := readChallenge(resp.Header); resp.StatusCode == http.StatusUnauthorized {
		s.last = &ch
	}
}
