// Package endpoints connects this server to endpoints of the capability-router protocol, and
// serves the protocol itself. Service opens the registry of endpoints, which is a source of
// the catalog, and the HTTP surface with its connect API.
package endpoints

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/endpoints/routerserve"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/protocol/router"
)

// Config configures a Service. All fields are required.
type Config struct {
	Router  config.Router
	Eliza   config.Eliza
	Limits  config.Limits
	Store   *store.DB // shared by gateways
	Secrets *secretstore.Store
	Log     *audit.Log
	Catalog *catalog.Catalog
	Engine  *invoke.Engine
	Door    *httpapi.Door
	Logger  *slog.Logger
	// Within returns the filter of a view of the catalog, by its name.
	Within func(view string) func(extension string) bool
}

// Service holds the connected endpoints of this gateway.
type Service struct {
	cfg      Config
	saved    *endpoint.SQLStore
	registry *endpoint.Registry
	surface  *routerserve.Surface
}

// New creates the registry and the surface. No endpoint is called before the catalog runs
// [Service.Source].
func New(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, saved: endpoint.NewSQLStore(cfg.Store.SQL())}
	s.registry = endpoint.NewRegistry(endpoint.Config{
		Store: s.saved, Secrets: tokens{cfg.Secrets}, Log: cfg.Log, Logger: cfg.Logger,
		MaxAnswer: int64(cfg.Limits.EndpointAnswer), Timeout: cfg.Limits.EndpointTimeout,
		SyncInterval: cfg.Router.SyncInterval, Primary: cfg.Router.Primary, TrustAudit: cfg.Eliza.TrustAudit, Call: s.callInner,
		Local: s.localModules, Configured: configured(cfg.Eliza),
	})
	s.surface = routerserve.New(routerserve.Config{
		Door: cfg.Door, Engine: cfg.Engine, Catalog: cfg.Catalog, Registry: connector{s.registry}, MaxBody: int64(cfg.Limits.RequestBody),
		Environment:         cfg.Eliza.Environment,
		WithheldFromRemotes: cfg.Router.WithheldRequestHeaders, WithheldFromCallers: cfg.Router.WithheldAnswerHeaders,
		Public: publicRoutes(cfg.Router), Saved: s.savedEndpoints, Decisions: s.registry.TrustAudit, Within: cfg.Within,
	})
	return s, nil
}

// Run has nothing to do: endpoints are watched as long as the catalog runs [Service.Source].
func (s *Service) Run(context.Context) error { return nil }

// Close has nothing to release.
func (s *Service) Close() error { return nil }

// Routes adds the wire and the connect API to mux.
func (s *Service) Routes(mux *http.ServeMux) { s.surface.Routes(mux) }

// Uncleaned serves paths that a [http.ServeMux] would clean itself, and passes others to next.
func (s *Service) Uncleaned(next http.Handler) http.Handler { return s.surface.Uncleaned(next) }

// Declarations returns the endpoints as objects that files may declare.
func (s *Service) Declarations() *endpoint.Registry { return s.registry }

// Source returns the source of the catalog.
func (s *Service) Source() capability.Source { return s.registry }

// Running reports whether the source runs.
func (s *Service) Running() bool { return s.registry.Running() }

// Refresh applies the changes that other gateways made to the shared store.
func (s *Service) Refresh(ctx context.Context) error { return s.registry.Refresh(ctx) }

// Restored returns a function that reports whether every saved or configured endpoint has
// been asked once since the start.
func (s *Service) Restored(ctx context.Context) (func() bool, error) {
	saved, err := s.saved.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	return func() bool {
		for _, e := range saved {
			status, err := s.registry.Show(e.ID)
			if err != nil || status.State == capability.StateStarting {
				return false
			}
		}
		// Those of the configuration are in no store.
		return !slices.ContainsFunc(s.registry.List(), func(e endpoint.Status) bool { return e.State == capability.StateStarting })
	}, nil
}

// Missing returns the number of endpoints that were not reached since this server started.
func (s *Service) Missing() (n int) {
	for _, e := range s.registry.List() {
		if e.Synced.IsZero() {
			n++
		}
	}
	return n
}

// Trust returns the trust decision for a module of an endpoint, or nil without one.
func (s *Service) Trust(endpoint, module string) *router.TrustDecision {
	status, err := s.registry.Show(endpoint)
	if err != nil {
		return nil // it has just been disconnected
	}
	for _, d := range status.TrustDecisions {
		if d.ModuleID == module {
			return &d
		}
	}
	return nil
}

// Checks reports the state of every endpoint.
func (s *Service) Checks(context.Context) (checks []httpapi.Check) {
	for _, ep := range s.registry.List() {
		c := httpapi.Check{
			Name: "endpoint " + ep.ID, OK: ep.State == capability.StateReady,
			Detail: fmt.Sprintf("%s at %s, %d modules", ep.State, ep.BaseURL, len(ep.Modules)),
		}
		if !c.OK {
			c.Detail = ep.Reason
			c.Remedy = "start the endpoint, or: junctor disconnect " + ep.ID
			if ep.Managed != nil {
				c.Remedy = "start the endpoint, or change it in " + ep.Managed.File
			}
		}
		checks = append(checks, c)
	}
	return checks
}

// callInner invokes a call inside another call, which the engine authorizes separately.
func (s *Service) callInner(ctx context.Context, inv capability.Invocation) (capability.Result, error) {
	reply, err := s.cfg.Engine.Invoke(ctx, inv)
	return capability.Result{Value: reply.Result, UpstreamCall: reply.Invocation}, err
}

// localModules returns this machine's modules, whose names no endpoint may claim.
func (s *Service) localModules() (list []capability.Module) {
	for m := range s.cfg.Catalog.Snapshot().Modules() {
		if m.Origin == "local" {
			list = append(list, *m)
		}
	}
	return list
}

// configured returns the endpoints of the configuration.
func configured(eliza config.Eliza) (list []endpoint.Configured) {
	for _, e := range eliza.Endpoints {
		list = append(list, endpoint.Configured(e))
	}
	return list
}

// publicRoutes returns the routes that the operator has opened to callers without a token.
func publicRoutes(cfg config.Router) (list []routerserve.PublicRoute) {
	for _, p := range cfg.PublicRoutes {
		list = append(list, routerserve.PublicRoute(p))
	}
	return list
}

// savedEndpoints returns the saved endpoints, for an export.
func (s *Service) savedEndpoints(ctx context.Context) (list []routerserve.SavedEndpoint, err error) {
	saved, err := s.saved.Endpoints(ctx)
	for _, e := range saved {
		list = append(list, routerserve.SavedEndpoint{
			ID: e.ID, BaseURL: e.BaseURL, Provider: e.Provider, TokenSecret: e.TokenName, AllowedModuleIDs: e.AllowedModules,
			TrustPolicy: jsonx.Raw(e.TrustPolicy), RequestTimeoutMS: e.Timeout.Milliseconds(), Damaged: e.Damaged,
		})
	}
	return list, err
}
