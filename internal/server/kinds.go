package server

import (
	"context"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/local"
	"github.com/junctor-run/junctor/internal/local/core"
	"github.com/junctor-run/junctor/internal/local/diff"
	"github.com/junctor-run/junctor/internal/local/memory"
)

// sources are the provider kinds: everything that feeds the catalog. A new kind
// is one line here.
func (s *Server) sources() []capability.Source {
	return []capability.Source{
		core.New(s.coreFunctions()...),
		local.New(s.local),
		s.extensions.Source(),
		s.endpoints.Source(),
		s.upstreams.Source(),
		s.nodes.Source(),
	}
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
