package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/local"
	"github.com/junctor-run/junctor/internal/local/core"
	"github.com/junctor-run/junctor/internal/local/diff"
	"github.com/junctor-run/junctor/internal/local/memory"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// wing is the service of one feature.
type wing interface {
	// Run works until ctx ends.
	Run(ctx context.Context) error
	// Close releases what opening the wing acquired.
	Close() error
	// Routes adds the API to mux.
	Routes(mux *http.ServeMux)
	// Checks is the wing's part of the doctor.
	Checks(ctx context.Context) []httpapi.Check
}

// wings are the features. A new one is one line here, and one in open.
func (s *Server) wings() []wing {
	return []wing{s.extensions, s.agents, s.nodes, s.upstreams, s.endpoints, s.chat}
}

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
