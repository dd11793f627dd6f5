package coordinator_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

type counted struct{ runs int }

func (c *counted) Run(context.Context, string, []string) (int, string, error) {
	c.runs++
	return 0, "", nil
}

// TestAPresetHoldsForTheChecksOfARepository: commands that an agent must not run, or only
// where the user approves them, are not run for it when it reports that it is done.
func TestAPresetHoldsForTheChecksOfARepository(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		preset string
		level  coordinator.Level
		named  bool // the checks are those of the task itself
		runs   int
	}{
		"no commands":                         {"readonly", coordinator.Autonomous, false, 0},
		"commands are asked about":            {"permissive", coordinator.Confirm, false, 0},
		"and the coordinator answers":         {"permissive", coordinator.Autonomous, false, 1},
		"commands at once":                    {"autonomous", coordinator.Confirm, false, 1},
		"those that the operator names, ever": {"readonly", coordinator.Confirm, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ran := &counted{}
			play(t, func(r *rig) {
				r.cfg.Model = judge(`{"verdict":"pass","summary":"fine"}`)
				r.cfg.Validator = validation.New(validation.Config{Model: r.cfg.Model, Runner: ran, Now: time.Now})
			}, func(r *rig) {
				if _, err := r.reg.UpdateThread(r.t.Context(), r.thread, func(th *row.Thread) {
					th.Kind = row.Coding
					if c.named {
						th.Metadata = []byte(`{"checks":[["make","check"]]}`)
					}
				}); err != nil {
					r.t.Fatal(err)
				}
				r.start("s1", func(s *row.Session) {
					s.Workdir, s.Metadata = dir, row.WithMeta(nil, "approvalPreset", c.preset)
				})
				if err := r.SetLevel(r.t.Context(), r.thread, c.level); err != nil {
					r.t.Fatal(err)
				}
				r.turn("s1", "It is done.")
				if c.level == coordinator.Confirm {
					if err := r.Confirm(r.t.Context(), "s1", true, nil); err != nil {
						r.t.Fatal(err)
					}
				}
				r.wait(time.Minute)
				r.status("s1", row.SessionCompleted)
			})
			if ran.runs != c.runs {
				t.Errorf("%d commands were run, want %d", ran.runs, c.runs)
			}
		})
	}
}
