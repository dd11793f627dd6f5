package clis

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// TestASessionIsOpenedInItsTerminal continues a conversation of structured mode, the default, in the
// terminal of the program, and shows it before that as text.
func TestASessionIsOpenedInItsTerminal(t *testing.T) {
	bin, _ := commands(t)
	t.Parallel()
	for _, c := range programs() {
		if c.not["structured"] != "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil || os.Getenv("TASK_AGENTS_SHORT") != "" {
				t.Skipf("%s is not installed, or it is tried in make test-agents only", c.name)
			}
			t.Parallel()
			fake, err := scriptedmodel.Start(scriptedmodel.Script{"PLAY-FIRST": {{Say: "The word is quince."}}, "PLAY-THEN": {{Say: "I remember."}}})
			ok(t, err)
			t.Cleanup(fake.Close)
			// The command names neither a model nor its address.
			r := &run{program: c, fake: fake, plane: newPlane(t, built.Junctor(t), c.files, "ANTHROPIC_BASE_URL="+fake.URL(),
				"OPENAI_BASE_URL="+fake.URL()+"/v1", "GOOGLE_GEMINI_BASE_URL="+fake.URL(), "PARALLAX_CODEX_MODEL_POWERFUL=gpt-5.5")}
			dir := r.workspace(t, "work")
			s := r.spawnIn(t, "", "autonomous", dir, "Remember. PLAY-FIRST", "")
			s = r.completed(t, s.ID, 1)
			if s.Mode != "structured" {
				t.Errorf("mode = %s, want structured by default", s.Mode)
			}
			if got := r.picture(t, s.ID); !strings.Contains(got, "> ") || !strings.Contains(got, "The word is quince.") {
				t.Errorf("the transcript is %q, want the task and the answer", got)
			}
			opens := c.name == "claude" || c.name == "codex" || c.name == "gemini"
			if opens {
				if out, err := r.junctor("tasks", "open", s.ID, "--json"); err == nil || !strings.Contains(out, "session_runs") {
					t.Errorf("opening a session that runs: %v %s, want session_runs", err, out)
				}
			}
			r.stop(t, s.ID)
			out, err := r.junctor("tasks", "open", s.ID, "--json")
			if !opens {
				if err == nil || !strings.Contains(out, "not_resumable") {
					t.Errorf("opening a session of %s: %v %s, want not_resumable", c.name, err, out)
				}
				return
			}
			var made struct{ Session session }
			if err != nil || json.Unmarshal([]byte(out), &made) != nil || made.Session.Mode != "pty" {
				t.Fatalf("opening the session: %v %s, want a session in a terminal", err, out)
			}
			id := made.Session.ID
			r.until(t, id, "it is ready", func(s session) bool { return s.Status == "ready" || s.Status == "error" })
			r.post(t, id, "send", map[string]any{"input": "And then? PLAY-THEN"})
			r.completed(t, id, 1)
			asked := r.fake.Asked("PLAY-THEN")
			if len(asked) != 1 || !strings.Contains(asked[0].Text, "The word is quince.") {
				t.Errorf("the model received %+v, want one request with the conversation so far", asked)
			}
			r.stop(t, id)
		})
	}
}

// junctor runs a command at the server and returns what it prints.
func (p *plane) junctor(args ...string) (string, error) {
	cmd := exec.Command(p.binary, append([]string{"--home", p.home}, args...)...)
	cmd.Env = p.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}
