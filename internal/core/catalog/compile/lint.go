package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// Finding is a condition that an operator should check. It does not block any call.
type Finding struct {
	Code    string `json:"code"`    // pattern_unknown, pattern_known_inactive, unresolved_conflict, slot, backend, label, withheld, rejected
	Subject string `json:"subject"` // the pattern, key, slot, name or runtime id
	Message string `json:"message"`
}

// Lint checks the catalog as this context sees it: patterns of allow rules
// that match nothing, undecided conflicts, slots and exclusive backends
// without a holder, contributions that were rejected, and names that have a
// label. The findings are sorted by code and subject.
func (a *Agent) Lint() []Finding {
	s := a.Snapshot()
	var out []Finding
	add := func(code, subject, format string, args ...any) {
		out = append(out, Finding{code, subject, fmt.Sprintf(format, args...)})
	}
	for _, p := range a.idlePatterns() {
		if a.knownInactive(&p) {
			add("pattern_known_inactive", p.Text, "rule %s allows %s, which is known but not active now", p.Rule, p.Text)
			continue
		}
		add("pattern_unknown", p.Text, "rule %s allows %s, which matches nothing known; is it misspelt?", p.Rule, p.Text)
	}
	for _, c := range s.Conflicts(false) {
		if c.Resolution == "unresolved" || strings.HasPrefix(c.Resolution, "fatal") {
			add("unresolved_conflict", c.Key, "%s all claim %s; %s", strings.Join(c.Members, ", "), c.Key, c.Remediation)
		}
	}
	for _, slot := range []string{"context-engine", "memory"} {
		if choice := s.Slot(slot, a.Frame.Context.Workspace, a.Frame.Context.Agent); choice.Err != nil {
			add("slot", slot, "%s; %s", choice.Err.Error(), choice.Err.Remediation)
		}
	}
	for _, issue := range s.Blocking() {
		add("backend", issue.Class, "%s: %s", strings.ReplaceAll(issue.Code, "_", " "), issue.Remediation)
	}
	for id, reason := range s.Rejected() {
		add("rejected", id, "%s is in no catalog: %s", id, strings.ReplaceAll(reason, "_", " "))
	}
	for _, c := range a.Contests {
		if c.Resolution == naming.Withheld {
			add("withheld", c.Fold, "no tool has the name %s, which %s want; pin it in naming.pins", c.Fold, strings.Join(c.Members, ", "))
			continue
		}
		add("label", c.Fold, "%s want the name %s, so labels distinguish them", strings.Join(c.Members, ", "), c.Fold)
	}
	slices.SortFunc(out, func(a, b Finding) int { return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject)) })
	return out
}

// idlePatterns returns the patterns of allow rules that match no entry.
func (a *Agent) idlePatterns() []rules.Pattern {
	var idle []rules.Pattern
	for _, p := range a.Snapshot().Rules().Patterns() {
		if p.Allow {
			idle = append(idle, p)
		}
	}
	for e := range a.Snapshot().Entries() {
		if len(idle) == 0 {
			break
		}
		facts := e.Facts()
		idle = slices.DeleteFunc(idle, func(p rules.Pattern) bool { return p.Matches(facts) })
	}
	return idle
}

// knownInactive reports whether the pattern matches a family without a provider, or a
// contribution of a module that is not active.
func (a *Agent) knownInactive(p *rules.Pattern) bool {
	for _, row := range actions.Rows() {
		if p.Matches(rules.Facts{Action: string(row.ID), Effect: row.Effect}) {
			return true
		}
	}
	for m := range a.Snapshot().Modules() {
		if m.Active() {
			continue
		}
		for i := range m.Contributions {
			c := &m.Contributions[i]
			action := c.Action
			if action == "" {
				action = capability.Action("ext." + m.Extension + "." + c.ID)
			}
			if p.Matches(rules.Facts{Action: string(action), Provider: string(c.Provider), Extension: m.Extension, Effect: c.Effect, Tags: c.Tags}) {
				return true
			}
		}
	}
	return false
}
