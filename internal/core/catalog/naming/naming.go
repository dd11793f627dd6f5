// Package naming assigns public names to tools. A name stays bare while it is unique. If
// names collide under [Fold], all colliding tools get the smallest label that distinguishes
// them, at the same level. The result is a function of the tools alone: it depends neither
// on the order in which they came nor on the previous state.
package naming

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
)

// Tool is a claim on one public name.
type Tool struct {
	ID           string // unique: its action, or action and alias
	Capability   string // capability id, for the last label level
	Declared     string // the requested name
	Label        string // short label of its provider
	Extension    string
	Contribution string
	Exact        bool // the tool accepts only its declared name

	name Name // assigned by the table
}

// Runtime is the tool's runtime id, <extension>/<contribution>.
func (t *Tool) Runtime() string { return t.Extension + "/" + t.Contribution }

// Equal reports whether the tools are equal except for their assigned names.
func (t *Tool) Equal(o *Tool) bool {
	return t.ID == o.ID && t.Capability == o.Capability && t.Declared == o.Declared && t.Label == o.Label && compareTools(t, o) == 0 &&
		t.Exact == o.Exact
}

// Name returns the name that the tool's table assigned.
func (t *Tool) Name() Name { return t.name }

// Resolution states how a contested name was resolved.
type Resolution string

// The resolutions of a contested name (conflict class 3).
const (
	Labelled  Resolution = "labelled"
	ExactKept Resolution = "exact_kept"
	Withheld  Resolution = "withheld"
)

// Contest is one contested name, with its claimants and its resolution.
type Contest struct {
	Fold       string
	Members    []string // runtime ids, sorted, and "core" if the name is reserved
	Resolution Resolution
	Winner     string // runtime id, for exact_kept
}

// Name is the name assigned to a tool. Public is "" for a withheld tool.
type Name struct {
	Public string
	Level  int // 0 bare, 1 to 4 labelled
}

// Options is the operator's configuration of names.
type Options struct {
	Pins   map[string]string // fold of a name → runtime id of the tool that gets it
	Reject bool              // withhold all tools with a contested name instead of labelling them
	Size   int               // expected number of tools, as a hint
}

// Table assigns names to a changing set of tools. It owns the tools that are in it and changes
// their names. It is not safe for concurrent use.
//
// Nearly all names are claimed by one tool only; those tools are in lone. A group holds the
// claimants of a name that needs a decision.
type Table struct {
	opt      Options
	reserved func(fold string) bool // never changes for one table
	families map[string]int         // folds of unreviewed families, counted
	lone     map[string]*Tool       // by fold of the declared name
	groups   map[string]*group      // by fold of the declared name; a fold is in lone or in groups, not in both
	tested   map[string]map[string]bool
	given    map[string]string // fold of a labelled name → fold of its group
	dirty    map[string]bool
	changed  []string // ids of tools renamed or removed since the last Settle
	fought   bool     // a contest changed since the last Contests
}

type group struct {
	fold    string
	members []*Tool // sorted by extension, contribution, id
	tested  []string
	given   []string
	contest *Contest
}

// NewTable returns an empty table. reserved reports whether a fold belongs to a
// canonical action; it must be a constant function.
func NewTable(opt Options, reserved func(fold string) bool) *Table {
	return &Table{
		opt: opt, reserved: reserved, families: make(map[string]int), lone: make(map[string]*Tool, opt.Size), groups: make(map[string]*group),
		tested: make(map[string]map[string]bool), given: make(map[string]string), dirty: make(map[string]bool),
	}
}

// core reports whether a fold belongs to a canonical action or an unreviewed
// family, and is therefore reserved.
func (t *Table) core(fold string) bool { return t.reserved(fold) || t.families[fold] > 0 }

// Add adds a tool, or replaces the one with the same id, and owns it from then on. Names of
// other tools change only in Settle.
func (t *Table) Add(tool *Tool) {
	fold := Fold(tool.Declared)
	g, other := t.groups[fold], t.lone[fold]
	switch {
	case other != nil && compareTools(other, tool) != 0:
		g = t.fight(fold)
	case g == nil && other == nil:
		t.taint(fold) // groups may have a label with this fold
		if t.core(fold) {
			g = &group{fold: fold}
			t.groups[fold] = g
		}
	}
	if g == nil {
		t.alone(fold, tool)
		return
	}
	i, found := slices.BinarySearchFunc(g.members, tool, compareTools)
	if found {
		g.members[i] = tool
	} else {
		g.members = slices.Insert(g.members, i, tool)
	}
	t.dirty[fold] = true
}

// alone records a tool as the only one of its fold and assigns its declared name.
func (t *Table) alone(fold string, tool *Tool) {
	t.lone[fold] = tool
	t.rename(tool, Name{Public: Plain(tool.Declared)})
}

// fight moves the lone tool of a fold into a new group, whose name is now contested.
func (t *Table) fight(fold string) *group {
	g := &group{fold: fold, members: []*Tool{t.lone[fold]}}
	delete(t.lone, fold)
	t.groups[fold] = g
	t.dirty[fold] = true
	return g
}

// rename assigns a name to a tool and records the change, if it is one.
func (t *Table) rename(tool *Tool, name Name) {
	if tool.name != name {
		tool.name = name
		t.changed = append(t.changed, tool.ID)
	}
}

// Remove removes the tool with the ids and declared name of the given one. A missing tool is
// ignored. Names of other tools change only in Settle.
func (t *Table) Remove(tool *Tool) {
	fold := Fold(tool.Declared)
	if other := t.lone[fold]; other != nil && compareTools(other, tool) == 0 {
		delete(t.lone, fold)
		t.changed = append(t.changed, tool.ID)
		t.taint(fold)
		return
	}
	g := t.groups[fold]
	if g == nil {
		return
	}
	i, found := slices.BinarySearchFunc(g.members, tool, compareTools)
	if !found {
		return
	}
	t.changed = append(t.changed, tool.ID)
	if g.members = slices.Delete(g.members, i, i+1); len(g.members) == 0 {
		t.taint(fold)
	}
	t.dirty[fold] = true
}

// Reserve adds n (1 or -1) to the number of unreviewed families with that id. The name is
// reserved while the number is positive.
func (t *Table) Reserve(id string, n int) {
	fold := Fold(id)
	before := t.families[fold]
	t.families[fold] += n
	if t.families[fold] == 0 {
		delete(t.families, fold)
	}
	if (before == 0) == (before+n == 0) {
		return
	}
	if t.lone[fold] != nil {
		t.fight(fold)
	}
	t.dirty[fold] = true
	t.taint(fold)
}

// taint marks the groups that tested fold for a label, so that Settle names them again.
func (t *Table) taint(fold string) {
	for g := range t.tested[fold] {
		t.dirty[g] = true
	}
}

func compareTools(a, b *Tool) int {
	return cmp.Or(cmp.Compare(a.Extension, b.Extension), cmp.Compare(a.Contribution, b.Contribution), cmp.Compare(a.ID, b.ID))
}

// Name returns the name of the tool in the table that has the ids and declared name of the
// given one, or the zero Name.
func (t *Table) Name(tool *Tool) Name {
	fold := Fold(tool.Declared)
	if other := t.lone[fold]; other != nil && compareTools(other, tool) == 0 {
		return other.name
	}
	if g := t.groups[fold]; g != nil {
		if i, found := slices.BinarySearchFunc(g.members, tool, compareTools); found {
			return g.members[i].name
		}
	}
	return Name{}
}

// Contests returns every contested name, sorted by fold, and whether any changed since the
// last call. It resets that mark.
func (t *Table) Contests() (list []Contest, changed bool) {
	list = make([]Contest, 0, len(t.groups))
	for _, fold := range slices.Sorted(maps.Keys(t.groups)) {
		if c := t.groups[fold].contest; c != nil {
			list = append(list, *c)
		}
	}
	changed, t.fought = t.fought, false
	return list, changed
}

// Contested reports whether a contest changed since Contests was last called.
func (t *Table) Contested() bool { return t.fought }

// Settle decides the contested names and returns the ids of the tools whose name
// has changed, including those of tools that were added or removed.
func (t *Table) Settle() []string {
	queue := folds(slices.Sorted(maps.Keys(t.dirty)))
	heap.Init(&queue)
	for queue.Len() > 0 {
		fold := heap.Pop(&queue).(string)
		if !t.dirty[fold] {
			continue
		}
		delete(t.dirty, fold)
		g := t.groups[fold]
		if g == nil {
			continue
		}
		before := g.given
		t.settle(g)
		// A later group may have tested a name that this group has taken or released.
		for _, name := range difference(before, g.given) {
			for later := range t.tested[name] {
				if later > fold && !t.dirty[later] {
					t.dirty[later] = true
					heap.Push(&queue, later)
				}
			}
		}
	}
	changed := t.changed
	t.changed = nil
	return changed
}

// settle names the members of one group again. A group without a contest is dissolved; its
// last member becomes a lone tool.
func (t *Table) settle(g *group) {
	for _, name := range g.tested {
		if delete(t.tested[name], g.fold); len(t.tested[name]) == 0 {
			delete(t.tested, name)
		}
	}
	for _, name := range g.given {
		if t.given[name] == g.fold {
			delete(t.given, name)
		}
	}
	t.fought = t.fought || g.contest != nil
	g.tested, g.given, g.contest = nil, nil, nil
	if len(g.members) == 0 || len(g.members) == 1 && !t.core(g.fold) {
		delete(t.groups, g.fold)
		if len(g.members) == 1 {
			t.alone(g.fold, g.members[0])
		}
		return
	}
	t.fought = true
	t.allocate(g)
	for _, name := range g.tested {
		if t.tested[name] == nil {
			t.tested[name] = make(map[string]bool)
		}
		t.tested[name][g.fold] = true
	}
}

const (
	hashLevel = 4
	lastLevel = hashLevel + 14 // the whole digest
)

// difference returns the names that are in exactly one of two lists.
func difference(a, b []string) (out []string) {
	count := make(map[string]int, len(a)+len(b))
	for _, name := range a {
		count[name] |= 1
	}
	for _, name := range b {
		count[name] |= 2
	}
	for name, in := range count {
		if in != 3 {
			out = append(out, name)
		}
	}
	return out
}

// folds is a heap of folds in byte order.
type folds []string

func (f folds) Len() int           { return len(f) }
func (f folds) Less(i, j int) bool { return f[i] < f[j] }
func (f folds) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *folds) Push(x any)        { *f = append(*f, x.(string)) }
func (f *folds) Pop() any {
	old := *f
	x := old[len(old)-1]
	*f = old[:len(old)-1]
	return x
}
