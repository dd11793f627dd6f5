package upstream

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/secret"
)

// openTokens adds OAuth tokens to the requests of a record with OAuth. The authorization
// server may be at any address at which the record's own URL could be.
func (u *upstream) openTokens() error {
	if u.record.OAuth == nil {
		return nil
	}
	cfg, err := u.tokensConfig()
	if err != nil {
		return err
	}
	if u.record.EachLogsIn() {
		u.logins = &logins{u: u, of: make(map[string]*login)}
		cfg.LoginHint = "each principal logs in: junctor mcp login " + u.record.Name
	} else if u.reg.cfg.Tokens != nil {
		cfg.Store = u.reg.cfg.Tokens
	}
	if u.tokens, err = oauthclient.New(cfg); err != nil {
		return err
	}
	client := *u.http
	client.Transport = u.tokens.Transport(u.http.Transport)
	if u.anonymous = &client; u.logins == nil {
		u.http = &client
	}
	return nil
}

// tokensConfig returns the configuration of the tokens of a record with OAuth, without a store.
func (u *upstream) tokensConfig() (oauthclient.Config, error) {
	transport, err := guarded(&u.record, "")
	if err != nil {
		return oauthclient.Config{}, err
	}
	transport.DisableKeepAlives = true // requests are rare
	cfg := u.record.OAuthConfig()
	cfg.HTTP, cfg.Now, cfg.Logger = &http.Client{Transport: transport}, u.reg.cfg.Now, u.reg.cfg.Logger
	named := func(name string) func() (secret.Value, error) {
		if name == "" {
			return nil
		}
		return func() (secret.Value, error) {
			value, err := u.secret("", name)
			return secret.New(value), err
		}
	}
	cfg.ClientSecret, cfg.Subject = named(u.record.OAuth.ClientSecret), named(u.record.OAuth.SubjectSecret)
	return cfg, nil
}

// LoginStep is one of the two steps of a login. The first has Redirect, a loopback address
// at which the client listens; the second has Answer, the query that arrived there.
type LoginStep struct {
	Redirect string `json:"redirect,omitempty"`
	Answer   string `json:"answer,omitempty"`
	// For is the principal of a program for which an operator logs in, if each principal logs in;
	// "": the caller.
	For string `json:"for,omitempty"`
}

// LoginResult is the result of a step: the address to visit, or the status of the upstream
// with its new tokens. If each principal logs in, it is the principal instead of the status.
type LoginResult struct {
	URL       string  `json:"url,omitempty"`
	Upstream  *Status `json:"upstream,omitempty"`
	Principal string  `json:"principal,omitempty"`
}

// Login performs one step of a login. The client that began it sends the answer over the
// same API, so that the server needs no public redirect address. Errors: not_found,
// invalid_input (invalid_redirect, unknown_login), conflict (no_login), denied, unavailable.
func (r *Registry) Login(ctx context.Context, by capability.Principal, name string, step LoginStep) (LoginResult, error) {
	u, principal, err := r.loginOf(by, name, step.For)
	if err != nil {
		return LoginResult{}, err
	}
	tokens := u.tokens
	var own *login
	if u.logins != nil {
		if own, err = u.logins.open(principal); err != nil {
			return LoginResult{}, err
		}
		tokens = own.tokens
	}
	switch {
	case (step.Redirect == "") == (step.Answer == ""):
		return LoginResult{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.login",
			"a step of a login has a redirect or an answer").With("invalid_login", "")
	case step.Redirect != "":
		if !loopback(step.Redirect) {
			return LoginResult{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.login",
				"the answer to a login comes to a loopback address, such as http://127.0.0.1:PORT/callback").
				With("invalid_redirect", "")
		}
		address, err := tokens.Begin(ctx, step.Redirect)
		return LoginResult{URL: address}, err
	}
	query, err := url.ParseQuery(strings.TrimPrefix(step.Answer, "?"))
	if err != nil {
		// the cause is omitted, because it contains the code
		return LoginResult{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.login",
			"the answer to the login is not a query").With("invalid_login", "")
	}
	whose := audit.Attr{Key: "login", Value: cmp.Or(principal, "shared")}
	if err = tokens.Finish(ctx, query); err != nil {
		r.record(ctx, audit.UpstreamLoggedIn, &u.record, by, audit.OutcomeFailure, whose,
			audit.Attr{Key: "cause", Value: capability.AsError(err).Message})
		return LoginResult{}, err
	}
	r.record(ctx, audit.UpstreamLoggedIn, &u.record, by, audit.OutcomeSuccess, whose, audit.Attr{Key: "issuer", Value: tokens.State().Issuer})
	if own != nil {
		return LoginResult{Principal: principal}, u.loggedIn(ctx, by, own)
	}
	status, err := r.Restart(ctx, by, name)
	return LoginResult{Upstream: &status}, err
}

// loggedIn makes the new tokens of a login used: by connections of its principal, and for the lists of
// an upstream that could not be listed before.
func (u *upstream) loggedIn(ctx context.Context, by capability.Principal, l *login) error {
	l.note(nil)
	u.closeOf(l.principal) // sessions of MCP belong to the former authorization
	if err := u.reg.EndLogins(ctx); err != nil {
		return err
	}
	u.mu.Lock()
	listed := u.current != nil && u.current.login != nil
	u.mu.Unlock()
	if listed || u.record.Disabled {
		return nil
	}
	_, err := u.reg.Restart(ctx, by, u.record.Name)
	return err
}

// loopback reports whether an address is a loopback redirect (RFC 8252).
func loopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil || len(address) > 2<<10 || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Port() == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback() || u.Hostname() == "localhost"
}
