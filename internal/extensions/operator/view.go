package operator

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// View is the operator catalog as surfaces show it. Equal content has an equal
// etag; volatile times and generations are not part of it.
type View struct {
	Etag      string             `json:"etag"` // hex SHA-256 of the canonical JSON of the rest
	Rows      []Row              `json:"rows"`
	Conflicts []catalog.Conflict `json:"conflicts"`
	Rejected  map[string]string  `json:"rejected"`
}

// View returns the rows, followed by the diagnostic rows of a snapshot of the catalog
// unless s is nil. others are conflicts that were found before the catalog was built
// (those of [declaration.Resolved]).
func (c *Catalog) View(s *catalog.Snapshot, others ...catalog.Conflict) (View, error) {
	v := View{Rows: c.Rows(), Conflicts: slices.Concat(others, c.conflicts), Rejected: make(map[string]string)}
	for id, reason := range c.rejected {
		v.Rejected[id] = reason
	}
	if s != nil {
		v.Conflicts = append(v.Conflicts, s.Conflicts(false)...)
		for id, reason := range s.Rejected() {
			v.Rejected[id] = reason
		}
	}
	catalog.SortConflicts(v.Conflicts)
	if s != nil {
		v.Rows = append(v.Rows, Diagnostics(s, v.Conflicts)...)
	}
	if v.Conflicts == nil {
		v.Conflicts = []catalog.Conflict{}
	}
	if v.Rows == nil {
		v.Rows = []Row{}
	}
	doc, err := json.Marshal(v)
	if err == nil {
		doc, err = jsonx.Canonical(doc)
	}
	if err != nil {
		return View{}, fmt.Errorf("write the operator catalog: %w", err)
	}
	sum := sha256.Sum256(doc)
	v.Etag = hex.EncodeToString(sum[:])
	return v, nil
}

// ProviderHealth is the metadata of a provider's diagnostic row.
type ProviderHealth struct {
	Provider   capability.ProviderKey `json:"provider"`
	Extensions []string               `json:"extensions"`
	Entries    int                    `json:"entries"`
	Eligible   int                    `json:"eligible"`
	Reasons    []string               `json:"reasons,omitempty"`
}

// BackendHealth is the metadata of a runtime backend's diagnostic row.
type BackendHealth struct {
	Class  string            `json:"class"`
	ID     string            `json:"id"`
	Health capability.Health `json:"health,omitempty"`
}

// Diagnostics returns the rows about the running state: the health of every provider and
// backend, the result of every slot, backend classes that prevent the server from
// starting, and conflicts. None of them can be invoked.
func Diagnostics(s *catalog.Snapshot, conflicts []catalog.Conflict) []Row {
	out := slices.Concat(providers(s), backends(s), slots(s))
	for _, b := range s.Blocking() {
		out = append(out, diagnostic("boot:"+b.Class, "", "Backend class "+b.Class, b.Code+"; "+b.Remediation, capability.StateUnavailable, b))
	}
	for _, c := range conflicts {
		if c.Class == catalog.ClassOverlap {
			continue // normal for parallel actions
		}
		state := capability.StateReady
		if c.Winner == "" && c.Resolution != "labelled" && c.Resolution != "longest_prefix" {
			state = capability.StateDegraded
		}
		out = append(out, diagnostic("conflict:"+c.Class+":"+c.Key+":"+c.Resolution, c.Winner, "Conflict over "+c.Key,
			cmp.Or(c.Remediation, c.Resolution), state, c))
	}
	slices.SortStableFunc(out, func(a, b Row) int { return cmp.Compare(a.RowID, b.RowID) })
	return out
}

func diagnostic(id, runtime, title, description string, state capability.State, metadata any) Row {
	return Row{
		RowID: "diagnostic:" + id, Row: "diagnostic", RuntimeID: runtime, Title: title, Description: description, RequiresActivation: true,
		Availability: cmp.Or(string(state), string(capability.StateReady)), Metadata: metadata,
	}
}

// worse returns the state that an operator has to look at first. An unknown one comes before all others.
func worse(a, b capability.State) capability.State {
	order := []capability.State{
		capability.StateUnavailable, capability.StateUnauthorized, capability.StateUnconfigured, capability.StateDraining,
		capability.StateStarting, capability.StateDegraded, capability.StateReady, "",
	}
	if slices.Index(order, a) <= slices.Index(order, b) {
		return a
	}
	return b
}

// providers returns one row for each provider key. The state is the worst one of its entries,
// but degraded if it has both good and bad entries.
func providers(s *catalog.Snapshot) []Row {
	found := make(map[capability.ProviderKey]*ProviderHealth)
	worst := make(map[capability.ProviderKey]capability.State)
	for e := range s.Entries() {
		h := found[e.Key()]
		if h == nil {
			h = &ProviderHealth{Provider: e.Key()}
			found[e.Key()] = h
		}
		h.Entries++
		h.Extensions = append(h.Extensions, e.Module.Extension)
		a := e.Contribution.Availability
		if a.Eligible() {
			h.Eligible++
		}
		if a.State != "" && a.State != capability.StateReady {
			worst[e.Key()] = worse(worst[e.Key()], a.State)
		}
		if a.Reason != "" {
			h.Reasons = append(h.Reasons, a.Reason)
		}
	}
	out := make([]Row, 0, len(found))
	for key, h := range found {
		for _, list := range []*[]string{&h.Extensions, &h.Reasons} {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
		state := worst[key]
		if state != "" && h.Eligible > 0 {
			state = capability.StateDegraded
		}
		out = append(out, diagnostic("provider:"+string(key), "", "Provider "+string(key),
			fmt.Sprintf("%d of %d capabilities can be called", h.Eligible, h.Entries), state, h))
	}
	return out
}

func backends(s *catalog.Snapshot) []Row {
	var out []Row
	for _, e := range s.Backends() {
		b := e.Contribution.Backend
		state := e.Contribution.Availability.State
		switch b.Health {
		case capability.HealthUnhealthy, capability.HealthUnknown:
			state = capability.StateUnavailable
		case capability.HealthDegraded:
			state = capability.StateDegraded
		}
		out = append(out, diagnostic("backend:"+b.Class+":"+e.Runtime, e.Runtime, "Backend "+b.Class+" "+b.ID,
			cmp.Or(string(b.Health), "no word on its health"), state,
			BackendHealth{Class: b.Class, ID: b.ID, Health: b.Health}))
	}
	return out
}

func slots(s *catalog.Snapshot) []Row {
	var out []Row
	for _, name := range []string{catalog.SlotContextEngine, catalog.SlotMemory} {
		choice := s.Slot(name, "", "")
		description, state := "held by "+choice.Winner, capability.StateReady
		if choice.Err != nil {
			description, state = choice.Err.Error()+"; "+choice.Err.Remediation, capability.StateUnavailable
		}
		out = append(out, diagnostic("slot:"+name, choice.Winner, "Slot "+name, description, state, choice))
	}
	return out
}
