package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// loginMain is `claude auth login`: it names an address and ends once the user has been
// there.
func loginMain() error {
	fmt.Print("Opening your browser…\r\nIf it does not open, visit: https://claude.ai/oauth/authorize?code=true&state=1\r\n")
	for {
		if _, err := os.Stat(filepath.Join(os.Getenv("HOME"), "somebody-was-there")); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond) // another process: there is nothing to wait on
	}
}

// TestSigningIn signs in to a program through the API.
func TestSigningIn(t *testing.T) {
	t.Parallel()
	user, env := agentHome(t)
	n := serve(t, t.TempDir(), append(env, "PATH="+strings.Split(strings.TrimPrefix(env[0], "PATH="), ":")[0]+":/bin")...)
	admin := n.token(t, "admin")
	type prompt struct {
		Launched                      bool
		URL, DeviceCode, Instructions string
	}
	begin := func() (p prompt) {
		t.Helper()
		a := n.request(t, "POST", "/api/coding-agents/auth/claude", admin, "")
		if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.status != http.StatusOK {
			t.Fatalf("%d %s; want no error, a.status = http.StatusOK", a.status, a.body)
		}
		return p
	}
	want := prompt{Launched: true, URL: "https://claude.ai/oauth/authorize?code=true&state=1"}
	for range 2 { // the second joins the first
		p := begin()
		want.Instructions = p.Instructions
		if p != want || p.Instructions == "" {
			t.Errorf(`%+v; want p = %v, p.Instructions other than ""`, p, want)
		}
	}
	helpers := func() (n int) {
		list, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range list {
			if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), "PARALLAX_SESSION_ID=login-claude") &&
				strings.Contains(string(data), "HOME="+user) {
				n++
			}
		}
		return n
	}
	if got := helpers(); got != 1 {
		t.Errorf("%d helpers run; want got = 1", got)
	}
	if err := os.WriteFile(filepath.Join(user, "somebody-was-there"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the helper has ended", func() bool { return helpers() == 0 })
	for path, c := range map[string]struct {
		token  string
		status int
		says   string
	}{
		"/auth/emacs":      {admin, http.StatusBadRequest, "no_login"},
		"/auth/shell":      {admin, http.StatusBadRequest, "no_login"},
		"/auth/aider":      {admin, http.StatusOK, `"launched":false`},
		"/auth/gemini":     {admin, http.StatusOK, "GEMINI_API_KEY"},
		"/auth/codex":      {admin, http.StatusServiceUnavailable, "agent_not_installed"},
		"/auth/github":     {admin, http.StatusBadRequest, "no_client_id"},
		"/auth/claude":     {n.token(t, "agent"), http.StatusForbidden, ""},
		"/auth/send":       {admin, http.StatusNotFound, "session_not_found"},
		"/pty-1-ab/no":     {admin, http.StatusNotFound, "nothing is served at this path"},
		"/pty-1-ab/screen": {admin, http.StatusMethodNotAllowed, "method_not_allowed"},
	} {
		if a := n.request(t, "POST", "/api/task-agents"+path, c.token, ""); a.status != c.status || !strings.Contains(a.body, c.says) {
			t.Errorf("%s: %d %s; want a.status = %v, a.body with %v", path, a.status, a.body, c.status, c.says)
		}
	}
	// The server's end is the helper's.
	if err := os.Remove(filepath.Join(user, "somebody-was-there")); err != nil {
		t.Fatal(err)
	}
	begin()
	n.terminate(t)
	if got := helpers(); got != 0 {
		t.Errorf("%d helpers are left; want got = 0", got)
	}
}

// TestASessionThatWaitsForALogin shows a sign-in screen in a session. A user logs in through
// the helper that is started for it, and the session continues.
func TestASessionThatWaitsForALogin(t *testing.T) {
	t.Parallel()
	user, env := agentHome(t)
	n := serve(t, t.TempDir(), env...)
	s := n.spawnAgent(t, `{"agentType":"claude","task":"sign in first","metadata":{"keepAliveAfterComplete":true}}`)
	eventually(t, "it waits for a login", func() bool { return n.shown(t, s.ID).Status == "authenticating" })
	// A second caller joins the login that was begun for it.
	a := n.request(t, "POST", "/api/coding-agents/auth/claude", n.token(t, "admin"), "")
	if a.status != http.StatusOK || !strings.Contains(a.body, "https://claude.ai/oauth/authorize") {
		t.Errorf(`%d %s; want a.status = http.StatusOK, a.body with "https://claude.ai/oauth/authorize"`, a.status, a.body)
	}
	if err := os.WriteFile(filepath.Join(user, "somebody-was-there"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session goes on", func() bool { return n.shown(t, s.ID).Status == "ready" })
	n.terminate(t)
}
