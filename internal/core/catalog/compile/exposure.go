package compile

import (
	"cmp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// View selects how much of the agent catalog is listed to a model.
type View string

// The views. The empty one is auto.
const (
	ViewFull   View = "full"   // everything
	ViewSearch View = "search" // the tools to find and describe others
	ViewHybrid View = "hybrid" // the limits of the settings
	ViewAuto   View = "auto"   // full if that is within the limits, else hybrid
)

// The tools that make deferred actions reachable.
const (
	ActionSearch   capability.Action = "catalog.search"
	ActionDescribe capability.Action = "catalog.describe"
	ActionCallRead capability.Action = "catalog.callRead"
	ActionCall     capability.Action = "catalog.call"
)

// Limits selects the part of an agent catalog that is listed.
type Limits struct {
	View     View
	Exposure catalog.Exposure
	// ByName lists catalog.callRead and catalog.call if some actions are deferred, for
	// clients that cannot call unlisted tools.
	ByName bool
	// Own, if not nil, reports whether an entry is the server's own and not of a provider that
	// the operator added. Then a list that is cut has the tools of the operator's providers
	// first, the same number of each provider, and own ones if there is room.
	Own func(*catalog.Entry) bool
	// HideOwn leaves own tools out, except those that the operator's patterns name. The search tools
	// are then listed only if the list is cut. It requires Own.
	HideOwn bool
}

// Exposure is the listed part of one agent catalog, and the number of actions left to search.
// It is immutable.
type Exposure struct {
	View     View      // full or hybrid if auto was requested
	Direct   []*Action // ordered by name
	Deferred int       // number of actions that are callable but not listed
}

// Shows reports whether Direct contains the action with that name.
func (x *Exposure) Shows(name string) bool {
	_, found := slices.BinarySearchFunc(x.Direct, name, func(a *Action, name string) int { return cmp.Compare(a.Name, name) })
	return found
}

// Expose selects the tools to show: canonical actions first, then those that the operator's
// patterns name, then others in the order of names until there are MaxDirect or
// their input schemas have MaxSchemaBytes. The search tools are shown
// if anything is deferred. It costs O(shown), and O(all) with patterns that
// have wildcards or prefixes and for ViewFull. A malformed pattern is an error.
func (a *Agent) Expose(l Limits) (*Exposure, error) {
	e := exposing{agent: a, limits: l, chosen: make(map[string]*Action), callers: callers(a)}
	if l.HideOwn && l.View != ViewSearch { // which finds all of them
		e.hideOwn()
	}
	switch l.View {
	case ViewFull:
		for x := range a.Actions() {
			if !e.callers[x.Name] && !e.hidden[x.Name] {
				e.chosen[x.Name] = x
			}
		}
		if err := e.patterns(); err != nil && l.HideOwn {
			return nil, err
		}
	case ViewSearch:
		e.family(ActionSearch, ActionDescribe)
	case ViewHybrid, ViewAuto, "":
		if err := e.hybrid(); err != nil {
			return nil, err
		}
	default:
		return nil, capability.Errorf(capability.CodeInvalidInput, "catalog.expose", "the view is full, search, hybrid or auto, not %q",
			l.View).With("invalid_settings", "")
	}
	return e.done(), nil
}

// callers returns the names of the tools that call other tools.
func callers(a *Agent) map[string]bool {
	out := make(map[string]bool, 2)
	for _, id := range []capability.Action{ActionCallRead, ActionCall} {
		if x, ok := a.Action(string(id)); ok {
			out[x.Name] = true
		}
	}
	return out
}

type exposing struct {
	agent   *Agent
	limits  Limits
	chosen  map[string]*Action
	callers map[string]bool // listed only if actions are deferred
	hidden  map[string]bool // own tools that are left out, unless a pattern names them
	bytes   int
}

// hideOwn finds the tools that only have own entries.
func (e *exposing) hideOwn() {
	e.hidden = make(map[string]bool)
	snap := e.agent.Snapshot()
	for m := range snap.Modules() {
		for _, entry := range snap.ModuleEntries(m.Extension) {
			if !e.limits.Own(entry) {
				break // all entries of a module have one origin
			}
			name, _, ok := e.agent.NameOf(entry, snap.Settings().Declared(entry))
			x, listed := e.agent.Action(name)
			if ok && listed && !e.callers[name] && !slices.ContainsFunc(x.Entries, func(o *catalog.Entry) bool { return !e.limits.Own(o) }) {
				e.hidden[name] = true
			}
		}
	}
}

// deferred returns the number of actions that are neither listed nor hidden.
func (e *exposing) deferred() int {
	n := e.agent.Len() - len(e.callers) - len(e.chosen)
	for name := range e.hidden {
		if e.chosen[name] == nil {
			n--
		}
	}
	return n
}

func (e *exposing) add(x *Action) {
	if e.callers[x.Name] || e.chosen[x.Name] != nil {
		return
	}
	e.chosen[x.Name] = x
	e.bytes += x.schemaSize()
}

func (e *exposing) family(ids ...capability.Action) {
	for _, id := range ids {
		if x, ok := e.agent.Action(string(id)); ok && x.Canonical == id {
			e.add(x)
		}
	}
}

// hybrid adds registered actions, those that the operator's patterns match, and others by name
// up to the limits.
func (e *exposing) hybrid() error {
	if e.limits.Own != nil {
		return e.providersFirst()
	}
	for _, row := range actions.Rows() {
		if row.Visibility == capability.AudienceAgent {
			e.family(row.ID)
		}
	}
	if err := e.patterns(); err != nil {
		return err
	}
	most, size := e.limits.Exposure.MaxDirect, e.limits.Exposure.MaxSchemaBytes
	most = cmp.Or(most, DefaultMaxDirect)
	size = cmp.Or(size, DefaultMaxSchemaBytes)
	for x := range e.agent.Actions() {
		if most >= 0 && len(e.chosen) >= most {
			break
		}
		if e.callers[x.Name] || e.chosen[x.Name] != nil {
			continue
		}
		if size >= 0 && e.bytes+x.schemaSize() > size {
			break
		}
		e.add(x)
	}
	return nil
}

// providersFirst adds the search tools and the operator's patterns, then the tools of the
// operator's providers in turn, and at last the server's own.
func (e *exposing) providersFirst() error {
	if e.limits.HideOwn {
		defer func() {
			if e.deferred() > 0 {
				e.family(ActionSearch, ActionDescribe)
			}
		}()
	} else {
		e.family(ActionSearch, ActionDescribe)
	}
	if err := e.patterns(); err != nil {
		return err
	}
	most := cmp.Or(e.limits.Exposure.MaxDirect, maxDirectOfProviders)
	size := cmp.Or(e.limits.Exposure.MaxSchemaBytes, maxSchemaBytesOfProviders)
	// take adds a tool unless its schema is too large for what is left, so that one provider's
	// large schema does not keep out the others. full reports that looking further is useless.
	misses := 0
	take := func(x *Action) (taken, full bool) {
		switch {
		case most >= 0 && len(e.chosen) >= most || misses > maxMisses:
			return false, true
		case size >= 0 && e.bytes+x.schemaSize() > size:
			misses++
			return false, false
		}
		e.add(x)
		return true, false
	}
	snap := e.agent.Snapshot()
	var own []*Action
	tried := make(map[[2]string]bool)
	var queues [][]*catalog.Entry
	for m := range snap.Modules() {
		queues = append(queues, snap.ModuleEntries(m.Extension))
	}
	for len(queues) > 0 {
		rest := queues[:0]
		for _, queue := range queues {
			for len(queue) > 0 {
				entry := queue[0]
				queue = queue[1:]
				// A function of many nodes has an entry for each, whose name is looked up once.
				function := [2]string{string(entry.Action), snap.Settings().Declared(entry)}
				if tried[function] {
					continue
				}
				tried[function] = true
				name, _, ok := e.agent.NameOf(entry, function[1])
				x, listed := e.agent.Action(name)
				if !ok || !listed || e.callers[x.Name] || e.chosen[x.Name] != nil {
					continue
				}
				if !slices.ContainsFunc(x.Entries, func(other *catalog.Entry) bool { return !e.limits.Own(other) }) {
					own = append(own, x)
					continue
				}
				taken, full := take(x)
				if full {
					return nil
				}
				if taken {
					break
				}
			}
			if len(queue) > 0 {
				rest = append(rest, queue)
			}
		}
		queues = rest
	}
	for _, x := range own {
		if e.hidden[x.Name] {
			continue
		}
		if _, full := take(x); full {
			return nil
		}
	}
	return nil
}

// patterns adds the actions that the operator's patterns match.
func (e *exposing) patterns() error {
	var wild []string
	for _, p := range e.limits.Exposure.Direct {
		if strings.ContainsAny(p, "*?:") {
			wild = append(wild, p)
			continue
		}
		tried := make(map[string]bool)
		for _, entry := range e.agent.Snapshot().Action(capability.Action(strings.TrimSpace(p))) {
			declared := e.agent.Snapshot().Settings().Declared(entry)
			if tried[declared] {
				continue
			}
			tried[declared] = true
			name, _, ok := e.agent.NameOf(entry, declared)
			if x, listed := e.agent.Action(name); ok && listed {
				e.add(x)
			}
		}
	}
	if len(wild) == 0 {
		return nil
	}
	set, err := rules.Compile([]rules.Rule{{ID: "exposure.direct", Effect: "allow", Match: wild}})
	if err != nil {
		return err
	}
	known := set.Patterns()
	for x := range e.agent.Actions() {
		if slices.ContainsFunc(x.Entries, func(entry *catalog.Entry) bool { return matchesAny(known, entry.Facts()) }) {
			e.add(x)
		}
	}
	return nil
}

func matchesAny(patterns []rules.Pattern, f rules.Facts) bool {
	for i := range patterns { // a copy of each would be on the heap
		if patterns[i].Matches(f) {
			return true
		}
	}
	return false
}

// done returns the exposure of the chosen actions, sorted by name.
func (e *exposing) done() *Exposure {
	out := &Exposure{View: e.limits.View, Deferred: e.deferred()}
	if e.limits.ByName && out.Deferred > 0 {
		for name := range e.callers {
			e.chosen[name], _ = e.agent.Action(name)
		}
	}
	if out.View == ViewAuto || out.View == "" {
		if out.View = ViewHybrid; out.Deferred == 0 {
			out.View = ViewFull
		}
	}
	out.Direct = make([]*Action, 0, len(e.chosen))
	for _, x := range e.chosen {
		out.Direct = append(out.Direct, x)
	}
	slices.SortFunc(out.Direct, byName().Compare)
	return out
}

// schemaSize returns the size in bytes of the action's schema for planners.
func (a *Action) schemaSize() int {
	if len(a.Entries) < 2 && !a.RequiresSelection {
		return len(a.baseSchema())
	}
	doc, err := a.InputSchema()
	if err != nil {
		return len(a.baseSchema())
	}
	return len(doc)
}
