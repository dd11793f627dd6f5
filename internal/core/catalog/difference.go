package catalog

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// doubles finds, in the actions that changed, provider keys that several
// contributions use.
func (t *transaction) doubles(next *Snapshot, lists ...[]*Entry) map[capability.Action][]double {
	changed := actionsOf(lists...)
	out := t.c.doubled
	copied := false
	for a, entries := range next.Families(changed, false) {
		var found []double
		if len(entries) > 1 {
			found = doublesOf(entries)
		}
		if len(found) == 0 && len(out[a]) == 0 {
			continue
		}
		if !copied {
			copied = true
			out = maps.Clone(out)
		}
		if delete(out, a); len(found) > 0 {
			out[a] = found
		}
	}
	return out
}

// doublesOf returns the provider keys that several contributions use among the entries of
// one action. The entries must be in the catalog's order, so that those of one
// contribution are adjacent.
func doublesOf(entries []*Entry) (found []double) {
	// An action may have thousands of nodes, each with its own key. A list is made only for
	// a key that occurs twice.
	users, shared := make(map[capability.ProviderKey]string, len(entries)), make(map[capability.ProviderKey][]string)
	minted := strings.HasPrefix(string(entries[0].Action), "ext.")
	var tools []string
	for _, e := range entries {
		kind, _, _ := kernelKind(e.Contribution.Kind)
		if kind&toAgent == 0 {
			continue
		}
		if minted && (len(tools) == 0 || tools[len(tools)-1] != e.Runtime) {
			tools = append(tools, e.Runtime)
		}
		last, known := users[e.key]
		if !known {
			users[e.key] = e.Runtime
		} else if last != e.Runtime {
			if shared[e.key] == nil {
				shared[e.key] = []string{last}
			}
			shared[e.key], users[e.key] = append(shared[e.key], e.Runtime), e.Runtime
		}
	}
	// A minted action should belong to one tool, but "ext.a.b.c" can be extension a.b with
	// contribution c, or extension a with contribution b.c.
	if len(tools) > 1 {
		return []double{{action: entries[0].Action, runtimes: tools}}
	}
	for key, runtimes := range shared {
		found = append(found, double{key: key, runtimes: runtimes})
	}
	return found
}

func actionsOf(lists ...[]*Entry) []capability.Action {
	var out []capability.Action
	for _, list := range lists {
		for _, e := range list {
			out = append(out, e.Action)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// touch returns, sorted, the actions that a view must check again: those of changed entries,
// those of entries that are newly withheld or released, and those bound to a slot if a
// claim on it changed.
func (t *transaction) touch(prev, next *Snapshot, remove, add []*Entry) []capability.Action {
	out := actionsOf(remove, add)
	for _, pair := range [][2]*Snapshot{{prev, next}, {next, prev}} {
		for held, reason := range pair[0].ruling.withheld {
			if pair[1].ruling.withheld[held] != reason {
				out = append(out, actionsCoveredBy(next, held)...)
			}
		}
	}
	for _, slot := range []string{SlotMemory, SlotContextEngine} {
		if slices.EqualFunc(prev.ruling.slots[slot], next.ruling.slots[slot], sameClaim) {
			continue
		}
		for _, s := range []*Snapshot{prev, next} {
			out = append(out, s.ruling.bound[slot]...)
			for _, c := range s.ruling.slots[slot] {
				out = append(out, actionsCoveredBy(s, claim{runtime: c.runtime})...)
			}
		}
		for _, row := range actions.Rows() {
			if row.Slot == slot {
				out = append(out, row.ID)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func sameClaim(a, b slotClaim) bool {
	return a.runtime == b.runtime && a.selector == b.selector && a.eligible == b.eligible
}

// actionsCoveredBy returns the action of each entry that has the claim's runtime and key; an empty
// key covers every entry of the runtime. It returns nil if s does not have the extension.
func actionsCoveredBy(s *Snapshot, held claim) (out []capability.Action) {
	extension, _, _ := strings.Cut(held.runtime, "/")
	m, ok := s.module(extension)
	if !ok {
		return nil
	}
	for _, e := range m.entries {
		if e.Runtime == held.runtime && (held.key == "" || held.key == e.key) {
			out = append(out, e.Action)
		}
	}
	return out
}

// records returns the conflict records of next, overlaps of touched actions included, that are
// new or differ in members, winner or resolution. They are sorted.
func (t *transaction) records(prev, next *Snapshot, touched []capability.Action) (out []Conflict) {
	known := make(map[string]Conflict)
	for _, c := range prev.ruling.conflicts {
		known[c.Class+" "+c.Key] = c
	}
	fresh := next.ruling.conflicts
	for _, a := range touched {
		if c, ok := overlap(prev.Action(a)); ok {
			known[c.Class+" "+c.Key] = c
		}
		if c, ok := overlap(next.Action(a)); ok {
			fresh = append(slices.Clip(fresh), c)
		}
	}
	for _, c := range fresh {
		was, had := known[c.Class+" "+c.Key]
		if !had || was.Resolution != c.Resolution || was.Winner != c.Winner || !slices.Equal(was.Members, c.Members) {
			out = append(out, c)
		}
	}
	SortConflicts(out)
	return out
}

func scoped(entries []*Entry) bool {
	return slices.ContainsFunc(entries, func(e *Entry) bool { return e.Contribution.Scope != nil })
}

// mentions collects the workspaces, agents, sessions, accounts and conversations that scopes,
// rules, slots and defaults name.
func mentions(settings *Settings, set *rules.Set, units iter.Seq2[string, *unit]) *mentioned {
	m := &mentioned{conversations: make(map[string]bool)}
	m.workspaces, m.agents, m.accounts, m.sessions = set.Layers()
	for _, slot := range settings.Slots {
		for _, o := range slot.Overrides {
			m.workspaces[o.Workspace], m.agents[o.Agent] = true, true
		}
	}
	for _, f := range settings.ForcedDefaults {
		m.workspaces[f.Workspace], m.agents[f.Agent] = true, true
	}
	for _, u := range units {
		for _, mod := range u.modules {
			for i := range mod.Contributions {
				s := mod.Contributions[i].Scope
				if s == nil {
					continue
				}
				for _, p := range []struct {
					list []string
					set  map[string]bool
				}{{s.Workspace, m.workspaces}, {s.Agent, m.agents}, {s.Session, m.sessions}, {s.Conversation, m.conversations}} {
					for _, v := range p.list {
						p.set[v] = true
					}
				}
			}
		}
	}
	return m
}
