package catalog

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// transaction builds the next snapshot without changing the catalog until commit.
type transaction struct {
	c        *Catalog
	builder  *builder
	units    map[string]*unit // the changed sources; nil for a withdrawn one
	removed  []*Entry
	added    []*Entry
	gone     []*module
	come     []*module
	settings *Settings
}

// build runs a change and stores the new snapshot only if it succeeded. It recovers a panic and
// returns it as an error; the catalog is then unchanged.
func (c *Catalog) build(change func(*transaction) error, settings *Settings, set *rules.Set) (out Change, changed bool, err error) {
	t := &transaction{c: c, units: make(map[string]*unit), settings: settings}
	t.builder = &builder{
		settings: settings, families: make(map[string]*actions.Row),
		joined: func(id string) (capability.Action, bool) { a, ok := c.joins.joined[id]; return a, ok },
		known:  func(doc []byte) bool { return c.schemas[string(doc)] != nil },
	}
	saved := c.joins
	defer func() {
		if p := recover(); p != nil {
			err = capability.Wrap(capability.CodeUnavailable, "catalog.apply", "the catalog could not be built; the one before stays in force",
				fmt.Errorf("panic: %v\n%s", p, debug.Stack())).With("build_failed", "")
		}
		if err != nil {
			c.joins = saved
		}
	}()
	if err := change(t); err != nil {
		return Change{}, false, err
	}
	if err := t.join(); err != nil {
		return Change{}, false, err
	}
	return t.finish(set)
}

// replace builds the new unit of a source; nil withdraws the source.
func (t *transaction) replace(source string, batch *capability.Batch) error {
	var next *unit
	if batch != nil {
		next = t.builder.unit(*batch)
		if err := unique(next); err != nil {
			return err
		}
	}
	t.units[source] = next
	return nil
}

// unique returns a conflict error if two contributions of a module have one id (conflict class 1).
func unique(u *unit) error {
	for _, m := range u.modules {
		for i := 1; i < len(m.entries); i++ {
			if m.entries[i].ID == m.entries[i-1].ID {
				return capability.Errorf(capability.CodeConflict, "catalog.apply", "module %s declares %s twice", m.ID, m.entries[i].ID).
					With("registration_conflict", "give the contributions different ids")
			}
		}
	}
	return nil
}

// diff records which modules and entries are added and removed. An unchanged module keeps its
// old object in next. A changed one gets all new entries, so that an entry and its module
// always belong to the same state.
func (t *transaction) diff(old, next *unit) {
	before := make(map[string]*module)
	if old != nil {
		for _, m := range old.modules {
			before[m.Extension] = m
		}
	}
	if next != nil {
		for i, m := range next.modules {
			was := before[m.Extension]
			if was != nil && was.same(m) {
				next.modules[i] = was
				delete(before, m.Extension)
				continue
			}
			t.come = append(t.come, m)
			t.added = append(t.added, m.entries...)
		}
	}
	for _, m := range before {
		t.gone = append(t.gone, m)
		t.removed = append(t.removed, m.entries...)
	}
}

// same reports whether the modules do not differ in anything a caller could notice.
func (m *module) same(o *module) bool {
	return m.sum == o.sum && m.special == o.special && bytes.Equal(m.Manifest, o.Manifest) && len(m.Contributions) == len(o.Contributions) &&
		maps.Equal(m.rejected, o.rejected) && slices.EqualFunc(m.entries, o.entries, func(a, b *Entry) bool {
		return a.sum == b.sum && a.Provider == b.Provider && a.Contribution.Timeout == b.Contribution.Timeout && a.ceiling == b.ceiling &&
			a.Row == b.Row && a.Family.Domain == b.Family.Domain
	})
}

// join decides which look-alike tools form families, and rebuilds the sources of tools that
// changed families. It checks only the actions of this change.
func (t *transaction) join() error {
	affected := make(map[capability.Action]bool)
	var gone []mappable
	for source, u := range t.units {
		was, is := mappables(t.c.units[source]), mappables(u)
		if slices.Equal(was, is) {
			continue // same tools, so they keep their families
		}
		gone = append(gone, was...)
		for _, p := range is {
			affected[p.action] = true
		}
	}
	for _, p := range gone {
		affected[p.action] = true
	}
	if len(affected) == 0 {
		return nil
	}
	groups := make(map[capability.Action][]mappable)
	sources := make(map[string]string) // by runtime id
	collect := func(source string, u *unit) {
		for _, p := range mappables(u) {
			if affected[p.action] {
				groups[p.action] = append(groups[p.action], p)
				sources[p.runtime] = source
			}
		}
	}
	for source, u := range t.all() {
		collect(source, u)
	}
	before := t.c.joins
	for _, list := range groups {
		gone = append(gone, list...)
	}
	after := before.without(gone)
	after.settle(groups)
	t.c.joins = after
	moved := make(map[string]bool)
	for runtime, source := range sources {
		if before.joined[runtime] != after.joined[runtime] {
			moved[source] = true
		}
	}
	for _, source := range sortedKeys(moved) {
		u := t.units[source]
		if u == nil {
			u = t.c.units[source]
		}
		batch := u.batch
		if err := t.replace(source, &batch); err != nil { // joining does not change schemas, so join need not run again
			return err
		}
	}
	return nil
}

// all yields every source with its unit after the change.
func (t *transaction) all() iter.Seq2[string, *unit] {
	return func(yield func(string, *unit) bool) {
		for source, u := range t.c.units {
			if _, changes := t.units[source]; !changes && !yield(source, u) {
				return
			}
		}
		for source, u := range t.units {
			if u != nil && !yield(source, u) {
				return
			}
		}
	}
}

// mappables returns the mappable tools of a unit, which may be nil.
func mappables(u *unit) (out []mappable) {
	if u == nil {
		return nil
	}
	for _, m := range u.modules {
		out = append(out, m.mappable...)
	}
	return out
}

// finish builds the next snapshot and makes it the current one. It reports false, and keeps
// the current snapshot, if neither content nor settings changed.
func (t *transaction) finish(set *rules.Set) (Change, bool, error) {
	c := t.c
	prev := c.current.Load()
	next := &Snapshot{Generation: prev.Generation + 1, settings: t.settings, rules: set}
	for _, source := range slices.Sorted(maps.Keys(t.units)) {
		t.diff(c.units[source], t.units[source])
	}
	remove, add := t.removed, t.added
	slices.SortFunc(remove, compareEntries)
	slices.SortFunc(add, compareEntries)
	slices.SortFunc(t.gone, byExtension().Compare)
	slices.SortFunc(t.come, byExtension().Compare)
	next.modules = byExtension().Update(prev.modules, t.gone, t.come)
	slices.SortFunc(t.gone, byModuleID().Compare)
	slices.SortFunc(t.come, byModuleID().Compare)
	next.byID = byModuleID().Update(prev.byID, t.gone, t.come)
	next.entries = entryOrder().Update(prev.entries, remove, add)
	next.byKey = keyOrder().Update(prev.byKey, sortedByKey(remove), sortedByKey(add))

	doubled, special := t.doubles(next, remove, add), t.specials()
	next.ruling = rule(t.settings, special, func(runtime string) bool { return exists(next, runtime) }, doubled)
	next.ruling.odd = c.joins.odd
	next.mentioned = prev.mentioned
	if scoped(remove) || scoped(add) || prev.settings != t.settings {
		next.mentioned = mentions(t.settings, set, t.all())
	}
	next.seal()
	touched := t.touch(prev, next, remove, add)
	records := t.records(prev, next, touched)

	// Nothing below can fail. A panic above leaves the catalog unchanged.
	old := t.commit(doubled, remove, add)
	c.rules = set
	if next.Etag == prev.Etag && len(remove) == 0 && len(add) == 0 && prev.settings == t.settings {
		return Change{Before: prev, After: prev, Old: old}, false, nil
	}
	c.touched.put(next.Generation, touched, prev.settings != t.settings)
	c.current.Store(next)
	return Change{Before: prev, After: next, Old: old, Touched: touched, Conflicts: records}, true, nil
}

// commit stores the built units in the catalog and returns the batches that they replace.
func (t *transaction) commit(doubled map[capability.Action][]double, remove, add []*Entry) (old map[string]capability.Batch) {
	c := t.c
	old = make(map[string]capability.Batch, len(t.units))
	c.doubled, c.settings = doubled, t.settings
	for _, e := range add { // before release, so that a schema in both stays compiled
		c.schemas.share(e)
	}
	for _, e := range remove {
		c.schemas.release(e)
	}
	for source, u := range t.units {
		if was := c.units[source]; was != nil {
			old[source] = was.batch
			for _, m := range was.modules {
				delete(c.owner, strings.ToLower(m.Extension))
				delete(c.special, m.Extension)
			}
			delete(c.units, source)
		}
		if u == nil {
			continue
		}
		c.units[source] = u
		for _, m := range u.modules {
			c.owner[strings.ToLower(m.Extension)] = source
			if m.special {
				c.special[m.Extension] = m
			}
		}
	}
	return old
}

func exists(s *Snapshot, runtime string) bool {
	extension, _, _ := strings.Cut(runtime, "/")
	m, ok := s.module(extension)
	return ok && m.Active() && m.declares()[runtime]
}

// specials returns the special modules after the change, ordered by extension id.
func (t *transaction) specials() []*module {
	list := maps.Clone(t.c.special)
	for source, u := range t.units {
		if was := t.c.units[source]; was != nil {
			for _, m := range was.modules {
				delete(list, m.Extension)
			}
		}
		if u != nil {
			for _, m := range u.modules {
				if m.special {
					list[m.Extension] = m
				}
			}
		}
	}
	out := make([]*module, 0, len(list))
	for _, id := range sortedKeys(list) {
		out = append(out, list[id])
	}
	return out
}
