package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// Conflict is a claim made by several contributions. It does not depend on
// the order of their arrival.
type Conflict struct {
	Class       string   `json:"class"` // runtime_id, canonical_overlap, planner_name, singleton_slot, route_surface, backend_selector
	Key         string   `json:"key"`
	Members     []string `json:"members"` // runtime ids, sorted
	Resolution  string   `json:"resolution"`
	Winner      string   `json:"winner,omitempty"`
	Remediation string   `json:"remediation,omitempty"`
}

// The conflict classes.
const (
	ClassRuntimeID       = "runtime_id"
	ClassOverlap         = "canonical_overlap"
	ClassPlannerName     = "planner_name"
	ClassSlot            = "singleton_slot"
	ClassRouteSurface    = "route_surface"
	ClassBackendSelector = "backend_selector"
)

// SortConflicts orders records by class and key.
func SortConflicts(list []Conflict) {
	slices.SortFunc(list, func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Key, b.Key), slices.Compare(a.Members, b.Members))
	})
}

// Ladder decides a contested key of class 5 or 6: the operator's pin, otherwise the one
// member that supersedes all others and is not superseded. Without either, the key has no
// winner. Rank and order of arrival do not count.
func Ladder(class, key string, members []string, owners map[string]string, supersedes func(a, b string) bool) Conflict {
	slices.Sort(members)
	members = slices.Compact(members)
	c := Conflict{Class: class, Key: key, Members: members, Resolution: "unresolved"}
	if pin := owners[key]; slices.Contains(members, pin) {
		c.Resolution, c.Winner = "operator_pin", pin
		return c
	}
	// A member that does not supersede the next one cannot win, and neither can those that the
	// candidate superseded, so one is left in the end.
	winner := members[0]
	for _, m := range members[1:] {
		if !supersedes(winner, m) {
			winner = m
		}
	}
	if !slices.ContainsFunc(members, func(m string) bool {
		return m != winner && (!supersedes(winner, m) || supersedes(m, winner))
	}) {
		c.Resolution, c.Winner = "supersedes", winner
		return c
	}
	c.Remediation = fmt.Sprintf("set catalog.owners.%q to one of: %s", key, strings.Join(members, ", "))
	return c
}

// claim is the part of a contribution that a conflict withholds: one provider key, or the
// whole contribution if the key is "".
type claim struct {
	runtime string
	key     capability.ProviderKey
}

// ruling holds the decisions that depend on more than one contribution: withheld entries,
// conflicts, slots, backends and route augmenters. It is immutable.
type ruling struct {
	withheld  map[claim]string // → reason
	conflicts []Conflict       // without overlaps and names
	slots     map[string][]slotClaim
	dormant   []slotClaim                    // of modules that are not active
	bound     map[string][]capability.Action // by slot: actions of entries that follow the slot's holder without a claim of their own
	backends  []*Entry
	contested map[string]map[string]bool // "<class>:<selector>" → runtime ids that lost it
	augments  map[string]map[string]bool // target → route augmenters that lost it
	odd       map[string]string
}

// rule computes the ruling over the special modules and over the doubled provider keys and
// actions. exists reports whether an active module declares that runtime id and it was not
// rejected.
func rule(settings *Settings, special []*module, exists func(runtime string) bool, doubled map[capability.Action][]double) *ruling {
	r := &ruling{
		withheld: make(map[claim]string), slots: make(map[string][]slotClaim), bound: make(map[string][]capability.Action),
		contested: make(map[string]map[string]bool), augments: make(map[string]map[string]bool),
	}
	relations := make(map[string]*capability.Depends)
	var augmenters []*Entry
	for _, m := range special {
		r.claims(m)
		for _, rel := range m.relations {
			if !rel.settled {
				relations[rel.runtime] = rel.Depends
			}
		}
		for _, e := range m.ruled {
			if e.Contribution.Backend != nil {
				r.backends = append(r.backends, e)
			}
			if a := e.Contribution.Augment; a != nil && a.Exclusive {
				augmenters = append(augmenters, e)
			}
		}
	}
	over := make(map[string]map[string]bool) // built on demand, because lists may be long
	supersedes := func(a, b string) bool {
		d := relations[a]
		if d == nil || len(d.Supersedes) == 0 {
			return false
		}
		if over[a] == nil {
			over[a] = make(map[string]bool, len(d.Supersedes))
			for _, id := range d.Supersedes {
				over[a][id] = true
			}
		}
		return over[a][b]
	}
	r.providerKeys(settings, doubled, supersedes)
	r.selectors(settings, supersedes)
	r.targets(settings, augmenters, supersedes)
	if r.takesWhole() { // a module's settled relations may depend on a contribution that was just withheld
		for _, m := range special {
			for _, rel := range m.relations {
				relations[rel.runtime] = rel.Depends
			}
		}
	}
	r.depend(settings, relations, exists)
	r.admitClaims()
	r.singletons(settings)
	SortConflicts(r.conflicts)
	return r
}

// takesWhole reports whether a whole contribution is withheld, not only a key.
func (r *ruling) takesWhole() bool {
	for held := range r.withheld {
		if held.key == "" {
			return true
		}
	}
	return false
}

// double is a provider key that several contributions use for one action, or a
// minted action that several contributions have.
type double struct {
	key      capability.ProviderKey
	action   capability.Action
	runtimes []string
}

// providerKeys decides provider keys and minted actions that several contributions use, and
// withholds the losers: of a key only the entries with that key, of an action the whole
// contribution.
func (r *ruling) providerKeys(settings *Settings, doubled map[capability.Action][]double, supersedes func(a, b string) bool) {
	members := make(map[capability.ProviderKey][]string)
	for _, list := range doubled {
		for _, d := range list {
			if d.key != "" {
				members[d.key] = append(members[d.key], d.runtimes...)
				continue
			}
			r.contest(Ladder(ClassRouteSurface, string(d.action), d.runtimes, settings.Owners, supersedes), "")
		}
	}
	for key, runtimes := range members {
		r.contest(Ladder(ClassRouteSurface, string(key), runtimes, settings.Owners, supersedes), key)
	}
}

// contest records a conflict and withholds the key from every member but the winner.
func (r *ruling) contest(c Conflict, key capability.ProviderKey) {
	r.conflicts = append(r.conflicts, c)
	for _, m := range c.Members {
		if m != c.Winner {
			r.withheld[claim{m, key}] = "route_surface_conflict"
		}
	}
}

// targets decides the targets that several exclusive route augmenters claim, records the
// conflicts, and stores the losers in r.augments.
func (r *ruling) targets(settings *Settings, augmenters []*Entry, supersedes func(a, b string) bool) {
	wanted := make(map[string][]string)
	for _, e := range augmenters {
		for _, target := range e.Contribution.Augment.Targets {
			wanted[target] = append(wanted[target], e.Runtime)
		}
	}
	for target, members := range wanted {
		slices.Sort(members)
		if members = slices.Compact(members); len(members) < 2 { // an augmenter may list a target twice
			continue
		}
		c := Ladder(ClassRouteSurface, "augment:"+target, members, settings.Owners, supersedes)
		r.conflicts = append(r.conflicts, c)
		lost := make(map[string]bool)
		for _, m := range c.Members {
			if m != c.Winner {
				lost[m] = true
			}
		}
		r.augments[target] = lost
	}
}

// depend withholds contributions that declare a conflict with an existing one
// (dependency_conflict), and those of which a requirement is missing or withheld
// (dependency_missing), transitively. A dependency cycle is withheld as a whole.
func (r *ruling) depend(settings *Settings, relations map[string]*capability.Depends, exists func(string) bool) {
	for id, d := range relations {
		for _, other := range d.Conflicts {
			if exists(other) && settings.Owners["conflict:"+pair(id, other)] != id {
				r.withheld[claim{runtime: id}] = "dependency_conflict"
				break
			}
		}
	}
	// Every contribution starts as missing. One whose requirements are all met becomes good,
	// which may meet the requirements of others. The rest depend on a missing or withheld
	// contribution, or on a cycle.
	waiting := make(map[string]int)
	needed := make(map[string][]string)
	var good []string
	for id, d := range relations {
		for _, need := range d.Requires {
			if relations[need] == nil && exists(need) && r.withheld[claim{runtime: need}] == "" {
				continue
			}
			waiting[id]++
			needed[need] = append(needed[need], id)
		}
		if waiting[id] == 0 && r.withheld[claim{runtime: id}] == "" {
			good = append(good, id)
		}
	}
	for len(good) > 0 {
		id := good[len(good)-1]
		good = good[:len(good)-1]
		for _, other := range needed[id] {
			if waiting[other]--; waiting[other] == 0 && r.withheld[claim{runtime: other}] == "" {
				good = append(good, other)
			}
		}
	}
	for id, n := range waiting {
		if n > 0 && r.withheld[claim{runtime: id}] == "" {
			r.withheld[claim{runtime: id}] = "dependency_missing"
		}
	}
}

func pair(a, b string) string {
	if a > b {
		a, b = b, a
	}
	return a + "+" + b
}
