// Package catalog compiles the contributions of all providers into one immutable snapshot.
// Readers load the snapshot from an atomic pointer and never wait. Writers replace the
// batches of sources; the new snapshot shares all other data with the previous one. The
// package decides which contributions are admitted, what they mean, which of several
// claims wins, which contribution holds a slot and which backend runs. A snapshot is a
// pure function of contributions and settings and does not depend on the order of arrival.
//
// The sub-package compile builds the catalog of one context, arbitration chooses among
// providers, naming assigns names, and actions holds the reviewed canonical actions.
// Package policy decides who may call; package invoke makes the call. This package does
// no I/O.
package catalog

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// Catalog holds the batches of all sources and the snapshot compiled from them.
// The zero value is not usable; call New.
type Catalog struct {
	current atomic.Pointer[Snapshot]

	mu       sync.Mutex // serializes writers and guards the fields below
	settings *Settings
	rules    *rules.Set
	units    map[string]*unit
	special  map[string]*module // by extension id: the modules that the ruling depends on
	owner    map[string]string  // lower-case extension id → source
	doubled  map[capability.Action][]double
	joins    joinings
	schemas  documents
	touched  ring
}

// New returns an empty catalog with the settings, or an error if they are invalid. The
// generation of the empty snapshot is from.
func New(settings Settings, from uint64) (*Catalog, error) {
	c := &Catalog{
		units: make(map[string]*unit), special: make(map[string]*module), owner: make(map[string]string),
		doubled: make(map[capability.Action][]double), schemas: make(documents),
		joins: joinings{}.without(nil),
	}
	if err := c.adopt(settings); err != nil {
		return nil, err
	}
	s := &Snapshot{Generation: from, settings: c.settings, rules: c.rules}
	s.ruling = rule(c.settings, nil, func(string) bool { return false }, nil)
	s.ruling.odd = c.joins.odd
	s.mentioned = mentions(c.settings, c.rules, maps.All(c.units))
	s.seal()
	c.current.Store(s)
	return c, nil
}

// adopt checks and compiles the settings and stores them with their digest. On an error c is
// unchanged.
func (c *Catalog) adopt(settings Settings) error {
	if err := settings.check(); err != nil {
		return err
	}
	set, err := rules.Compile(settings.Policy)
	if err != nil {
		return err
	}
	doc, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	former, err := json.Marshal(settings.Naming.Former) // it is not part of the document
	if err != nil {
		return err
	}
	doc = append(doc, former...)
	settings.sum = sha256.Sum256(doc)
	c.settings, c.rules = &settings, set
	return nil
}

// Snapshot returns the current state; it never blocks.
func (c *Catalog) Snapshot() *Snapshot { return c.current.Load() }

// Change is the effect on the catalog of batches that were applied together.
type Change struct {
	Before, After *Snapshot
	Old           map[string]capability.Batch // what the sources offered before
	Touched       []capability.Action         // the actions whose entries changed in any way, sorted
	Conflicts     []Conflict                  // records that are new or different
}

// Replace replaces all contributions of b.Source by those of b, or changes nothing and
// returns the reason. An empty batch withdraws the source. changed is false if the compiled
// content stays the same (availability counts as content). Providers are compared, so they
// must be pointers or other comparable values.
func (c *Catalog) Replace(b capability.Batch) (_ Change, changed bool, err error) {
	return c.ReplaceAll([]capability.Batch{b})
}

// ReplaceAll is like Replace for batches of different sources: it applies all of them or none.
// The snapshot is rebuilt once, and equals that of applying the batches one after the other.
// A batch without source, or two of the same source, is an internal error.
func (c *Catalog) ReplaceAll(list []capability.Batch) (_ Change, changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(list); err != nil {
		return Change{}, false, err
	}
	return c.build(func(t *transaction) error {
		for i := range list {
			b := &list[i]
			if len(b.Modules) == 0 && len(b.Providers) == 0 {
				b = nil
			}
			if err := t.replace(list[i].Source, b); err != nil {
				return err
			}
		}
		return nil
	}, c.settings, c.rules)
}

// Configure applies other settings and rebuilds the entries of every source. If the settings
// are invalid, it returns an error and changes nothing.
func (c *Catalog) Configure(settings Settings) (_ Change, changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &Catalog{}
	if err := next.adopt(settings); err != nil {
		return Change{}, false, err
	}
	return c.build(func(t *transaction) error {
		for _, source := range sortedKeys(c.units) {
			b := c.units[source].batch
			if err := t.replace(source, &b); err != nil {
				return err
			}
		}
		return nil
	}, next.settings, next.rules)
}

// admit returns a conflict error, reason registration_conflict, if a batch contains an
// extension id that another source holds, or contains one twice (conflict class 1: an id is
// never taken over). Ids are compared without case.
func (c *Catalog) admit(list []capability.Batch) error {
	sources := make(map[string]bool, len(list))
	seen := make(map[string]string) // source by lower-case extension id
	for _, b := range list {
		if b.Source == "" || sources[b.Source] {
			return capability.Errorf(capability.CodeInternal, "catalog.apply",
				"a batch needs the name of its source, and no other batch beside it may have it")
		}
		sources[b.Source] = true
		if err := c.admitOne(b, seen); err != nil {
			return err
		}
	}
	return nil
}

// admitOne checks one batch against the catalog and against seen, and adds its extension
// ids to seen.
func (c *Catalog) admitOne(b capability.Batch, seen map[string]string) error {
	for i := range b.Modules {
		m := &b.Modules[i]
		if m.Extension == "" || strings.ContainsAny(m.Extension, "/#@") {
			return capability.Errorf(capability.CodeInvalidInput, "catalog.apply", "%s offers module %s as extension %q, which is not an id",
				b.Source,
				m.ID, m.Extension).
				With("invalid_id", "")
		}
		key := strings.ToLower(m.Extension)
		if by, twice := seen[key]; twice && by == b.Source {
			return capability.Errorf(capability.CodeConflict, "catalog.apply", "%s offers module %s twice", b.Source, m.ID).
				With("registration_conflict", "give the modules different ids")
		}
		source, taken := c.owner[key]
		if by, together := seen[key]; together {
			source, taken = by, true
		}
		seen[key] = b.Source
		if taken && source != b.Source {
			return capability.Errorf(capability.CodeConflict, "catalog.apply", "module %s of %s is already offered by %s", m.ID, b.Source, source).
				With("registration_conflict", "disconnect one of the two, or rename the module at its source")
		}
	}
	return nil
}

// Touched returns the actions that changed between the generations since and now; ok is
// false if every action must be checked.
func (c *Catalog) Touched(since, now uint64) (touched []capability.Action, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.touched.between(since, now)
}

// ring stores the actions touched by the last changes.
type ring struct {
	marks []mark
	held  int // actions in all marks
}

type mark struct {
	generation uint64
	touched    []capability.Action
	all        bool
}

const (
	ringMarks   = 1024
	ringActions = 200_000 // in all marks; beyond that, checking every action is cheaper
)

// put records the actions that a generation touched and drops the oldest marks beyond the
// bounds. A change of very many actions is recorded as a change of all.
func (r *ring) put(generation uint64, touched []capability.Action, all bool) {
	if len(touched) > ringActions/4 {
		touched, all = nil, true
	}
	r.marks = append(r.marks, mark{generation, touched, all})
	r.held += len(touched)
	drop := 0
	for len(r.marks)-drop > ringMarks || r.held > ringActions {
		r.held -= len(r.marks[drop].touched)
		drop++
	}
	r.marks = slices.Delete(r.marks, 0, drop)
}

// between returns the actions touched after generation since up to now, sorted. ok is false
// if the ring does not reach back to since, or if the caller must check every action.
func (r *ring) between(since, now uint64) (out []capability.Action, ok bool) {
	if since == now {
		return nil, true
	}
	first := sort.Search(len(r.marks), func(i int) bool { return r.marks[i].generation > since })
	if since > now || first == len(r.marks) || r.marks[first].generation != since+1 {
		return nil, false
	}
	for _, m := range r.marks[first:] {
		if m.generation > now {
			break
		}
		if m.all || len(out)+len(m.touched) > ringActions {
			return nil, false
		}
		out = append(out, m.touched...)
	}
	slices.Sort(out)
	return slices.Compact(out), true
}
