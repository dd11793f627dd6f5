package compile

import (
	lru "container/list"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
)

// LeaseKey identifies the receiver of a listing: a session or, for callers without one, a token
// and its view.
type LeaseKey struct {
	Session     string
	Token, View string
}

// Leases store the meaning that names had when they were shown to a caller, so that a rename
// does not redirect calls. They are safe for concurrent use.
type Leases struct {
	now     func() time.Time
	aliases aliases

	mu    sync.Mutex
	last  listed                    // the last recorded list, which most callers share
	byKey map[LeaseKey]*lru.Element // of *lease
	order lru.List                  // by the time of the last listing, oldest first
	names int
}

type lease struct {
	key   LeaseKey
	shown time.Time
	names map[string]target
}

// listed is one list of actions with the targets of its names. The map never changes.
type listed struct {
	first      **Action // address of the first element, which identifies the list
	count      int
	spelling   Spelling
	generation uint64
	names      map[string]target
}

// target is the meaning of a listed name.
type target struct {
	action     capability.Action
	wanted     string // fold of the name a single tool declares; "" for a family
	generation uint64
}

// NewLeases returns an empty set that reads the time from now.
func NewLeases(now func() time.Time) *Leases {
	return &Leases{now: now, byKey: make(map[LeaseKey]*lru.Element)}
}

// Record renews the lease of key with the actions listed to it, under the names that sp writes.
// A name listed again takes its new meaning.
func (l *Leases) Record(key LeaseKey, a *Agent, sp Spelling, shown []*Action) {
	names := l.meaning(a, sp, shown)
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if el := l.byKey[key]; el != nil {
		old := el.Value.(*lease)
		if now.Sub(old.shown) < LeaseTTL {
			names = merged(names, old.names)
		}
		l.drop(el)
	}
	l.byKey[key] = l.order.PushBack(&lease{key, now, names})
	l.names += len(names)
	for el := l.order.Front(); el != l.order.Back(); el = l.order.Front() {
		if len(l.byKey) <= maxLeases && l.names <= maxNames && now.Sub(el.Value.(*lease).shown) < LeaseTTL {
			break
		}
		l.drop(el)
	}
}

// meaning returns the targets of the names of a list, at most maxLeaseNames. Consecutive calls
// with the same slice share one map.
func (l *Leases) meaning(a *Agent, sp Spelling, shown []*Action) map[string]target {
	if len(shown) == 0 {
		return nil
	}
	is := listed{first: &shown[0], count: len(shown), spelling: sp, generation: a.Snapshot().Generation}
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	if last.first == is.first && last.count == is.count && last.spelling == sp && last.generation == is.generation {
		return last.names
	}
	is.names = make(map[string]target, min(len(shown), maxLeaseNames))
	for _, x := range shown {
		if len(is.names) == maxLeaseNames {
			break
		}
		t := target{action: x.Canonical, generation: is.generation}
		if first := x.Entries[0]; first.Minted() {
			t.wanted = naming.Fold(a.Snapshot().Settings().Declared(first))
		}
		is.names[sp.Write(a, x)] = t
	}
	l.mu.Lock()
	l.last = is
	l.mu.Unlock()
	return is.names
}

// merged returns the names of both maps, those of now first up to the limit. It changes neither
// map.
func merged(now, before map[string]target) map[string]target {
	out := now
	for name, t := range before {
		if _, again := now[name]; again || len(out) >= maxLeaseNames {
			continue
		}
		if len(out) == len(now) {
			out = maps.Clone(now)
			if out == nil {
				out = make(map[string]target)
			}
		}
		out[name] = t
	}
	return out
}

// Forget deletes the lease of key.
func (l *Leases) Forget(key LeaseKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if el := l.byKey[key]; el != nil {
		l.drop(el)
	}
}

func (l *Leases) drop(el *lru.Element) {
	old := l.order.Remove(el).(*lease)
	delete(l.byKey, old.key)
	l.names -= len(old.names)
}

// leased returns the target of a name in the lease of key. An expired lease is dropped.
func (l *Leases) leased(key LeaseKey, name string) (target, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	el := l.byKey[key]
	if el == nil {
		return target{}, false
	}
	held := el.Value.(*lease)
	if l.now().Sub(held.shown) >= LeaseTTL {
		l.drop(el)
		return target{}, false
	}
	t, ok := held.names[name]
	return t, ok
}

// Shown reports whether the lease of key has a name, because a list had it.
func (l *Leases) Shown(key LeaseKey, name string) bool {
	_, ok := l.leased(key, name)
	return ok
}

// Resolved is the meaning of a name for a caller.
type Resolved struct {
	Canonical  capability.Action
	Action     *Action // nil if the action exists but is not listed now; a selection returns the reason
	Leased     bool    // resolved by the caller's lease
	Generation uint64  // of the listing, if Leased
}

// Resolve returns the meaning of a name: by the caller's lease, else as a current name (in sp
// or plain), else as an alias, else as a former name. A leased name never resolves to another action. Errors:
// unknown_capability, reason capability_retracted and the names of possible successors, if
// the leased action may no longer be used; invalid_input, reason ambiguous_alias, if several
// tools claim the alias or one has a similar name; unknown_capability for other names.
// Resolve does not check whether the action can serve.
func (l *Leases) Resolve(key LeaseKey, a *Agent, sp Spelling, name string) (Resolved, error) {
	if t, ok := l.leased(key, name); ok {
		if !a.usableAs(t.action) {
			return Resolved{}, retracted(a, sp, name, t)
		}
		return Resolved{Canonical: t.action, Action: a.listed(t.action), Leased: true, Generation: t.generation}, nil
	}
	if x, ok := sp.Read(a, name); ok {
		return Resolved{Canonical: x.Canonical, Action: x}, nil
	}
	for x := range a.foldRange(naming.Fold(name)) {
		if (x.Name == name || sp.Write(a, x) == name) && a.usableAs(x.Canonical) {
			return Resolved{Canonical: x.Canonical}, nil
		}
	}
	r, err := l.alias(a, sp, name)
	if e, ok := errors.AsType[*capability.Error](err); ok && e.Code == capability.CodeUnknownCapability {
		return l.former(a, sp, name, err)
	}
	return r, err
}

// alias resolves aliases of registry rows and of tools.
func (l *Leases) alias(a *Agent, sp Spelling, name string) (Resolved, error) {
	claims := l.aliases.find(a, name)
	if row, ok := actions.Lookup(capability.Action(name)); ok {
		if x, ok := a.Action(string(row.ID)); ok {
			claims = append(claims, x)
		}
	}
	claimed := make(map[capability.Action]*Action)
	for _, x := range claims {
		if claimed[x.Canonical] == nil || !x.Alias {
			claimed[x.Canonical] = x
		}
	}
	if len(claimed) == 0 {
		return Resolved{}, capability.UnknownCapability(capability.Target{Action: capability.Action(name)})
	}
	for x := range a.foldRange(naming.Fold(name)) {
		if now, listed := a.Action(x.Name); listed && claimed[x.Canonical] == nil {
			claimed[x.Canonical] = now
		}
	}
	names := make([]string, 0, len(claimed))
	for _, x := range claimed {
		names = append(names, sp.Write(a, x))
	}
	if len(names) > 1 {
		slices.Sort(names)
		return Resolved{}, capability.Errorf(capability.CodeInvalidInput, "resolve", "%q may mean %s", name, strings.Join(names, " or ")).
			With("ambiguous_alias", "call the one you mean by its own name").Detail("names", names)
	}
	for action, x := range claimed {
		return Resolved{Canonical: action, Action: x}, nil
	}
	panic("unreachable")
}

// usableAs reports whether some entry of the action may be chosen in the context,
// whatever its state.
func (a *Agent) usableAs(action capability.Action) bool {
	return slices.ContainsFunc(a.Snapshot().Action(action), func(e *catalog.Entry) bool {
		reason, _ := a.Frame.Candidate(e, capability.AudienceAgent)
		return reason == ""
	})
}

// listed returns the Action that the catalog lists for a canonical or minted action, or nil.
func (a *Agent) listed(action capability.Action) *Action {
	if x, ok := a.Action(string(action)); ok && x.Canonical == action {
		return x
	}
	tried := make(map[string]bool) // a function of many nodes has an entry for each
	for _, e := range a.Snapshot().Action(action) {
		for _, want := range a.Wants(e) {
			if tried[want] {
				continue
			}
			tried[want] = true
			name, _, ok := a.NameOf(e, want)
			if x, now := a.Action(name); ok && now {
				return x
			}
		}
	}
	return nil
}

// retracted returns the error for a leased name whose action may no longer be used. It lists
// the tools that claim the same name now; none of them is called instead.
func retracted(a *Agent, sp Spelling, name string, t target) error {
	var names []string
	add := func(x *Action) {
		if x != nil && x.Canonical != t.action {
			names = append(names, sp.Write(a, x))
		}
	}
	if t.wanted != "" {
		for x := range a.foldRange(t.wanted) {
			if now, ok := a.Action(x.Name); ok {
				add(now)
			}
		}
		for i := range a.Contests {
			if a.Contests[i].Fold != t.wanted {
				continue
			}
			for _, runtime := range a.Contests[i].Members {
				extension, contribution, _ := strings.Cut(runtime, "/")
				add(a.listed(capability.Action("ext." + extension + "." + contribution)))
			}
		}
	}
	slices.Sort(names)
	return renamed(name, "what has this name now is another tool; if you mean it, call ", slices.Compact(names))
}

// renamed returns the error for a name whose tool may not be called by it any more. The hint is
// followed by the names of the tools that may be meant.
func renamed(name, why string, names []string) error {
	hint := "list the tools again"
	if len(names) > 0 {
		hint = why + strings.Join(names, " or ")
	}
	err := capability.Errorf(capability.CodeUnknownCapability, "resolve", "the tool that was shown as %q is no longer there",
		name).With("capability_retracted", hint)
	err.Target = name
	if len(names) > 0 {
		_ = err.Detail("names", names)
	}
	return err
}
