// Package idp tries the sign-in of people against an OpenID provider that was written by others:
// the library of zitadel, with the storage and the pages of its example.
package idp

import (
	"context"
	"log/slog"
	"net"
	"net/http"
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

	server *http.Server
	mu     sync.Mutex
	users  map[string]*storage.User
	groups map[string][]string // by user id
	client client
}

// client is the registration of the server under test.
type client struct {
	*storage.Client
	redirects []string
}

// GrantTypes adds the device flow to those of the example's web client.
func (c client) GrantTypes() []oidc.GrantType {
	return append(c.Client.GrantTypes(), oidc.GrantTypeDeviceCode)
}

// RedirectURIs returns the registered addresses.
func (c client) RedirectURIs() []string { return c.redirects }

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

// Start starts a provider with one client. Users are ann, bob and cleo, with the password secret.
func Start(clientID, secret, redirect string) (*Provider, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Provider{Issuer: "http://" + listener.Addr().String(), users: make(map[string]*storage.User), groups: make(map[string][]string)}
	for _, name := range []string{"ann", "bob", "cleo"} {
		p.users["id-"+name] = &storage.User{
			ID: "id-" + name, Username: name, Password: "secret", FirstName: name, LastName: "Example",
			Email: name + "@example.org", EmailVerified: name != "bob",
		}
	}
	web := storage.WebClient(clientID, secret, redirect)
	p.client = client{Client: web, redirects: []string{redirect}}
	p.Storage = storage.NewStorageWithClients(people{p}, map[string]*storage.Client{clientID: web})
	p.server = &http.Server{
		Handler:           exampleop.SetupServer(p.Issuer, p, slog.New(slog.DiscardHandler), false),
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

// SetRedirect registers another address for the client.
func (p *Provider) SetRedirect(redirect string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client.redirects = []string{redirect}
}

// GetClientByClientID implements op.Storage.
func (p *Provider) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	if _, err := p.Storage.GetClientByClientID(ctx, id); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.client, nil
}

// SetUserinfoFromToken implements op.Storage. It adds the groups.
func (p *Provider) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	err := p.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin)
	p.mu.Lock()
	defer p.mu.Unlock()
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
