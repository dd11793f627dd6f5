package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// slotClaim is the claim of one contribution on a slot.
type slotClaim struct {
	slot, runtime, extension, selector string
	disabled                           bool // of a dormant module: switched off by the operator
	eligible                           bool
	entries                            []*Entry
}

// claims adds the module's claims on slots to r.slots, or to r.dormant if the module is not
// active. Several entries of one contribution form one claim.
func (r *ruling) claims(m *module) {
	if !m.Active() {
		for i := range m.Contributions {
			c := &m.Contributions[i]
			if a := c.Arbitration; a != nil && a.Slot != "" && a.SelectorID != "" {
				r.dormant = append(r.dormant, slotClaim{
					slot: a.Slot, runtime: m.Extension + "/" + c.ID, extension: m.Extension, selector: a.SelectorID,
					disabled: m.Stage == capability.StageDisabled,
				})
			}
		}
		return
	}
	for _, e := range m.ruled {
		a := e.Contribution.Arbitration
		if a == nil || a.Slot == "" {
			continue
		}
		if a.SelectorID == "" {
			r.bound[a.Slot] = append(r.bound[a.Slot], e.Action)
			continue
		}
		list := r.slots[a.Slot]
		i := slices.IndexFunc(list, func(c slotClaim) bool { return c.runtime == e.Runtime })
		if i < 0 {
			i = len(list)
			list = append(list, slotClaim{slot: a.Slot, runtime: e.Runtime, extension: m.Extension, selector: a.SelectorID})
		}
		list[i].entries = append(list[i].entries, e)
		r.slots[a.Slot] = list
	}
}

// admitClaims sets eligible of every claim: at least one of its entries takes calls and is not
// withheld.
func (r *ruling) admitClaims() {
	for _, claims := range r.slots {
		for i := range claims {
			claims[i].eligible = slices.ContainsFunc(claims[i].entries, func(e *Entry) bool {
				return e.Eligible() && r.withheld[claim{runtime: e.Runtime}] == "" && r.withheld[claim{e.Runtime, e.key}] == ""
			})
		}
	}
}

// SlotChoice is the resolution of a slot for one workspace and agent.
type SlotChoice struct {
	Slot      string     `json:"slot"`
	Requested string     `json:"requested"`
	Source    string     `json:"source"` // configured, slot_default
	Mode      string     `json:"mode"`   // exclusive, parallel
	Available []string   `json:"available"`
	Winner    string     `json:"winner,omitempty"` // runtime id
	Losers    []string   `json:"losers,omitempty"` // runtime ids of other claims
	Err       *SlotError `json:"error,omitempty"`

	winner *slotClaim
}

// SlotError is the reason why a slot lacks a holder. No other provider is used instead,
// whatever its rank. [AsSlotError] finds it in an error's chain.
type SlotError struct {
	Code        string   `json:"code"` // slot_ambiguous, slot_provider_unavailable, slot_provider_disabled, slot_provider_unknown
	Slot        string   `json:"slot"`
	Requested   string   `json:"requested"`
	Source      string   `json:"source"`
	Available   []string `json:"available"`
	Remediation string   `json:"remediation"`
}

func (e *SlotError) Error() string {
	return fmt.Sprintf("slot %s has no provider: %q (%s) is %s", e.Slot, e.Requested, strings.ReplaceAll(e.Source, "_", " "),
		map[string]string{
			"slot_ambiguous": "offered by several contributions", "slot_provider_unavailable": "not available",
			"slot_provider_disabled": "disabled", "slot_provider_unknown": "not known",
		}[e.Code])
}

// Unwrap returns the *capability.Error that surfaces show: unavailable for
// slot_provider_unavailable, else slot_conflict, with the slot's code as reason.
func (e *SlotError) Unwrap() error {
	code := capability.CodeSlotConflict
	if e.Code == "slot_provider_unavailable" {
		code = capability.CodeUnavailable
	}
	return (&capability.Error{Code: code, Op: "catalog.slot", Message: e.Error()}).With(e.Code, e.Remediation).Detail("available", e.Available)
}

// AsSlotError returns the slot error in err's chain, or nil.
func AsSlotError(err error) *SlotError {
	e, _ := errors.AsType[*SlotError](err)
	return e
}

// want returns the provider that the settings select for a slot in a workspace and agent,
// with the source of that choice (configured or slot_default) and the slot's mode.
func (s *Settings) want(slot, workspace, agent string) (selected, source, mode string) {
	set := s.Slots[slot]
	selected, mode = set.Selected, set.Mode
	best := 0
	for _, o := range set.Overrides {
		score := 1
		if o.Workspace != "" {
			if o.Workspace != workspace {
				continue
			}
			score++
		}
		if o.Agent != "" {
			if o.Agent != agent {
				continue
			}
			score += 2
		}
		if score > best {
			best, selected = score, o.Selected
			if o.Mode != "" {
				mode = o.Mode
			}
		}
	}
	mode = cmp.Or(mode, "exclusive")
	if selected = strings.TrimSpace(selected); selected == "" {
		return defaultSelector, "slot_default", mode
	}
	return selected, "configured", mode
}

// resolve returns the holder of a slot for a workspace and agent: the one eligible claim whose
// selector or runtime id is the selected one. Otherwise Err states why the slot has no holder.
func (r *ruling) resolve(settings *Settings, slot, workspace, agent string) SlotChoice {
	choice := SlotChoice{Slot: slot, Available: []string{}}
	choice.Requested, choice.Source, choice.Mode = settings.want(slot, workspace, agent)
	var match []*slotClaim
	claims := r.slots[slot]
	for i := range claims {
		c := &claims[i]
		choice.Available = append(choice.Available, c.selector)
		if c.selector == choice.Requested || c.runtime == choice.Requested {
			match = append(match, c)
		}
	}
	slices.Sort(choice.Available)
	choice.Available = slices.Compact(choice.Available)
	fail := func(code, remediation string) SlotChoice {
		choice.Err = &SlotError{code, slot, choice.Requested, choice.Source, choice.Available, remediation}
		return choice
	}
	switch {
	case len(match) > 1:
		ids := make([]string, 0, len(match))
		for _, c := range match {
			ids = append(ids, c.runtime)
		}
		slices.Sort(ids)
		return fail("slot_ambiguous", fmt.Sprintf("set catalog.slots.%s.selected to one of the runtime ids: %s", slot, strings.Join(ids, ", ")))
	case len(match) == 1 && !match[0].eligible:
		return fail("slot_provider_unavailable", "make "+match[0].runtime+" available, or choose another: "+strings.Join(choice.Available, ", "))
	case len(match) == 1:
		choice.Winner, choice.winner = match[0].runtime, match[0]
		for i := range claims {
			if claims[i].runtime != choice.Winner {
				choice.Losers = append(choice.Losers, claims[i].runtime)
			}
		}
		slices.Sort(choice.Losers)
		return choice
	}
	code, remediation := "slot_provider_unknown", "choose one of: "+strings.Join(choice.Available, ", ")
	if len(choice.Available) == 0 {
		remediation = "enable an extension that provides it"
	}
	for _, d := range r.dormant {
		if d.slot != slot || d.selector != choice.Requested && d.runtime != choice.Requested {
			continue
		}
		if d.disabled {
			return fail("slot_provider_disabled", "enable the extension "+d.extension+", or choose another")
		}
		code, remediation = "slot_provider_unavailable", "activate the extension "+d.extension+", or choose another"
	}
	return fail(code, remediation)
}

// holds reports whether an entry that is bound to the slot may be published. In exclusive
// mode it must belong to the winner; without a winner no entry may be.
func (c *SlotChoice) holds(e *Entry) bool {
	if c.Mode == "parallel" {
		return true
	}
	if c.winner == nil {
		return false
	}
	if e.Runtime == c.winner.runtime {
		return true
	}
	a := e.Contribution.Arbitration
	return a != nil && a.Slot == c.Slot && e.Module.Extension == c.winner.extension &&
		(a.SelectorID == "" || a.SelectorID == c.winner.selector)
}

// SlotOf returns the slot that an entry is bound to: the one it claims, or its family's. It
// is "" for an unbound entry.
func (e *Entry) SlotOf() string {
	if a := e.Contribution.Arbitration; a != nil && a.Slot != "" {
		return a.Slot
	}
	return e.Family.Slot
}

// singletons records a conflict for each exclusive slot that several contributions claim.
func (r *ruling) singletons(settings *Settings) {
	for _, slot := range sortedKeys(r.slots) {
		if len(r.slots[slot]) < 2 {
			continue
		}
		choice := r.resolve(settings, slot, "", "")
		if choice.Mode == "parallel" {
			continue
		}
		c := Conflict{Class: ClassSlot, Key: slot, Resolution: choice.Source, Winner: choice.Winner}
		for _, claim := range r.slots[slot] {
			c.Members = append(c.Members, claim.runtime)
		}
		slices.Sort(c.Members)
		if choice.Err != nil {
			c.Resolution, c.Remediation = "unresolved", choice.Err.Remediation
		}
		r.conflicts = append(r.conflicts, c)
	}
}
