// Package idp tries the sign-in of people, and their logins to upstreams, against an OpenID provider
// that was written by others: the library of zitadel, with the storage and the pages of its example.
package idp

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Provider is an OpenID provider that listens on this machine.
type Provider struct {
	*storage.Storage
	Issuer string

	server   *http.Server
	mu       sync.Mutex
	users    map[string]*storage.User
	groups   map[string][]string // by user id
	ended    map[string]int      // sessions ended by a logout, by user id
	denied   map[string]bool     // by user id
	clients  map[string]client   // by client id
	lifetime time.Duration       // of access tokens; if 0, that of the example
	tokens   map[string]issued   // access tokens, by token id
	forms    []Form
}

// Form holds the parameters of one request to the authorization or token endpoint.
type Form struct {
	Path string
	url.Values
}

// issued is an access token that the provider has issued.
type issued struct {
	subject string
	until   time.Time
}

// The clients of upstreams. Native is public and may come back to any port of this machine; Web has
// the secret of the first client, and comes back to an exact address.
const (
	Native = "notes-native"
	Web    = "notes-web"
)

// client is one registration.
type client struct {
	*storage.Client
	redirects []string
	after     []string // addresses for after a logout
}

// GrantTypes adds the device flow to those of the example's web client.
func (c client) GrantTypes() []oidc.GrantType {
	return append(c.Client.GrantTypes(), oidc.GrantTypeDeviceCode)
}

// RedirectURIs returns the registered addresses.
func (c client) RedirectURIs() []string { return c.redirects }

// PostLogoutRedirectURIs returns the registered addresses for after a logout.
func (c client) PostLogoutRedirectURIs() []string { return c.after }

// people is a storage.UserStore.
type people struct{ p *Provider }

func (s people) GetUserByID(id string) *storage.User { return s.p.users[id] }
func (s people) ExampleClientID() string             { return "service" }
func (s people) GetUserByUsername(name string) *storage.User {
	for _, u := range s.p.users {
		if u.Username == name {
			return u
		}
	}
	return nil
}

// Start starts a provider with one client, and those of upstreams. Users are ann, bob and cleo, with the password secret.
func Start(clientID, secret, redirect string) (*Provider, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Provider{
		Issuer: "http://" + listener.Addr().String(), users: make(map[string]*storage.User), groups: make(map[string][]string),
		ended: make(map[string]int), denied: make(map[string]bool), tokens: make(map[string]issued),
	}
	for _, name := range []string{"ann", "bob", "cleo"} {
		p.users["id-"+name] = &storage.User{
			ID: "id-" + name, Username: name, Password: "secret", FirstName: name, LastName: "Example",
			Email: name + "@example.org", EmailVerified: name != "bob",
		}
	}
	const callback = "http://127.0.0.1/callback"
	registered := map[string]*storage.Client{
		clientID: storage.WebClient(clientID, secret, redirect), Native: storage.NativeClient(Native, callback),
		Web: storage.WebClient(Web, secret, callback),
	}
	p.clients = map[string]client{
		clientID: {registered[clientID], []string{redirect}, []string{strings.Replace(redirect, "/oidc", "/signed-out", 1)}},
		Native:   {Client: registered[Native], redirects: []string{callback}},
		Web:      {Client: registered[Web], redirects: []string{callback}},
	}
	p.Storage = storage.NewStorageWithClients(people{p}, registered)
	p.server = &http.Server{
		Handler:           p.record(exampleop.SetupServer(p.Issuer, p, slog.New(slog.DiscardHandler), false)),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = p.server.Serve(listener) }() // returns after Close
	return p, nil
}

// Close ends the provider.
func (p *Provider) Close() error { return p.server.Close() }

// SetGroups sets the groups of a user.
func (p *Provider) SetGroups(name string, groups ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups["id-"+name] = groups
}

// SetRedirect registers another address for a client.
func (p *Provider) SetRedirect(clientID, redirect string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clients[clientID]
	c.redirects = []string{redirect}
	p.clients[clientID] = c
}

// SetSignedOut registers another address of a client for after a logout.
func (p *Provider) SetSignedOut(clientID, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clients[clientID]
	c.after = []string{address}
	p.clients[clientID] = c
}

// SetDenied sets whether the provider refuses to give codes for a user.
func (p *Provider) SetDenied(name string, denied bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied["id-"+name] = denied
}

// SetLifetime sets how long further access tokens can be used.
func (p *Provider) SetLifetime(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lifetime = d
}

// ExpireTokens ends the access tokens of a user now. Refresh tokens stay.
func (p *Provider) ExpireTokens(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, t := range p.tokens {
		if t.subject == "id-"+name {
			t.until = time.Now()
			p.tokens[id] = t
		}
	}
}

// Forms returns the requests to the authorization and token endpoints that one client has sent.
func (p *Provider) Forms(clientID string) (out []Form) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.forms {
		if f.Get("client_id") == clientID {
			out = append(out, f)
		}
	}
	return out
}

// record stores the parameters of requests before next handles them.
func (p *Provider) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains([]string{"/auth", "/oauth/token"}, r.URL.Path) && r.ParseForm() == nil {
			f := Form{r.URL.Path, url.Values{}}
			for name, values := range r.Form {
				f.Values[name] = slices.Clone(values)
			}
			if id, _, ok := r.BasicAuth(); ok {
				f.Set("client_id", id)
			}
			p.mu.Lock()
			p.forms = append(p.forms, f)
			p.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

// Ended returns how many sessions of a user were ended by a logout.
func (p *Provider) Ended(user string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended["id-"+user]
}

// TerminateSession implements op.Storage. It counts.
func (p *Provider) TerminateSession(ctx context.Context, user, clientID string) error {
	p.mu.Lock()
	p.ended[user]++
	p.mu.Unlock()
	return p.Storage.TerminateSession(ctx, user, clientID)
}

// GetClientByClientID implements op.Storage.
func (p *Provider) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	if _, err := p.Storage.GetClientByClientID(ctx, id); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients[id], nil
}

// SaveAuthCode implements op.Storage. It refuses the codes of users who are denied.
func (p *Provider) SaveAuthCode(ctx context.Context, id, code string) error {
	request, err := p.AuthRequestByID(ctx, id)
	if err != nil {
		return err
	}
	p.mu.Lock()
	denied := p.denied[request.GetSubject()]
	p.mu.Unlock()
	if denied {
		return oidc.ErrAccessDenied()
	}
	return p.Storage.SaveAuthCode(ctx, id, code)
}

// CreateAccessToken implements op.Storage. It limits the lifetime.
func (p *Provider) CreateAccessToken(ctx context.Context, request op.TokenRequest) (id string, until time.Time, err error) {
	if id, until, err = p.Storage.CreateAccessToken(ctx, request); err == nil {
		until = p.limit(id, request.GetSubject(), until)
	}
	return id, until, err
}

// CreateAccessAndRefreshTokens implements op.Storage. It limits the lifetime of access tokens.
func (p *Provider) CreateAccessAndRefreshTokens(ctx context.Context, request op.TokenRequest, current string) (
	id, refresh string, until time.Time, err error,
) {
	if id, refresh, until, err = p.Storage.CreateAccessAndRefreshTokens(ctx, request, current); err == nil {
		until = p.limit(id, request.GetSubject(), until)
	}
	return id, refresh, until, err
}

// limit stores an access token that ends at until or earlier, and returns its end.
func (p *Provider) limit(id, subject string, until time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lifetime > 0 {
		until = time.Now().Add(p.lifetime)
	}
	p.tokens[id] = issued{subject, until}
	return until
}

// SetUserinfoFromToken implements op.Storage. It adds the groups.
func (p *Provider) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	err := p.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin)
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.tokens[token]; ok && !time.Now().Before(t.until) {
		return oidc.ErrAccessDenied().WithDescription("the access token has expired")
	}
	if groups := p.groups[subject]; len(groups) > 0 {
		info.AppendClaims("groups", groups)
	}
	return err
}

// CompleteDeviceAuthorization receives the name of the user from the example's page and stores the
// id, as the code flow does.
func (p *Provider) CompleteDeviceAuthorization(ctx context.Context, code, name string) error {
	return p.Storage.CompleteDeviceAuthorization(ctx, code, "id-"+name)
}
