package taskagents

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/taskagents/signin"
	"github.com/junctor-run/junctor/secret"
)

// hub is GitHub's side of the device flow, in its forms: the code is entered when the test
// says so.
type hub struct {
	mu      sync.Mutex
	entered bool
	denied  bool
	polls   int
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	answer := ""
	switch {
	case r.FormValue("client_id") != "Iv1.test" || r.Header.Get("Accept") != "application/json":
		answer = `{"error":"incorrect_client_credentials"}`
	case r.URL.Path == "/login/device/code":
		answer = `{"device_code":"3584d83530557fdd1f46af8289938c8ef79f9dc5","user_code":"WDJB-MJHT","verification_uri":"https://github.com/login/device","expires_in":899,"interval":1}`
	case r.FormValue("device_code") == "" || r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:device_code":
		answer = `{"error":"unsupported_grant_type"}`
	case h.denied:
		answer = `{"error":"access_denied","error_description":"The authorization request was denied."}`
	case !h.entered:
		h.polls++
		answer = `{"error":"authorization_pending","error_description":"The authorization request is still pending."}`
	default:
		answer = `{"access_token":"gho_16C7e42F292c6912E7710c838347Ae178B4a","token_type":"bearer","scope":"gist,repo"}`
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = io.WriteString(w, answer)
}

// TestLoggingInAtGitHub logs in by the device flow (RFC 8628).
func TestLoggingInAtGitHub(t *testing.T) { //nolint:paralleltest // it sets a variable
	t.Setenv("GITHUB_TOKEN", "")
	h := &hub{}
	web := httptest.NewServer(h)
	defer web.Close()
	home := t.TempDir()
	secrets, err := secretstore.Open(filepath.Join(home, "secrets"), secretstore.Further{})
	if err != nil {
		t.Fatal(err)
	}
	defer secrets.Close()
	type event struct{ name, data string }
	published := make(chan event, 16)
	s := &Service{logger: slog.New(slog.DiscardHandler), cfg: Config{Home: home, Secrets: secrets, Publish: func(name string, data any) {
		raw, err := json.Marshal(data)
		if err != nil {
			t.Error(err)
		}
		published <- event{name, string(raw)}
	}}}
	s.cfg.Agents.GitHubClientID = "Iv1.test"
	s.workers = &taskAgents{}
	l := s.openLogins(s.workers, home)
	s.workers.logins = l
	defer l.desk.Close()
	l.github.Base = web.URL
	until := func(last string) (all string) {
		t.Helper()
		for {
			select {
			case e := <-published:
				if all += e.name + e.data; e.name == last {
					return all
				}
			case <-t.Context().Done():
				t.Fatalf("%s was not published: %s", last, all)
			}
		}
	}
	sign := func() signin.Prompt {
		t.Helper()
		p, err := s.workers.SignIn(t.Context(), "GitHub", "")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if token, err := s.githubToken(); err != nil || !token.Empty() {
		t.Errorf("there is a token: %v; want no error, token.Empty()", err)
	}
	if p := sign(); !p.Launched || p.URL != "https://github.com/login/device" || p.DeviceCode != "WDJB-MJHT" || p.Instructions == "" {
		t.Errorf(`%+v; want p.Launched = true, p.URL = "https://github.com/login/device", p.DeviceCode = "WDJB-MJHT", `+
			`p.Instructions other than ""`, p)
	}
	h.mu.Lock()
	h.entered = true
	h.mu.Unlock()
	heard := until("agent.logged_in")
	if !strings.Contains(heard, "WDJB-MJHT") || strings.Contains(heard, "gho_") {
		t.Errorf(`heard = %q, want it to contain "WDJB-MJHT" and it not to contain "gho_"`, heard)
	}
	token, err := s.githubToken()
	if err != nil || !token.Equal("gho_16C7e42F292c6912E7710c838347Ae178B4a") {
		t.Errorf(`the login is not used: %v; want no error, token.Equal("gho_16C7e42F292c6912E7710c838347Ae178B4a")`, err)
	}
	info, err := os.Stat(s.path("secrets", githubSecret))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v; want no error, info.Mode().Perm() = 0o600", err)
	}
	// What the operator gave comes first.
	s.cfg.Foreign.Given = map[string]secret.Value{"GITHUB_TOKEN": secret.New("of the file")}
	if token, _ := s.githubToken(); !token.Equal("of the file") {
		t.Error("the configured token is not used")
	}
	t.Setenv("GITHUB_TOKEN", "of the environment")
	if token, _ := s.githubToken(); !token.Equal("of the environment") {
		t.Error("the environment's token is not used")
	}
	// One that is refused changes nothing.
	h.mu.Lock()
	h.denied = true
	h.mu.Unlock()
	sign()
	if heard := until("agent.login_failed"); !strings.Contains(heard, "refused") {
		t.Errorf(`until("agent.login_failed") = %q, want it to contain "refused"`, heard)
	}
	if kept, err := s.cfg.Secrets.Get(githubSecret); err != nil || kept.Empty() {
		t.Errorf("%v; want no error, not kept.Empty()", err)
	}
	l.github.ClientID = ""
	if _, err := s.workers.SignIn(t.Context(), "github", ""); capability.AsError(err).Reason != "no_client_id" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "no_client_id"`, err)
	}
}
