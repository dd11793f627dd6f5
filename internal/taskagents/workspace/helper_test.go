package workspace

import (
	"errors"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

func TestMain(m *testing.M) {
	if sandbox.IsHelper(os.Args) {
		syscall.Exit(sandbox.HelperMain(os.Args)) // os.Exit waits a second with the race detector
	}
	goleak.VerifyTestMain(m)
}

// site is a folder of bare repositories and a manager that may use them.
type site struct {
	t      *testing.T
	dir    string // real
	remote string // a bare repository with one commit on trunk
	cfg    Config
	m      *Manager
	pulls  *forge.BareHost

	mu     sync.Mutex
	now    time.Time
	events []string
}

func newSite(t *testing.T, change ...func(*site)) *site {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: dir, remote: filepath.Join(dir, "remotes/widget.git"), now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	if err := os.MkdirAll(filepath.Dir(s.remote), 0o700); err != nil {
		t.Fatal(err)
	}
	s.plain(dir, "init", "-q", "--bare", "-b", "trunk", s.remote)
	s.plain(dir, "clone", "-q", s.remote, "author")
	s.write("author/README.md", "# Widget\n")
	s.write("author/.gitignore", ".env\n*.log\n")
	s.plain(dir+"/author", "add", ".")
	s.plain(dir+"/author", "commit", "-q", "-m", "first")
	s.plain(dir+"/author", "push", "-q", "origin", "HEAD:trunk")
	git, err := gitcmd.New(gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.pulls = &forge.BareHost{Git: git, Now: s.clock}
	s.cfg = Config{
		Base: filepath.Join(dir, "workspaces"), State: filepath.Join(dir, "state"),
		Policy: forge.Policy{OperatorPrefixes: []string{filepath.Join(dir, "remotes")}},
		Forge: func(r forge.Repo) forge.Host {
			if r.Dir == "" {
				return nil
			}
			return s.pulls
		},
		FreeSpace: func(string) (int64, error) { return 1 << 40, nil },
		Now:       s.clock,
		OnEvent: func(e Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e.Name)
		},
	}
	for _, c := range change {
		c(s)
	}
	s.open()
	t.Cleanup(func() { _ = s.m.Close() })
	return s
}

func (s *site) open() {
	s.t.Helper()
	m, err := Open(s.t.Context(), s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.m = m
}

// reopen is a restart.
func (s *site) reopen() {
	s.t.Helper()
	_ = s.m.Close()
	s.open()
}

func (s *site) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *site) later(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *site) write(name, text string) {
	s.t.Helper()
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.dir, name)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		s.t.Fatal(err)
	}
}

// plain is git as an author or an agent would use it.
func (s *site) plain(dir string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *site) provision(req Request) Workspace {
	s.t.Helper()
	if req.Repo == "" && req.Parent == "" && !req.Folder {
		req.Repo = s.remote
	}
	w, err := s.m.Provision(s.t.Context(), req)
	if err != nil {
		s.t.Fatalf("provision: %v (%+v)", err, errors.Unwrap(err))
	}
	return w
}

// served serves the remotes by git's own HTTP server, which wants a token where one is
// given. seen collects what requests carried.
func (s *site) served(token string) (url string, seen func() []string) {
	s.t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	s.plain(s.remote, "config", "http.receivepack", "true")
	s.plain(s.remote, "config", "uploadpack.allowFilter", "true")
	var mu sync.Mutex
	var requests []string
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Join(s.dir, "remotes"), "GIT_HTTP_EXPORT_ALL=1", "HOME=" + s.dir},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		mu.Lock()
		requests = append(requests, user+":"+password+" "+r.URL.String())
		mu.Unlock()
		if token != "" && (!ok || password != token) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	s.t.Cleanup(server.Close)
	return server.URL, func() []string { mu.Lock(); defer mu.Unlock(); return append([]string(nil), requests...) }
}

func reason(err error) string {
	if e := capability.AsError(err); e != nil {
		if e.Reason == "" {
			return string(e.Code)
		}
		return e.Reason
	}
	return ""
}

func wantReason(t *testing.T, err error, want string) {
	t.Helper()
	if got := reason(err); got != want {
		t.Errorf("got reason %q, want %q (%v; %v)", got, want, err, errors.Unwrap(err))
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// conflict merges a branch that cannot be merged.
func (s *site) conflict(dir, branch string) {
	s.t.Helper()
	cmd := exec.Command("git", "-c", "user.name=a", "-c", "user.email=a@b", "merge", "-q", branch)
	cmd.Dir = dir
	if err := cmd.Run(); err == nil {
		s.t.Fatal("there was no conflict; want an error")
	}
}
