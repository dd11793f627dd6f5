package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// Selection is the choice among the providers of one target, with the reason.
type Selection struct {
	Entry *Entry
	// Step and DecidedBy say which rule chose: 1 explicit_selector (also a target
	// that names one entry), 4 only_supported, 6 ranked_default, 7
	// deterministic_fallback.
	Step      int
	DecidedBy string
	// Fallback says that nothing but the order of ids decided.
	Fallback bool
	// Rest are the other eligible entries in order of preference.
	Rest []*Entry
	// Rejected lists every candidate not chosen, with why.
	Rejected []Rejection
}

// Rejection is why an entry was not chosen.
type Rejection struct {
	Capability capability.ID          `json:"capabilityId"`
	Provider   capability.ProviderKey `json:"providerKey"`
	Step       int                    `json:"step"`
	Reason     string                 `json:"reason"`
}

// selectorFields are the names a selector may use (catalog spec, section 4.8).
func selectorFields() []string {
	return []string{"provider", "channel", "kind", "store", "account", "instance", "endpoint", "node", "extension", "conversation"}
}

// Select chooses one of the candidates: explicit selector, then rank, then the
// deterministic order of ids. Candidates must already be visible and permitted;
// it never falls back to a provider the selector excludes. wake reports whether
// an entry that is not eligible may be tried all the same (its provider can be
// asked); it may be nil.
func Select(target capability.Target, candidates []*Entry, wake func(*Entry) bool) (Selection, error) {
	if len(candidates) == 0 {
		return Selection{}, capability.UnknownCapability(target)
	}
	if err := checkSelector(target.Select); err != nil {
		return Selection{}, err
	}
	var sel Selection
	left := candidates
	explicit := target.Action == "" && len(candidates) == 1
	if len(target.Select) > 0 {
		left = nil
		for _, e := range candidates {
			if Matches(e, target.Select) {
				left = append(left, e)
			} else {
				sel.reject(e, 1, "not_selected")
			}
		}
		if len(left) == 0 {
			return Selection{}, capability.Errorf(capability.CodeNotFound, "arbitrate", "no provider of %s matches the selector %s", target, formatSelector(target.Select)).
				With("unknown_provider", "choose one of: "+strings.Join(keys(candidates), ", ")).Detail("candidates", keys(candidates))
		}
		explicit = len(left) == 1
	}
	eligible := left[:0:0]
	for _, e := range left {
		if e.Contribution.Availability.Eligible() && e.Provider != nil {
			eligible = append(eligible, e)
		} else {
			sel.reject(e, 4, "unavailable")
		}
	}
	if len(eligible) == 0 {
		for _, e := range left {
			if e.Provider != nil && wake != nil && wake(e) {
				eligible = append(eligible, e)
				sel.Rejected = slices.DeleteFunc(sel.Rejected, func(r Rejection) bool { return r.Capability == e.ID })
				break
			}
		}
	}
	if len(eligible) == 0 {
		return Selection{}, noneEligible(target, left)
	}
	switch {
	case explicit:
		sel.Step, sel.DecidedBy = 1, "explicit_selector"
	case len(eligible) == 1:
		sel.Step, sel.DecidedBy = 4, "only_supported"
	default:
		slices.SortFunc(eligible, func(a, b *Entry) int {
			return cmp.Or(cmp.Compare(b.Contribution.Rank, a.Contribution.Rank), compareEntries(a, b))
		})
		tied := 1
		for tied < len(eligible) && eligible[tied].Contribution.Rank == eligible[0].Contribution.Rank {
			tied++
		}
		sel.Step, sel.DecidedBy = 6, "ranked_default"
		if tied > 1 {
			if err := guard(target, eligible[:tied]); err != nil {
				return Selection{}, err
			}
			sel.Step, sel.DecidedBy, sel.Fallback = 7, "deterministic_fallback", true
		}
	}
	sel.Entry, sel.Rest = eligible[0], eligible[1:]
	for _, e := range sel.Rest {
		reason := "tie_break"
		if e.Contribution.Rank < sel.Entry.Contribution.Rank {
			reason = "lower_rank"
		}
		sel.reject(e, sel.Step, reason)
	}
	return sel, nil
}

func (s *Selection) reject(e *Entry, step int, reason string) {
	s.Rejected = append(s.Rejected, Rejection{e.ID, e.Key(), step, reason})
}

// guard refuses to guess where a wrong guess does harm: several equal providers
// of an action that is neither ranked nor read (decision D2 of the catalog spec).
func guard(target capability.Target, tied []*Entry) error {
	row := tied[0].Row
	if tied[0].Effect == capability.EffectRead || (row != nil && row.Mode == "ranked") {
		return nil
	}
	return capability.Errorf(capability.CodeSelectionRequired, "arbitrate", "several providers could carry out %s and nothing tells which", target).
		With("selection_required", "name one with a selector: "+strings.Join(keys(tied), ", ")).Detail("candidates", keys(tied))
}

func noneEligible(target capability.Target, left []*Entry) error {
	reason := "no provider is ready"
	for _, e := range left {
		if r := e.Contribution.Availability.Reason; r != "" {
			reason = r
			break
		}
	}
	return capability.Errorf(capability.CodeUnavailable, "arbitrate", "%s is not available: %s", target, reason).
		With("provider_unavailable", remedy(left)).Detail("candidates", keys(left))
}

// remedy tells what was never set up from what is down.
func remedy(left []*Entry) string {
	for _, e := range left {
		if e.Contribution.Availability.State != capability.StateUnconfigured {
			return "see what is down with: junctor endpoints list"
		}
	}
	return "it is off until it is configured: see junctor config docs"
}

func keys(entries []*Entry) []string {
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, string(e.Key()))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func formatSelector(s capability.Selector) string {
	parts := make([]string, 0, len(s))
	for k, v := range s {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func checkSelector(s capability.Selector) error {
	for k, v := range s {
		if !slices.Contains(selectorFields(), k) {
			return capability.Errorf(capability.CodeInvalidInput, "arbitrate", "%q is not a selector field", k).
				With("invalid_selector", "use one of: "+strings.Join(selectorFields(), ", "))
		}
		if strings.TrimSpace(v) == "" {
			return capability.Errorf(capability.CodeInvalidInput, "arbitrate", "the selector %s is blank", k).
				With("invalid_selector", "a blank selector never means any; leave it out or give a value")
		}
	}
	return nil
}

// Matches reports whether e fits every field of s (catalog spec, section 4.8).
func Matches(e *Entry, s capability.Selector) bool {
	_, kind, instance := e.Key().Parts()
	for k, v := range s {
		v = strings.TrimSpace(v)
		var ok bool
		switch k {
		case "provider":
			ok = string(e.Key()) == v
		case "channel", "kind", "store":
			ok = kind == escaped(v)
		case "account", "instance":
			ok = instance == escaped(v)
		case "endpoint", "node":
			ok = kind == k && instance == escaped(v)
		case "extension":
			ok = strings.EqualFold(e.Module.Extension, v)
		case "conversation":
			ok = strings.HasPrefix(v, fmt.Sprintf("%s:%s:", kind, instance))
		}
		if !ok {
			return false
		}
	}
	return true
}

// escaped is v as it stands in a provider key segment.
func escaped(v string) string {
	_, _, seg := capability.NewProviderKey("x", "x", v).Parts()
	return seg
}
