package clis

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// TestATaskInACheckout has real programs work on a task of three parts in a user's checkout, where
// the third needs the code of the others, and reviews, comments and merges it.
func TestATaskInACheckout(t *testing.T) {
	bin, _ := commands(t)
	for _, name := range []string{"claude", "codex"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Skip("Claude Code and Codex are needed; run: make test-agents")
		}
	}
	script := scriptedmodel.Script{
		"PLAY-API":    {{Run: "printf 'api\\n' > api.txt"}, {Say: "The API is there.\n\n" + decision}},
		"PLAY-CLIENT": {{Run: "printf 'client\\n' > client.txt"}, {Say: "The client is there.\n\n" + decision}},
		"PLAY-BOTH":   {{Run: "cat api.txt client.txt > both.txt"}, {Say: "Both are tested.\n\n" + decision}},
		"PLAY-REVIEW": {{Run: "printf 'better api\\n' > api.txt"}, {Say: "It is better now.\n\n" + decision}},
	}
	model, err := scriptedmodel.Start(script)
	ok(t, err)
	t.Cleanup(model.Close)
	p := newPlane(t, built.Junctor(t), map[string]string{".claude.json": `{"hasCompletedOnboarding":true}`},
		"ANTHROPIC_BASE_URL="+model.URL(), "OPENAI_BASE_URL="+model.URL()+"/v1", "CLAUDE_CODE_MAX_RETRIES=1",
		"PARALLAX_CODEX_MODEL_POWERFUL=gpt-5.5")

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

	status, answer := p.request(t, "POST", "/api/coding-agents/coordinator/threads", map[string]any{
		"task": "An API and its client.", "checkout": repo, "approvalPreset": "autonomous", "agents": []map[string]any{
			{"label": "api", "task": "Write the API. PLAY-API", "agentType": "claude"},
			{"label": "client", "task": "Write the client. PLAY-CLIENT", "agentType": "codex"},
			{"label": "tests", "task": "Test both. PLAY-BOTH", "agentType": "claude", "dependsOn": []int{0, 1}},
		},
	})
	if status != http.StatusCreated {
		t.Fatalf("create = %d %s, want 201", status, answer)
	}
	var made created
	ok(t, json.Unmarshal([]byte(answer), &made))
	p.ends(t, made, "completed")
	if got := git("status", "--porcelain"); got != "" {
		t.Errorf("the status of the checkout is %q, want it as it was", got)
	}
	type work struct {
		Done, Parts int
		Branch      string
		Head        string
		Diff        []byte
	}
	review := func() (w work) {
		t.Helper()
		status, answer := p.request(t, "GET", "/api/coding-agents/coordinator/threads/"+made.ThreadID+"/diff", nil)
		if status != http.StatusOK {
			t.Fatalf("diff = %d %s, want 200", status, answer)
		}
		ok(t, json.Unmarshal([]byte(answer), &w))
		return w
	}
	w := review()
	if w.Done != 3 || w.Parts != 3 || !strings.Contains(string(w.Diff), "+api\n+client\n") {
		t.Fatalf("%d of %d parts, %s, want all three with the code of both", w.Done, w.Parts, w.Diff)
	}
	if got := git("show", w.Branch+":both.txt"); got != "api\nclient\n" {
		t.Errorf("both.txt on the result branch = %q, want the code of both", got)
	}

	status, answer = p.request(t, "POST", "/api/coding-agents/coordinator/threads/"+made.ThreadID+"/comment", map[string]any{
		"part": "api", "comments": []map[string]any{{"file": "api.txt", "line": 1, "text": "Make it better. PLAY-REVIEW"}},
	})
	if status != http.StatusOK {
		t.Fatalf("comment = %d %s, want 200", status, answer)
	}
	var again struct{ Task string }
	ok(t, json.Unmarshal([]byte(answer), &again))
	if again.Task != "" {
		made.Task = again.Task
	}
	p.ends(t, made, "completed")
	if w = review(); !strings.Contains(string(w.Diff), "+better api\n") {
		t.Errorf("the diff is %s, want what the review asked for; the thread is %+v", w.Diff, p.thread(t, made.ThreadID))
	}
	status, answer = p.request(t, "POST", "/api/coding-agents/coordinator/threads/"+made.ThreadID+"/merge", map[string]any{"method": "squash", "commit": w.Head})
	if status != http.StatusOK {
		t.Fatalf("merge = %d %s, want 200", status, answer)
	}
	if got := git("diff", "--binary", "--full-index", "--no-renames", "HEAD^", "HEAD"); got != string(w.Diff) {
		t.Errorf("merged %s, want what was reviewed: %s", got, w.Diff)
	}
}
