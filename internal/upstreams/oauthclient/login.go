package oauthclient

import (
	"context"
	"crypto/rand"
	"net/url"
	"slices"
	"time"

	"golang.org/x/oauth2"

	"github.com/junctor-run/junctor/capability"
)

// login is one login that was begun and not finished.
type login struct {
	at       *servers
	client   client
	scopes   []string
	verifier string
	redirect string
	until    time.Time
}

// Begin begins a login: the user must visit address and consent. The browser is then sent to
// redirect with a query that must be passed to [Source.Finish] within ten minutes. Errors:
// unavailable, invalid_input, and conflict if consent is not possible.
func (s *Source) Begin(ctx context.Context, redirect string) (address string, err error) {
	if s.cfg.Grant != AuthorizationCode {
		return "", capability.Errorf(capability.CodeConflict, "oauth", "%s gets its tokens without a login", s.cfg.Name).With("no_login", "")
	}
	if err := s.take(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	if err := s.load(false); err != nil {
		return "", err
	}
	if s.last == nil {
		s.probe(ctx)
	}
	at, err := s.discover(ctx, s.last)
	if err == nil {
		err = s.settle(at)
	}
	if err != nil {
		return "", err
	}
	return s.begin(ctx, at, s.scopes(at, s.last), redirect)
}

func (s *Source) begin(ctx context.Context, at *servers, scopes []string, redirect string) (address string, err error) {
	switch {
	case at.AuthorizationEndpoint == "":
		return "", s.refused("the authorization server %.200s names no authorization endpoint", at.Issuer)
	case !slices.Contains(at.CodeChallengeMethodsSupported, "S256"):
		return "", s.refused("the authorization server %.200s does not say that it takes PKCE with S256", at.Issuer)
	}
	c, ok := s.identity(at)
	if !ok {
		if c, err = s.register(ctx, at, redirect); err != nil {
			return "", err
		}
	}
	if slices.Contains(at.ScopesSupported, "offline_access") && len(s.cfg.Scopes) == 0 {
		scopes = union(scopes, []string{"offline_access"}) // for a refresh token
	}
	now := s.cfg.Now()
	oldest := ""
	for state, p := range s.pending {
		if now.After(p.until) {
			delete(s.pending, state)
		} else if oldest == "" || p.until.Before(s.pending[oldest].until) {
			oldest = state
		}
	}
	if len(s.pending) >= maxPending {
		delete(s.pending, oldest)
	}
	p := &login{at: at, client: c, scopes: scopes, verifier: oauth2.GenerateVerifier(), redirect: redirect, until: now.Add(pendingTTL)}
	state := rand.Text()
	s.pending[state] = p
	cfg := oauth2.Config{ClientID: c.ID, Endpoint: oauth2.Endpoint{AuthURL: at.AuthorizationEndpoint}, RedirectURL: redirect, Scopes: scopes}
	return cfg.AuthCodeURL(state, oauth2.S256ChallengeOption(p.verifier), oauth2.SetAuthURLParam("resource", at.audience)), nil
}

// Finish completes a login with the query sent to its redirect address. A login can be
// finished once, even if that fails. Errors: invalid_input (unknown_login), unavailable.
func (s *Source) Finish(ctx context.Context, query url.Values) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := s.load(false); err != nil {
		return err
	}
	return s.finish(ctx, query)
}

func (s *Source) finish(ctx context.Context, query url.Values) error {
	state := query.Get("state")
	p := s.pending[state]
	delete(s.pending, state)
	if p == nil || s.cfg.Now().After(p.until) {
		return capability.Errorf(capability.CodeInvalidInput, "oauth", "this answer belongs to no login to %s that was begun in the last %s",
			s.cfg.Name, pendingTTL).
			With("unknown_login", "begin again: junctor mcp login "+s.cfg.Name)
	}
	iss := query.Get("iss")
	switch {
	case iss == "" && p.at.AuthorizationResponseIssParameterSupported:
		return s.refused("the answer to the login to %s does not say whose it is, and its authorization server says that its answers do",
			s.cfg.Name)
	case iss != "" && iss != p.at.Issuer: // RFC 9207 §2.4 requires a comparison of bytes
		return s.refused("the answer to the login to %s is not from its authorization server %.200s", s.cfg.Name, p.at.Issuer)
	}
	if code := query.Get("error"); code != "" {
		if !slices.Contains(loginErrors, code) {
			code = "an error"
		}
		return s.refused("the login to %s was answered with %s", s.cfg.Name, code)
	}
	code := query.Get("code")
	if code == "" || len(code) > maxSecret {
		return s.refused("the answer to the login to %s has no code", s.cfg.Name)
	}
	err := s.ask(ctx, p.at, p.client, p.scopes, url.Values{
		"grant_type": {AuthorizationCode}, "code": {code}, "redirect_uri": {p.redirect}, "code_verifier": {p.verifier},
	})
	if err == nil {
		s.stepUps, s.quiet = nil, time.Time{}
	}
	return err
}

// visit performs a login with the user at the terminal.
func (s *Source) visit(ctx context.Context, at *servers, scopes []string) error {
	address, err := s.begin(ctx, at, scopes, s.cfg.Redirect)
	if err != nil {
		return err
	}
	query, err := s.cfg.Visit(ctx, address)
	if err != nil {
		return capability.Wrap(capability.CodeUnavailable, "oauth", "the login to "+s.cfg.Name+" was not finished", err).With(ReasonLogin, "")
	}
	stepUps := s.stepUps
	err = s.finish(ctx, query)
	s.stepUps = stepUps
	return err
}

// loginErrors are the errors of a login that are named: those of RFC 6749 §4.1.2.1, RFC 8707 §2 and
// OpenID Connect Core 1.0 §3.1.2.6.
var loginErrors = []string{
	"invalid_request", "unauthorized_client", "access_denied", "unsupported_response_type", "invalid_scope", "server_error",
	"temporarily_unavailable", "invalid_target", "interaction_required", "login_required", "account_selection_required", "consent_required",
}
