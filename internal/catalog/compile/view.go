package compile

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/catalog/actions"
	"github.com/junctor-run/junctor/internal/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/catalog/naming"
	"github.com/junctor-run/junctor/internal/catalog/ordered"
)

// view is what all contexts of one workspace and agent share: the entries that
// pass the standing part of the filter, their names, and the catalog of a context
// with neither conversation nor bindings. It is brought up to date with a
// snapshot by looking again at the actions that were touched; what it publishes
// is persistent, so that catalogs compiled before are not disturbed.
type view struct {
	workspace, agent string
	generation       uint64
	settings         *catalog.Settings
	table            *naming.Table
	families         map[capability.Action]*family
	special          map[capability.Action]*family // whose listing may depend on more than the view
	list, folds      ordered.List[*Action]
	unnamed          map[capability.Action]bool // copied on write
	contests         []naming.Contest
	frame            *arbitration.Frame
	used             uint64
}

// family is one action's state in a view.
type family struct {
	action  capability.Action
	row     *actions.Row
	entries []*catalog.Entry // standing
	tools   []*naming.Tool   // its claims on names
	names   []string         // public names; one but for exposed aliases
	// dynamic families are looked at in every context with a conversation or an
	// adapter; those with several providers only where the adapter is of a kind
	// they have.
	dynamic bool
	kinds   []string
	listed  []*Action // in the neutral context, one for each name
	named   []*Action // one for each name, with all entries, listed or not
}

func newView(workspace, agent string) *view {
	return &view{workspace: workspace, agent: agent}
}

// update brings the view to the snapshot. touched are the actions to look at
// again; all says that everything must be.
func (v *view) update(s *catalog.Snapshot, touched []capability.Action, all bool) {
	v.frame = arbitration.NewFrame(s, &capability.Context{Workspace: v.workspace, Agent: v.agent})
	if all {
		set := s.Settings()
		v.settings = set
		pins := make(map[string]string, len(set.Naming.Pins))
		for name, runtime := range set.Naming.Pins {
			pins[naming.Fold(name)] = runtime
		}
		v.table = naming.NewTable(naming.Options{Pins: pins, Reject: set.Naming.OnCollision == "reject"}, catalog.Reserved)
		v.families, v.special = make(map[capability.Action]*family), make(map[capability.Action]*family)
		v.list, v.folds, v.unnamed, v.contests = ordered.List[*Action]{}, ordered.List[*Action]{}, nil, nil
		touched = nil
		var last capability.Action
		for e := range s.Entries() {
			if e.Action != last {
				touched = append(touched, e.Action)
				last = e.Action
			}
		}
	}
	again := make(map[capability.Action]*family, len(touched)) // → the state before
	for _, a := range touched {
		again[a] = v.families[a]
		v.regroup(s, a)
	}
	for _, id := range v.table.Settle() {
		action, _, _ := strings.Cut(id, "\x00")
		if _, known := again[capability.Action(action)]; !known {
			again[capability.Action(action)] = v.families[capability.Action(action)]
		}
	}
	v.publish(again)
	if v.table.Contested() {
		v.contests, _ = v.table.Contests()
	}
	v.generation = s.Generation
}

// regroup rebuilds the family of an action from the snapshot and tells the names
// table what changed.
func (v *view) regroup(s *catalog.Snapshot, a capability.Action) {
	old := v.families[a]
	fam := v.familyOf(s.Action(a))
	reserves := func(f *family) bool { return f != nil && len(f.tools) == 0 && f.row.ID == "" }
	if reserves(old) != reserves(fam) {
		if reserves(fam) {
			v.table.Reserve(string(a), 1)
		} else {
			v.table.Reserve(string(a), -1)
		}
	}
	if old != nil {
		for _, t := range old.tools {
			if fam == nil || !slices.ContainsFunc(fam.tools, func(n *naming.Tool) bool { return *n == *t }) {
				v.table.Remove(t)
			}
		}
	}
	if fam == nil {
		delete(v.families, a)
		delete(v.special, a)
		return
	}
	for _, t := range fam.tools {
		if old == nil || !slices.ContainsFunc(old.tools, func(o *naming.Tool) bool { return *o == *t }) {
			v.table.Add(t)
		}
	}
	v.families[a] = fam
	if fam.dynamic || len(fam.entries) > 1 {
		v.special[a] = fam
	} else {
		delete(v.special, a)
	}
}

func (v *view) familyOf(entries []*catalog.Entry) *family {
	var fam *family
	for _, e := range entries {
		if reason, _ := v.frame.Standing(e, capability.AudienceAgent); reason != "" {
			continue
		}
		if fam == nil {
			fam = &family{action: e.Action, row: e.Family, entries: make([]*catalog.Entry, 0, len(entries))}
			fam.dynamic = e.Family.RouteAware || e.Family.Address == actions.AddressCurrent
		}
		fam.entries = append(fam.entries, e)
		if s := e.Contribution.Scope; s != nil && len(s.Session)+len(s.Account)+len(s.Channel)+len(s.Conversation)+len(s.ConversationKind)+len(s.Provider) > 0 {
			fam.dynamic = true
		}
	}
	if fam == nil {
		return nil
	}
	if len(fam.entries) > 1 {
		for _, e := range fam.entries {
			_, kind, _ := e.Key().Parts()
			fam.kinds = append(fam.kinds, kind)
		}
		slices.Sort(fam.kinds)
		fam.kinds = slices.Compact(fam.kinds)
	}
	first := fam.entries[0]
	claim := func(id, name string, exact bool) {
		fam.tools = append(fam.tools, &naming.Tool{
			ID: id, Capability: string(first.ID), Declared: name, Label: first.Label(),
			Extension: first.Module.Extension, Contribution: first.Contribution.ID, Exact: exact,
		})
	}
	if first.Minted() {
		claim(string(fam.action), first.Declared(), first.Contribution.Exact)
	}
	for _, alias := range v.settings.Naming.ExposeAliases {
		if slices.ContainsFunc(fam.entries, func(e *catalog.Entry) bool { return slices.Contains(e.Contribution.Aliases, alias) }) {
			claim(string(fam.action)+"\x00"+alias, alias, false)
		}
	}
	return fam
}

// publish puts what changed into the lists.
func (v *view) publish(again map[capability.Action]*family) {
	var remove, add, forget, learn []*Action
	copied := false
	for a, old := range again {
		if old != nil {
			remove, forget = append(remove, old.listed...), append(forget, old.named...)
		}
		fam := v.families[a]
		hidden := false
		if fam != nil {
			fam.names = v.namesOf(fam)
			fam.listed = v.list1(v.frame, fam)
			fam.named = nil
			for _, name := range fam.names {
				fam.named = append(fam.named, (&Action{Name: name, Canonical: a, Family: fam.row, Entries: fam.entries}).seal())
			}
			add, learn = append(add, fam.listed...), append(learn, fam.named...)
			hidden = len(fam.names) == 0
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
	names, folds := byName(), byFold()
	v.list = update(names, v.list, remove, add)
	v.folds = update(folds, v.folds, forget, learn)
}

// update sorts what comes and goes; a name that only changes hands is in both.
func update(o ordered.Order[*Action], l ordered.List[*Action], remove, add []*Action) ordered.List[*Action] {
	remove, add = slices.Clone(remove), slices.Clone(add)
	slices.SortFunc(remove, o.Compare)
	slices.SortFunc(add, o.Compare)
	return o.Update(l, remove, add)
}

// namesOf are the public names of a family: its id, or what the table gave its
// tools; none when all are withheld.
func (v *view) namesOf(fam *family) []string {
	var names []string
	if !fam.entries[0].Minted() {
		names = append(names, string(fam.action))
	}
	for _, t := range fam.tools {
		if name := v.table.Name(t.ID).Public; name != "" {
			names = append(names, name)
		}
	}
	return names
}

// list1 is what a family is listed as in a frame: nothing where no entry may
// serve, else one action for each of its names.
func (v *view) list1(f *arbitration.Frame, fam *family) []*Action {
	if len(fam.names) == 0 {
		return nil
	}
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
	if fam.row.Address == actions.AddressCurrent {
		route := f.RouteKey(fam.row)
		open = slices.DeleteFunc(slices.Clone(open), func(e *catalog.Entry) bool { return e.Key() != route })
	}
	if len(open) == 0 {
		return nil
	}
	requires := false
	if len(fam.entries) > 1 || fam.row.Slot != "" || fam.row.RouteAware || len(f.Context.Bindings) > 0 {
		_, err := f.Select(arbitration.Request{Action: fam.action})
		requires = err != nil
	}
	first := open[0]
	title, description := first.Contribution.Title, first.Contribution.Description
	if first.Row != nil {
		title, description = first.Row.Title, first.Row.Description
	}
	out := make([]*Action, 0, len(fam.names))
	for i, name := range fam.names {
		a := &Action{
			Name: name, Canonical: fam.action, Alias: i > 0, Title: title, Description: description,
			Family: fam.row, Entries: open, RequiresSelection: requires,
		}
		out = append(out, a.seal())
	}
	return out
}

// usable reports whether an entry passes the whole filter.
func usable(f *arbitration.Frame, e *catalog.Entry) bool {
	if !e.Eligible() {
		return false
	}
	reason, _ := f.Candidate(e, capability.AudienceAgent)
	return reason == ""
}
