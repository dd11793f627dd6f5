package declaration

import (
	"cmp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// surface is one HTTP route of one contribution.
type surface struct {
	runtime string
	at      int
	route   *Route
	method  string
	depends *capability.Depends
}

// The ways in which two routes can overlap.
const (
	meetNested   = "longest_prefix"
	meetMismatch = "fatal_auth_mismatch"
	meetEqual    = "equal"
)

// surfaces records overlapping HTTP routes of active extensions as conflicts. Each way of
// overlapping is a separate record, so that a route that is only nested in a contested
// one is not withheld with it.
func (r *Resolved) surfaces(owners map[string]string) {
	var all []surface
	for _, x := range r.Extensions {
		if !x.active() {
			continue
		}
		for i := range x.Contributions {
			c := &x.Contributions[i]
			for j := range c.Routes {
				all = append(all, surface{x.ID + "/" + c.ID, j, &c.Routes[j], strings.ToUpper(c.Routes[j].Method), c.depends()})
			}
		}
	}
	// In this order the paths below a path follow it, so each pair is compared once.
	slices.SortFunc(all, func(a, b surface) int {
		return cmp.Or(cmp.Compare(a.method, b.method), cmp.Compare(a.route.Path, b.route.Path), cmp.Compare(a.runtime, b.runtime),
			cmp.Compare(a.at, b.at))
	})
	type clash struct{ key, way string }
	clashes := make(map[clash][]surface)
	for i, a := range all {
		beneath := strings.TrimSuffix(a.route.Path, "/")
		for _, b := range all[i+1:] {
			if b.method != a.method || !strings.HasPrefix(b.route.Path, beneath) {
				break
			}
			if way := meet(a.route, b.route); way != "" && a.runtime != b.runtime {
				key := clash{"http:" + a.route.Path, way}
				clashes[key] = append(clashes[key], a, b)
			}
		}
	}
	for c, members := range clashes {
		r.contest(c.key, c.way, members, owners)
	}
}

// contest records one overlap. Equal routes are decided by package catalog's rules and owners.
func (r *Resolved) contest(key, way string, members []surface, owners map[string]string) {
	var ids []string
	for _, m := range members {
		ids = append(ids, m.runtime)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	record := catalog.Conflict{Class: catalog.ClassRouteSurface, Key: key, Members: ids, Resolution: way}
	switch way {
	case meetMismatch:
		record.Remediation = "let all of them demand the same auth, or move one to another path"
	case meetEqual:
		record = catalog.Ladder(catalog.ClassRouteSurface, key, ids, owners, func(a, b string) bool {
			return slices.ContainsFunc(members, func(m surface) bool {
				return m.runtime == a && m.depends != nil && slices.Contains(m.depends.Supersedes, b)
			})
		})
	}
	r.Conflicts = append(r.Conflicts, record)
}

// meet returns how two routes of one method overlap, or "" if no path matches both. a's
// path must not be longer than b's.
func meet(a, b *Route) string {
	equal := a.Path == b.Path
	nested := a.Match == "prefix" && strings.HasPrefix(b.Path, strings.TrimSuffix(a.Path, "/")+"/")
	switch {
	case !equal && !nested:
		return ""
	case a.auth() != b.auth():
		return meetMismatch
	case equal:
		return meetEqual
	}
	return meetNested
}

func (r *Route) auth() string {
	if r.Auth == "" {
		return "gateway"
	}
	return r.Auth
}
