package toolnames_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/platform/toolnames"
)

// home is a home with one MCP server, whose server is started with different files.
type home struct {
	t    *testing.T
	path string
	now  time.Time
}

// start returns the names of a server that catalog.yaml gives a setting, or "".
func (h *home) start(fresh bool, setting string) (*toolnames.Names, *catalog.Catalog) {
	h.t.Helper()
	n, err := toolnames.Open(toolnames.Config{
		Path: h.path, Fresh: fresh, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return h.now },
	})
	if err != nil {
		h.t.Fatalf("open the names: got %v, want no error", err)
	}
	set := catalog.Settings{Naming: catalog.NamingSetting{Upstreams: setting}}
	n.Complete(&set)
	c, err := catalog.New(set, 0)
	if err != nil {
		h.t.Fatalf("create the catalog: got %v, want no error", err)
	}
	m := capability.Module{Extension: "mcp.files", ID: "mcp.files", Label: "files", Origin: "mcp", Contributions: []capability.Contribution{
		{ID: "read", Kind: "capability.agent-tool", Tool: "read", Definition: json.RawMessage(`{}`)},
	}}
	if _, _, err := c.Replace(capability.Batch{Source: "files", Modules: []capability.Module{m}}); err != nil {
		h.t.Fatalf("offer a tool: got %v, want no error", err)
	}
	n.Use(c, func(s catalog.Settings) error { _, _, err := c.Configure(s); return err })
	n.Settle(h.t.Context())
	return n, c
}

func newHome(t *testing.T) *home {
	t.Helper()
	return &home{t, filepath.Join(t.TempDir(), "naming.json"), time.Unix(1_800_000_000, 0)}
}

func TestHomesThatExistedKeepTheirNames(t *testing.T) {
	for fresh, want := range map[bool]string{true: catalog.NamesAlways, false: catalog.NamesNeeded} {
		h := newHome(t)
		n, _ := h.start(fresh, "")
		if got := n.Get(); got.Upstreams != want || got.Fixed || len(got.Former) > 0 {
			t.Errorf("fresh %v: got %+v, want %s without former names", fresh, got, want)
		}
		again, _ := h.start(!fresh, "") // the file decides from then on
		if got := again.Get().Upstreams; got != want {
			t.Errorf("fresh %v, started again: got %s, want %s", fresh, got, want)
		}
	}
}

func TestSettingInTheFileRecordsFormerNamesAtTheStart(t *testing.T) {
	h := newHome(t)
	h.start(false, "")
	n, c := h.start(false, catalog.NamesAlways)
	got := n.Get()
	if len(got.Former) != 1 || got.Former[0].Name != "read" || !got.Fixed || len(c.Snapshot().Settings().Naming.Former) != 1 {
		t.Fatalf("got %+v, want the former name read", got)
	}
	if _, err := n.Change(t.Context(), capability.Principal{}, catalog.NamesNeeded, false); err == nil {
		t.Error("change what the file sets: got no error, want naming_fixed")
	}
	if again, _ := h.start(false, catalog.NamesAlways); len(again.Get().Former) != 1 {
		t.Errorf("started again: got %+v, want the same former name", again.Get())
	}
	h.now = h.now.Add(31 * 24 * time.Hour)
	if later, _ := h.start(false, catalog.NamesAlways); len(later.Get().Former) != 0 {
		t.Errorf("a month later: got %+v, want no former name", later.Get())
	}
}

func TestDryChangeOfNamesChangesNothing(t *testing.T) {
	h := newHome(t)
	n, c := h.start(true, "")
	before, err := os.ReadFile(h.path)
	if err != nil {
		t.Fatalf("read the file: got %v, want no error", err)
	}
	got, err := n.Change(t.Context(), capability.Principal{}, catalog.NamesNeeded, true)
	if err != nil || len(got.Renames) != 1 || got.Renames[0].Old != "files__read" || got.Renames[0].New != "read" {
		t.Errorf("dry change = %+v, %v, want files__read to read", got, err)
	}
	after, err := os.ReadFile(h.path)
	if err != nil || string(after) != string(before) || c.Snapshot().Settings().Naming.Upstreams != catalog.NamesAlways {
		t.Errorf("the file is %s, %v, want it unchanged", after, err)
	}
}

func TestHomesThatExistedGoOnListingOwnTools(t *testing.T) {
	for fresh, want := range map[bool]string{true: catalog.OwnHidden, false: ""} {
		h := newHome(t)
		n, c := h.start(fresh, "")
		for range 2 { // also after a restart
			if got := c.Snapshot().Settings().Exposure.OwnTools; got != want {
				t.Errorf("fresh %v: own tools %q, want %q", fresh, got, want)
			}
			n, c = h.start(false, "")
		}
		set := catalog.Settings{Exposure: catalog.Exposure{OwnTools: catalog.OwnListed}}
		if n.Complete(&set); set.Exposure.OwnTools != catalog.OwnListed {
			t.Errorf("fresh %v: own tools %q, want what catalog.yaml has", fresh, set.Exposure.OwnTools)
		}
	}
	h := newHome(t)
	n, _ := h.start(true, "")
	if _, err := n.Change(t.Context(), capability.Principal{}, catalog.NamesNeeded, false); err != nil {
		t.Fatalf("changing the names: %v", err)
	}
	if _, c := h.start(false, ""); c.Snapshot().Settings().Exposure.OwnTools != catalog.OwnHidden {
		t.Errorf("own tools after a change of names = %q, want %q", c.Snapshot().Settings().Exposure.OwnTools, catalog.OwnHidden)
	}
}
