// Package oauthclient obtains the access tokens that junctor sends to upstreams. It is an
// OAuth 2.1 client of the authorization server that an upstream names. Package oauth is the
// opposite side, which checks tokens sent to junctor; the two share no tokens, so a caller's
// token is never forwarded.
//
// A Source belongs to one upstream. Its [Source.Transport] sends requests with the current
// token. If the upstream refuses it, the transport discovers the authorization server (RFC
// 9728, RFC 8414, OpenID Connect discovery), renews or requests a token, and sends the
// request once more. If a person must consent, no call waits for that: the request fails
// with the reason login_required, and an operator uses [Source.Begin] and [Source.Finish].
//
// Security properties:
//
//   - A token is sent only to the origin of its upstream, and data of one authorization
//     server never to another: tokens and registered clients are stored with their issuer
//     and dropped when it changes.
//   - An answer of the authorization endpoint is bound to one request by state, PKCE with
//     S256, and iss if present (RFC 9207). Each is used once.
//   - Every metadata document is checked for its issuer or resource and for https
//     addresses. The client in [Config.HTTP] decides which addresses may be dialled.
//   - A server that refuses every token causes two more requests and no loop.
//   - No error and no log line holds a token, a code, a client's secret, or the text of
//     an answer to a request that had one of them.
package oauthclient

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/secret"
)

// The grants.
const (
	AuthorizationCode = "authorization_code"
	ClientCredentials = "client_credentials"
	TokenExchange     = "token_exchange" // RFC 8693
)

// The reasons of errors.
const (
	// ReasonLogin means that a person must consent first.
	ReasonLogin = "login_required"
	// ReasonRefused means that no token can be obtained, or that it does not suffice.
	ReasonRefused = "unauthenticated"

	reasonSilent = "connection_failed"
)

// Store keeps the tokens and registered clients that must survive a restart. Its values are
// secrets. Get fails with not_found for a missing value.
type Store interface {
	Get(name string) (secret.Value, error)
	Set(name string, value secret.Value) error
	Remove(name string) error
}

// Config describes one upstream and the operator's settings for its tokens.
type Config struct {
	Name     string // of the upstream: in errors and logs
	Resource string // its URL
	// HTTP fetches metadata and asks for tokens. It decides where may be dialled; its
	// redirects are not followed, whatever it says.
	HTTP  *http.Client
	Plain bool // metadata and tokens may go over http too

	Grant string // AuthorizationCode, ClientCredentials or TokenExchange
	// ClientID is what the operator was given by the authorization server, ClientSecret
	// what goes with it (nil: a public client). "" leaves Metadata, or registration where
	// the server offers it.
	ClientID     string
	ClientSecret func() (secret.Value, error)
	// Subject is the token that is exchanged, asked for each time, SubjectType what kind of
	// one: access_token (""), id_token, jwt, refresh_token, saml1, saml2.
	Subject     func() (secret.Value, error)
	SubjectType string
	// Issuer is the only authorization server that may see ClientID; "": the one that the
	// upstream names first.
	Issuer string
	// Metadata is the https URL of a client-id metadata document that describes us, for
	// servers that know them.
	Metadata string
	Scopes   []string // asked for in place of what the upstream proposes; nil: that

	// LoginHint is the hint of errors with ReasonLogin; "": that an operator logs in.
	LoginHint string

	Store Store  // nil: nothing survives
	Key   string // the name in Store

	// Visit asks the user to visit the address of an authorization and returns the query
	// that the redirect brought to redirect. If nil, no user is there, see [Source.Begin].
	Visit    func(ctx context.Context, address string) (url.Values, error)
	Redirect string // for Visit

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Source is the tokens of one upstream. It is safe for concurrent use.
type Source struct {
	cfg      Config
	resource *url.URL
	http     *http.Client

	busy chan struct{} // holds one value; who takes it may change what follows
	kept *kept         // nil: not read yet
	last *challenge    // of the upstream; nil: none seen
	// pending are the logins begun, by state.
	pending map[string]*login
	stepUps []time.Time
	// silence is the answer until quiet, after an authorization server was not reached.
	silence error
	quiet   time.Time

	seen chan *kept // holds kept for those who only read it; see current
}

// kept is what is at rest, as JSON. Issuer states whose all of it is.
type kept struct {
	Resource string    `json:"resource"` // the upstream's URL
	Issuer   string    `json:"issuer"`
	Client   client    `json:"client"`
	Access   string    `json:"access,omitempty"`
	Refresh  string    `json:"refresh,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
	Scopes   []string  `json:"scopes,omitempty"` // asked for
}

// New checks cfg without sending requests.
func New(cfg Config) (*Source, error) {
	bad := func(format string, args ...any) (*Source, error) {
		return nil, capability.Errorf(capability.CodeInvalidInput, "oauth", format, args...).With("invalid_oauth", "")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	resource, err := url.Parse(cfg.Resource)
	switch {
	case err != nil || resource.Host == "" || cfg.HTTP == nil:
		return bad("OAuth for %s needs its URL and a client to reach it with", cfg.Name)
	case cfg.Grant != AuthorizationCode && cfg.Grant != ClientCredentials && cfg.Grant != TokenExchange:
		return bad("%.40q is not one of %s, %s, %s", cfg.Grant, AuthorizationCode, ClientCredentials, TokenExchange)
	case cfg.Grant != AuthorizationCode && cfg.ClientID == "":
		return bad("the grant %s needs a client id", cfg.Grant)
	case (cfg.Grant == TokenExchange) != (cfg.Subject != nil):
		return bad("a token to exchange goes with the grant %s, and that with one", TokenExchange)
	case cfg.SubjectType != "" && (cfg.Grant != TokenExchange || !slices.Contains(subjectTypes(), cfg.SubjectType)):
		return bad("a token to exchange is one of %s", strings.Join(subjectTypes(), ", "))
	case cfg.ClientSecret != nil && cfg.ClientID == "":
		return bad("a client secret goes with a client id")
	case cfg.Metadata != "" && (!strings.HasPrefix(cfg.Metadata, "https://") || len(cfg.Metadata) > maxAddress):
		return bad("a client-id metadata document has an https URL of at most %d bytes", maxAddress)
	case !soundScopes(cfg.Scopes):
		return bad("scopes are words of at most %d bytes, %d at most", maxScope, maxScopes)
	}
	s := &Source{
		cfg: cfg, resource: resource, busy: make(chan struct{}, 1), seen: make(chan *kept, 1), pending: make(map[string]*login),
		http: &http.Client{
			Transport: cfg.HTTP.Transport, Jar: nil,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	s.busy <- struct{}{}
	s.seen <- nil
	return s, nil
}

// take waits for the right to change the state; the caller calls leave.
func (s *Source) take(ctx context.Context) error {
	select {
	case <-s.busy:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Source) leave() { s.busy <- struct{}{} }

// set takes over k, for all. The caller has taken busy.
func (s *Source) set(k *kept) {
	s.kept = k
	<-s.seen
	s.seen <- k
}

// peek is what there is, without waiting for who asks an authorization server; nil
// before it was read.
func (s *Source) peek() *kept {
	k := <-s.seen
	s.seen <- k
	return k
}

// load reads what is at rest, once; again reads it another time, for what another process on
// the same store did. The caller has taken busy.
func (s *Source) load(again bool) error {
	if s.kept != nil && !again {
		return nil
	}
	k := new(kept)
	if s.cfg.Store != nil {
		value, err := s.cfg.Store.Get(s.cfg.Key)
		switch {
		case capability.CodeOf(err) == capability.CodeNotFound && err != nil:
		case err != nil:
			return err
		default:
			if err := jsonx.Unmarshal([]byte(value.Reveal()), k); err != nil {
				s.cfg.Logger.Error("stored tokens of upstream unreadable, requesting new ones", "upstream", s.cfg.Name)
				k = new(kept)
			}
		}
	} else if s.kept != nil {
		return nil
	}
	// Another URL, client or server of the same name has no right to these.
	if k.Resource != s.cfg.Resource || s.cfg.ClientID != "" && k.Client.ID != s.cfg.ClientID || s.cfg.Issuer != "" &&
		!sameIssuer(k.Issuer, s.cfg.Issuer) {
		k = new(kept)
	}
	s.set(k)
	return nil
}

// save takes over k and puts it at rest. The caller has taken busy.
func (s *Source) save(k *kept) error {
	k.Resource = s.cfg.Resource
	s.set(k) // it counts even where it cannot be written
	if s.cfg.Store == nil {
		return nil
	}
	doc, err := jsonx.Marshal(k)
	if err == nil {
		err = s.cfg.Store.Set(s.cfg.Key, secret.New(string(doc)))
	}
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "oauth", "the tokens for "+s.cfg.Name+" cannot be kept", err)
	}
	return nil
}

// drop forgets all that is known of an authorization server.
func (s *Source) drop() error {
	s.set(new(kept))
	if s.cfg.Store == nil {
		return nil
	}
	if err := s.cfg.Store.Remove(s.cfg.Key); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
		return err
	}
	return nil
}

// Load reads the stored tokens, so that [Source.State] reports them.
func (s *Source) Load(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.load(false)
}

// Forget drops tokens and registration, at rest too.
func (s *Source) Forget(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.leave()
	clear(s.pending)
	return s.drop()
}

// State is what an operator may see.
type State struct {
	Issuer  string    `json:"issuer,omitempty"` // "" before there are tokens
	Scopes  []string  `json:"scopes,omitempty"`
	Expires time.Time `json:"expires,omitzero"` // of the access token
	Renewed bool      `json:"renewed"`          // it is renewed without a login
}

// State reports what is known at this moment.
func (s *Source) State() State {
	k := s.peek()
	if k == nil || k.Access == "" {
		return State{}
	}
	return State{Issuer: k.Issuer, Scopes: slices.Clone(k.Scopes), Expires: k.Expires, Renewed: k.Refresh != "" ||
		s.cfg.Grant != AuthorizationCode}
}

func (s *Source) refused(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeUnavailable, "oauth", format, args...).With(ReasonRefused,
		"see: junctor mcp show "+s.cfg.Name)
}

func (s *Source) loginRequired() *capability.Error {
	return capability.Errorf(capability.CodeUnavailable, "oauth", "%s needs a login before it can be used", s.cfg.Name).
		With(ReasonLogin, cmp.Or(s.cfg.LoginHint, "an operator runs: junctor mcp login "+s.cfg.Name))
}

// isRefusal reports whether an error is the word of an authorization server, not the lack of one.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*capability.Error](err)
	return ok && e.Reason == ReasonRefused
}

func soundScopes(list []string) bool {
	return len(list) <= maxScopes && !slices.ContainsFunc(list, func(s string) bool {
		// RFC 6749 §3.3
		return s == "" || len(s) > maxScope || strings.ContainsFunc(s,
			func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '\\' })
	})
}

// union is the words of both, each once, in their order.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, w := range b {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}
