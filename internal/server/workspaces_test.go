package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWorkspacesOverHTTP takes a repository from its clone to a pull request, and keeps the
// folder of a session.
func TestWorkspacesOverHTTP(t *testing.T) {
	t.Parallel()
	origin := filepath.Join(t.TempDir(), "origin.git")
	seed := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", seed},
		{"-C", seed, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "first"},
		{"clone", "-q", "--bare", seed, origin},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
	}
	_, env := agentHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_REPOSITORIES="+filepath.Dir(origin))...)
	admin := n.token(t, "admin")
	ask := func(method, path, body string, status int, into any) string {
		t.Helper()
		a := n.request(t, method, path, admin, body)
		if a.status != status {
			t.Fatalf("%s %s: %d %s; want a.status = %v", method, path, a.status, a.body, status)
		}
		if into != nil {
			if err := json.Unmarshal([]byte(a.body), into); err != nil {
				t.Fatal(err)
			}
		}
		return a.body
	}
	var ws struct{ ID, Path, Branch string }
	ask("POST", "/api/workspace/provision", `{"repo":"`+origin+`"}`, http.StatusCreated, &ws)
	at := "/api/workspace/" + ws.ID
	if err := os.WriteFile(filepath.Join(ws.Path, "new.txt"), []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var status struct {
		Branch    string
		Clean     bool
		Untracked []string
	}
	ask("GET", at, "", http.StatusOK, &status)
	if status.Clean || status.Branch != ws.Branch || len(status.Untracked) != 1 {
		t.Errorf("%+v; want status.Clean = false, status.Branch = %v, len(status.Untracked) = 1", status, ws.Branch)
	}
	// An agent may be told to work in it, and not beside it.
	s := n.spawnAgent(t, `{"agentType":"claude","workdir":"`+ws.Path+`","task":"work","metadata":{"repo":"`+origin+`"}}`)
	eventually(t, "its turn is done", func() bool { return n.shown(t, s.ID).Phase == "done" })
	ask("POST", "/api/coding-agents/"+s.ID+"/stop", `{"force":true}`, http.StatusOK, nil)

	ask("DELETE", at, "", http.StatusConflict, nil)
	done := ask("POST", at+"/finalize", `{"commitMessage":"Add a file","prTitle":"A file"}`, http.StatusOK, nil)
	if !strings.Contains(done, `"pull_request","outcome":"done"`) || !strings.Contains(done, `"number":1`) {
		t.Errorf("finalize = %s, want pull request 1 as done", done)
	}
	if out, err := exec.Command("git", "-C", origin, "show", "--name-only", "--format=%s", "refs/pull/1/head").CombinedOutput(); err != nil ||
		string(out) != "Add a file\n\nhello.txt\nnew.txt\n" {
		t.Errorf(`%s %v; want no error, string(out) = "Add a file\n\nhello.txt\nnew.txt\n"`, out, err)
	}
	if diff := ask("GET", at+"/diff", "", http.StatusOK, nil); !strings.Contains(diff, "+new") {
		t.Errorf("diff = %s, want it to contain +new", diff)
	}
	if list := ask("GET", "/api/workspace", "", http.StatusOK, nil); !strings.Contains(list, ws.ID) {
		t.Errorf("workspaces = %s, want %s among them", list, ws.ID)
	}
	ask("DELETE", at, "", http.StatusOK, nil)
	ask("GET", at, "", http.StatusNotFound, nil)
	for name, c := range map[string][3]string{
		"no repository":             {"POST", "/api/workspace/provision", `{}`},
		"a host that is not meant":  {"POST", "/api/workspace/provision", `{"repo":"https://example.com/a/b"}`},
		"a folder that is not":      {"POST", "/api/workspace/provision", `{"repo":"/etc"}`},
		"a worktree of nothing":     {"POST", "/api/workspace/provision", `{"useWorktree":true}`},
		"an issue without a title":  {"POST", "/api/issues", `{"repo":"a/b"}`},
		"an issue without a number": {"GET", "/api/issues/a/b/x", ""},
	} {
		if a := n.request(t, c[0], c[1], admin, c[2]); a.status != http.StatusBadRequest || !strings.Contains(a.body, `"reason"`) {
			t.Errorf(`%s: %d %s; want a.status = http.StatusBadRequest, a.body with "\"reason\""`, name, a.status, a.body)
		}
	}
	if a := n.request(t, "GET", "/api/workspace", n.token(t, "agent"), ""); a.status != http.StatusForbidden {
		t.Errorf("%d %s; want a.status = http.StatusForbidden", a.status, a.body)
	}

	made := n.spawnAgent(t, `{"agentType":"claude","task":"work"}`)
	ask("POST", "/api/coding-agents/"+made.ID+"/scratch/delete", "", http.StatusConflict, nil) // it is at work
	ask("POST", "/api/coding-agents/"+made.ID+"/stop", `{"force":true}`, http.StatusOK, nil)
	eventually(t, "it waits for a decision", func() bool {
		return strings.Contains(ask("GET", "/api/task-agents/scratch", "", http.StatusOK, nil), `"terminalEvent"`)
	})
	if kept := ask("POST", "/api/coding-agents/"+made.ID+"/scratch/promote", `{"name":"My Work"}`, http.StatusOK,
		nil); !strings.Contains(kept, "my-work") {
		t.Errorf("promote = %s, want the folder my-work", kept)
	}
	ask("POST", "/api/coding-agents/pty-1-a/scratch/keep", "", http.StatusNotFound, nil)
	n.terminate(t)
}
