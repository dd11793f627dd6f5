package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/local"
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
	// Checks returns the wing's findings for the doctor.
	Checks(ctx context.Context) []httpapi.Check
}

// wings returns the services of all features. A new one is one line here, and one in open.
func (s *Server) wings() []wing {
	return []wing{s.extensions, s.agents, s.nodes, s.upstreams, s.endpoints, s.chat, s.setup, s.console}
}

// sources returns the sources of all provider kinds. A new kind is one line here.
func (s *Server) sources() []capability.Source {
	return []capability.Source{
		local.NewFunctionSource(s.coreFunctions()...),
		local.New(s.local),
		s.extensions.Source(),
		s.endpoints.Source(),
		s.upstreams.Source(),
		s.nodes.Source(),
		s.chat.Source(),
	}
}

// ownChannels returns the chat services that can be set up.
func ownChannels() (list []declaration.Channel) {
	for _, k := range chat.ChannelKinds() {
		list = append(list, declaration.Channel{ID: k.Name, Label: k.Label, Blurb: k.Blurb, DocsPath: "docs/channels.md"})
	}
	return list
}

// coreFunctions returns the functions that junctor itself offers. A new one is one line here.
func (s *Server) coreFunctions() []local.Function {
	workspace := func(_ context.Context, c capability.Call) string { return c.Context.Workspace }
	claim := memory.Claim()
	return slices.Concat(
		local.CatalogFunctions(s.engine, s.version),
		local.FunctionsOf(capability.Contribution{
			ID: "memory", Kind: memory.Kind, Arbitration: &claim, Provider: capability.NewProviderKey("memory", claim.SelectorID, "default"),
		}, memory.Functions(memory.Config{DB: s.shared, Workspace: workspace})...),
		s.agentFunctions(),
		local.FunctionsOf(capability.Contribution{
			Kind: "capability.agent-tool", Provider: capability.NewProviderKey("agent", local.CoreExtension, "default"),
		}, s.chat.Functions()...),
		local.FunctionsOf(capability.Contribution{
			Kind: "capability.agent-tool", Provider: capability.NewProviderKey("diff", local.CoreExtension, "default"),
		}, diff.Functions(diff.Config{})...),
	)
}
