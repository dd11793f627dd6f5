// Package routerserve makes this server an endpoint of the capability-router protocol, which offers
// its own capabilities and re-exports those of its endpoints and nodes. Each wire method becomes an
// invocation on the engine, addressed by module and member, with the bytes of the parameters
// unchanged. The package also serves the connect API, the files of views, and module routes.
package routerserve

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/router"
)

// Config configures the surface; fields without a stated default are required.
type Config struct {
	Door     *httpapi.Door
	Engine   *invoke.Engine
	Catalog  *catalog.Catalog
	Registry Registry
	MaxBody  int64
	// Environment is the environment stated in availability answers; "" is server.
	Environment string
	// WithheldFromRemotes and WithheldFromCallers name headers that routes do not forward, in
	// addition to those that are never forwarded; a name ending in * is a prefix.
	WithheldFromRemotes, WithheldFromCallers []string
	// Public are the routes that may be called without a token. nil: none.
	Public []PublicRoute
	// Within returns the filter of a view of the catalog, by its name: tokens with a view get the
	// modules that this server makes within it. nil: all.
	Within func(view string) func(extension string) bool
	// Saved lists the saved endpoints.
	Saved func(ctx context.Context) ([]SavedEndpoint, error)
	// Decisions returns the last attempts to load modules, oldest first.
	Decisions func() []endpoint.TrustRecord
}

// Surface serves the router wire and the connect API.
type Surface struct {
	Config
	current atomic.Pointer[view]
}

// New returns the surface.
func New(cfg Config) *Surface { return &Surface{Config: cfg} }

// Routes adds the surface's paths to mux.
func (s *Surface) Routes(mux *http.ServeMux) {
	wire := router.Handler(s.backend, router.HandlerOptions{
		MaxBody:         s.MaxBody,
		SkipResultCheck: true, // the codec has checked what endpoints answer, hosts answer for themselves
	})
	mux.Handle("/v1/capabilities", wire)
	mux.Handle("/v1/", wire) // the wire's own envelope for paths it does not have
	s.connectRoutes(mux)
}

// Uncleaned serves requests for assets and module routes itself and passes all others to next. A
// http.ServeMux would redirect paths with empty or dot segments, which must be refused here.
func (s *Surface) Uncleaned(next http.Handler) http.Handler {
	assets, routes, public := s.guardAs(s.asset), s.Door.Guard(s.dispatch), s.withoutToken()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.EscapedPath(); {
		case strings.HasPrefix(path, assetBase):
			assets.ServeHTTP(w, r)
		case strings.HasPrefix(path, routeBase) && s.isPublic(r):
			public.ServeHTTP(w, r)
		case strings.HasPrefix(path, routeBase), strings.HasPrefix(path, appBase):
			routes.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// backend authenticates the request and returns the backend for its caller.
func (s *Surface) backend(r *http.Request) (router.Backend, error) {
	who, err := s.Door.Principal(r)
	if err != nil {
		return nil, err
	}
	return &backend{s, who, r.UserAgent()}, nil
}

type backend struct {
	*Surface
	who    capability.Principal
	client string
}

// Availability states which families this caller can reach now.
func (b *backend) Availability(context.Context) (router.Availability, error) {
	a := router.Availability{Environment: cmp.Or(b.Environment, "server")}
	for _, e := range b.Engine.List(b.who, capability.AudienceInternal) {
		if !e.Contribution.Availability.Eligible() {
			continue
		}
		domain, _, _ := e.Key().Parts()
		switch router.Family(domain) {
		case router.FamilyFS:
			a.Capabilities.FS = true
		case router.FamilyPTY:
			a.Capabilities.PTY = true
		case router.FamilyGit:
			a.Capabilities.Git = true
		case router.FamilyModel:
			a.Capabilities.Model = true
		default:
			a.Capabilities.Plugin = true
		}
		a.Available = true
	}
	if !a.Available {
		a.Reason = "nothing is reachable for this token"
	}
	return a, nil
}

// Invoke turns a wire call into an invocation.
func (b *backend) Invoke(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	m, ok := router.Lookup(method)
	if !ok {
		return nil, capability.UnknownCapability(capability.Target{Action: capability.Action(method)})
	}
	if m.Name == "plugin.modules.list" {
		return b.modules(params)
	}
	p, err := parseParams(params)
	if err != nil {
		return nil, err
	}
	if m.Name == "plugin.action.invoke" {
		if result, ours, err := b.own(ctx, p); ours {
			return result, err
		}
	}
	inv := capability.Invocation{Surface: "router", Client: b.client, Principal: b.who, Audience: capability.AudienceInternal}
	if endpoint := p.text("endpointId"); endpoint != "" && b.view().knows(endpoint) {
		inv.Target.Select = selectorOf(endpoint)
	}
	if m.Family != router.FamilyPlugin {
		inv.Target.Action = capability.Action(m.Name)
		if len(inv.Target.Select) == 0 {
			if inv.Target.Select, err = b.unrouted(inv.Target.Action); err != nil {
				return nil, err
			}
		}
		inv.Input = p.without("endpointId", "traceSessionId")
	} else if err := b.member(&inv, m, p); err != nil {
		return nil, err
	}
	if m.Name == "plugin.lifecycle.call" && b.alreadyLoaded(ctx, inv) {
		return json.RawMessage(`{"ok":true}`), nil
	}
	device := m.Name == "plugin.action.invoke" && b.ofDevice(inv.Target.Member)
	if device { // its functions are listed as actions, but are not actions
		inv.Target.Member.Kind, inv.Input = "function", p.raw("content")
	}
	reply, err := b.Engine.Invoke(ctx, inv)
	if err != nil {
		return nil, err
	}
	if device {
		return actionResult("", reply.Result)
	}
	return reply.Result, nil
}

// alreadyLoaded reports whether an agent's call of a lifecycle hook is about its own load of a module
// that it may use. The module was initialized when its endpoint was connected here, and serves other
// callers as well: an agent that loads or unloads it changes nothing, and needs no approval for that.
func (b *backend) alreadyLoaded(ctx context.Context, inv capability.Invocation) bool {
	if hook := inv.Target.Member.Name; b.who.Role != capability.RoleAgent || hook != "init" && hook != "dispose" {
		return false
	}
	plan := b.Engine.Plan(ctx, inv)
	return plan.Err == nil && plan.Verdict.Permitted
}

// ofDevice reports whether a member that is listed as an action is a function of a node.
func (b *backend) ofDevice(m capability.Member) bool {
	m.Kind = "function"
	return slices.ContainsFunc(b.Catalog.Snapshot().Member(m), func(e *catalog.Entry) bool {
		return strings.HasPrefix(e.Module.Endpoint, "node:")
	})
}

// actionResult converts the result of a call to the form of an action's result.
func actionResult(text string, value json.RawMessage) (json.RawMessage, error) {
	data := jsonx.Raw(value)
	if len(value) == 0 {
		data = jsonx.Raw("null")
	}
	if data.Kind() != '{' {
		wrapped, err := jsonx.Marshal(map[string]any{"value": data})
		if err != nil {
			return nil, err
		}
		data = wrapped
	}
	return jsonx.Marshal(map[string]any{"text": text, "data": data})
}

// primaryRank is the rank of the low-level calls of the configured primary endpoint.
const primaryRank = 100

// unrouted selects the target of a low-level call without an endpointId: the configured
// primary, else this machine. It never selects another endpoint, so that connecting one does
// not redirect calls.
func (b *backend) unrouted(action capability.Action) (capability.Selector, error) {
	var local capability.Selector
	entries := b.Catalog.Snapshot().Action(action)
	for _, e := range entries {
		_, kind, instance := e.Key().Parts()
		switch {
		case kind == "endpoint" && e.Contribution.Rank >= primaryRank:
			return capability.Selector{"provider": string(e.Key())}, nil
		case kind == "node" && instance == "local":
			local = capability.Selector{"node": "local"}
		}
	}
	if local == nil && len(entries) > 0 {
		return nil, capability.Errorf(capability.CodeUnavailable, "route",
			"%s names no endpoint, none is configured as the primary, and this machine does not offer it", action).
			With("no_primary", "give an endpointId, or set router.primary")
	}
	return local, nil
}

// selectorOf converts the wire's endpointId to a selector; "node:<id>" is a node and "local"
// this machine.
func selectorOf(endpoint string) capability.Selector {
	if node, ok := strings.CutPrefix(endpoint, "node:"); ok {
		return capability.Selector{"node": node}
	}
	if endpoint == "local" {
		return capability.Selector{"node": "local"}
	}
	return capability.Selector{"endpoint": endpoint}
}

// member sets the member and the input of inv from the wire parameters, the inverse of
// [offered.Binding].
func (b *backend) member(inv *capability.Invocation, m router.Method, p params) error {
	t := capability.Member{Module: p.text("moduleId"), Kind: m.Surface}
	operation := m.Name[strings.LastIndexByte(m.Name, '.')+1:]
	if m.Target != "" {
		t.Name = p.text(m.Target)
	}
	switch m.Name {
	case "plugin.action.invoke":
		inv.Input = p.action()
	case "plugin.provider.get":
		inv.Input = p.raw("state")
	case "plugin.event.handle":
		inv.Input = p.raw("payload")
	case "plugin.model.invoke":
		inv.Input = p.raw("params")
	case "plugin.appBridge.call":
		inv.Input = p.raw("context")
	case "plugin.lifecycle.call":
		inv.Input = p.without("moduleId", "endpointId", "traceSessionId", "hook")
	case "plugin.service.call":
		t.Name += "." + p.text("method")
		inv.Input = p.without("moduleId", "endpointId", "traceSessionId", "serviceType", "method")
	case "plugin.asset.get":
		t.Name = "asset"
		inv.Input = p.without("moduleId", "endpointId", "traceSessionId")
	case "plugin.route.call":
		t.Name = b.view().route(t.Module, p.text("method"), p.text("path"))
		inv.Input = p.without("moduleId", "endpointId", "traceSessionId", "method")
	default: // the evaluators: one member for each of their phases
		t.Name += "." + operation
		inv.Input = p.without("moduleId", "endpointId", "traceSessionId", m.Target)
	}
	inv.Target.Member = t
	return nil
}
