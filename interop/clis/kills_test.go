package clis

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// killsOf is how often the server is killed: 10 times, or the number in TASK_AGENTS_KILLS.
func killsOf(t *testing.T) int {
	t.Helper()
	text := os.Getenv("TASK_AGENTS_KILLS")
	if text == "" {
		return 10
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TASK_AGENTS_KILLS = %q, want a number of at least 1", text)
	}
	return n
}

// TestKillsInTheMiddleOfATask kills the server again and again while real programs work on three parts of a
// task in a user's checkout. Each task ends with the code of all parts, and nothing else is changed or left.
func TestKillsInTheMiddleOfATask(t *testing.T) {
	bin, _ := commands(t)
	for _, name := range []string{"claude", "codex"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil || os.Getenv("TASK_AGENTS_SHORT") != "" {
			t.Skip("Claude Code and Codex are needed, and it is tried in make test-agents only")
		}
	}
	// A program that is resumed reports a command that was cut off as one that has ended, so it is run again.
	part := func(run, say string) []scriptedmodel.Step {
		again := scriptedmodel.Step{Slow: 300 * time.Millisecond, Run: run}
		return []scriptedmodel.Step{again, again, again, {Slow: 300 * time.Millisecond, Say: say + "\n\n" + decision}}
	}
	model, err := scriptedmodel.Start(scriptedmodel.Script{
		"PLAY-API":    part("printf 'api\\n' > api.txt", "The API is there."),
		"PLAY-CLIENT": part("printf 'client\\n' > client.txt", "The client is there."),
		"PLAY-BOTH":   part("cat api.txt client.txt > both.txt", "Both are tested."),
	})
	ok(t, err)
	t.Cleanup(model.Close)
	const mine = `{"hasCompletedOnboarding":true,"mine":[1, 2]}`
	p := newPlane(t, built.Junctor(t), map[string]string{".claude.json": mine, ".codex/config.toml": "model = \"mine\"\n"},
		"ANTHROPIC_BASE_URL="+model.URL(), "OPENAI_BASE_URL="+model.URL()+"/v1", "CLAUDE_CODE_MAX_RETRIES=1",
		"PARALLAX_CODEX_MODEL_POWERFUL=gpt-5.5", "JUNCTOR_AGENTS_AUTO_RESUME=true")
	const perTask = 5
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for killed := 0; killed < killsOf(t); {
		repo := folder(t)
		git := func(args ...string) string {
			t.Helper()
			cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
			cmd.Dir = repo
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("git %v: %v\n%s", args, err, out)
			}
			return string(out)
		}
		git("init", "-q", "-b", "main")
		ok(t, os.WriteFile(filepath.Join(repo, "README.md"), []byte("# Widget\n"), 0o600))
		git("add", ".")
		git("commit", "-q", "-m", "first")
		ok(t, os.WriteFile(filepath.Join(repo, "draft.txt"), []byte("of the user\n"), 0o600))
		before := git("status", "--porcelain", "--branch")
		status, answer := p.request(t, "POST", "/api/coding-agents/coordinator/threads", map[string]any{
			"task": "An API and its client.", "checkout": repo, "approvalPreset": "autonomous", "agents": []map[string]any{
				{"label": "api", "task": "Write the API. PLAY-API", "agentType": "claude"},
				{"label": "client", "task": "Write the client. PLAY-CLIENT", "agentType": "codex"},
				{"label": "tests", "task": "Test both. PLAY-BOTH", "agentType": "claude", "dependsOn": []int{0, 1}},
			},
		})
		if status != http.StatusCreated {
			t.Fatalf("create: got %d %s, want 201", status, answer)
		}
		var made created
		ok(t, json.Unmarshal([]byte(answer), &made))
		for n := 0; n < perTask && killed < killsOf(t) && p.state(t, made) != "completed"; n++ {
			wait := time.NewTimer(time.Duration(random.Int64N(int64(2500 * time.Millisecond))))
			select {
			case <-wait.C:
			case <-t.Context().Done():
			}
			p.restart(t)
			killed++
			t.Logf("killed %d times: %s", killed, p.state(t, made))
		}
		p.ends(t, made, "completed")
		var w struct {
			Done, Parts int
			Branch      string
			Diff        []byte
		}
		status, answer = p.request(t, "GET", "/api/coding-agents/coordinator/threads/"+made.ThreadID+"/diff", nil)
		if status != http.StatusOK {
			t.Fatalf("diff: got %d %s, want 200", status, answer)
		}
		ok(t, json.Unmarshal([]byte(answer), &w))
		if w.Done != w.Parts || !strings.Contains(string(w.Diff), "+api\n+client\n") || git("show", w.Branch+":both.txt") != "api\nclient\n" {
			t.Errorf("after %d kills: got %d of %d parts and %s, want the code of all three", killed, w.Done, w.Parts, w.Diff)
		}
		if got := git("status", "--porcelain", "--branch"); got != before {
			t.Errorf("the checkout: got %q, want it as it was: %q", got, before)
		}
		for _, s := range p.thread(t, made.ThreadID).Sessions {
			for began := time.Now(); len(processesOf(t, s.SessionID)) > 0 && time.Since(began) < waitTimeout; {
				time.Sleep(10 * time.Millisecond)
			}
			p.noProcess(t, s.SessionID)
		}
	}
	if out, err := p.junctor("audit", "verify"); err != nil {
		t.Errorf("audit verify: got %v %s, want no error", err, out)
	}
	data, err := os.ReadFile(filepath.Join(p.user, ".codex", "config.toml"))
	if err != nil || string(data) != "model = \"mine\"\n" {
		t.Errorf("the user's configuration of Codex: got %q, %v, want it as it was", data, err)
	}
}

// state is that of a task now.
func (p *plane) state(t *testing.T, made created) string {
	t.Helper()
	var h handle
	_, answer := p.request(t, "GET", "/api/v1/tasks/"+made.Task, nil)
	ok(t, json.Unmarshal([]byte(answer), &h))
	return h.Task.State
}
