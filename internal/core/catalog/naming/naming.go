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

// Tool is one thing that wants a public name.
type Tool struct {
	ID           string // unique: its action, or action and alias
	Capability   string // capability id, for the last label level
	Declared     string // the name it wants
	Label        string // short label of its provider
	Extension    string
	Contribution string
	Exact        bool // insists on the name as it is

	name Name // what its table gave it
}

// Runtime is the tool's runtime id, <extension>/<contribution>.
func (t *Tool) Runtime() string { return t.Extension + "/" + t.Contribution }

// Equal reports whether both say the same of themselves, whatever they are called.
func (t *Tool) Equal(o *Tool) bool {
	return t.ID == o.ID && t.Capability == o.Capability && t.Declared == o.Declared && t.Label == o.Label && compareTools(t, o) == 0 &&
		t.Exact == o.Exact
}

// Name is what the table that the tool is in calls it.
func (t *Tool) Name() Name { return t.name }

// Resolution states what became of a contested name.
type Resolution string

// The resolutions of a contested name (conflict class 3).
const (
	Labelled  Resolution = "labelled"
	ExactKept Resolution = "exact_kept"
	Withheld  Resolution = "withheld"
)

// Contest is one contested name: who wanted it and what was done.
type Contest struct {
	Fold       string
	Members    []string // runtime ids, sorted; with "core" where the name is reserved
	Resolution Resolution
	Winner     string // runtime id, for exact_kept
}

// Name is what a tool got. Public is "" for a tool that is withheld.
type Name struct {
	Public string
	Level  int // 0 bare, 1 to 4 labelled
}

// Options are the operator's words on names.
type Options struct {
	Pins   map[string]string // fold of a name → runtime id that shall have it
	Reject bool              // withhold all that meet instead of labelling them
	Size   int               // how many tools are to come, as a hint
}

// Table is the names of one set of tools, kept up to date as the set changes. It
// owns the tools that are in it. It is not safe for concurrent use.
//
// Nearly all names are wanted by one tool and by nothing else; those are in lone
// and cost nothing more. A group is a name that needs a decision.
type Table struct {
	opt      Options
	reserved func(fold string) bool // never changes for one table
	families map[string]int         // folds of unreviewed families, counted
	lone     map[string]*Tool       // by fold of the declared name
	groups   map[string]*group      // likewise; a fold is in one of the two at most
	tested   map[string]map[string]bool
	given    map[string]string // fold of a labelled name → fold of its group
	dirty    map[string]bool
	changed  []string // ids of tools named or taken out since the last Settle
	fought   bool     // a contest changed since it was last asked
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

// Add puts a tool in; Remove, with an equal tool, takes it out. Neither changes
// the name of another tool before Settle.
func (t *Table) Add(tool *Tool) {
	fold := Fold(tool.Declared)
	g, other := t.groups[fold], t.lone[fold]
	switch {
	case other != nil && compareTools(other, tool) != 0:
		g = t.fight(fold)
	case g == nil && other == nil:
		t.taint(fold) // the name counts as declared now
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

// alone gives a tool a name that is unique.
func (t *Table) alone(fold string, tool *Tool) {
	t.lone[fold] = tool
	t.rename(tool, Name{Public: Plain(tool.Declared)})
}

// fight makes a group of the one who had the name for himself.
func (t *Table) fight(fold string) *group {
	g := &group{fold: fold, members: []*Tool{t.lone[fold]}}
	delete(t.lone, fold)
	t.groups[fold] = g
	t.dirty[fold] = true
	return g
}

func (t *Table) rename(tool *Tool, name Name) {
	if tool.name != name {
		tool.name = name
		t.changed = append(t.changed, tool.ID)
	}
}

// Remove takes a tool out.
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

// Reserve counts one more (n 1) or one less (n -1) unreviewed family with that id,
// whose name is reserved for it.
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

// taint marks the groups that asked whether fold is free.
func (t *Table) taint(fold string) {
	for g := range t.tested[fold] {
		t.dirty[g] = true
	}
}

func compareTools(a, b *Tool) int {
	return cmp.Or(cmp.Compare(a.Extension, b.Extension), cmp.Compare(a.Contribution, b.Contribution), cmp.Compare(a.ID, b.ID))
}

// Name is what a tool that is in the table is called; it is named by its id and
// declared name.
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

// Contests returns every contested name, sorted by fold, and whether any changed
// since the last call.
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
		// Later groups may have wanted a name this one took, or now may have one.
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

// settle names the members of one group.
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

// difference is what is in one of two lists of names only.
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
