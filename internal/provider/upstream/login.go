package upstream

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/audit"
	"github.com/junctor-run/junctor/internal/oauthclient"
	"github.com/junctor-run/junctor/secret"
)

// OAuth says how tokens for an upstream are obtained (MCP spec, section 3.7). All of it
// may be left out: then somebody logs in, at the authorization server that the upstream
// names, as a client that registers itself.
type OAuth struct {
	Grant    string `json:"grant,omitempty"` // authorization_code (default), client_credentials, token_exchange
	ClientID string `json:"client_id,omitempty"`
	// ClientSecret is the name of a secret.
	ClientSecret string `json:"client_secret,omitempty"`
	// SubjectSecret is the name of the secret whose token is exchanged, SubjectType what
	// kind of token that is; see [oauthclient.Config].
	SubjectSecret string `json:"subject_secret,omitempty"`
	SubjectType   string `json:"subject_type,omitempty"`
	// ClientMetadata is the URL of a client-id metadata document, where the server takes
	// one, Issuer the only authorization server that may be used.
	ClientMetadata string   `json:"client_metadata,omitempty"`
	Issuer         string   `json:"issuer,omitempty"`
	Scopes         []string `json:"scopes,omitempty"` // in place of those that the upstream proposes
}

// maxOAuthName keeps the name under which tokens are kept within the store's limit.
const maxOAuthName = 100

func (r *Record) checkOAuth() error {
	o := r.OAuth
	if o.Grant == "" {
		o.Grant = oauthclient.AuthorizationCode
	}
	switch {
	case r.BearerSecret != "":
		return fmt.Errorf("a bearer token and OAuth do not go together")
	case len(r.Name) > maxOAuthName:
		return fmt.Errorf("the name of an upstream with OAuth has %d characters at most", maxOAuthName)
	case o.ClientSecret != "" && !secretGrammar.MatchString(o.ClientSecret):
		return fmt.Errorf("%.40q is no name of a secret", o.ClientSecret)
	case o.SubjectSecret != "" && !secretGrammar.MatchString(o.SubjectSecret):
		return fmt.Errorf("%.40q is no name of a secret", o.SubjectSecret)
	case len(o.ClientID) > maxText || strings.ContainsFunc(o.ClientID, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return fmt.Errorf("the client id is no text of one line")
	}
	if o.Issuer != "" {
		u, err := url.Parse(o.Issuer)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !r.PrivateNetwork) {
			return fmt.Errorf("an issuer is an https address without query and fragment")
		}
	}
	cfg := r.oauth()
	cfg.HTTP = new(http.Client)
	none := func() (secret.Value, error) { return secret.Value{}, nil }
	if o.ClientSecret != "" {
		cfg.ClientSecret = none
	}
	if o.SubjectSecret != "" {
		cfg.Subject = none
	}
	_, err := oauthclient.New(cfg)
	if err != nil {
		return fmt.Errorf("%s", capability.AsError(err).Message)
	}
	return nil
}

// oauth is the record as the client has it, without what it needs from us.
func (r *Record) oauth() oauthclient.Config {
	o := r.OAuth
	return oauthclient.Config{
		Name: r.Name, Resource: r.URL, Plain: r.PrivateNetwork, Grant: o.Grant, ClientID: o.ClientID, Issuer: o.Issuer, Metadata: o.ClientMetadata, Scopes: o.Scopes,
		SubjectType: o.SubjectType, Key: "upstream." + r.Name + ".oauth",
	}
}

// openTokens has the requests of the record carry tokens, where it says so. What gives
// them may be anywhere that the record itself may be.
func (u *upstream) openTokens() error {
	if u.record.OAuth == nil {
		return nil
	}
	transport, err := guarded(&u.record, "")
	if err != nil {
		return err
	}
	transport.DisableKeepAlives = true // it is asked once an hour
	cfg := u.record.oauth()
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

// LoginStep is one of the two steps of a login. The first has Redirect, a loopback
// address where the one who logs in listens; the second has Answer, the query that
// came there.
type LoginStep struct {
	Redirect string `json:"redirect,omitempty"`
	Answer   string `json:"answer,omitempty"`
}

// LoginResult is what a step led to: an address to be visited, or the upstream as it is
// with its new tokens.
type LoginResult struct {
	URL      string  `json:"url,omitempty"`
	Upstream *Status `json:"upstream,omitempty"`
}

// Login goes through one step of a login. The answer comes from who began, over the
// same API, so that the server needs no address that strangers could send one to.
// Errors: not_found, invalid_input (invalid_redirect, unknown_login), conflict
// (no_login), unavailable.
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
		return LoginResult{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.login", "a step of a login has a redirect or an answer").With("invalid_login", "")
	case step.Redirect != "":
		if !loopback(step.Redirect) {
			return LoginResult{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.login", "the answer to a login comes to a loopback address, such as http://127.0.0.1:PORT/callback").
				With("invalid_redirect", "")
		}
		address, err := u.tokens.Begin(ctx, step.Redirect)
		return LoginResult{URL: address}, err
	}
	query, err := url.ParseQuery(strings.TrimPrefix(step.Answer, "?"))
	if err != nil {
		return LoginResult{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.login", "the answer to the login is no query").With("invalid_login", "") // it holds the code
	}
	if err = u.tokens.Finish(ctx, query); err != nil {
		r.record(ctx, audit.UpstreamLoggedIn, &u.record, by, audit.OutcomeFailure, audit.Attr{Key: "cause", Value: capability.AsError(err).Message})
		return LoginResult{}, err
	}
	r.record(ctx, audit.UpstreamLoggedIn, &u.record, by, audit.OutcomeSuccess, audit.Attr{Key: "issuer", Value: u.tokens.State().Issuer})
	status, err := r.Restart(ctx, by, name)
	return LoginResult{Upstream: &status}, err
}

// loopback reports whether an address is one of this machine (RFC 8252, section 7.3).
func loopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil || len(address) > 2<<10 || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Port() == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback() || u.Hostname() == "localhost"
}
