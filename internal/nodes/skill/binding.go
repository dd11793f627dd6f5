package skill

// This file decides what each capability of a skill is bound to: an action of this device,
// or code of the skill. It changes nothing; consent and registration follow later.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

// Binding is the binding of one capability.
type Binding struct {
	Capability payload.Capability
	Mode       string // wire.BoundToAction or wire.BoundToCode
	Action     string
	Code       wire.CodeBinding
	Fallback   bool // the action is used if the export does not exist

	// Set by Load and Bind.
	Handle      functions.Handler // nil: not yet
	Streams     bool
	Description string // of the action
	Digest      string // of the module
}

// Runtime runs the code of skills.
type Runtime interface {
	// Languages returns each language with the reason why its code is not run here, or "".
	Languages() map[string]string
	// Load checks the modules, possibly by running them in isolation, and finds the
	// requested exports. A module that cannot be loaded is an error; a missing export is not.
	Load(ctx context.Context, modules []payload.Source, exports []wire.CodeBinding) (Program, error)
}

// Program is loaded code.
type Program interface {
	// Export returns a callable; ok is false if the name is unknown.
	Export(b wire.CodeBinding) (handle functions.Handler, streams, ok bool)
	// Release ends the program: no new calls are accepted, and running calls are stopped after
	// a grace period.
	Release()
}

// Binder resolves bindings with the actions and the runtime of a device.
type Binder struct {
	Functions  *functions.Registry
	Actions    *deviceaction.Set
	Runtime    Runtime // nil: no code is run
	AllowCode  bool    // may code be taken at all
	PreferCode bool    // does it come before this device's actions
	Limits     wire.Limits
	Assets     func(ctx context.Context, a wire.Asset) ([]byte, error) // fetches code by reference; may be nil
}

// decide chooses the binding of one capability as far as possible without loading code. warn
// states why its code cannot be used.
func (d *Binder) decide(p *payload.Payload, c payload.Capability) (b *Binding, warn bool, err error) {
	b = &Binding{Capability: c, Action: c.ActionName()}
	if wire.IsReserved(c.FunctionName) {
		return nil, false, wire.Errorf(wire.ReasonReserved, "%s is a name of this device's own", c.FunctionName)
	}
	if f, ok := d.Functions.Get(c.FunctionName); ok && f.Owner == functions.OwnerHost {
		return nil, false, wire.Errorf(wire.ReasonReserved, "%s is a name of this device's own", c.FunctionName)
	}
	_, local := d.Actions.Get(b.Action)
	code, bound := c.Code()
	valid := code.Export != "" && slices.ContainsFunc(p.Modules,
		func(m payload.Module) bool { return m.ModuleID == code.ModuleID && code.ModuleID != "" })
	wants := d.PreferCode && d.AllowCode && bound
	switch {
	case local && !wants, local && !valid:
		b.Mode = wire.BoundToAction
		return b, wants, nil
	case d.AllowCode && bound && valid:
		b.Mode, b.Code, b.Fallback = wire.BoundToCode, code, local
		return b, false, nil
	case d.AllowCode && bound:
		return nil, false, BadBinding(c.Alias, code)
	case bound:
		return nil, false, wire.Errorf(wire.ReasonCodeDisabled, "%s needs code that came with the skill, and this device takes none", c.Alias)
	}
	return nil, false, wire.Errorf(wire.ReasonUnknownAction, "%s needs the action %.200q, which this device does not have", c.Alias, b.Action)
}

// BadBinding returns the error for a binding to an item that the skill does not have.
func BadBinding(alias string, code wire.CodeBinding) error {
	return wire.Errorf(wire.ReasonBinding, "%s is bound to %.80q of the module %.80q, which the skill does not have", alias, code.Export,
		code.ModuleID)
}

// problems combines errors to one: the first, with all of them in its details.
func problems(all []wire.Warning, first error) error {
	e := *capability.AsError(first)
	if len(all) > 1 {
		e.Details = map[string]any{"problems": all}
	}
	return &e
}

// Plan decides every capability; all problems are collected.
func (d *Binder) Plan(p *payload.Payload, of []payload.Capability) (out []*Binding, warnings []wire.Warning, err error) {
	var bad []wire.Warning
	var first error
	for _, c := range of {
		b, warn, err := d.decide(p, c)
		if err != nil {
			e := capability.AsError(err)
			bad = append(bad, wire.Warning{Code: e.Reason, Alias: c.Alias, FunctionName: c.FunctionName, Message: e.Message})
			first = cmp.Or(first, err)
			continue
		}
		if warn {
			warnings = append(warnings, fellBack(b))
		}
		out = append(out, b)
	}
	if first != nil {
		return nil, nil, problems(bad, first)
	}
	return out, warnings, nil
}

func fellBack(b *Binding) wire.Warning {
	return wire.Warning{
		Code: wire.ReasonBinding, Alias: b.Capability.Alias, FunctionName: b.Capability.FunctionName,
		Message: "its code cannot be bound; the device's own action was taken",
	}
}

// NeedsCode reports whether a capability is to be bound to code.
func NeedsCode(of []*Binding) bool {
	return slices.ContainsFunc(of, func(b *Binding) bool { return b.Mode == wire.BoundToCode })
}

// Load fetches and loads the code that is planned for, and resolves each export. It returns nil if
// the skill has no such binding. code is what came by reference, which is added to kept.
func (d *Binder) Load(ctx context.Context, of []*Binding, sources []payload.Source,
	kept map[string][]byte,
) (Program, []wire.Warning, error) {
	if !NeedsCode(of) {
		return nil, nil, nil
	}
	for i := range sources {
		s := &sources[i]
		if s.Asset == nil {
			continue
		}
		code, there := kept[s.SHA256]
		if !there {
			if d.Assets == nil {
				return nil, nil, wire.Errorf(wire.ReasonPayload, "the code of the module %.80q is in an asset, and this device can fetch none",
					s.ModuleID)
			}
			var err error
			if code, err = d.Assets(ctx, *s.Asset); err != nil {
				return nil, nil, err
			}
		}
		if err := s.Fill(code); err != nil {
			return nil, nil, err
		}
		kept[s.SHA256] = code
	}
	var exports []wire.CodeBinding
	for _, b := range of {
		if b.Mode == wire.BoundToCode {
			exports = append(exports, b.Code)
		}
	}
	program, err := d.Runtime.Load(ctx, sources, exports)
	if err != nil {
		return nil, nil, err
	}
	var bad, warnings []wire.Warning
	var first error
	for _, b := range of {
		if b.Mode != wire.BoundToCode {
			continue
		}
		var ok bool
		if b.Handle, b.Streams, ok = program.Export(b.Code); ok {
			at := slices.IndexFunc(sources, func(s payload.Source) bool { return s.ModuleID == b.Code.ModuleID })
			b.Digest = sources[at].SHA256
			continue
		}
		if b.Fallback {
			b.Mode = wire.BoundToAction
			warnings = append(warnings, fellBack(b))
			continue
		}
		err := BadBinding(b.Capability.Alias, b.Code)
		bad = append(bad, wire.Warning{
			Code: wire.ReasonBinding, Alias: b.Capability.Alias, FunctionName: b.Capability.FunctionName,
			Message: capability.AsError(err).Message,
		})
		first = cmp.Or(first, err)
	}
	if first != nil {
		program.Release()
		return nil, nil, problems(bad, first)
	}
	return program, warnings, nil
}

// Bind sets the handlers of capabilities that are bound to actions.
func (d *Binder) Bind(b *Binding) error {
	if b.Mode != wire.BoundToAction {
		return nil
	}
	a, ok := d.Actions.Get(b.Action)
	if !ok {
		return wire.Errorf(wire.ReasonUnknownAction, "%s needs the action %.200q, which this device does not have", b.Capability.Alias, b.Action)
	}
	b.Handle, b.Streams, b.Description = a.Handle, a.Stream, a.Description
	if a.Timeout > 0 {
		b.Handle = within(a.Timeout, a.Handle)
	}
	return nil
}

// within limits an action to the timeout that its owner declared.
func within(limit time.Duration, handle functions.Handler) functions.Handler {
	return func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		v, err := handle(ctx, c)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, wire.Errorf(wire.ReasonTimeout, "the action took longer than the %s it has", limit)
		}
		return v, err
	}
}

// Function returns the function to register for the binding.
func (b *Binding) Function(skill string) functions.Function {
	c := &b.Capability
	tags := append([]string{"remote-agent", skill}, c.Tags()...)
	if c.Stream {
		tags = append(tags, "stream")
	}
	description := cmp.Or(b.Description, "Installed by remote agent")
	if b.Mode == wire.BoundToCode {
		tags = append(tags, "code-transfer")
		description = "Transferred runtime code from remote agent"
	}
	f := functions.Function{
		Name: c.FunctionName, Description: cmp.Or(c.Description, description), Tags: tags, Stream: b.Streams, Effect: c.Effect,
		Owner: functions.OwnedBy(skill),
		Alias: c.Alias, MediaType: c.MediaType, InputSchema: c.InputSchema, OutputSchema: c.OutputSchema, Digest: b.Digest, Handle: b.Handle,
	}
	if c.Timeout != nil {
		f.Timeout = time.Duration(*c.Timeout * float64(time.Second))
	}
	return f
}

// Record returns the capability's record, before the owner of its name is determined.
func (b *Binding) Record() wire.CapabilityRecord {
	c := &b.Capability
	r := wire.CapabilityRecord{
		FunctionName: c.FunctionName, BindingMode: b.Mode, Stream: c.Stream, MediaType: c.MediaType,
		Metadata: c.Metadata,
	}
	if b.Mode == wire.BoundToCode {
		code := b.Code
		r.CodeBinding = &code
	} else {
		name := b.Action
		r.ActionName = &name
	}
	return r
}
