package compile

import (
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
)

// view is the state shared by all contexts of one workspace and agent: the entries that pass
// the standing filter, their names, and the catalog of a context without conversation and
// bindings. An update checks only the actions that changed. Its lists are persistent, so
// that an update does not affect catalogs compiled before.
type view struct {
	workspace, agent string
	used             uint64 // guarded by the compiler

	mu          sync.RWMutex // guards the fields below
	generation  uint64
	settings    *catalog.Settings
	table       *naming.Table
	families    map[capability.Action]*family
	special     map[capability.Action]*special
	list, folds ordered.List[*Action]
	unnamed     map[capability.Action]bool // copied on write
	contests    []naming.Contest
	frame       *arbitration.Frame // nil if the view must be rebuilt
}

// family is the state of one action in a view. There is one for every tool of the catalog, so
// it must stay small.
type family struct {
	entries []*catalog.Entry // that pass the standing filter
	tools   []*naming.Tool   // its claims on names: a minted tool's own, and exposed aliases
	named   []*Action        // one for each public name, with all entries, listed or not
	listed  []*Action        // its actions in the catalog of the neutral context
}

func (f *family) action() capability.Action { return f.entries[0].Action }
func (f *family) row() *actions.Row         { return f.entries[0].Family }

// special is a family whose listing may depend on more than the view. A dynamic one is checked
// in every context that is not plain. Others, with several providers, are checked only if
// the adapter is of a kind that they have.
type special struct {
	*family
	dynamic bool
	kinds   []string
}

func newView(workspace, agent string) *view {
	return &view{workspace: workspace, agent: agent}
}

// change is an action that an update checks, with its previous family.
type change struct {
	action capability.Action
	old    *family
}

// update updates the view to the snapshot. touched are the actions to check, sorted; if all, the
// view is rebuilt. The caller holds v.mu.
func (v *view) update(s *catalog.Snapshot, touched []capability.Action, all bool) {
	v.frame = arbitration.NewFrame(s, &capability.Context{Workspace: v.workspace, Agent: v.agent})
	if all {
		v.reset(s, s.Settings())
		touched = nil
	}
	changes := make([]change, 0, len(touched))
	for a, entries := range s.Families(touched, all) {
		changes = append(changes, change{a, v.families[a]})
		v.regroup(a, entries)
	}
	renamed := make(map[capability.Action]bool)
	for _, id := range v.table.Settle() {
		action, _, _ := strings.Cut(id, "\x00")
		a := capability.Action(action)
		if _, looked := slices.BinarySearch(touched, a); all || looked || renamed[a] {
			continue
		}
		renamed[a] = true
		changes = append(changes, change{a, v.families[a]})
	}
	v.publish(changes)
	if v.table.Contested() {
		v.contests, _ = v.table.Contests()
	}
	v.generation = s.Generation
}

// reset empties the view and adopts settings.
func (v *view) reset(s *catalog.Snapshot, set *catalog.Settings) {
	v.settings = set
	pins := make(map[string]string, len(set.Naming.Pins))
	for name, runtime := range set.Naming.Pins {
		pins[naming.Fold(name)] = runtime
	}
	v.table = naming.NewTable(naming.Options{Pins: pins, Reject: set.Naming.OnCollision == "reject", Size: s.Len()}, catalog.Reserved)
	v.families, v.special = make(map[capability.Action]*family, s.Len()), make(map[capability.Action]*special)
	v.list, v.folds, v.unnamed, v.contests = ordered.List[*Action]{}, ordered.List[*Action]{}, nil, nil
}

// regroup rebuilds the family of an action and updates the table of names.
func (v *view) regroup(a capability.Action, entries []*catalog.Entry) {
	old := v.families[a]
	fam := v.familyOf(entries)
	reserves := func(f *family) bool { return f != nil && len(f.tools) == 0 && f.row().ID == "" }
	if reserves(old) != reserves(fam) {
		if reserves(fam) {
			v.table.Reserve(string(a), 1)
		} else {
			v.table.Reserve(string(a), -1)
		}
	}
	if old != nil {
		for _, t := range old.tools {
			if fam == nil || !slices.ContainsFunc(fam.tools, t.Equal) {
				v.table.Remove(t)
			}
		}
	}
	if delete(v.special, a); fam == nil {
		delete(v.families, a)
		return
	}
	for i, t := range fam.tools {
		if old != nil {
			if same := slices.IndexFunc(old.tools, t.Equal); same >= 0 {
				fam.tools[i] = old.tools[same] // the object that the table owns
				continue
			}
		}
		v.table.Add(t)
	}
	v.families[a] = fam
	if s := specialOf(fam); s != nil {
		v.special[a] = s
	}
}

// familyOf returns the family of the entries that pass the standing filter, with its claims on
// names, or nil if none pass.
func (v *view) familyOf(entries []*catalog.Entry) *family {
	standing := make([]*catalog.Entry, 0, len(entries))
	for _, e := range entries {
		if reason, _ := v.frame.Standing(e, capability.AudienceAgent); reason == "" {
			standing = append(standing, e)
		}
	}
	if len(standing) == 0 {
		return nil
	}
	fam := &family{entries: standing}
	first := standing[0]
	claim := func(id, name string, exact bool) {
		fam.tools = append(fam.tools, &naming.Tool{
			ID: id, Capability: string(first.ID), Declared: name, Label: first.Label(),
			Extension: first.Module.Extension, Contribution: first.Contribution.ID, Exact: exact,
		})
	}
	if first.Minted() {
		claim(string(first.Action), v.settings.Declared(first), first.Contribution.Exact)
	}
	for _, alias := range v.settings.Naming.ExposeAliases {
		if slices.ContainsFunc(standing, func(e *catalog.Entry) bool { return slices.Contains(e.Contribution.Aliases, alias) }) {
			claim(string(first.Action)+"\x00"+alias, alias, false)
		}
	}
	return fam
}

// specialOf returns nil for a family whose listing is the same in every context of the view.
func specialOf(fam *family) *special {
	s := &special{family: fam, dynamic: fam.row().RouteAware || fam.row().Address == actions.AddressCurrent}
	for _, e := range fam.entries {
		_, kind, _ := e.Key().Parts()
		s.kinds = append(s.kinds, kind)
		if x := e.Contribution.Scope; x != nil && len(x.Session)+len(x.Account)+len(x.Channel)+len(x.Conversation)+len(x.ConversationKind)+
			len(x.Provider) > 0 {
			s.dynamic = true
		}
	}
	if !s.dynamic && len(fam.entries) == 1 {
		return nil
	}
	slices.Sort(s.kinds)
	s.kinds = slices.Compact(s.kinds)
	return s
}

// publish updates the lists of the view with the changed families.
func (v *view) publish(changes []change) {
	var remove, add, forget, learn []*Action
	copied := false
	for _, c := range changes {
		a, old := c.action, c.old
		if old != nil {
			remove, forget = append(remove, old.listed...), append(forget, old.named...)
		}
		fam := v.families[a]
		hidden := false
		if fam != nil {
			fam.named = named(fam)
			fam.listed = list(v.frame, fam)
			add, learn = append(add, fam.listed...), append(learn, fam.named...)
			hidden = len(fam.named) == 0
		}
		if hidden == v.unnamed[a] {
			continue
		}
		if !copied {
			copied = true
			fresh := make(map[capability.Action]bool, len(v.unnamed)+1)
			for k := range v.unnamed {
				fresh[k] = true
			}
			v.unnamed = fresh
		}
		if v.unnamed[a] = true; !hidden {
			delete(v.unnamed, a)
		}
	}
	if copied {
		unnamed := v.unnamed
		v.frame.Unnamed = func(a capability.Action) bool { return unnamed[a] }
	}
	v.list = update(byName(), v.list, remove, add)
	v.folds = update(byFold(), v.folds, forget, learn)
}

// update returns l without remove and with add, which it sorts in place. An action that replaces
// another one of the same name may be in both.
func update(o ordered.Order[*Action], l ordered.List[*Action], remove, add []*Action) ordered.List[*Action] {
	slices.SortFunc(remove, o.Compare)
	slices.SortFunc(add, o.Compare)
	return o.Update(l, remove, add)
}

// named returns one action for each public name of a family: its id, and the names that the
// table assigned to its tools. It returns none if all are withheld.
func named(fam *family) []*Action {
	first := fam.entries[0]
	title, description := first.Contribution.Title, first.Contribution.Description
	if first.Row != nil {
		title, description = first.Row.Title, first.Row.Description
	}
	out := make([]*Action, 0, 1)
	add := func(name string, alias bool) {
		if name == "" {
			return
		}
		a := &Action{
			Name: name, Canonical: first.Action, Alias: alias, Title: title, Description: description, Family: first.Family, Entries: fam.entries,
		}
		out = append(out, a.seal())
	}
	minted := first.Minted()
	if !minted {
		add(string(first.Action), false)
	}
	for i, t := range fam.tools {
		add(t.Name().Public, i > 0 || !minted)
	}
	return out
}

// list returns the actions that a frame lists for a family: one for each of its names, or none
// if no entry may serve.
func list(f *arbitration.Frame, fam *family) []*Action {
	if len(fam.named) == 0 {
		return nil
	}
	row := fam.row()
	open := fam.entries
	for i, e := range fam.entries {
		if usable(f, e) {
			continue
		}
		open = slices.Clone(fam.entries[:i])
		for _, e := range fam.entries[i+1:] {
			if usable(f, e) {
				open = append(open, e)
			}
		}
		break
	}
	if row.Address == actions.AddressCurrent {
		route := f.RouteKey(row)
		open = slices.DeleteFunc(slices.Clone(open), func(e *catalog.Entry) bool { return e.Key() != route })
	}
	if len(open) == 0 {
		return nil
	}
	requires := false
	if len(fam.entries) > 1 || row.Slot != "" || row.RouteAware || len(f.Context.Bindings) > 0 {
		_, err := f.Select(arbitration.Request{Action: fam.action()})
		requires = err != nil
	}
	if !requires && len(open) == len(fam.entries) {
		return fam.named
	}
	out := make([]*Action, 0, len(fam.named))
	for _, named := range fam.named {
		a := *named
		a.Entries, a.RequiresSelection = open, requires
		if first := open[0]; first.Row == nil {
			a.Title, a.Description = first.Contribution.Title, first.Contribution.Description
		}
		out = append(out, a.seal())
	}
	return out
}

// usable reports whether a standing entry passes the rest of the filter.
func usable(f *arbitration.Frame, e *catalog.Entry) bool {
	if !e.Eligible() {
		return false
	}
	reason, _ := f.Passing(e)
	return reason == ""
}
