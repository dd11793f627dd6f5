package server

import (
	"context"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/endpoints/routerserve"
	"github.com/junctor-run/junctor/internal/local"
	"github.com/junctor-run/junctor/internal/local/core"
	"github.com/junctor-run/junctor/internal/local/diff"
	"github.com/junctor-run/junctor/internal/local/memory"
)

// sources are the provider kinds: everything that feeds the catalog. A new kind
// is one line here.
func (s *Server) sources() []capability.Source {
	s.registry.Prepare(s.localModules, configured(s.cfg.Eliza))
	return []capability.Source{
		core.New(s.coreFunctions()...),
		local.New(s.local),
		s.extensions.Source(),
		s.registry,
		s.upstreams.Source(),
		s.devices.source,
	}
}

// configured are the endpoints of the environment.
func configured(eliza config.Eliza) (list []endpoint.Configured) {
	for _, e := range eliza.Endpoints {
		list = append(list, endpoint.Configured(e))
	}
	return list
}

// callInner is the path for a call inside a call: the engine judges it by itself.
func (s *Server) callInner(ctx context.Context, inv capability.Invocation) (capability.Result, error) {
	reply, err := s.engine.Invoke(ctx, inv)
	return capability.Result{Value: reply.Result, UpstreamCall: reply.Invocation}, err
}

// localModules are those of this machine, whose names no endpoint may take.
func (s *Server) localModules() (list []capability.Module) {
	for m := range s.catalog.Snapshot().Modules() {
		if m.Origin == "local" {
			list = append(list, *m)
		}
	}
	return list
}

// endpoints adapts the registry to what the router surface asks for: a surface
// never imports a provider.
type endpoints struct{ *endpoint.Registry }

// Connect reads the trust options, which surfaces pass on as they came.
func (e endpoints) Connect(ctx context.Context, who capability.Principal, in routerserve.ConnectRequest) (out routerserve.Connected, err error) {
	req := endpoint.Request{
		ID: in.ID, BaseURL: in.BaseURL, Provider: in.Provider, Token: in.Token, Timeout: in.Timeout, Persist: in.Persist, KeepMissing: in.KeepMissing, By: who,
	}
	if in.AllowedModuleIDs != nil {
		if req.AllowedModules, err = endpoint.ParseNames("allowedModuleIds", in.AllowedModuleIDs); err != nil {
			return out, err
		}
	}
	if in.TrustPolicy != nil {
		if req.TrustPolicy, out.Warnings, err = endpoint.ParseTrustPolicy(in.TrustPolicy); err != nil {
			return out, err
		}
	}
	var status endpoint.Status
	if c := in.Cloud; c != nil {
		var made endpoint.Provisioned
		status, out.Sync, made, err = e.ConnectCloud(ctx, endpoint.CloudRequest{
			APIBase: c.APIBase, AuthToken: c.AuthToken, Name: c.Name, Bio: c.Bio, Token: in.Token, Timeout: c.Timeout, PollInterval: c.PollInterval,
		}, req)
		out.AgentID, out.JobID = made.AgentID, made.JobID
	} else {
		status, out.Sync, err = e.Registry.Connect(ctx, req)
	}
	out.ID, out.BaseURL, out.HasToken = status.ID, status.BaseURL, status.HasToken
	return out, err
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

// coreFunctions are what junctor itself offers. A new one is one line here.
func (s *Server) coreFunctions() []core.Function {
	workspace := func(_ context.Context, c capability.Call) string { return c.Context.Workspace }
	claim := memory.Claim()
	return slices.Concat(
		core.Catalog(s.engine, s.version),
		core.Of(capability.Contribution{
			ID: "memory", Kind: memory.Kind, Arbitration: &claim, Provider: capability.NewProviderKey("memory", claim.SelectorID, "default"),
		}, memory.Functions(memory.Config{DB: s.shared, Workspace: workspace})...),
		s.agentFunctions(),
		core.Of(capability.Contribution{Kind: "capability.agent-tool", Provider: capability.NewProviderKey("diff", core.Extension, "default")},
			diff.Functions(diff.Config{})...),
	)
}
