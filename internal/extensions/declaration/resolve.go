package declaration

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// Resolved is the result of [Resolve].
type Resolved struct {
	Extensions []*Extension       // one per id, ordered by id; failed ones have no contributions
	Failed     map[string]string  // extension id → failure class
	Shadowed   []*Extension       // packages hidden by one of a stronger origin with the same id
	Refused    []*Extension       // packages refused earlier in favour of another with the same id
	Conflicts  []catalog.Conflict // of runtime ids and HTTP surfaces
}

// Resolve selects one package per id and records conflicts of ids and HTTP routes
// (conflict class 1 and the HTTP part of class 5). Packages with the same id and origin
// fail, as does one that declares a contribution twice. owners holds the operator's
// choices for contested routes. The result does not depend on the order of extensions.
func Resolve(extensions []Extension, owners map[string]string) *Resolved {
	r := &Resolved{Failed: make(map[string]string)}
	byID := make(map[string][]*Extension)
	for i := range extensions {
		id := strings.ToLower(extensions[i].ID)
		byID[id] = append(byID[id], &extensions[i])
	}
	for _, list := range byID {
		list = r.standing(list)
		strongest := 0
		for _, x := range list {
			strongest = max(strongest, originStrength(x.origin()))
		}
		var kept []*Extension
		for _, x := range list {
			if originStrength(x.origin()) == strongest {
				kept = append(kept, x)
			} else {
				r.Shadowed = append(r.Shadowed, x)
			}
		}
		if len(kept) == 1 {
			r.Extensions = append(r.Extensions, r.duplicates(kept[0]))
			continue
		}
		slices.SortFunc(kept, func(a, b *Extension) int { return strings.Compare(a.ID, b.ID) })
		c := catalog.Conflict{
			Class: catalog.ClassRuntimeID, Key: kept[0].ID, Resolution: "fatal",
			Remediation: "remove one of the packages called " + kept[0].ID,
		}
		for _, x := range kept {
			c.Members = append(c.Members, x.ID)
			r.Failed[x.ID] = ReasonConflict
		}
		c.Members = slices.Compact(c.Members)
		r.Conflicts = append(r.Conflicts, c)
		r.Extensions = append(r.Extensions, failed(kept[0]))
	}
	slices.SortFunc(r.Extensions, func(a, b *Extension) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(r.Refused, func(a, b *Extension) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(r.Shadowed, func(a, b *Extension) int { return strings.Compare(a.String(), b.String()) })
	r.surfaces(owners)
	catalog.SortConflicts(r.Conflicts)
	return r
}

// standing returns the packages that the host has not refused before, or all if it refused every one.
// Otherwise a restart would make the running package fail together with the refused one.
func (r *Resolved) standing(list []*Extension) []*Extension {
	refused := func(x *Extension) bool { return x.DisabledReason != "" }
	rest := slices.DeleteFunc(slices.Clone(list), refused)
	if len(rest) == 0 {
		return list
	}
	for _, x := range list {
		if refused(x) {
			r.Refused = append(r.Refused, x)
		}
	}
	return rest
}

// ReasonConflict is the failure class of packages with the same id, and the
// DisabledReason of a package that was refused for that.
const ReasonConflict = "registration-conflict"

func failed(x *Extension) *Extension {
	y := *x
	y.Stage, y.Enabled, y.Contributions = capability.StageFailed, nil, nil
	return &y
}

// duplicates returns x, or a failed copy if it declares a contribution twice.
func (r *Resolved) duplicates(x *Extension) *Extension {
	seen := make(map[string]bool, len(x.Contributions))
	fatal := false
	for i := range x.Contributions {
		id := x.Contributions[i].ID
		if seen[id] {
			fatal = true
			runtime := x.ID + "/" + id
			if !slices.ContainsFunc(r.Conflicts, func(c catalog.Conflict) bool { return c.Key == runtime }) {
				r.Conflicts = append(r.Conflicts, catalog.Conflict{
					Class: catalog.ClassRuntimeID, Key: runtime, Members: []string{runtime}, Resolution: "fatal",
					Remediation: "extension " + x.ID + " must give its contributions different ids",
				})
			}
		}
		seen[id] = true
	}
	if !fatal {
		return x
	}
	r.Failed[x.ID] = ReasonConflict
	return failed(x)
}

func (x *Extension) active() bool {
	m := capability.Module{Stage: x.stage()}
	return m.Active()
}

// Active reports whether the extension's contributions take part in the catalogs.
func (x *Extension) Active() bool { return x.active() }
