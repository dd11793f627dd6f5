package arbitration

import (
	"fmt"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// support is step 4. It drops entries that cannot serve now, and chooses the provider of the
// current adapter or the only one left. Like every step, it reports whether the selection has
// ended, with a choice or an error.
func (c *choosing) support() bool {
	in := len(c.left)
	kept := c.left[:0:0]
	for _, e := range c.left {
		if reason := eligibility(e, c.Request.Awake); reason != "" {
			c.reject(e, 4, reason)
			continue
		}
		kept = append(kept, e)
	}
	dropped := c.left
	c.left = kept
	bySlot := c.slotBacked() && len(c.Request.Selector) == 0
	if len(kept) == 0 && !bySlot {
		c.fail(4, capability.CodeUnavailable, "no_eligible_provider", nil, "%s is not available: %s", c.target(), whyNone(dropped))
		c.Err.Hint, c.Err.Details["candidates"] = remedy(dropped[0]), Keys(dropped)
		return true
	}
	if bySlot {
		c.mark(4, outcome(in, len(kept)), in, len(kept), "")
		return false
	}
	if through := c.f.Context.Through(); through != nil {
		var near []*catalog.Entry
		for _, e := range kept {
			_, kind, instance := e.Key().Parts()
			if kind == segment(through.Kind) && (through.Account == "" || instance == segment(through.Account)) {
				near = append(near, e)
			}
		}
		switch {
		case len(near) == 1:
			return c.choose(near[0], 4, "current_adapter")
		case len(near) > 1:
			for _, e := range kept {
				if !slices.Contains(near, e) {
					c.reject(e, 4, "not_current_adapter")
				}
			}
			c.left = near
		}
	}
	if len(c.left) == 1 {
		return c.choose(c.left[0], 4, "only_supported")
	}
	c.mark(4, outcome(in, len(c.left)), in, len(c.left), "")
	return false
}

// whyNone describes why none of the entries can serve, by the state of the first supported one.
func whyNone(list []*catalog.Entry) string {
	for _, e := range list {
		if !e.Contribution.Unsupported {
			return stateOf(e)
		}
	}
	return "no account that is connected can do it"
}

// forced is step 5. It chooses the provider of the operator's most specific default.
func (c *choosing) forced() bool {
	var best *catalog.ForcedDefault
	score := func(f *catalog.ForcedDefault) int {
		n := len(f.Action)
		if f.Agent != "" || f.Workspace != "" {
			n += 1 << 20
		}
		return n
	}
	list := c.f.Snapshot.Settings().ForcedDefaults
	for i := range list {
		f := &list[i]
		if f.Agent != "" && f.Agent != c.f.Context.Agent || f.Workspace != "" && f.Workspace != c.f.Context.Workspace ||
			!rules.Glob(f.Action, string(c.all[0].Action)) {
			continue
		}
		if best == nil || score(f) > score(best) {
			best = f
		}
	}
	if best == nil {
		c.mark(5, "skipped", len(c.left), len(c.left), "")
		return false
	}
	for _, e := range c.left {
		if e.Key() == best.Provider {
			return c.choose(e, 5, "policy_forced_default")
		}
	}
	if slices.ContainsFunc(c.all, func(e *catalog.Entry) bool { return e.Key() == best.Provider }) {
		c.flag(5, best.Provider, "forced default cannot serve")
	}
	c.mark(5, "passed", len(c.left), len(c.left), string(best.Provider))
	return false
}

// ranked is step 6. It chooses the slot's holder or, without a slot, the entry with the highest
// rank if it is the only one. Without a holder, a call without selector fails.
func (c *choosing) ranked() bool {
	if c.slotBacked() {
		choice := c.f.Snapshot.Slot(c.family.Slot, c.f.Context.Workspace, c.f.Context.Agent)
		for _, e := range c.left {
			if e.Runtime == choice.Winner {
				return c.choose(e, 6, "slot_default")
			}
		}
		if len(c.Request.Selector) == 0 {
			return c.noSlot(choice)
		}
	}
	best, n := 0, 0
	for i, e := range c.left {
		switch rank := c.f.Snapshot.RankOf(e); {
		case i == 0 || rank > best:
			best, n = rank, 1
		case rank == best:
			n++
		}
	}
	kept := make([]*catalog.Entry, 0, n)
	in := len(c.left)
	for _, e := range c.left {
		if c.f.Snapshot.RankOf(e) == best {
			kept = append(kept, e)
		} else {
			c.reject(e, 6, rejectedLowerRank)
		}
	}
	c.left = kept
	if len(kept) == 1 {
		return c.choose(kept[0], 6, "ranked_default")
	}
	c.mark(6, outcome(in, len(kept)), in, len(kept), fmt.Sprintf("rank %d", best))
	return false
}

// noSlot ends the selection with the slot's error, because its holder cannot serve.
func (c *choosing) noSlot(choice catalog.SlotChoice) bool {
	code, reason, hint := capability.CodeUnavailable, "slot_provider_unavailable",
		"name another store with a selector, or choose another default for the slot"
	var cause error
	if choice.Err != nil {
		reason, hint, cause = choice.Err.Code, choice.Err.Remediation, choice.Err
		code = capability.CodeOf(choice.Err)
	}
	c.fail(6, code, reason, c.left, "%s goes to the holder of slot %s, %q, which cannot serve", c.target(), choice.Slot, choice.Requested)
	c.Err.Hint, c.Err.Err = hint, cause
	return true
}

// last is step 7. It chooses the first entry in a fixed order. A planner's call that is not
// read-only and whose family is not ranked fails with selection_required instead.
func (c *choosing) last() bool {
	first := slices.MinFunc(c.left, compare)
	changes := slices.ContainsFunc(c.left, func(e *catalog.Entry) bool { return e.Effect != capability.EffectRead })
	if c.Request.Caller == Planner && c.family.Mode != actions.ModeRanked && changes {
		c.Would = first
		c.fail(7, capability.CodeSelectionRequired, "selection_required", c.left, "several providers could carry out %s and nothing tells which",
			c.target())
		c.Err.Details["would_select"] = string(first.Key())
		return true
	}
	c.flag(7, first.Key(), "nothing but the order of ids decided")
	return c.choose(first, 7, "deterministic_fallback")
}
