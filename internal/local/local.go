// Package local publishes functions of the server itself in the catalog; calls to them do
// not leave the process. [Source] publishes the functions of a host as the module "local".
// [FunctionSource] publishes junctor's own functions as the module "core": the tools that
// search the catalog, the state of a session, the built-in memory and context engine, and
// diffs. [CommandFunctions] runs commands; the other functions are in packages of their own.
package local

import (
	"cmp"
	"context"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
)

const (
	// Extension is the id of the module local, in the catalog and on the wire.
	Extension = "local"
	// rank places local functions below a configured primary endpoint (100) and
	// above other endpoints and nodes (0).
	rank = 50
)

// Source publishes the functions of one host.
type Source struct{ host *host.Host }

// New returns the source of h. The caller registers functions in h; Run publishes every
// change.
func New(h *host.Host) *Source { return &Source{host: h} }

// Run publishes the module at once and after every change until ctx ends. It
// returns ctx's error, or that of publish.
func (s *Source) Run(ctx context.Context, publish func(capability.Batch) error) error {
	for {
		changed := s.host.Changed() // before the functions are read, so that no change is missed
		if err := publish(s.batch()); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// batch returns the module with the current functions and one provider for each domain. The
// module is left out if the host has no functions.
func (s *Source) batch() capability.Batch {
	batch := capability.Batch{Source: Extension}
	module := capability.Module{
		Extension: Extension, ID: Extension, Name: Extension, Label: Extension, Origin: "local",
		Contributions: []capability.Contribution{},
	}
	provided := make(map[capability.ProviderKey]bool)
	for _, f := range s.host.Functions() {
		c := contribution(f)
		module.Contributions = append(module.Contributions, c)
		if !provided[c.Provider] {
			provided[c.Provider] = true
			batch.Providers = append(batch.Providers, &provider{key: c.Provider, host: s.host})
		}
	}
	if len(module.Contributions) > 0 {
		batch.Modules = []capability.Module{module}
	}
	return batch
}

// contribution returns the catalog entry of a function. For a canonical action, the action
// registry supplies the fields that the function leaves empty, and always the schemas,
// because all providers of an action share one planner form.
func contribution(f host.Function) capability.Contribution {
	c := capability.Contribution{
		ID: f.ID, Kind: "capability.agent-tool", Action: f.Action, Tool: f.Tool,
		Title: f.Title, Description: f.Description,
		Member:   capability.Member{Module: Extension, Kind: "function", Name: f.ID},
		Provider: capability.NewProviderKey(domain(f.Action), "node", Extension),
		Rank:     rank, Effect: f.Effect, Permissions: f.Permissions,
		InputSchema: f.InputSchema, OutputSchema: f.OutputSchema, Timeout: f.Timeout,
		Availability: capability.Availability{State: capability.StateReady},
	}
	if f.Unavailable != "" {
		c.Availability = capability.Availability{State: capability.StateUnconfigured, Reason: f.Unavailable}
	}
	row, known := actions.Lookup(f.Action)
	if !known {
		return c
	}
	c.Title = cmp.Or(c.Title, row.Title)
	c.Description = cmp.Or(c.Description, row.Description)
	if c.Effect == "" || !c.Effect.AtLeast(row.Effect) { // a function cannot declare a weaker effect
		c.Effect = row.Effect
	}
	if len(row.InputSchema) > 0 {
		c.InputSchema, c.OutputSchema = row.InputSchema, row.OutputSchema
	}
	return c
}

// domain returns the first segment of the provider key: that of the action registry, else
// the root of an unreviewed action, else "ext" as for every single tool.
func domain(a capability.Action) string {
	if row, known := actions.Lookup(a); known {
		return row.Domain
	}
	if root, _, _ := strings.Cut(string(a), "."); root != "" {
		return root
	}
	return "ext"
}

// provider provides the functions of one domain of the host.
type provider struct {
	key  capability.ProviderKey
	host *host.Host
}

func (p *provider) Key() capability.ProviderKey { return p.key }

func (p *provider) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	return p.host.Invoke(ctx, c)
}
