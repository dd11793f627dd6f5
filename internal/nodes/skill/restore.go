package skill

import (
	"context"
	"maps"
	"slices"

	"github.com/junctor-run/junctor/capability"
	wire "github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

// Restore binds the stored skills again: each capability as before, with the same checks but
// without asking the owner. A capability that can no longer be bound is noted in its record,
// and its skill is degraded; others are not affected. Call it once, before other methods.
func (h *Host) Restore(ctx context.Context) error {
	unlock, err := h.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := h.cfg.Store.All(ctx)
	if err != nil {
		return capability.Wrap(capability.CodeInternal, "skill", "the installed skills could not be read", err)
	}
	for _, s := range all {
		h.restore(ctx, s)
	}
	return nil
}

func (h *Host) restore(ctx context.Context, s Stored) {
	skill := s.Record.SkillName
	next := &installed{Stored: s, programs: make(map[string]Program)}
	next.Record = s.Record.Clone()
	if s.Record.State != wire.StateDisabled {
		next.Record.State = wire.StateActive
		for _, digest := range slices.Sorted(maps.Keys(s.Payloads)) {
			h.rebind(ctx, next, digest)
		}
		if next.Record.State == wire.StateDegraded {
			h.cfg.Event(ctx, Event{Name: "skill_degraded", Skill: skill, Digest: s.Record.SHA256})
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.skills[skill] = next
}

// rebind binds the capabilities of one payload.
func (h *Host) rebind(ctx context.Context, s *installed, digest string) {
	fail := func(alias string, err error) {
		r := s.Record.Capabilities[alias]
		r.Error = wire.FromError(err, h.cfg.Node, r.FunctionName, false)
		s.Record.Capabilities[alias], s.Record.State = r, wire.StateDegraded
	}
	var aliases []string
	for alias, from := range s.From {
		if r, there := s.Record.Capabilities[alias]; there && from == digest && r.Registered {
			r.Error = nil
			s.Record.Capabilities[alias] = r
			aliases = append(aliases, alias)
		}
	}
	slices.Sort(aliases)
	p, err := payload.Decode(s.Payloads[digest], h.limits.Payload)
	if got, _ := payload.Digest(s.Payloads[digest]); err == nil && got != digest {
		err = wire.Errorf(wire.ReasonDigest, "what was stored is not what was installed")
	}
	var of []*Binding
	for _, alias := range aliases {
		b, err := h.again(s, p, alias, err)
		if err != nil {
			fail(alias, err)
			continue
		}
		of = append(of, b)
	}
	program, err := h.reload(ctx, s, p, of)
	if program != nil {
		s.programs[digest] = program
	}
	for _, b := range of {
		failed := err
		if b.Mode == wire.BoundToAction {
			failed = h.binder.Bind(b)
		} else if failed == nil && b.Handle == nil {
			failed = BadBinding(b.Capability.Alias, b.Code)
		}
		if failed == nil {
			failed = h.cfg.Functions.Register(h.function(s.Record.SkillName, digest, b), false)
		}
		if failed != nil {
			fail(b.Capability.Alias, failed)
		}
	}
}

// again plans one alias as it was bound before.
func (h *Host) again(s *installed, p *payload.Payload, alias string, broken error) (*Binding, error) {
	if broken != nil {
		return nil, broken
	}
	c, there := p.Capability(alias)
	if !there {
		return nil, wire.Errorf(wire.ReasonPayload, "what was stored does not hold %s", alias)
	}
	if c.NeedsConsent() && s.Record.Consent.GrantedAt == "" {
		return nil, wire.Errorf(wire.ReasonConsentRequired, "the device's owner has not agreed to %s", alias)
	}
	if wire.IsReserved(c.FunctionName) {
		return nil, wire.Errorf(wire.ReasonReserved, "%s is a name of this device's own", c.FunctionName)
	}
	b := &Binding{Capability: c, Mode: wire.BoundToAction, Action: c.ActionName()}
	if r := s.Record.Capabilities[alias]; r.BindingMode == wire.BoundToCode {
		if !h.cfg.AllowCode {
			return nil, wire.Errorf(wire.ReasonCodeDisabled, "%s needs code that came with the skill, and this device takes none", alias)
		}
		b.Mode = wire.BoundToCode
		b.Code, _ = c.Code()
	}
	return b, nil
}

// reload loads the code for the capabilities that are bound to code.
func (h *Host) reload(ctx context.Context, s *installed, p *payload.Payload, of []*Binding) (Program, error) {
	if !NeedsCode(of) {
		return nil, nil
	}
	sources, err := p.Sources(h.limits)
	if err == nil {
		err = h.binder.Runnable(sources)
	}
	if err != nil {
		return nil, err
	}
	// One missing export must not affect the others.
	for _, b := range of {
		b.Fallback = b.Mode == wire.BoundToCode
	}
	program, _, err := h.binder.Load(ctx, of, sources, maps.Clone(s.Code))
	for _, b := range of {
		if b.Fallback {
			b.Mode = wire.BoundToCode // load may have made an action of it
		}
	}
	return program, err
}
