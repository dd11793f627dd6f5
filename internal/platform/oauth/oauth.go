// Package oauth verifies access tokens of an authorization server that the operator
// trusts: junctor is an OAuth 2.1 resource server, never an authorization server. A
// token is a JWT. The package checks its issuer, audience, times and algorithm, and its
// signature with the issuer's published keys. Its scopes further restrict the rights that
// the rules give its principal.
//
// Keys are fetched at most once a minute, whatever the number of unknown keys, and again
// every hour, so that withdrawn keys become invalid.
package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/junctor-run/junctor/capability"
)

// ReasonUnavailable is the reason of an error about an issuer that does not answer as it should.
const ReasonUnavailable = "issuer_unavailable"

// Algorithms returns the default signature algorithms of tokens.
func Algorithms() []string { return []string{"RS256", "PS256", "ES256", "EdDSA"} }

// Scope permits a token calls of this effect and all weaker ones.
type Scope struct {
	Name   string
	Effect capability.Effect
}

// Config is the operator's configuration. Issuer and Resource are required.
type Config struct {
	Issuer     string // exactly as in tokens
	Resource   string // the server's address, which must be the tokens' audience
	KeysURL    string // "": from the issuer's metadata
	Algorithms []string
	Scopes     []Scope // if empty, scopes do not restrict a token
	Role       capability.Role
	View       string
	HTTP       *http.Client     // nil: a client with its own bounds
	Now        func() time.Time // nil: time.Now
}

// Server checks tokens. It is safe for concurrent use.
type Server struct {
	cfg    Config
	client *http.Client

	mu      sync.Mutex
	keysURL string
	keys    *oidc.RemoteKeySet
	made    time.Time
	fetched time.Time
	loaded  bool // the keys were fetched
}

// New checks the configuration; it fetches nothing.
func New(cfg Config) (*Server, error) {
	for what, text := range map[string]string{"issuer": cfg.Issuer, "resource": cfg.Resource, "keys_url": cfg.KeysURL} {
		if text == "" && what == "keys_url" {
			continue
		}
		if err := checkURL(what, text); err != nil {
			return nil, fmt.Errorf("oauth.%w", err)
		}
	}
	if len(cfg.Algorithms) == 0 {
		cfg.Algorithms = Algorithms()
	}
	for _, alg := range cfg.Algorithms {
		if !slices.Contains([]string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}, alg) {
			return nil, fmt.Errorf("oauth.algorithms: %q is not a signature with a public key that is known here", alg)
		}
	}
	cfg.Role = cmp.Or(cfg.Role, capability.RoleAgent)
	if cfg.Role == capability.RoleAdmin || !slices.Contains(capability.Roles(), cfg.Role) {
		return nil, fmt.Errorf("oauth.role: %q cannot be given to tokens of others", cfg.Role)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, keysURL: cfg.KeysURL}
	s.client = clientOf(cfg.HTTP)
	s.client.Transport = floor{s, s.client.Transport}
	return s, nil
}

// clientOf returns a client of its own that follows no redirects. Without one to copy it has a timeout.
func clientOf(given *http.Client) *http.Client {
	client := http.Client{Timeout: fetchTimeout}
	if given != nil {
		client = *given
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// floor is an http.RoundTripper that permits one fetch a minute and bounds the response. Further
// fetches fail with errTooSoon.
type floor struct {
	s    *Server
	next http.RoundTripper
}

var errTooSoon = errors.New("the issuer's keys were asked for less than a minute ago")

func (f floor) RoundTrip(r *http.Request) (*http.Response, error) {
	f.s.mu.Lock()
	now := f.s.cfg.Now()
	soon := now.Sub(f.s.fetched) < keysFetchInterval
	if !soon {
		f.s.fetched = now
	}
	f.s.mu.Unlock()
	if soon {
		return nil, errTooSoon
	}
	next := f.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxKeys)
		f.s.mu.Lock()
		f.s.loaded = r.URL.String() == f.s.keysURL && resp.StatusCode == http.StatusOK || f.s.loaded
		f.s.mu.Unlock()
	}
	return resp, err
}

// keySet returns a key set for the issuer's keys, and replaces it once an hour. The keys are
// fetched when the set is first used; the issuer's metadata are fetched here if necessary.
func (s *Server) keySet(ctx context.Context) (*oidc.RemoteKeySet, error) {
	s.mu.Lock()
	keys, where := s.keys, s.keysURL
	fresh := keys != nil && s.cfg.Now().Sub(s.made) < keysTTL
	s.mu.Unlock()
	if fresh {
		return keys, nil
	}
	// The key set outlives the request that created it.
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), s.client)
	if where == "" {
		p, err := oidc.NewProvider(ctx, s.cfg.Issuer)
		if err != nil {
			return nil, err
		}
		var meta struct {
			Keys string `json:"jwks_uri"`
		}
		if err := p.Claims(&meta); err != nil {
			return nil, err
		}
		where = meta.Keys // fetched right after the metadata
	}
	keys = oidc.NewRemoteKeySet(ctx, where)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Once an hour, because otherwise strangers whose tokens name unknown keys could use up
	// the one fetch of this minute and block all logins until the next.
	s.fetched = time.Time{}
	s.keys, s.keysURL, s.made, s.loaded = keys, where, s.cfg.Now(), false
	return keys, nil
}

// Principal returns the principal of a token, whose id contains the token's subject. Errors:
// unauthenticated for any invalid token, without details for the client; unavailable, reason
// issuer_unavailable, if the keys cannot be fetched.
func (s *Server) Principal(ctx context.Context, token string) (capability.Principal, error) {
	refused := func(cause error) (capability.Principal, error) {
		s.mu.Lock()
		loaded := s.loaded
		s.mu.Unlock()
		if !loaded && strings.Contains(cause.Error(), "fetching keys") {
			e := capability.Wrap(capability.CodeUnavailable, "oauth", "the keys of the authorization server cannot be had",
				cause).With(ReasonUnavailable, "try again in a minute")
			e.RetryAfter = keysFetchInterval
			return capability.Principal{}, e
		}
		return capability.Principal{}, capability.Wrap(capability.CodeUnauthenticated, "oauth", "this access token is not valid here", cause).
			With("invalid_token", "get one from "+s.cfg.Issuer+" for the resource "+s.cfg.Resource)
	}
	if len(token) > maxToken {
		return refused(fmt.Errorf("it has %d bytes, %d are the most", len(token), maxToken))
	}
	keys, err := s.keySet(ctx)
	if err != nil {
		return refused(fmt.Errorf("fetching keys: %w", err))
	}
	checked, err := oidc.NewVerifier(s.cfg.Issuer, keys, &oidc.Config{
		ClientID: s.cfg.Resource, SupportedSigningAlgs: s.cfg.Algorithms, Now: s.cfg.Now,
	}).Verify(ctx, token)
	if err != nil {
		return refused(err)
	}
	var claims struct {
		NotBefore float64 `json:"nbf"`
		Scope     string  `json:"scope"`
		Scopes    any     `json:"scp"` // used by some servers
	}
	if err := checked.Claims(&claims); err != nil {
		return refused(err)
	}
	if claims.NotBefore > float64(s.cfg.Now().Add(ClockSkewGrace).Unix()) {
		return refused(errors.New("it is not valid yet"))
	}
	if checked.Subject == "" || len(checked.Subject) > maxSubject ||
		strings.ContainsFunc(checked.Subject, func(r rune) bool { return r == ' ' || r == 0xFFFD || !unicode.IsPrint(r) }) {
		return refused(errors.New("its subject has characters that a principal may not have"))
	}
	// Names of the server's own tokens never have a slash, so the two cannot be confused.
	who := capability.Principal{ID: string(s.cfg.Role) + ":oidc/" + checked.Subject, Role: s.cfg.Role, View: s.cfg.View}
	if len(s.cfg.Scopes) > 0 {
		who.Scoped, who.Most = true, s.most(append(strings.Fields(claims.Scope), list(claims.Scopes)...))
	}
	return who, nil
}

func list(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return strings.Fields(v)
	case []any:
		for _, one := range v {
			if s, ok := one.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// most returns the strongest effect that the scopes permit, or "".
func (s *Server) most(has []string) (most capability.Effect) {
	for _, scope := range s.cfg.Scopes {
		if slices.Contains(has, scope.Name) && (most == "" || scope.Effect.AtLeast(most)) {
			most = scope.Effect
		}
	}
	return most
}

// ScopesFor returns the name of the weakest scope that permits the effect, or an empty list.
func (s *Server) ScopesFor(effect capability.Effect) []string {
	var least capability.Effect
	for _, scope := range s.cfg.Scopes {
		if scope.Effect.AtLeast(effect) && (least == "" || least.AtLeast(scope.Effect)) {
			least = scope.Effect
		}
	}
	var out []string
	for _, scope := range s.cfg.Scopes {
		if scope.Effect == least && least != "" {
			out = append(out, scope.Name)
			break
		}
	}
	return out
}

// Metadata returns the protected resource metadata of RFC 9728, which name the authorization
// server.
func (s *Server) Metadata() map[string]any {
	names := []string{}
	for _, scope := range s.cfg.Scopes {
		names = append(names, scope.Name)
	}
	return map[string]any{
		"resource": s.cfg.Resource, "authorization_servers": []string{s.cfg.Issuer}, "scopes_supported": names,
		"bearer_methods_supported": []string{"header"}, "resource_name": "junctor",
	}
}
