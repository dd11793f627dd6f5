package sources

import (
	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
)

// Core is what the server itself brings, as extension core: the meta tools, the
// session's status, the built-in context engine, and the built-in memory when the
// server keeps one. Both built-in providers are the defaults of their slots
// (selector "builtin"; catalog spec, sections 6 and 11).
func Core(memory bool) (manifest.Extension, []string, error) {
	x := manifest.Extension{ID: "core", Name: "Core", Label: "core", Origin: "bundled", Contributions: []manifest.Contribution{
		{ID: "catalog", Kind: "capability.agent-tool", Title: "Catalog", Actions: []capability.Action{"catalog.call", "catalog.callRead", "catalog.describe", "catalog.search"}},
		{ID: "session", Kind: "capability.agent-tool", Title: "Session", Actions: []capability.Action{"session.status"}},
		{ID: "context-engine", Kind: "capability.context-engine", Title: "Messages as they are", Arbitration: builtin("context-engine")},
	}}
	if memory {
		x.Contributions = append(x.Contributions, manifest.Contribution{
			ID: "memory", Kind: "capability.memory", Title: "Built-in memory", Arbitration: builtin("memory"),
			Actions: []capability.Action{"memory.forget", "memory.get", "memory.search", "memory.store"},
		})
	}
	return finish(x, &report{})
}

func builtin(slot string) *manifest.Arbitration {
	return &manifest.Arbitration{Arbitration: capability.Arbitration{Slot: slot, SelectorID: "builtin"}}
}
