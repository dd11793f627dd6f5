package upstream

import (
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
	transport, err := guarded(&u.record, "")
	if err != nil {
		return err
	}
	transport.DisableKeepAlives = true // requests are rare
	cfg := u.record.OAuthConfig()
	cfg.HTTP, cfg.Store, cfg.Now, cfg.Logger = &http.Client{Transport: transport}, u.reg.cfg.Tokens, u.reg.cfg.Now, u.reg.cfg.Logger
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
	if u.tokens, err = oauthclient.New(cfg); err != nil {
		return err
	}
	u.http.Transport = u.tokens.Transport(u.http.Transport)
	return nil
}

// LoginStep is one of the two steps of a login. The first has Redirect, a loopback address
// at which the client listens; the second has Answer, the query that arrived there.
type LoginStep struct {
	Redirect string `json:"redirect,omitempty"`
	Answer   string `json:"answer,omitempty"`
}

// LoginResult is the result of a step: the address to visit, or the status of the upstream
// with its new tokens.
type LoginResult struct {
	URL      string  `json:"url,omitempty"`
	Upstream *Status `json:"upstream,omitempty"`
}

// Login performs one step of a login. The client that began it sends the answer over the
// same API, so that the server needs no public redirect address. Errors: not_found,
// invalid_input (invalid_redirect, unknown_login), conflict (no_login), unavailable.
func (r *Registry) Login(ctx context.Context, by capability.Principal, name string, step LoginStep) (LoginResult, error) {
	u, err := r.get(name)
	if err != nil {
		return LoginResult{}, err
	}
	switch {
	case u.tokens == nil:
		return LoginResult{}, capability.Errorf(capability.CodeConflict, "upstreams.login", "the upstream %s has no login", name).
			With("no_login", "add it with --oauth")
	case (step.Redirect == "") == (step.Answer == ""):
		return LoginResult{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.login",
			"a step of a login has a redirect or an answer").With("invalid_login", "")
	case step.Redirect != "":
		if !loopback(step.Redirect) {
			return LoginResult{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.login",
				"the answer to a login comes to a loopback address, such as http://127.0.0.1:PORT/callback").
				With("invalid_redirect", "")
		}
		address, err := u.tokens.Begin(ctx, step.Redirect)
		return LoginResult{URL: address}, err
	}
	query, err := url.ParseQuery(strings.TrimPrefix(step.Answer, "?"))
	if err != nil {
		// the cause is omitted, because it contains the code
		return LoginResult{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.login",
			"the answer to the login is not a query").With("invalid_login", "")
	}
	if err = u.tokens.Finish(ctx, query); err != nil {
		r.record(ctx, audit.UpstreamLoggedIn, &u.record, by, audit.OutcomeFailure,
			audit.Attr{Key: "cause", Value: capability.AsError(err).Message})
		return LoginResult{}, err
	}
	r.record(ctx, audit.UpstreamLoggedIn, &u.record, by, audit.OutcomeSuccess, audit.Attr{Key: "issuer", Value: u.tokens.State().Issuer})
	status, err := r.Restart(ctx, by, name)
	return LoginResult{Upstream: &status}, err
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
