package manifest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
)

// Resolved is a set of extensions as the host admits them.
type Resolved struct {
	Extensions []*Extension       // that are kept, ordered by id; failed ones without contributions
	Failed     map[string]string  // extension id → failure class
	Shadowed   []*Extension       // packages of a weaker origin with an id that is taken
	Conflicts  []catalog.Conflict // of runtime ids and HTTP surfaces
	routes     map[string]bool    // "<runtime>#<n>" of routes that are withheld
}

// Resolve finds what cannot stand together (conflict class 1 and the HTTP part of
// class 5; catalog spec, sections 9.1 and 9.2). The outcome does not depend on
// the order of the extensions.
func Resolve(extensions []Extension, owners map[string]string) *Resolved {
	r := &Resolved{Failed: make(map[string]string)}
	byID := make(map[string][]*Extension)
	for i := range extensions {
		id := strings.ToLower(extensions[i].ID)
		byID[id] = append(byID[id], &extensions[i])
	}
	for _, list := range byID {
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
			r.Failed[x.ID] = "registration-conflict"
		}
		c.Members = slices.Compact(c.Members)
		r.Conflicts = append(r.Conflicts, c)
		r.Extensions = append(r.Extensions, failed(kept[0]))
	}
	slices.SortFunc(r.Extensions, func(a, b *Extension) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(r.Shadowed, func(a, b *Extension) int { return strings.Compare(a.String(), b.String()) })
	r.surfaces(owners)
	catalog.SortConflicts(r.Conflicts)
	return r
}

func failed(x *Extension) *Extension {
	y := *x
	y.Stage, y.Enabled, y.Contributions = capability.StageFailed, nil, nil
	return &y
}

// duplicates fails an extension that declares a contribution twice.
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
	r.Failed[x.ID] = "registration-conflict"
	return failed(x)
}

// surface is one HTTP route of one contribution.
type surface struct {
	runtime string
	at      int
	route   *Route
	depends *capability.Depends
}

// surfaces finds HTTP surfaces that overlap.
func (r *Resolved) surfaces(owners map[string]string) {
	r.routes = make(map[string]bool)
	var all []surface
	for _, x := range r.Extensions {
		if !x.active() {
			continue
		}
		for i := range x.Contributions {
			c := &x.Contributions[i]
			for j := range c.Routes {
				all = append(all, surface{x.ID + "/" + c.ID, j, &c.Routes[j], c.depends()})
			}
		}
	}
	type clash struct {
		members  []surface
		mismatch bool
		equal    bool
	}
	clashes := make(map[string]*clash)
	for i := range all {
		for j := range all[:i] {
			a, b := all[j], all[i]
			if a.runtime == b.runtime || !strings.EqualFold(a.route.Method, b.route.Method) || !overlap(a.route, b.route) {
				continue
			}
			key := "http:" + min(a.route.Path, b.route.Path)
			c := clashes[key]
			if c == nil {
				c = &clash{}
				clashes[key] = c
			}
			c.members = append(c.members, a, b)
			c.mismatch = c.mismatch || a.route.auth() != b.route.auth()
			c.equal = c.equal || a.route.Path == b.route.Path
		}
	}
	for key, c := range clashes {
		var ids []string
		for _, m := range c.members {
			ids = append(ids, m.runtime)
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		record := catalog.Conflict{Class: catalog.ClassRouteSurface, Key: key, Members: ids, Resolution: "longest_prefix"}
		switch {
		case c.mismatch:
			record.Resolution, record.Remediation = "fatal_auth_mismatch", "let all of them demand the same auth, or move one to another path"
		case c.equal:
			record = catalog.Ladder(catalog.ClassRouteSurface, key, ids, owners, func(a, b string) bool {
				return slices.ContainsFunc(c.members, func(m surface) bool {
					return m.runtime == a && m.depends != nil && slices.Contains(m.depends.Supersedes, b)
				})
			})
		}
		r.Conflicts = append(r.Conflicts, record)
		if record.Resolution == "longest_prefix" {
			continue
		}
		for _, m := range c.members {
			if m.runtime != record.Winner {
				r.routes[routeKey(m.runtime, m.at)] = true
			}
		}
	}
}

func routeKey(runtime string, n int) string { return runtime + "#" + strconv.Itoa(n) }

func (r *Route) auth() string {
	if r.Auth == "" {
		return "gateway"
	}
	return r.Auth
}

// overlap reports whether two routes answer one path: the same one, or one inside
// the other's prefix at a segment border.
func overlap(a, b *Route) bool {
	inside := func(prefix, path string) bool {
		return path == prefix || strings.HasPrefix(path, strings.TrimSuffix(prefix, "/")+"/")
	}
	return a.Path == b.Path || a.Match == "prefix" && inside(a.Path, b.Path) || b.Match == "prefix" && inside(b.Path, a.Path)
}

// Served reports whether the n-th route of a contribution is served: nobody else
// has a better claim on its path.
func (r *Resolved) Served(runtime string, n int) bool { return !r.routes[routeKey(runtime, n)] }

func (x *Extension) active() bool {
	m := capability.Module{Stage: x.stage()}
	return m.Active()
}

// Active reports whether the extension's contributions take part in the catalogs.
func (x *Extension) Active() bool { return x.active() }
