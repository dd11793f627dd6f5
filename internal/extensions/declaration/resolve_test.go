package declaration_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

func route(ext, path, match, auth string) declaration.Extension {
	return declaration.Extension{ID: ext, Contributions: []declaration.Contribution{{
		ID: "r", Kind: "surface.http-route", Routes: []declaration.Route{{Method: "GET", Path: path, Match: match, Auth: auth}},
	}}}
}

func conflicts(r *declaration.Resolved) []catalog.Conflict {
	list := slices.Clone(r.Conflicts)
	for i := range list {
		list[i].Remediation = ""
	}
	return list
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	record := func(key, resolution, winner string, members ...string) catalog.Conflict {
		return catalog.Conflict{Class: "route_surface", Key: "http:" + key, Members: members, Resolution: resolution, Winner: winner}
	}
	over := route("b", "/a", "", "")
	over.Contributions[0].Supersedes = []string{"a/r"}
	for name, c := range map[string]struct {
		in     []declaration.Extension
		owners map[string]string
		want   []catalog.Conflict
	}{
		"apart": {in: []declaration.Extension{route("a", "/a", "", ""), route("b", "/b", "", ""), route("c", "/ab", "prefix", "")}},
		"equal": {
			in:   []declaration.Extension{route("a", "/a", "", ""), route("b", "/a", "prefix", "")},
			want: []catalog.Conflict{record("/a", "unresolved", "", "a/r", "b/r")},
		},
		"pinned": {
			in:     []declaration.Extension{route("a", "/a", "", ""), route("b", "/a", "", "")},
			owners: map[string]string{"http:/a": "a/r"}, want: []catalog.Conflict{record("/a", "operator_pin", "a/r", "a/r", "b/r")},
		},
		"replaced": {
			in:   []declaration.Extension{route("a", "/a", "", ""), over},
			want: []catalog.Conflict{record("/a", "supersedes", "b/r", "a/r", "b/r")},
		},
		"mismatch": {
			in:     []declaration.Extension{route("a", "/a", "", "plugin"), route("b", "/a", "", "")},
			owners: map[string]string{"http:/a": "a/r"}, want: []catalog.Conflict{record("/a", "fatal_auth_mismatch", "", "a/r", "b/r")},
		},
		"exact does not contain": {in: []declaration.Extension{route("a", "/a", "exact", ""), route("b", "/a/b", "prefix", "")}},
		"nested twice": {
			in: []declaration.Extension{
				route("a", "/a", "prefix", ""), route("b", "/a/b", "prefix", ""), route("c", "/a/b/c", "", ""),
				route("d", "/a-b", "", ""),
			},
			want: []catalog.Conflict{record("/a", "longest_prefix", "", "a/r", "b/r", "c/r"), record("/a/b", "longest_prefix", "", "b/r", "c/r")},
		},
		"a nested one stays when its prefix is contested": {
			in: []declaration.Extension{
				route("a", "/a", "prefix", ""), route("b", "/a", "prefix", ""), route("c", "/a/c", "", ""),
				route("d", "/a/d", "", "public"),
			},
			want: []catalog.Conflict{
				record("/a", "fatal_auth_mismatch", "", "a/r", "b/r", "d/r"),
				record("/a", "longest_prefix", "", "a/r", "b/r", "c/r"), record("/a", "unresolved", "", "a/r", "b/r"),
			},
		},
		"root": {
			in:   []declaration.Extension{route("a", "/", "prefix", ""), route("b", "/b", "", "")},
			want: []catalog.Conflict{record("/", "longest_prefix", "", "a/r", "b/r")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				rand.Shuffle(len(c.in), func(i, j int) { c.in[i], c.in[j] = c.in[j], c.in[i] })
				r := declaration.Resolve(c.in, c.owners)
				byAll := cmpopts.SortSlices(func(a, b catalog.Conflict) bool { return a.Key+a.Resolution < b.Key+b.Resolution })
				if diff := cmp.Diff(c.want, conflicts(r), cmpopts.EquateEmpty(), byAll); diff != "" {
					t.Errorf("diff (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestIDsThatAreTaken(t *testing.T) {
	t.Parallel()
	ext := func(id, origin string) declaration.Extension {
		return declaration.Extension{ID: id, Origin: origin, Contributions: []declaration.Contribution{{
			ID: "t", Kind: "capability.agent-tool",
			Tool: &declaration.Tool{Name: "t"},
		}}}
	}
	names := func(list []*declaration.Extension) (out []string) {
		for _, x := range list {
			out = append(out, x.String())
		}
		return out
	}
	in := []declaration.Extension{
		ext("a", "bundled"), ext("A", "workspace"), ext("a", "remote"), ext("b", "global"), ext("B", "global"),
		ext("c", ""), ext("d", "config"),
	}
	in[5].Contributions = append(in[5].Contributions, in[5].Contributions[0])
	for range 5 {
		rand.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		r := declaration.Resolve(in, nil)
		if diff := cmp.Diff([]string{"a (bundled)", "a (remote)"}, names(r.Shadowed)); diff != "" {
			t.Errorf("diff (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"B": declaration.ReasonConflict, "b": declaration.ReasonConflict, "c": declaration.ReasonConflict},
			r.Failed); diff != "" {
			t.Errorf(`diff = %q, want ""`, diff)
		}
		if diff := cmp.Diff([]string{"A (workspace)", "B (global)", "c (bundled)", "d (config)"}, names(r.Extensions)); diff != "" {
			t.Errorf(`diff = %q, want ""`, diff)
		}
		if diff := cmp.Diff([]catalog.Conflict{
			{Class: "runtime_id", Key: "B", Members: []string{"B", "b"}, Resolution: "fatal"},
			{Class: "runtime_id", Key: "c/t", Members: []string{"c/t"}, Resolution: "fatal"},
		}, conflicts(r)); diff != "" {
			t.Errorf(`diff = %q, want ""`, diff)
		}
	}
}

// TestASecondPackageDoesNotTakeTheRunningOneDown holds that a package whose id is taken
// is refused, also after a restart.
func TestASecondPackageDoesNotTakeTheRunningOneDown(t *testing.T) {
	t.Parallel()
	first, second := declaration.Extension{ID: "tools-x", Origin: "global", Version: "1"},
		declaration.Extension{ID: "Tools-X", Origin: "global", Version: "2"}
	second.DisabledReason = declaration.ReasonConflict
	for _, order := range [][]declaration.Extension{{first, second}, {second, first}} { // after a restart
		r := declaration.Resolve(order, nil)
		if len(r.Failed) > 0 || len(r.Conflicts) > 0 || len(r.Extensions) != 1 || r.Extensions[0].Version != "1" || !r.Extensions[0].Active() ||
			len(r.Refused) != 1 {
			t.Errorf("%+v; want len(r.Failed) at most 0, len(r.Conflicts) at most 0, len(r.Extensions) = 1, "+
				`r.Extensions[0].Version = "1", r.Extensions[0].Active(), len(r.Refused) = 1`, r)
		}
	}
	if r := declaration.Resolve([]declaration.Extension{second}, nil); r.Extensions[0].Active() {
		t.Error("it became active because the first one went")
	}
}

// TestAMissingRequirementWithholdsWhatNeedsIt holds that all withheld modules appear in
// the generation in which the requirement is met.
func TestAMissingRequirementWithholdsWhatNeedsIt(t *testing.T) {
	t.Parallel()
	need := func(id, on string) capability.Module {
		x := declaration.Extension{ID: id, Contributions: []declaration.Contribution{{
			ID: "t", Kind: "capability.agent-tool",
			Tool: &declaration.Tool{Name: id},
		}}}
		if on != "" {
			x.Contributions[0].DependsOn = &capability.Depends{Requires: []string{on}}
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
		return x.Module()
	}
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(m capability.Module) {
		if _, _, err := c.Replace(capability.Batch{Source: m.Extension, Modules: []capability.Module{m}}); err != nil {
			t.Fatal(err)
		}
	}
	withheld := func() (out []string) {
		s := c.Snapshot()
		for e := range s.Entries() {
			if reason := s.Withheld(e); reason != "" {
				out = append(out, e.Runtime+" "+reason)
			}
		}
		return out
	}
	replace(need("a", "b/t"))
	replace(need("c", "a/t"))
	if diff := cmp.Diff([]string{"a/t dependency_missing", "c/t dependency_missing"}, withheld()); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	before := c.Snapshot().Generation
	replace(need("b", ""))
	if now := c.Snapshot().Generation; now != before+1 || len(withheld()) > 0 {
		t.Errorf("generation = %d, withheld = %v; want %d, none", now, withheld(), before+1)
	}
}
