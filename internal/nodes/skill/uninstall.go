package skill

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
)

// Uninstall removes a skill and the functions that it registered. With leave they stay callable,
// without an owner until the skill is installed again. A missing skill is not an error.
func (h *Host) Uninstall(ctx context.Context, skill string, leave bool, caller string) (*wire.Uninstalled, error) {
	if skill = strings.TrimSpace(skill); skill == "" {
		return nil, wire.Errorf(wire.ReasonParams, "the name of a skill is needed")
	}
	unlock, err := h.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	old := h.get(skill)
	if old == nil {
		return h.uninstalledAnswer(skill, nil, false), nil
	}
	if err := h.cfg.Store.Delete(ctx, skill); err != nil {
		return nil, capability.Wrap(capability.CodeInternal, "skill", "the skill could not be removed from the store", err)
	}
	h.disown(skill, leave)
	h.mu.Lock()
	delete(h.skills, skill)
	gone := slices.Collect(maps.Values(old.programs))
	if leave {
		h.orphans[skill] = append(h.orphans[skill], gone...)
		gone = nil
	}
	h.mu.Unlock()
	for _, p := range gone {
		p.Release()
	}
	h.cfg.Event(ctx, Event{Name: "skill_uninstalled", Skill: skill, Digest: old.Record.SHA256, Caller: caller})
	return h.uninstalledAnswer(skill, h.refresh(ctx), true), nil
}

// disown removes the functions of a skill from the table, or, with leave, their owner.
func (h *Host) disown(skill string, leave bool) {
	for done := false; !done; { // until no other goroutine changes the table between
		owners, revision := h.cfg.Functions.Owners()
		var c functions.Change
		for name, owner := range owners {
			switch {
			case owner != functions.OwnedBy(skill):
			case leave:
				if c.Own == nil {
					c.Own = make(map[string]string)
				}
				c.Own[name] = functions.OrphanOf(skill)
			default:
				c.Remove = append(c.Remove, name)
			}
		}
		done, _ = h.cfg.Functions.Apply(c, revision) // a change that only takes away has no other error
	}
}
