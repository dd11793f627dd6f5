// Package upstreams publishes the tools, resources and prompts of MCP servers and the
// skills of A2A agents that an operator added. Service opens their registry and its API;
// the registry is a source of the catalog.
package upstreams

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/upstreams/mcpregistry"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/upstreamsql"
	"github.com/junctor-run/junctor/internal/upstreams/upstreamserve"
)

// Config holds the dependencies of a Service. All fields are required.
type Config struct {
	Home     func(...string) string // paths in the home
	Walls    config.Sandbox
	Settings config.Upstreams
	Store    *store.DB // the database that gateways share
	Secrets  *secretstore.Store
	Log      *audit.Log
	Door     *httpapi.Door
	Logger   *slog.Logger
	People   upstream.People
	Key      func(name string) ([]byte, error) // a key of the home
	Bus      *bus.Bus                          // with the event token.revoked
	Publish  func(event string, data any)      // to the live feed; must not block
}

// Service holds the upstreams of this gateway.
type Service struct {
	registry *upstream.Registry
	bus      *bus.Bus
	logger   *slog.Logger
	public   *mcpregistry.Client
	surface  *upstreamserve.Surface
}

// New migrates the tables. Connections start when the catalog runs [Service.Source].
func New(ctx context.Context, cfg Config) (*Service, error) {
	if err := upstreamsql.Tables().Migrate(ctx, cfg.Store); err != nil {
		return nil, err
	}
	key, err := cfg.Key("logins.key")
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "upstreams", "the key of logins to upstreams cannot be read", err)
	}
	registry := upstream.NewRegistry(upstream.Config{
		Store: upstreamsql.New(cfg.Store), Secrets: cfg.Secrets, Tokens: tokens{cfg.Secrets}, LoginKey: key, People: cfg.People,
		Log: cfg.Log, Logger: cfg.Logger, Dial: dial,
		Publish: cfg.Publish,
		Dir:     cfg.Home("upstreams"), Environment: sandbox.Environment(), Walls: sandbox.NewForHome(cfg.Home(), cfg.Walls.ReadOnly, cfg.Walls.Off), Registries: registryVariables(cfg.Settings.Registries), CA: cfg.Settings.Registries.CA, ConnectTimeout: cfg.Settings.ConnectTimeout,
	})
	from := cfg.Settings.Registries
	web, err := registryHTTP(from)
	if err != nil {
		return nil, err
	}
	public := mcpregistry.New(mcpregistry.Config{Base: from.MCP, NPM: from.NPM, PyPI: from.PyPI, HTTP: web, LookPath: exec.LookPath})
	surface := upstreamserve.New(upstreamserve.Config{Door: cfg.Door, Upstreams: registry, Registry: public})
	return &Service{registry, cfg.Bus, cfg.Logger, public, surface}, nil
}

// tokens keeps OAuth tokens in the secret store.
type tokens struct{ *secretstore.Store }

// Names implements upstream.Tokens.
func (t tokens) Names(prefix string) (names []string, err error) {
	all, err := t.List()
	for _, s := range all {
		if strings.HasPrefix(s.Name, prefix) {
			names = append(names, s.Name)
		}
	}
	return names, err
}

// registryHTTP returns the client for registries, with the proxy and the authorities of programs.
func registryHTTP(r config.Registries) (*http.Client, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true}
	if proxy, err := url.Parse(r.Proxy); r.Proxy != "" && err == nil {
		transport.Proxy = http.ProxyURL(proxy)
	}
	if r.CA != "" && r.MCP != "" {
		pem, err := os.ReadFile(r.CA)
		trusted := x509.NewCertPool()
		if err != nil || !trusted.AppendCertsFromPEM(pem) {
			return nil, capability.Wrap(capability.CodeInvalidInput, "upstreams", "upstreams.registries.ca: "+r.CA+" holds no certificates", err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport}, nil
}

// registryVariables returns the variables that package runners read, NAME=VALUE.
func registryVariables(r config.Registries) []string {
	var env []string
	for _, v := range []struct {
		value string
		names []string
	}{
		{r.NPM, []string{"npm_config_registry"}},
		{r.PyPI, []string{"UV_DEFAULT_INDEX", "PIP_INDEX_URL"}},
		{r.Proxy, []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "npm_config_proxy", "npm_config_https_proxy"}},
		{r.CA, []string{"NODE_EXTRA_CA_CERTS", "npm_config_cafile", "PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"}},
	} {
		for _, name := range v.names {
			if v.value != "" {
				env = append(env, name+"="+v.value)
			}
		}
	}
	if r.Proxy != "" {
		env = append(env, "NODE_USE_ENV_PROXY=1") // Node ignores the others without it
	}
	return env
}

// Run removes the logins of principals whose tokens are revoked, until ctx ends. The catalog runs
// [Service.Source].
func (s *Service) Run(ctx context.Context) error {
	for ev, err := range s.bus.Subscribe(ctx, s.bus.Latest()) {
		if err != nil {
			return nil //nolint:nilerr // it ends with ctx or the bus
		}
		if ev.Type != policy.EventTokenRevoked && ev.Type != bus.Resync {
			continue
		}
		if err := s.registry.EndLogins(ctx); err != nil {
			s.logger.Error("logins to upstreams were not compared with the tokens", "err", err)
		}
	}
	return nil
}

// Close does nothing.
func (s *Service) Close() error { return nil }

// Routes adds the API of upstreams to mux.
func (s *Service) Routes(mux *http.ServeMux) { s.surface.Routes(mux) }

// Record is the stored settings of an upstream.
type Record = record.Record

// Records returns the records of all upstreams.
func (s *Service) Records() []Record {
	var out []Record
	for _, status := range s.registry.List() {
		out = append(out, status.Record)
	}
	return out
}

// Add adds an upstream and returns the number of its tools; see [upstream.Registry.Add].
func (s *Service) Add(ctx context.Context, by capability.Principal, r Record) (tools int, err error) {
	status, err := s.registry.Add(ctx, by, r)
	return status.Counts.Tools, err
}

// Confinable returns the error with which Add would refuse to confine the program of an upstream.
func (s *Service) Confinable(r Record) error { return s.registry.Confinable(r) }

// Remove removes an upstream.
func (s *Service) Remove(ctx context.Context, by capability.Principal, name string) error {
	return s.registry.Remove(ctx, by, name)
}

// Declarations returns the upstreams as objects that files may declare.
func (s *Service) Declarations() *upstream.Registry { return s.registry }

// Source returns the source of the catalog.
func (s *Service) Source() capability.Source { return s.registry }

// Running reports whether the source runs.
func (s *Service) Running() bool { return s.registry.Running() }

// Refresh applies the changes that other gateways have stored.
func (s *Service) Refresh(ctx context.Context) error { return s.registry.Refresh(ctx) }

// Subscribe calls updated when a resource of a module changes for a session of the principal, until
// stop is called.
func (s *Service) Subscribe(
	ctx context.Context, who capability.Principal, session, module, uri string, updated func(),
) (stop func(), err error) {
	name := strings.TrimPrefix(module, "mcp.") // modules are named after their upstreams
	return s.registry.Subscribe(ctx, callerOf(who, session), name, uri, updated)
}

// Offering returns the modules that offer a resource to a session of the principal that the
// catalog does not have.
func (s *Service) Offering(ctx context.Context, who capability.Principal, session, uri string) (modules []string) {
	return s.registry.Offering(ctx, callerOf(who, session), uri)
}

func callerOf(who capability.Principal, session string) upstream.Caller {
	return upstream.Caller{Principal: who.ID, Session: session, For: who.OnBehalfOf}
}

// Instructions returns the approved instructions of the MCP server that a module is of, or "".
func (s *Service) Instructions(module string) string {
	return s.registry.Instructions(strings.TrimPrefix(module, "mcp."))
}

// Checks reports upstreams that failed permanently, cannot be reached, or have definitions
// that wait for an approval.
func (s *Service) Checks(ctx context.Context) []httpapi.Check {
	list := s.registry.List()
	checks := s.withdrawn(ctx, list)
	for i := range list {
		u := &list[i]
		if u.Confinement == record.Unconfined && !u.Disabled {
			c := httpapi.Check{
				Name: "confinement of " + u.Name, OK: !u.Undecided, Detail: "unconfined: its program may do all that this server's user may",
			}
			if u.Undecided {
				c.Remedy = "junctor mcp confine " + u.Name + ", with --ro and --rw for the folders that it needs"
			}
			checks = append(checks, c)
		}
		waiting := u.Counts.Held + u.Counts.Quarantined
		c := httpapi.Check{Name: "upstream " + u.Name}
		switch {
		case u.Disabled:
			continue
		case u.Failed:
			c.Detail, c.Remedy = u.Reason, "read junctor mcp logs "+u.Name+"; then: junctor mcp restart "+u.Name
		case u.Limit != "" && u.State != capability.StateReady:
			c.Detail, c.Remedy = "its program went over its "+u.Limit, "read junctor mcp logs "+u.Name
		case u.State == capability.StateUnauthorized && u.OAuth != nil && u.Login == nil:
			c.Detail, c.Remedy = u.Reason, "each principal logs in: junctor mcp login "+u.Name
		case u.State == capability.StateUnauthorized && u.OAuth != nil:
			c.Detail, c.Remedy = u.Reason, "junctor mcp login "+u.Name
		case u.State != capability.StateReady:
			c.Detail, c.Remedy = u.Reason, "read junctor mcp logs "+u.Name+"; it is tried again by itself"
		case waiting > 0:
			c.Detail = fmt.Sprintf("%d changed and %d new definitions wait for an approval", u.Counts.Held, u.Counts.Quarantined)
			c.Remedy = "junctor mcp diff " + u.Name + ", then: junctor mcp approve " + u.Name
		default:
			continue
		}
		checks = append(checks, c)
	}
	if !slices.ContainsFunc(checks, func(c httpapi.Check) bool { return !c.OK }) {
		checks = append(checks, httpapi.Check{Name: "upstreams", OK: true, Detail: fmt.Sprintf("%d, and nothing waits", len(list))})
	}
	return checks
}

// withdrawn reports upstreams whose entry of the MCP registry is deprecated or deleted by now.
func (s *Service) withdrawn(ctx context.Context, list []upstream.Status) (checks []httpapi.Check) {
	ctx, cancel := context.WithTimeout(ctx, registryCheckTimeout)
	defer cancel()
	for i := range list {
		o := list[i].Registry
		if o == nil || !s.public.On() {
			continue
		}
		status, err := s.public.Status(ctx, o.Name, o.Version)
		c := httpapi.Check{Name: "registry entry of " + list[i].Name, OK: err != nil, Remedy: "look at it: junctor mcp search " + o.Name}
		switch {
		case err != nil:
			c.Detail, c.Remedy = "the MCP registry cannot be read: "+capability.AsError(err).Message, ""
		case status == mcpregistry.StatusActive:
			continue
		default:
			c.Detail = fmt.Sprintf("%s %s is %s in the MCP registry", o.Name, o.Version, status)
		}
		checks = append(checks, c)
	}
	return checks
}
