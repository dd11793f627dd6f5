package eval_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// parity describes the migration of one product to the catalog: every old name, the
// action or kind that replaces it, the extension that declares it, and the scenarios
// that test it.
type parity struct {
	Pilot string `json:"pilot"`
	Rows  []struct {
		Old         string   `json:"old"`
		Is          string   `json:"is"`
		By          string   `json:"by"`
		Fixture     string   `json:"fixture"`
		AdapterWord bool     `json:"adapterWord"`
		Scenarios   []string `json:"scenarios"`
	} `json:"rows"`
}

func load(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatalf("err = %v, want nil; path = %q", err, path)
	}
}

// TestParityOfThePilots holds that nothing of a pilot was lost on the way: the
// acceptance fixtures declare what its old names became, and every scenario named
// exists. That the scenarios hold is tested beside them.
func TestParityOfThePilots(t *testing.T) {
	t.Parallel()
	var fixtures struct {
		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	load(t, "testdata/fixtures.json", &fixtures)
	var pack []struct {
		ID string `json:"id"`
	}
	load(t, "testdata/scenarios.json", &pack)
	scenarios := make(map[string]bool)
	for _, s := range pack {
		scenarios[s.ID] = true
	}
	running := regexp.MustCompile(`^R(0[1-9]|[12][0-9]|3[0-7])$`)
	files, err := filepath.Glob("testdata/parity/*.json")
	if err != nil || len(files) != 12 {
		t.Fatalf("err = %v, want nil; len(files) = %v, want 12", err, len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			var p parity
			load(t, file, &p)
			for _, row := range p.Rows {
				x, _, err := declaration.Parse(fixtures.Extensions[row.Fixture])
				if err != nil {
					t.Fatalf("fixture %s: %v", row.Fixture, err)
				}
				if !slices.Contains(meanings(t, x, row.By), row.Is) {
					t.Errorf("%s is %s no more: %s is %v; want meanings(t, x, row.By) with %v",
						row.Old, row.Is, row.By, meanings(t, x, row.By), row.Is)
				}
				if in, known := declaration.ActionOf(row.Old); row.AdapterWord && (!known || string(in.Action) != row.Is) {
					t.Errorf("the import table reads %s as %q; want not (row.AdapterWord && (!known || string(in.Action) != row.Is))",
						row.Old, in.Action)
				}
				if len(row.Scenarios) == 0 {
					t.Errorf("nothing shows %s; want len(row.Scenarios) other than 0", row.Old)
				}
				for _, id := range row.Scenarios {
					if !scenarios[id] && !running.MatchString(id) {
						t.Errorf("%s: there is no scenario %s; want not (!scenarios[id] && !running.MatchString(id))", row.Old, id)
					}
				}
			}
		})
	}
}

// meanings are the actions of a contribution's entries, and its kind where it has
// none.
func meanings(t *testing.T, x declaration.Extension, runtime string) (out []string) {
	t.Helper()
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Replace(capability.Batch{Source: x.ID, Modules: []capability.Module{x.Module()}}); err != nil {
		t.Fatal(err)
	}
	for e := range c.Snapshot().Entries() {
		if e.Runtime == runtime {
			out = append(out, string(e.Action))
		}
	}
	for i := range x.Contributions {
		if d := &x.Contributions[i]; len(out) == 0 && x.ID+"/"+d.ID == runtime {
			out = append(out, d.Kind)
		}
	}
	return out
}
