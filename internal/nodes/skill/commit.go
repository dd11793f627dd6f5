package skill

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
)

// change is a change to the table with the revision it is for.
type change struct {
	functions.Change
	revision uint64
	warnings []wire.Warning
}

// settle determines, by the current owners of the names, which functions are registered, and
// updates the record.
func (h *Host) settle(w *work) (change, *installed) {
	skill := w.p.SkillName
	owners, revision := h.cfg.Functions.Owners()
	c := change{revision: revision}
	next := w.record(h)
	taken := make(map[string]bool)
	if w.keeps() {
		for alias, r := range w.old.Record.Capabilities {
			next.Record.Capabilities[alias] = r
			taken[r.FunctionName] = taken[r.FunctionName] || r.Registered && r.Error == nil
		}
	}
	for _, b := range w.planned {
		r := b.Record()
		owner := owners[r.FunctionName]
		switch {
		case taken[r.FunctionName]: // another alias of this skill has it
		case owner == "" || owner == functions.OwnedBy(skill) || owner == functions.OrphanOf(skill):
			r.Registered, taken[r.FunctionName] = true, true
			if b.Handle != nil {
				c.Put = append(c.Put, h.function(skill, w.digest, b))
			}
		default:
			r.Conflict = true
			c.warnings = append(c.warnings, wire.Warning{
				Code: "function_name_taken", Alias: b.Capability.Alias, FunctionName: r.FunctionName,
				Message: "the name belongs to " + owner + " and was left to it",
			})
		}
		next.Record.Capabilities[b.Capability.Alias] = r
		next.From[b.Capability.Alias] = w.digest
	}
	for name, owner := range owners {
		if owner == functions.OwnedBy(skill) && !taken[name] {
			c.Remove = append(c.Remove, name)
		}
	}
	for _, r := range next.Record.Capabilities {
		if r.Error != nil {
			next.Record.State = wire.StateDegraded
		}
	}
	next.prune()
	return c, next
}

// record is the skill's record without its capabilities.
func (w *work) record(h *Host) *installed {
	now := wire.Time(h.cfg.Now())
	r := wire.Record{
		Source: cmp.Or(w.Source, DefaultSource), InstalledAt: now, UpdatedAt: now, Capabilities: make(map[string]wire.CapabilityRecord),
		SkillName:    w.p.SkillName,
		SkillVersion: w.p.SkillVersion, SHA256: w.digest, State: wire.StateActive, Consent: w.consent, Revision: 1,
	}
	next := &installed{
		Stored:   Stored{Payloads: map[string]json.RawMessage{w.digest: w.p.Raw}, From: make(map[string]string), Code: maps.Clone(w.code)},
		programs: make(map[string]Program),
	}
	for _, m := range w.p.Modules {
		r.Metadata.RuntimeModules = append(r.Metadata.RuntimeModules, m.ModuleID)
	}
	if old := w.old; old != nil {
		r.InstalledAt, r.Revision = old.Record.InstalledAt, old.Record.Revision+1
		if w.keeps() {
			maps.Copy(next.Payloads, old.Payloads)
			maps.Copy(next.From, old.From)
			maps.Copy(next.programs, old.programs)
			r.Metadata.RuntimeModules = append(r.Metadata.RuntimeModules, old.Record.Metadata.RuntimeModules...)
		}
	}
	r.Metadata.RuntimeModules = wire.Words(r.Metadata.RuntimeModules)
	if w.program != nil {
		next.programs[w.digest] = w.program
	}
	next.Record = r
	return next
}

// prune drops payloads from which no alias comes, except the newest.
func (s *installed) prune() {
	used := map[string]bool{s.Record.SHA256: true}
	for _, digest := range s.From {
		used[digest] = true
	}
	maps.DeleteFunc(s.Payloads, func(digest string, _ json.RawMessage) bool { return !used[digest] })
	maps.DeleteFunc(s.programs, func(digest string, _ Program) bool { return !used[digest] })
	all := make([]string, 0, len(s.Payloads))
	for _, raw := range s.Payloads {
		all = append(all, string(raw))
	}
	maps.DeleteFunc(s.Code, func(digest string, _ []byte) bool {
		return !slices.ContainsFunc(all, func(raw string) bool { return strings.Contains(raw, digest) })
	})
}

// commit first stores the record and then makes the functions callable. If another operation
// has changed the table meanwhile, it repeats both.
func (h *Host) commit(ctx context.Context, w *work) error {
	for range maxCommits {
		c, next := h.settle(w)
		if err := h.cfg.Store.Put(ctx, next.Stored); err != nil {
			return h.takeBack(ctx, w, capability.Wrap(capability.CodeInternal, "skill", "the skill could not be stored", err))
		}
		done, err := h.cfg.Functions.Apply(c.Change, c.revision)
		if done {
			w.warnings = append(w.warnings, c.warnings...)
			h.install(ctx, w, next)
			return nil
		}
		if err != nil {
			return h.takeBack(ctx, w, err)
		}
	}
	return h.takeBack(ctx, w, wire.Errorf(wire.ReasonInstalling, "the functions of this node change too fast"))
}

// takeBack restores the previous record in the store.
func (h *Host) takeBack(ctx context.Context, w *work, cause error) error {
	ctx = context.WithoutCancel(ctx)
	err := error(nil)
	if w.old != nil {
		err = h.cfg.Store.Put(ctx, w.old.Stored)
	} else {
		err = h.cfg.Store.Delete(ctx, w.p.SkillName)
	}
	if err != nil {
		return capability.Wrap(capability.CodeInternal, "skill", "the skill was not installed, and the store could not be put right", err)
	}
	return cause
}

// install puts a skill in its place and releases what it no longer needs.
func (h *Host) install(ctx context.Context, w *work, next *installed) {
	skill := w.p.SkillName
	h.mu.Lock()
	var gone []Program
	if w.old != nil {
		for digest, p := range w.old.programs {
			if next.programs[digest] != p {
				gone = append(gone, p)
			}
		}
	}
	owners, _ := h.cfg.Functions.Owners()
	if !slices.Contains(slices.Collect(maps.Values(owners)), functions.OrphanOf(skill)) {
		gone = append(gone, h.orphans[skill]...)
		delete(h.orphans, skill)
	}
	h.skills[skill] = next
	h.mu.Unlock()
	for _, p := range gone {
		p.Release()
	}
	e := Event{Name: "skill_installed", Skill: skill, Digest: w.digest, Caller: w.Caller, Modules: make(map[string]string)}
	if w.old != nil {
		e.Name = "skill_updated"
	}
	for _, s := range w.sources {
		e.Modules[s.ModuleID] = s.SHA256
	}
	h.cfg.Event(ctx, e)
}

// refresh notifies the gateway once. A failure does not undo the change.
func (h *Host) refresh(ctx context.Context) []wire.Warning {
	if h.cfg.Refresh == nil || h.cfg.NoAutoRefresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, functions.RefreshTimeout)
	defer cancel()
	if err := h.cfg.Refresh(ctx); err != nil {
		return []wire.Warning{{Code: "registration_refresh_failed", Message: "the gateway has not heard of it yet; it is told again"}}
	}
	return nil
}
