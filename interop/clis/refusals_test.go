package clis

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// refusal is a tool call that was refused, as the API shows it.
type refusal struct{ Tool, What, By string }

// refusingHook are settings of Claude Code with a hook that refuses touch.
const refusingHook = `{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": ` +
	`"grep -q 'touch /' && echo '{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"permissionDecision\":\"deny\",` +
	`\"permissionDecisionReason\":\"no\"}}'; true"}]}]}}` + "\n"

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
				files[".claude/settings.json"] = refusingHook
			}
			top := folder(t)
			dir := filepath.Join(top, "work")
			ok(t, os.Mkdir(dir, 0o700))
			fake, err := scriptedmodel.Start(scriptedmodel.Script{
				"PLAY-TOUCH":       {{Run: "touch " + filepath.Join(dir, "ran.txt")}, {Say: "So be it."}},
				"PLAY-OUTSIDE-DIR": {{Run: "mkdir " + filepath.Join(top, "beside")}, {Say: "So be it."}},
				"PLAY-MKDIR":       {{Run: "mkdir " + filepath.Join(dir, "made")}, {Say: "So be it."}},
			})
			ok(t, err)
			t.Cleanup(fake.Close)
			r := &run{program: c, plane: newPlane(t, built.Junctor(t), files, "ANTHROPIC_BASE_URL="+fake.URL(),
				"CODING_AGENT_ALLOWED_WORKDIRS="+top), fake: fake}

			s := r.spawnIn(t, "structured", "standard", dir, "Try. PLAY-OUTSIDE-DIR", "")
			s = r.completed(t, s.ID, 1)
			r.refusals(t, s, "preset", "beside")
			r.post(t, s.ID, "send", map[string]any{"input": "Ask me. PLAY-MKDIR"})
			s = r.until(t, s.ID, "it asks", func(s session) bool { return s.Status == "blocked" && len(s.Blocker.Options) > 1 })
			if s.Blocker.Options[1] != "Deny" {
				t.Errorf("options = %q, want Deny as the second", s.Blocker.Options)
			}
			r.post(t, s.ID, "answer", map[string]any{"blocker": s.Blocker.ID, "answer": "2"})
			s = r.completed(t, s.ID, 2)
			r.refusals(t, s, "preset", "beside", "answer", "mkdir")
			if c.name == "claude" {
				r.refusedByItself(t, s.ID)
			}
			holds(t, dir)
			r.stop(t, s.ID)
			if c.name == "claude" {
				r.refusedTask(t, dir)
			}
		})
	}
}

// refusedByItself: the program refuses touch without a question.
func (r *run) refusedByItself(t *testing.T, id string) {
	r.post(t, id, "send", map[string]any{"input": "Try. PLAY-TOUCH"})
	s := r.until(t, id, "its turn has ended", func(s session) bool {
		return s.Status == "blocked" || s.Status == "ready" && (s.CompletedTurns > 2 || strings.HasPrefix(s.Phase, "failed:"))
	})
	if s.Phase != "failed:permission_refused" || s.CompletedTurns != 2 {
		t.Errorf("phase = %s after %d completed turns, want failed:permission_refused and two completed turns\n%s",
			s.Phase, s.CompletedTurns, r.picture(t, id))
	}
	r.refusals(t, s, "preset", "beside", "answer", "mkdir", "unasked", "touch")
	if _, answer := r.request(t, "GET", "/api/v1/audit?event=agent_permission", nil); !strings.Contains(answer, "unasked") {
		t.Errorf("the records are %s, want one of the refusal without a question", answer)
	}
}

// refusedTask: a task fails for the same reason, and its result has the list.
func (r *run) refusedTask(t *testing.T, dir string) {
	status, answer := r.request(t, "POST", "/api/coding-agents/coordinator/threads", map[string]any{
		"task": "Try. PLAY-TOUCH", "agentType": r.name, "approvalPreset": "standard", "workdir": dir,
	})
	var made created
	if err := json.Unmarshal([]byte(answer), &made); err != nil || status != http.StatusCreated {
		t.Fatalf("creating the task: %d %s %v, want 201", status, answer, err)
	}
	r.ends(t, made, "failed")
	var out struct {
		Task struct {
			Error  struct{ Reason string }
			Result struct {
				Agents []struct{ Refusals []refusal }
			}
		}
	}
	_, answer = r.request(t, "GET", "/api/v1/tasks/"+made.Task, nil)
	err := json.Unmarshal([]byte(answer), &out)
	if agents := out.Task.Result.Agents; err != nil || out.Task.Error.Reason != "permission_refused" || len(agents) != 1 ||
		len(agents[0].Refusals) != 1 || agents[0].Refusals[0].By != "unasked" {
		t.Errorf("the task is %s, want the reason permission_refused and one refusal unasked in the result", answer)
	}
	holds(t, dir)
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
