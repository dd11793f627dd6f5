package clis

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/testkit/built"
	"github.com/junctor-run/junctor/internal/testkit/fakemodel"
)

// refusal is a tool call that was refused, as the API shows it.
type refusal struct{ Tool, What, By string }

// TestRefusalsDecideWhetherATurnIsDone: a turn in which the program refused by the settings of its user
// what the preset asks about is not done. What the preset refuses, and what the user refuses, is listed only.
func TestRefusalsDecideWhetherATurnIsDone(t *testing.T) {
	bin, _ := commands(t)
	t.Parallel()
	for _, c := range programs() {
		if c.name != "claude" && c.name != "codex" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil {
				t.Skipf("%s is not installed; run: make test-agents", c.name)
			}
			t.Parallel()
			files := maps.Clone(c.files)
			if c.name == "claude" { // Codex does not report a command that its rules forbid
				files[".claude/settings.json"] = `{"permissions": {"deny": ["Bash(touch:*)"]}}`
			}
			r := &run{program: c, plane: newPlane(t, built.Junctor(t), files)}
			dir := r.workspace(t, "work")
			var err error
			r.fake, err = fakemodel.Start(fakemodel.Script{
				"PLAY-TOUCH": {{Run: "touch " + filepath.Join(dir, "ran.txt")}, {Say: "So be it."}},
				"PLAY-MKDIR": {{Run: "mkdir " + filepath.Join(dir, "made")}, {Say: "So be it."}},
			})
			ok(t, err)
			t.Cleanup(r.fake.Close)

			s := r.spawnIn(t, "structured", "standard", dir, "Ask me. PLAY-MKDIR", "")
			r.answered(t, s.ID, "deny")
			s = r.completed(t, s.ID, 1)
			r.refusals(t, s, "answer", "mkdir")
			if c.name == "claude" {
				r.refusedByItself(t, s.ID)
			}
			holds(t, dir)
			r.stop(t, s.ID)
			s = r.spawnIn(t, "structured", "readonly", dir, "Try. PLAY-MKDIR", "")
			s = r.completed(t, s.ID, 1)
			if c.name == "claude" { // the sandbox of Codex refuses it, as a failed command
				r.refusals(t, s, "preset", "mkdir")
			}
			holds(t, dir)
			r.stop(t, s.ID)
		})
	}
}

// refusedByItself: the program refuses touch without a question.
func (r *run) refusedByItself(t *testing.T, id string) {
	r.post(t, id, "send", map[string]any{"input": "Try. PLAY-TOUCH"})
	s := r.until(t, id, "its turn has ended", func(s session) bool {
		return s.Status == "ready" && (s.CompletedTurns > 1 || strings.HasPrefix(s.Phase, "failed:"))
	})
	if s.Phase != "failed:permission_refused" || s.CompletedTurns != 1 {
		t.Errorf("phase = %s after %d completed turns, want failed:permission_refused and the first turn only\n%s",
			s.Phase, s.CompletedTurns, r.picture(t, id))
	}
	r.refusals(t, s, "answer", "mkdir", "unasked", "touch")
	if _, answer := r.request(t, "GET", "/api/v1/audit?event=agent_permission", nil); !strings.Contains(answer, "unasked") {
		t.Errorf("the records are %s, want one of the refusal without a question", answer)
	}
}

// refusals compares the refusals of a session with pairs of who refused, and a word of what.
func (r *run) refusals(t *testing.T, s session, want ...string) {
	t.Helper()
	same := len(s.Refusals) == len(want)/2
	for i := 0; same && i < len(s.Refusals); i++ {
		same = s.Refusals[i].By == want[2*i] && strings.Contains(s.Refusals[i].What, want[2*i+1])
	}
	if !same {
		t.Errorf("refusals = %+v, want %q\n%s", s.Refusals, want, r.picture(t, s.ID))
	}
}
