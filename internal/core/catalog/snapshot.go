package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"slices"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// Snapshot is one compiled state of the catalog. It is immutable and shared.
type Snapshot struct {
	Generation uint64 // strictly increasing, also across restarts
	Etag       string // hex SHA-256 of the content; equal content has an equal etag

	settings  *Settings
	rules     *rules.Set
	entries   ordered.List[*Entry]
	byKey     ordered.List[*Entry]
	modules   ordered.List[*module] // by extension id
	byID      ordered.List[*module] // by module id
	ruling    *ruling
	mentioned *mentioned

	mu    sync.Mutex
	slots map[[3]string]SlotChoice // slot, workspace, agent → choice
}

func byExtension() ordered.Order[*module] {
	return ordered.Order[*module]{
		Compare: func(a, b *module) int { return cmp.Compare(a.Extension, b.Extension) },
		Sum:     func(m *module) ordered.Sum { return m.sum },
	}
}

func byModuleID() ordered.Order[*module] {
	return ordered.Order[*module]{
		Compare: func(a, b *module) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Extension, b.Extension)) },
		Sum:     func(m *module) ordered.Sum { return m.sum },
	}
}

func keyOrder() ordered.Order[*Entry] {
	return ordered.Order[*Entry]{
		Compare: func(a, b *Entry) int { return cmp.Or(cmp.Compare(a.key, b.key), compareEntries(a, b)) },
		Sum:     func(e *Entry) ordered.Sum { return e.sum },
	}
}

func sortedByKey(list []*Entry) []*Entry {
	list = slices.Clone(list)
	slices.SortFunc(list, keyOrder().Compare)
	return list
}

// Knows reports whether the provider has any entry.
func (s *Snapshot) Knows(key capability.ProviderKey) bool {
	_, ok := s.byKey.Find(func(e *Entry) int { return cmp.Compare(e.key, key) })
	return ok
}

// Len returns the number of entries.
func (s *Snapshot) Len() int { return s.entries.Len() }

// Entries yields every entry, ordered by action, extension id, contribution id
// and provider key.
func (s *Snapshot) Entries() iter.Seq[*Entry] { return s.entries.All() }

// Modules yields every module, also dormant ones, ordered by extension id.
func (s *Snapshot) Modules() iter.Seq[*capability.Module] {
	return func(yield func(*capability.Module) bool) {
		for m := range s.modules.All() {
			if !yield(m.Module) {
				return
			}
		}
	}
}

// ModuleCount returns the number of modules, including dormant ones.
func (s *Snapshot) ModuleCount() int { return s.modules.Len() }

// ModuleEntries returns the entries of a module, in the catalog's order.
func (s *Snapshot) ModuleEntries(extension string) []*Entry {
	m, ok := s.module(extension)
	if !ok {
		return nil
	}
	return slices.Clone(m.entries)
}

// Module returns the module with an extension id.
func (s *Snapshot) Module(extension string) (*capability.Module, bool) {
	m, ok := s.module(extension)
	if !ok {
		return nil, false
	}
	return m.Module, true
}

func (s *Snapshot) module(extension string) (*module, bool) {
	return s.modules.Find(func(m *module) int { return cmp.Compare(m.Extension, extension) })
}

// Settings returns the settings of the snapshot; they must not be changed.
func (s *Snapshot) Settings() *Settings { return s.settings }

// Rules returns the compiled rules of the settings.
func (s *Snapshot) Rules() *rules.Set { return s.rules }

// Action returns the entries that offer a, in deterministic order. An alias of the
// registry stands for its action.
func (s *Snapshot) Action(a capability.Action) []*Entry {
	if row := registryRow(a); row != nil {
		a = row.ID
	}
	return s.entries.Range(nil, func(e *Entry) int { return cmp.Compare(e.Action, a) })
}

// Families yields the actions with their entries, which are empty for an action without a
// provider. The list must be sorted, free of repetitions and without aliases; all reports
// that it is the list of every action. A yielded slice is overwritten by the next.
func (s *Snapshot) Families(list []capability.Action, all bool) iter.Seq2[capability.Action, []*Entry] {
	return func(yield func(capability.Action, []*Entry) bool) {
		var run []*Entry
		if !all && len(list) < s.entries.Len()/64 { // a binary search for each is cheaper than scanning all entries
			for _, a := range list {
				run = s.entries.Range(run[:0], func(e *Entry) int { return cmp.Compare(e.Action, a) })
				if !yield(a, run) {
					return
				}
			}
			return
		}
		flush := func() bool {
			if len(run) == 0 {
				return true
			}
			a := run[0].Action
			for !all && len(list) > 0 && list[0] < a {
				if !yield(list[0], nil) {
					return false
				}
				list = list[1:]
			}
			if !all && (len(list) == 0 || list[0] != a) {
				return true
			}
			if !all {
				list = list[1:]
			}
			return yield(a, run)
		}
		for e := range s.entries.All() {
			if len(run) > 0 && run[0].Action != e.Action {
				if !flush() {
					return
				}
				run = run[:0]
			}
			run = append(run, e)
		}
		if !flush() {
			return
		}
		for _, a := range list {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// Capability returns the entry with that capability id.
func (s *Snapshot) Capability(id capability.ID) (*Entry, bool) {
	extension, contribution, action, ok := splitID(string(id))
	if !ok {
		return nil, false
	}
	for e := range s.entries.From(func(e *Entry) int {
		return cmp.Or(cmp.Compare(string(e.Action), action), cmp.Compare(e.Module.Extension, extension),
			cmp.Compare(e.Contribution.ID, contribution))
	}) {
		if string(e.Action) != action || e.Module.Extension != extension || e.Contribution.ID != contribution {
			break
		}
		if e.ID == id {
			return e, true
		}
	}
	return nil, false
}

// Member returns the entries of module:kind:name. The module may be given by its own id or by
// its extension id. There can be several modules only if two endpoints offer one of the same
// id.
func (s *Snapshot) Member(m capability.Member) []*Entry {
	var out []*Entry
	add := func(mod *module) {
		list := mod.members()
		i, found := slices.BinarySearchFunc(list, m, func(e *Entry, m capability.Member) int {
			x := e.Contribution.Member
			return cmp.Or(cmp.Compare(x.Kind, m.Kind), cmp.Compare(x.Name, m.Name))
		})
		for ; found && i < len(list) && list[i].Contribution.Member.Kind == m.Kind && list[i].Contribution.Member.Name == m.Name; i++ {
			if !slices.Contains(out, list[i]) {
				out = append(out, list[i])
			}
		}
	}
	if mod, ok := s.module(m.Module); ok {
		add(mod)
	}
	for mod := range s.byID.From(func(mod *module) int { return cmp.Compare(mod.ID, m.Module) }) {
		if mod.ID != m.Module {
			break
		}
		add(mod)
	}
	return out
}

// Resolve returns the entries a target names, visible or not.
func (s *Snapshot) Resolve(t capability.Target) []*Entry {
	switch {
	case t.Capability != "":
		if e, ok := s.Capability(t.Capability); ok {
			return []*Entry{e}
		}
		return nil
	case t.Action != "":
		return s.Action(t.Action)
	}
	return s.Member(t.Member)
}

// Withheld returns the reason why an entry is withheld from all callers, a conflict or a
// dependency, or "". Slots depend on the context: see [Snapshot.SlotWithholds].
func (s *Snapshot) Withheld(e *Entry) string {
	if len(s.ruling.withheld) == 0 {
		return ""
	}
	if reason := s.ruling.withheld[claim{runtime: e.Runtime}]; reason != "" {
		return reason
	}
	return s.ruling.withheld[claim{e.Runtime, e.key}]
}

// LostTarget reports whether a route augmenter claimed a target exclusively and another
// one won it, or the conflict is undecided.
func (s *Snapshot) LostTarget(target, runtime string) bool { return s.ruling.augments[target][runtime] }

// Slot resolves a slot for a workspace and agent.
func (s *Snapshot) Slot(slot, workspace, agent string) SlotChoice {
	key := [3]string{slot, workspace, agent}
	if len(s.settings.Slots[slot].Overrides) == 0 {
		key[1], key[2] = "", ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	choice, ok := s.slots[key]
	if !ok {
		if len(s.slots) >= 1024 { // bounds the cache, which may hold contexts no longer in use
			s.slots = nil
		}
		if s.slots == nil {
			s.slots = make(map[[3]string]SlotChoice)
		}
		choice = s.ruling.resolve(s.settings, slot, workspace, agent)
		s.slots[key] = choice
	}
	return choice
}

// SlotWithholds reports whether the entry is withheld because another contribution, or none,
// holds the slot it is bound to.
func (s *Snapshot) SlotWithholds(e *Entry, workspace, agent string) bool {
	slot := e.SlotOf()
	if slot == "" {
		return false
	}
	choice := s.Slot(slot, workspace, agent)
	return !choice.holds(e)
}

// RankOf returns the effective rank: the operator's, otherwise the declared one.
func (s *Snapshot) RankOf(e *Entry) int {
	if rank, ok := s.settings.Ranks[e.key]; ok {
		return rank
	}
	return e.Contribution.Rank
}

// Rejected maps the runtime ids of rejected contributions to the reasons.
func (s *Snapshot) Rejected() map[string]string {
	out := make(map[string]string)
	for m := range s.modules.All() {
		for id, reason := range m.rejected {
			out[id] = reason
		}
	}
	for id, reason := range s.ruling.odd {
		out[id] = reason
	}
	return out
}

// Conflicts returns the conflict records, with overlaps only if requested. Conflicts of
// planner names are not included, because they depend on a context.
func (s *Snapshot) Conflicts(overlaps bool) []Conflict {
	out := slices.Clone(s.ruling.conflicts)
	if !overlaps {
		return out
	}
	var run []*Entry
	flush := func() {
		if c, ok := overlap(run); ok {
			out = append(out, c)
		}
		run = run[:0]
	}
	for e := range s.entries.All() {
		if len(run) > 0 && run[0].Action != e.Action {
			flush()
		}
		run = append(run, e)
	}
	flush()
	SortConflicts(out)
	return out
}

// overlap returns the record that several contributions provide one action. This is the normal
// case and needs no decision. ok is false for fewer than two contributions.
func overlap(entries []*Entry) (Conflict, bool) {
	if len(entries) < 2 || entries[0].ceiling&toAgent == 0 {
		return Conflict{}, false
	}
	c := Conflict{Class: ClassOverlap, Key: string(entries[0].Action), Resolution: "expected"}
	for _, e := range entries {
		c.Members = append(c.Members, e.Runtime)
	}
	slices.Sort(c.Members)
	c.Members = slices.Compact(c.Members)
	return c, len(c.Members) > 1
}

// Compose returns the available members of a composed kind in the order in which they run:
// by descending priority, extension id and contribution id.
func (s *Snapshot) Compose(kind string) []*Entry {
	var out []*Entry
	for _, e := range s.Action(familyOfKind(kind)) {
		if e.Contribution.Kind == kind && e.Eligible() && s.Withheld(e) == "" {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(composePriority(b), composePriority(a)), cmp.Compare(a.Runtime, b.Runtime))
	})
	return out
}

func composePriority(e *Entry) int {
	if a := e.Contribution.Arbitration; a != nil {
		return a.ComposePriority
	}
	return 0
}

// seal sets the etag, a digest of entries, modules, conflicts, rejections and settings.
func (s *Snapshot) seal() {
	h := sha256.New()
	entries, modules := s.entries.Digest(), s.modules.Digest()
	_, _ = h.Write(entries[:])
	_, _ = h.Write(modules[:])
	doc, _ := json.Marshal([]any{append([]Conflict{}, s.ruling.conflicts...), sortedPairs(s.ruling.odd)}) // strings and numbers only
	_, _ = h.Write(doc)
	_, _ = h.Write(s.settings.sum[:])
	s.Etag = hex.EncodeToString(h.Sum(nil))
}

// sortedPairs returns the map as a sorted list, which is never nil.
func sortedPairs(m map[string]string) [][2]string {
	out := make([][2]string, 0, len(m))
	for _, k := range sortedKeys(m) {
		out = append(out, [2]string{k, m[k]})
	}
	return out
}

// mentioned is the set of values that scopes, rules, slots and defaults name. Contexts that
// differ only in other values are the same context.
type mentioned struct {
	workspaces, agents, sessions, accounts, conversations map[string]bool
}

// Mentions reports whether a scope, rule, slot or default names that workspace, agent, session
// or conversation. It returns true for any other dimension.
func (s *Snapshot) Mentions(dimension, value string) bool {
	switch dimension {
	case "workspace":
		return s.mentioned.workspaces[value]
	case "agent":
		return s.mentioned.agents[value]
	case "session":
		return s.mentioned.sessions[value]
	case "conversation":
		return s.mentioned.conversations[value]
	}
	return true
}

// EntriesFrom yields the entries from the first one for which compare is not
// negative.
func (s *Snapshot) EntriesFrom(compare func(*Entry) int) iter.Seq[*Entry] {
	return s.entries.From(compare)
}
