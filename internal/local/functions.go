package local

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
)

// CoreExtension is the id of the module core, in the catalog and on the wire.
const CoreExtension = "core"

// Function is a function of the module core. Its contribution needs no Member.
type Function struct {
	capability.Contribution
	Do func(ctx context.Context, c capability.Call) (json.RawMessage, error)
	// Preview implements [capability.Previewer] for the function. It may be nil.
	Preview func(ctx context.Context, c capability.Call) (capability.Preview, error)
}

// FunctionSource publishes a fixed list of functions as the module core.
type FunctionSource struct{ batch capability.Batch }

// NewFunctionSource returns the source of the functions. They must not change afterward.
func NewFunctionSource(functions ...Function) *FunctionSource {
	b := capability.Batch{Source: CoreExtension}
	m := capability.Module{Extension: CoreExtension, ID: CoreExtension, Name: CoreExtension, Label: CoreExtension, Origin: "core"}
	providers := make(map[capability.ProviderKey]*functionProvider)
	for _, f := range functions {
		c := f.Contribution
		name := c.ID
		if c.Action != "" && c.Action != capability.Action(c.ID) {
			name += "." + string(c.Action)
		}
		c.Member = capability.Member{Module: CoreExtension, Kind: "function", Name: name}
		c.Availability.State = cmp.Or(c.Availability.State, capability.StateReady)
		m.Contributions = append(m.Contributions, c)
		p := providers[c.Provider]
		if p == nil {
			p = &functionProvider{key: c.Provider, functions: make(map[capability.Member]Function)}
			providers[c.Provider] = p
			b.Providers = append(b.Providers, p)
		}
		p.functions[c.Member] = f
	}
	b.Modules = []capability.Module{m}
	return &FunctionSource{b}
}

// Run publishes the module and waits for the end of ctx.
func (s *FunctionSource) Run(ctx context.Context, publish func(capability.Batch) error) error {
	if err := publish(s.batch); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// functionProvider provides the functions of one provider key of core.
type functionProvider struct {
	key       capability.ProviderKey
	functions map[capability.Member]Function
}

// Key returns the provider key.
func (p *functionProvider) Key() capability.ProviderKey { return p.key }

// Invoke runs the function that the call names.
func (p *functionProvider) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	f, ok := p.functions[c.Member]
	if !ok {
		return capability.Result{}, capability.UnknownCapability(c.Member)
	}
	value, err := f.Do(ctx, c)
	return capability.Result{Value: value}, err
}

// Preview returns the preview of the function that the call names, or an empty one.
func (p *functionProvider) Preview(ctx context.Context, c capability.Call) (capability.Preview, error) {
	if f := p.functions[c.Member]; f.Preview != nil {
		return f.Preview(ctx, c)
	}
	return capability.Preview{}, nil
}

// FunctionsOf converts functions of a host into functions of core. as gives them their
// kind, slot and provider key; if it has an ID, they are actions of one contribution.
func FunctionsOf(as capability.Contribution, functions ...host.Function) []Function {
	out := make([]Function, 0, len(functions))
	for _, f := range functions {
		c := as
		c.Action, c.Effect, c.Permissions, c.Timeout = f.Action, f.Effect, f.Permissions, f.Timeout
		c.ID = cmp.Or(c.ID, f.ID)
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
