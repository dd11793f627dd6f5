package arbitration

import (
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
)

// session is step 2, the provider that the session is bound to; route is step 3, the provider
// of the conversation.
func (c *choosing) session() bool {
	if len(c.f.Context.Bindings) == 0 {
		c.mark(2, "skipped", len(c.left), len(c.left), "")
		return false
	}
	return c.pin(2, c.f.binding(c.all[0].Action), "session_binding", "binding_unsatisfied", "the session is bound to")
}

func (c *choosing) route() bool {
	return c.pin(3, c.f.RouteKey(c.family), "route_binding", "route_unsatisfied", "the conversation belongs to")
}

// pin evaluates a binding to the provider key. It chooses that provider if it is a candidate
// and can serve. If not, the selection fails if the family's pin is strict; otherwise it
// continues, and a provider that should have served is recorded as a fallback. A selector
// that excludes the provider takes precedence over the binding.
func (c *choosing) pin(step int, key capability.ProviderKey, by, unsatisfied, because string) bool {
	if key == "" {
		c.mark(step, "skipped", len(c.left), len(c.left), "")
		return false
	}
	strict := c.family.Pin == actions.PinStrict
	current := c.family.Address == actions.AddressCurrent
	carryOn := func(flag bool, reason string) bool {
		if flag {
			c.flag(step, key, reason)
		}
		c.mark(step, "passed", len(c.left), len(c.left), string(key)+": "+reason)
		return false
	}
	refuse := func(state string) bool {
		return c.fail(step, capability.CodeUnavailable, unsatisfied, nil, "%s %s, which %s", because, key, state)
	}
	ask := func(state string) bool {
		rest := slices.DeleteFunc(c.eligible(c.left), func(e *catalog.Entry) bool { return e.Key() == key })
		if len(rest) == 0 || current {
			return refuse(state)
		}
		return c.fail(step, capability.CodeSelectionRequired, "selection_required", rest, "%s %s, which %s; say which provider to use", because,
			key, state)
	}
	has := func(list []*catalog.Entry) *catalog.Entry {
		for _, e := range list {
			if e.Key() == key {
				return e
			}
		}
		return nil
	}
	if e := has(c.left); e != nil {
		switch reason := eligibility(e, c.Request.Awake); {
		case reason == "":
			c.choose(e, step, by)
			c.marks[step].evidence = string(key)
			return true
		case !strict:
			return carryOn(true, reason)
		case reason == ReasonUnsupported:
			return ask("cannot do " + c.target())
		default:
			return refuse("is not available: " + stateOf(e))
		}
	}
	if has(c.excluded) != nil {
		return carryOn(false, "the selector says otherwise")
	}
	for _, r := range c.Rejected {
		if r.Step == 0 && r.Entry.Key() == key {
			if strict {
				return refuse("may not be used here (" + r.Reason + ")")
			}
			return carryOn(true, r.Reason)
		}
	}
	if c.f.Snapshot.Knows(key) {
		if strict {
			return ask("does not offer " + c.target())
		}
		return carryOn(false, "it does not offer the action")
	}
	switch {
	case step == 2 && strict:
		return refuse("is not known")
	case step == 2:
		return carryOn(true, "unknown_provider")
	case current:
		return c.fail(step, capability.CodeUnavailable, "no_current_conversation", nil,
			"%s acts on the current conversation, and %s does not have one", c.target(), key)
	}
	return carryOn(false, "no provider of this kind is known")
}
