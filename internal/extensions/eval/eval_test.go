package eval_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/junctor-run/junctor/internal/extensions/eval"
)

// TestScenarios runs the acceptance scenarios under three orders of extensions.
func TestScenarios(t *testing.T) {
	t.Parallel()
	fixtures, err := eval.ParseFixtures(read(t, "fixtures.json"))
	if err != nil {
		t.Fatal(err)
	}
	scenarios, err := eval.Parse(read(t, "scenarios.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(scenarios) != 81 {
		t.Errorf("%d scenarios; want len(scenarios) = 81", len(scenarios))
	}
	for _, s := range scenarios {
		t.Run(s.ID, func(t *testing.T) {
			t.Parallel()
			n := 0
			err := eval.Run(fixtures, s, func(o eval.Outcome) {
				n++
				if !o.OK {
					want, _ := json.Marshal(s.Ask[o.Index].Expect)
					got, _ := json.Marshal(o.Got)
					t.Errorf("%s, question %d, order %s\nwant %s\ngot  %s", s.Title, o.Index, o.Order, want, got)
				}
			})
			if err != nil || n != 3*len(s.Ask) {
				t.Errorf("%d answers: %v; want no error, n = 3 * len(s.Ask)", n, err)
			}
		})
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
