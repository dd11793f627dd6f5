package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// BackendRequest names the runtime backend to choose: its class and, optionally, its id or
// one of its selectors. If both are set, ID decides.
type BackendRequest struct{ Class, ID, Selector string }

// BackendChoice is the backend that Backend chose.
type BackendChoice struct {
	Entry    *Entry
	Degraded bool // the backend is degraded, because no healthy one was found
}

func selectorsOf(b *capability.Backend) []string {
	if len(b.Selectors) > 0 {
		return b.Selectors
	}
	return []string{b.ID}
}

// healthOf returns the backend's reported health, or else one derived from its availability.
func healthOf(e *Entry) capability.Health {
	if !e.Contribution.Availability.Eligible() {
		return capability.HealthUnhealthy
	}
	switch h := e.Contribution.Backend.Health; {
	case h != "" && h != capability.HealthHealthy:
		return h
	case e.Contribution.Availability.State == capability.StateDegraded:
		return capability.HealthDegraded
	}
	return capability.HealthHealthy
}

// usable reports whether a backend of that health may be chosen.
func usable(h capability.Health) bool {
	return h == capability.HealthHealthy || h == capability.HealthDegraded
}

// selectors finds selectors that several backends claim. They are withheld from all of them
// until the operator decides (conflict class 6).
func (r *ruling) selectors(settings *Settings, supersedes func(a, b string) bool) {
	type wanted struct {
		members   []string
		exclusive bool
	}
	claims := make(map[string]*wanted)
	for _, e := range r.backends {
		b := e.Contribution.Backend
		for _, selector := range selectorsOf(b) {
			key := b.Class + ":" + selector
			if claims[key] == nil {
				claims[key] = &wanted{}
			}
			if list := claims[key].members; len(list) == 0 || list[len(list)-1] != e.Runtime { // a backend may list a selector twice
				claims[key].members = append(list, e.Runtime)
			}
			claims[key].exclusive = claims[key].exclusive || b.Exclusive
		}
	}
	for _, key := range sortedKeys(claims) {
		w := claims[key]
		if len(w.members) < 2 || !w.exclusive {
			continue
		}
		c := Ladder(ClassBackendSelector, key, w.members, settings.Owners, supersedes)
		r.conflicts = append(r.conflicts, c)
		lost := make(map[string]bool)
		for _, m := range c.Members {
			if m != c.Winner {
				lost[m] = true
			}
		}
		r.contested[key] = lost
	}
	for _, e := range r.backends {
		if r.lostAll(e) {
			r.withheld[claim{runtime: e.Runtime}] = "backend_selector_conflict"
		}
	}
}

// lostAll reports whether the backend lost every selector it has.
func (r *ruling) lostAll(e *Entry) bool {
	b := e.Contribution.Backend
	return !slices.ContainsFunc(selectorsOf(b), func(s string) bool { return !r.contested[b.Class+":"+s][e.Runtime] })
}

// Backend chooses a runtime backend: the one with the requested id, otherwise the one
// configured for the class, otherwise the healthiest with the best rank among those with the
// selector or, without a selector, of the whole class. A backend given by id is never replaced
// by another. Errors: not_found, reason backend_not_found; slot_conflict, reason
// backend_selector_conflict; unavailable, reason backend_unavailable.
func (s *Snapshot) Backend(req BackendRequest) (BackendChoice, error) {
	fail := func(code capability.Code, reason, format string, args ...any) (BackendChoice, error) {
		return BackendChoice{}, capability.Errorf(code, "catalog.backend", format, args...).With(reason,
			"see what there is with: junctor catalog internal")
	}
	r := s.ruling
	id := req.ID
	if id == "" {
		id = s.settings.Backends[req.Class].Selected
	}
	if id == "" && s.settings.Backends[req.Class].Exclusive && slices.ContainsFunc(r.backends, func(e *Entry) bool {
		return e.Contribution.Backend.Class == req.Class && e.Contribution.Backend.ID == defaultSelector
	}) {
		id = defaultSelector // rank decides nothing in an exclusive class
	}
	var found []*Entry
	withheld := false
	for _, e := range r.backends {
		b := e.Contribution.Backend
		if b.Class != req.Class {
			continue
		}
		switch {
		case id != "":
			if b.ID != id {
				continue
			}
			withheld = withheld || r.contested[b.Class+":"+id][e.Runtime] || s.Withheld(e) != ""
		case req.Selector != "":
			if !slices.Contains(selectorsOf(b), req.Selector) {
				continue
			}
			if r.contested[b.Class+":"+req.Selector][e.Runtime] || s.Withheld(e) != "" {
				withheld = true
				continue
			}
		case s.Withheld(e) != "":
			withheld = true
			continue
		}
		found = append(found, e)
	}
	switch {
	case len(found) == 0 && withheld:
		return fail(capability.CodeSlotConflict, "backend_selector_conflict",
			"several backends of class %s claim the same selector, and no setting decides between them", req.Class)
	case len(found) == 0:
		return fail(capability.CodeNotFound, "backend_not_found", "there is no backend %s",
			strings.Join(slices.DeleteFunc([]string{req.Class, id, req.Selector}, func(p string) bool { return p == "" }), " "))
	case id != "" && (len(found) > 1 || withheld):
		return fail(capability.CodeSlotConflict, "backend_selector_conflict", "several backends of class %s are called %s", req.Class, id)
	}
	ready := slices.DeleteFunc(slices.Clone(found), func(e *Entry) bool { return !usable(healthOf(e)) })
	if len(ready) == 0 {
		return fail(capability.CodeUnavailable, "backend_unavailable", "no backend of class %s is healthy", req.Class)
	}
	best := slices.MinFunc(ready, func(a, b *Entry) int {
		return cmp.Or(
			cmp.Compare(unhealth(a), unhealth(b)), cmp.Compare(s.RankOf(b), s.RankOf(a)),
			cmp.Compare(a.Module.Extension, b.Module.Extension), cmp.Compare(a.Contribution.ID, b.Contribution.ID),
		)
	})
	return BackendChoice{Entry: best, Degraded: healthOf(best) == capability.HealthDegraded}, nil
}

// unhealth returns 0 for a healthy backend and 1 for any other, for sorting.
func unhealth(e *Entry) int {
	if healthOf(e) == capability.HealthHealthy {
		return 0
	}
	return 1
}

// Backends returns every backend, ordered by class and runtime id.
func (s *Snapshot) Backends() []*Entry {
	list := slices.Clone(s.ruling.backends)
	slices.SortFunc(list, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(a.Contribution.Backend.Class, b.Contribution.Backend.Class), cmp.Compare(a.Runtime, b.Runtime))
	})
	return list
}

// BlockingIssue is an undecided backend class. The server does not start until the operator
// has chosen a backend.
type BlockingIssue struct {
	Class       string `json:"class"`
	Code        string `json:"code"` // backend_not_found, backend_slot_conflict
	Remediation string `json:"remediation"`
}

// Blocking returns the exclusive backend classes without a decided holder. Rank does not
// decide an exclusive class.
func (s *Snapshot) Blocking() []BlockingIssue {
	var out []BlockingIssue
	for _, class := range sortedKeys(s.settings.Backends) {
		set := s.settings.Backends[class]
		if !set.Exclusive {
			continue
		}
		var ids []string
		for _, e := range s.ruling.backends {
			if e.Contribution.Backend.Class == class {
				ids = append(ids, e.Contribution.Backend.ID)
			}
		}
		slices.Sort(ids)
		wanted := set.Selected
		wanted = cmp.Or(wanted, defaultSelector)
		n := len(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id != wanted }))
		switch {
		case n == 1, len(ids) == 1 && set.Selected == "":
		case len(ids) == 0, set.Selected != "" && n == 0:
			out = append(out, BlockingIssue{
				class, "backend_not_found",
				fmt.Sprintf("set catalog.backends.%s.selected to one of: %s", class, strings.Join(ids, ", ")),
			})
		default:
			out = append(out, BlockingIssue{
				class, "backend_slot_conflict",
				fmt.Sprintf("set catalog.backends.%s.selected to one of: %s", class, strings.Join(ids, ", ")),
			})
		}
	}
	return out
}
