package compile_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// serve offers tools of an MCP server with a definition.
func (l *leasing) serve(server, definition string, tools ...string) {
	l.t.Helper()
	b := capability.Batch{Source: server}
	if len(tools) > 0 {
		m := capability.Module{Extension: "mcp." + server, ID: "mcp." + server, Label: server, Origin: "mcp"}
		for _, name := range tools {
			m.Contributions = append(m.Contributions, capability.Contribution{
				ID: name, Kind: "capability.agent-tool", Tool: name, Definition: json.RawMessage(definition),
			})
		}
		b.Modules = []capability.Module{m}
	}
	if _, _, err := l.c.Replace(b); err != nil {
		l.t.Fatalf("offer the tools of %s: got %v, want no error", server, err)
	}
}

// rename changes whether names begin with the server's name, and records the former names for a month.
func (l *leasing) rename(to string) []compile.Rename {
	l.t.Helper()
	set := *l.c.Snapshot().Settings()
	next := set
	next.Naming.Upstreams = to
	renames := compile.Renames(l.c.Snapshot(), &set, &next)
	for _, r := range renames {
		next.Naming.Former = append(next.Naming.Former, catalog.FormerName{
			Name: r.Old, Action: r.Action, Definition: r.Definition, Until: l.clock.Add(30 * 24 * time.Hour),
		})
	}
	if _, _, err := l.c.Configure(next); err != nil {
		l.t.Fatalf("change the names: got %v, want no error", err)
	}
	return renames
}

func TestAddingAServerRenamesNoToolIfNamesBeginWithTheServer(t *testing.T) {
	l := newLeasing(t)
	l.rename(catalog.NamesAlways)
	l.serve("files", "{}", "read")
	before := l.list(token)
	l.serve("other", "{}", "read")
	if after := l.list(token); before != "files__read" || after != "files__read other__read" {
		t.Errorf("names = %q and then %q, want files__read, and then other__read beside it", before, after)
	}
}

func TestRenamesAreKnownBeforeTheyHappen(t *testing.T) {
	l := newLeasing(t)
	l.serve("files", "{}", "read", "look")
	l.serve("other", "{}", "read")
	set := *l.c.Snapshot().Settings()
	next := set
	next.Naming.Upstreams = catalog.NamesAlways
	got := compile.Renames(l.c.Snapshot(), &set, &next)
	for i := range got {
		got[i].Definition = ""
	}
	want := []compile.Rename{{Action: "ext.mcp.files.look", Old: "look", New: "files__look"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("renames differ (-want +got):\n%s", d)
	}
	if names := l.list(token); names != "files__read look other__read" {
		t.Errorf("names = %q, want those of before", names)
	}
}

func TestFormerNameReachesTheSameToolForItsTime(t *testing.T) {
	l := newLeasing(t)
	l.serve("files", "{}", "read")
	l.rename(catalog.NamesAlways)
	l.want(fresh, "read", "ext.mcp.files.read files__read")
	l.want(fresh, "files__read", "ext.mcp.files.read files__read")
	l.clock = l.clock.Add(30 * 24 * time.Hour)
	l.want(fresh, "read", "unknown_capability")
}

func TestFormerNameReachesNothingElse(t *testing.T) {
	t.Run("another definition", func(t *testing.T) {
		l := newLeasing(t)
		l.serve("files", "{}", "read")
		l.rename(catalog.NamesAlways)
		l.serve("files", `{"changed":true}`, "read")
		l.want(fresh, "read", "unknown_capability capability_retracted [files__read]")
	})
	t.Run("the tool is gone", func(t *testing.T) {
		l := newLeasing(t)
		l.serve("files", "{}", "read")
		l.rename(catalog.NamesAlways)
		l.serve("files", "{}")
		l.serve("other", "{}", "read")
		l.want(fresh, "read", "unknown_capability capability_retracted")
	})
	t.Run("two tools had it", func(t *testing.T) {
		l := newLeasing(t)
		l.serve("files", "{}", "read")
		l.rename(catalog.NamesAlways)
		l.serve("files", "{}")
		l.rename(catalog.NamesNeeded)
		l.serve("other", "{}", "read")
		l.rename(catalog.NamesAlways)
		l.want(fresh, "read", "unknown_capability capability_retracted [other__read]")
	})
}
