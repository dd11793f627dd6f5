package server

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/provider/endpoint"
	"github.com/junctor-run/junctor/internal/provider/local"
	"github.com/junctor-run/junctor/internal/surface/routerserve"
)

// sources are the provider kinds: everything that feeds the catalog. A new kind
// is one line here.
func (s *Server) sources() []capability.Source {
	return []capability.Source{
		local.New(s.local),
		s.registry,
	}
}

// endpoints adapts the registry to what the router surface asks for: a surface
// never imports a provider.
type endpoints struct{ *endpoint.Registry }

func (e endpoints) Connect(ctx context.Context, who capability.Principal, req routerserve.ConnectRequest) (status, synced any, err error) {
	return e.Registry.Connect(ctx, endpoint.Request{
		ID: req.ID, BaseURL: req.BaseURL, Provider: req.Provider, Token: req.Token,
		AllowedModules: req.AllowedModules, Timeout: req.Timeout, Persist: req.Persist, By: who,
	})
}

func (e endpoints) List() any { return e.Registry.List() }

func (e endpoints) Down() []routerserve.EndpointError {
	var down []routerserve.EndpointError
	for _, status := range e.Registry.List() {
		if (capability.Availability{State: status.State}).Eligible() {
			continue
		}
		code := capability.CodeUnavailable
		if status.State == capability.StateUnauthorized {
			code = capability.CodeUnauthenticated
		}
		down = append(down, routerserve.EndpointError{EndpointID: status.ID, Code: code, Message: status.Reason})
	}
	return down
}

func (e endpoints) Show(id string) (any, error) { return e.Registry.Show(id) }

func (e endpoints) Sync(ctx context.Context, who capability.Principal, id string) (any, error) {
	return e.Registry.Sync(ctx, who, id)
}
