// Package core makes what junctor itself can do a provider like any other: the
// module "core" with the tools that find others, the state of a session, the
// built-in memory and context engine, and a diff (catalog spec, section 6, row
// Core). What they do is in the packages that do it; here they get their place in
// the catalog.
package core

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
)

// Extension is the catalog-wide id of the module, and its id on the wire.
const Extension = "core"

// Function is one thing that core offers. The contribution's Member is filled in.
type Function struct {
	capability.Contribution
	Do func(ctx context.Context, c capability.Call) (json.RawMessage, error)
}

// Source publishes a fixed list of functions.
type Source struct{ batch capability.Batch }

// New returns the source of the functions. They must not change afterwards.
func New(functions ...Function) *Source {
	b := capability.Batch{Source: Extension}
	m := capability.Module{Extension: Extension, ID: Extension, Name: Extension, Label: Extension, Origin: "core"}
	providers := make(map[capability.ProviderKey]*provider)
	for _, f := range functions {
		c := f.Contribution
		name := c.ID
		if c.Action != "" && c.Action != capability.Action(c.ID) {
			name += "." + string(c.Action)
		}
		c.Member = capability.Member{Module: Extension, Kind: "function", Name: name}
		if c.Availability.State == "" {
			c.Availability.State = capability.StateReady
		}
		m.Contributions = append(m.Contributions, c)
		p := providers[c.Provider]
		if p == nil {
			p = &provider{key: c.Provider, do: make(map[capability.Member]func(context.Context, capability.Call) (json.RawMessage, error))}
			providers[c.Provider] = p
			b.Providers = append(b.Providers, p)
		}
		p.do[c.Member] = f.Do
	}
	b.Modules = []capability.Module{m}
	return &Source{b}
}

// Run publishes the module and waits for the end of ctx.
func (s *Source) Run(ctx context.Context, publish func(capability.Batch) error) error {
	if err := publish(s.batch); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// provider is one provider key of core.
type provider struct {
	key capability.ProviderKey
	do  map[capability.Member]func(context.Context, capability.Call) (json.RawMessage, error)
}

// Key returns the provider key.
func (p *provider) Key() capability.ProviderKey { return p.key }

// Invoke carries out one call.
func (p *provider) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	do := p.do[c.Member]
	if do == nil {
		return capability.Result{}, capability.UnknownCapability(c.Member)
	}
	value, err := do(ctx, c)
	return capability.Result{Value: value}, err
}

// Of makes functions of a host core's own. as gives them their kind, claim on a
// slot and provider key; with an ID they are several actions of one contribution.
func Of(as capability.Contribution, functions ...host.Function) []Function {
	out := make([]Function, 0, len(functions))
	for _, f := range functions {
		c := as
		c.Action, c.Effect, c.Permissions, c.Timeout = f.Action, f.Effect, f.Permissions, f.Timeout
		if c.ID == "" {
			c.ID = f.ID
		}
		if f.Unavailable != "" {
			c.Availability = capability.Availability{State: capability.StateUnconfigured, Reason: f.Unavailable}
		}
		handle := f.Handle
		out = append(out, Function{Contribution: c, Do: func(ctx context.Context, call capability.Call) (json.RawMessage, error) {
			result, err := handle(ctx, call)
			return result.Value, err
		}})
	}
	return out
}
