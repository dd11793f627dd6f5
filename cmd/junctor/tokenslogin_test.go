package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// signInServer is a server as junctor login sees it. It answers requests with the given bodies, in
// order, and keeps what it received.
type signInServer struct {
	mu       sync.Mutex
	answers  []string
	received []string // method, path and bearer token
}

func (s *signInServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.received = append(s.received, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+token))
	if r.Method == http.MethodDelete || len(s.answers) == 0 {
		_, _ = io.WriteString(w, "{}")
		return
	}
	_, _ = io.WriteString(w, s.answers[0])
	s.answers = s.answers[1:]
}

func (s *signInServer) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.received
	s.received = nil
	return got
}

// TestCommandsActAsThePersonWhoSignedIn holds which server and which token commands use.
func TestCommandsActAsThePersonWhoSignedIn(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	begun := `{"url":"https://login.example/device","code":"AB\u001b[31mCD","login":"kept","expires":"` + soon + `"}`
	made := func(token string) string {
		return `{"token":"` + token + `","principal":"operator:oidc-ann-00","role":"operator","expires":"` + soon + `"}`
	}
	s := &signInServer{answers: []string{begun, `{"pending":true}`, made("first")}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	home := filepath.Join(t.TempDir(), "home")
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
		if status := a.execute(t.Context(), append(args, "--home", home)); status != want {
			t.Errorf("%q: status %d, stdout %q, stderr %q; want %d", args, status, out.String(), errs.String(), want)
		}
		return out.String(), errs.String()
	}
	want := func(what string, requests ...string) {
		t.Helper()
		if got := s.got(); !slices.Equal(got, requests) {
			t.Errorf("%s: the server received %q, want %q", what, got, requests)
		}
	}
	out, errs := run(0, "login", "--server", server.URL, "--json")
	if strings.Contains(out, "first") || !strings.Contains(out, "operator:oidc-ann-00") || strings.ContainsRune(errs, 0x1b) ||
		!strings.Contains(errs, "https://login.example/device") {
		t.Errorf("junctor login prints %q and %q, want the person, the address, and no token or control character", out, errs)
	}
	want("signing in", "POST /api/v1/login", "POST /api/v1/login/wait", "POST /api/v1/login/wait")
	run(0, "tokens", "list", "--json")
	want("a command", "GET /api/v1/tokens first")
	run(0, "tokens", "list", "--json", "--server", server.URL)
	want("a command that names the server", "GET /api/v1/tokens first")
	run(0, "tokens", "list", "--json", "--server", server.URL, "--token", "other")
	want("a command with a token", "GET /api/v1/tokens other")
	run(3, "tokens", "list", "--json", "--server", server.URL+"/") // another one, as far as its name shows
	want("a command that names another server")

	s.answers = []string{begun, made("second")}
	run(0, "login", "--server", server.URL)
	want("signing in again", "POST /api/v1/login", "POST /api/v1/login/wait", "DELETE /api/v1/login first")
	run(0, "logout")
	want("signing out", "DELETE /api/v1/login second")
	if _, err := os.Stat(filepath.Join(home, "login.json")); !os.IsNotExist(err) {
		t.Errorf("login.json after the logout: got %v, want it gone", err)
	}

	for name, answers := range map[string][]string{
		"an address that is a script": {`{"url":"javascript:alert(1)","code":"A","login":"l","expires":"` + soon + `"}`},
		"an answer without a token":   {begun, `{"principal":"operator:oidc-ann-00"}`},
		"a sign-in that has expired":  {`{"url":"https://login.example","code":"A","login":"l","expires":"2020-01-01T00:00:00Z"}`},
	} {
		s.answers = answers
		if _, errs := run(map[bool]int{true: 5, false: 1}[name == "a sign-in that has expired"], "login", "--server", server.URL); errs == "" {
			t.Errorf("%s: got no error, want one", name)
		}
		if _, err := os.Stat(filepath.Join(home, "login.json")); !os.IsNotExist(err) {
			t.Errorf("%s: login.json: got %v, want none", name, err)
		}
	}
	s.got()

	// A sign-in that has ended is not followed by the rights of the admin token.
	old, err := json.Marshal(signedIn{URL: server.URL, Token: "old", Principal: "operator:oidc-ann-00", Expires: time.Now().Add(-time.Minute)})
	if err == nil {
		err = hostfs.WriteFile(filepath.Join(home, "login.json"), old)
	}
	if err != nil {
		t.Fatalf("writing login.json: %v", err)
	}
	if _, errs := run(3, "tokens", "list"); !strings.Contains(errs, "has ended") || !strings.Contains(errs, "junctor login") {
		t.Errorf("after the end: got %q, want how to go on", errs)
	}
	want("a command after the end")
	if err := hostfs.WriteFile(filepath.Join(home, "login.json"), []byte("{")); err != nil {
		t.Fatalf("writing login.json: %v", err)
	}
	if _, errs := run(1, "tokens", "list"); !strings.Contains(errs, "login.json is not a sign-in") {
		t.Errorf("a damaged login.json: got %q, want it named", errs)
	}
	want("a command with a damaged login.json")
}
