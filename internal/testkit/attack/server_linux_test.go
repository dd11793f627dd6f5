package attack

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/secret"
)

// unprivileged is the unprivileged user that the server runs as.
const unprivileged = 65534

// place is a kind of server: who runs it and how strong its sandbox is.
type place struct{ tier, user string }

func (p place) uid() int {
	switch {
	case p.user == "root":
		return 0
	case os.Geteuid() == 0:
		return unprivileged
	}
	return os.Geteuid()
}

// environment is the server's: with what a program of it must never see.
func (p place) environment() []string {
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TMPDIR=" + filepath.Join(base, "tmp"), "JUNCTOR_SANDBOX_MIN_TIER=" + p.tier,
		"JUNCTOR_EXTENSIONS_CALLS_PER_MINUTE=6000", "JUNCTOR_EXTENSIONS_BURST=100",
		"AWS_SECRET_ACCESS_KEY=" + canaryText, "OPENAI_API_KEY=" + canaryText, "LD_PRELOAD=/nonexistent-" + canaryMark + ".so",
		"BASH_ENV=/nonexistent-" + canaryMark,
	}
	if p.tier == "T2" {
		env = append(env, "JUNCTOR_SANDBOX_OFF=namespaces")
	}
	return env
}

// credential is how a process becomes the server's user.
func (p place) credential() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if p.uid() != os.Geteuid() {
		attr.Credential = &syscall.Credential{Uid: uint32(p.uid()), Gid: uint32(p.uid())} //nolint:gosec // small
	}
	return attr
}

// server is a running one.
type server struct {
	place
	home, url string
	pid       int
	token     string
	admin     *client.Client
	cmd       *exec.Cmd
	stderr    *said
	ended     chan struct{}
}

// newHome makes an empty home for the place's user.
func (p place) newHome(name string) (string, error) {
	home, err := os.MkdirTemp(filepath.Join(base, "tmp"), name+"-")
	if err != nil {
		return "", err
	}
	if p.uid() == os.Geteuid() {
		return home, nil
	}
	return home, os.Chown(home, p.uid(), p.uid())
}

// start runs the real server on a home and waits until it answers.
func (p place) start(home string, env ...string) (*server, error) {
	s := &server{place: p, home: home, stderr: &said{}, ended: make(chan struct{})}
	s.cmd = exec.Command(filepath.Join(base, "bin", "junctor"), "serve", "--home", home, "--listen", "127.0.0.1:0")
	s.cmd.Env = append(p.environment(), env...)
	s.cmd.SysProcAttr, s.cmd.Stderr, s.cmd.Dir = p.credential(), s.stderr, "/"
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.pid = s.cmd.Process.Pid
	line := make(chan []byte, 1)
	go func() { // ends with the server
		defer close(s.ended)
		r := bufio.NewReader(out)
		text, _ := r.ReadBytes('\n')
		line <- text
		_, _ = io.Copy(io.Discard, r)
		_ = s.cmd.Wait()
	}()
	var ready struct{ URL string }
	select {
	case text := <-line:
		err = json.Unmarshal(text, &ready)
	case <-time.After(60 * time.Second):
		err = errors.New("not ready in 60 s")
	}
	if err != nil {
		s.kill()
		return nil, fmt.Errorf("start a server at %s as %s: %w: %s", p.tier, p.user, err, s.stderr)
	}
	s.url = ready.URL
	data, err := os.ReadFile(filepath.Join(home, "run", "admin.token"))
	if err != nil {
		s.kill()
		return nil, err
	}
	s.token = strings.TrimSpace(string(data))
	s.admin, err = s.client(s.token)
	return s, err
}

// client is one of the server's doors, opened with a token.
func (s *server) client(token string) (*client.Client, error) {
	return client.New(client.Config{URL: s.url, Token: secret.New(token), Transport: &http.Transport{DisableKeepAlives: true}})
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		s.kill()
	}
}

// servers are started when a test first wants one, and shared from then on.
var servers struct {
	sync.Mutex
	byPlace map[place]func() (*server, error)
}

func stopServers() {
	servers.Lock()
	defer servers.Unlock()
	for _, get := range servers.byPlace {
		if s, err := get(); err == nil {
			s.stop()
		}
	}
}

// at returns the shared server of a place, or skips with the reason why there
// can be none.
func (p place) at(t *testing.T) *server {
	t.Helper()
	p.possible(t)
	servers.Lock()
	if servers.byPlace == nil {
		servers.byPlace = map[place]func() (*server, error){}
	}
	get := servers.byPlace[p]
	if get == nil {
		get = sync.OnceValues(func() (*server, error) {
			home, err := p.newHome(p.tier + "-" + p.user)
			if err != nil {
				return nil, err
			}
			return p.start(home)
		})
		servers.byPlace[p] = get
	}
	servers.Unlock()
	s, err := get()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// possible skips the test where the kernel does not allow the place.
func (p place) possible(t *testing.T) {
	t.Helper()
	if p.user == "root" && os.Geteuid() != 0 {
		t.Skip("SKIPPED: the tests run without rights")
	}
	status, err := p.status(t)
	if err != nil {
		t.Fatal(err)
	}
	if why := map[string]string{"T3": status.Facts.NoT3, "T2": status.Facts.NoT2}[p.tier]; why != "" {
		t.Skipf("SKIPPED: %s as %s: %s", p.tier, p.user, why)
	}
}

// sandboxStatus is what sandbox status --json says.
type sandboxStatus struct {
	Tier   string
	Layers map[string]string
	Held   bool
	Facts  struct {
		NoT3 string `json:"t3_unavailable"`
		NoT2 string `json:"t2_unavailable"`
	}
	Tiers []struct {
		Tier, Skipped     string
		Results, Residual []struct{ Act, Layer, Outcome, Detail string }
	}
}

var statuses struct {
	sync.Mutex
	byPlace map[place]sandboxStatus
}

// status asks the command for it, once per place.
func (p place) status(t *testing.T) (sandboxStatus, error) {
	t.Helper()
	statuses.Lock()
	defer statuses.Unlock()
	if got, ok := statuses.byPlace[p]; ok {
		return got, nil
	}
	home, err := p.newHome("status")
	if err != nil {
		return sandboxStatus{}, err
	}
	var got sandboxStatus
	out, code := p.command(t, home, "sandbox", "status", "--json")
	if code == 0 {
		err = json.Unmarshal([]byte(out), &got)
	} else {
		err = fmt.Errorf("sandbox status: %d: %v: %s", code, regexp.MustCompile(`\{[^}]*"broken"[^}]*\}`).FindAllString(out, 5), out)
	}
	if statuses.byPlace == nil {
		statuses.byPlace = map[place]sandboxStatus{}
	}
	statuses.byPlace[p] = got
	return got, err
}

// command runs the command line as the place's user and returns what it wrote,
// both streams together.
func (p place) command(t *testing.T, home string, args ...string) (out string, code int) {
	t.Helper()
	return p.commandWith(t, home, nil, args...)
}

func (p place) commandWith(t *testing.T, home string, env []string, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(base, "bin", "junctor"), append([]string{"--home", home}, args...)...)
	cmd.Env, cmd.SysProcAttr, cmd.Dir = append(p.environment(), env...), p.credential(), filepath.Join(base, "tmp")
	data, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(data), exit.ExitCode()
	}
	if err != nil {
		t.Fatalf("junctor %s: %v", strings.Join(args, " "), err)
	}
	return string(data), 0
}

// artifact is a file that a run made for others.
type artifact struct {
	Name, SHA256 string
	Size         int64
}

// run is what came of a slash command.
type run struct {
	Output     string
	Metadata   map[string]any
	Artifacts  []artifact
	Invocation string
	State      string
	Err        *capability.Error
	Took       time.Duration
}

// run types a command as the holder of a token.
func (s *server) run(ctx context.Context, c *client.Client, session, line string) run {
	var out struct {
		Result struct {
			Output    string
			Metadata  map[string]any
			Artifacts []artifact
		}
		Invocation struct{ ID, State string }
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // a server that hangs fails one test
	defer cancel()
	err := c.Do(ctx, http.MethodPost, extensionsDoor+"/execute", map[string]any{"command": line, "session_id": session}, &out)
	r := run{
		Artifacts: out.Result.Artifacts, Output: out.Result.Output, Metadata: out.Result.Metadata, Invocation: out.Invocation.ID,
		State: out.Invocation.State, Took: time.Since(began),
	}
	if err != nil {
		r.Err = capability.AsError(err)
		if text, ok := r.Err.Details["output"].(string); ok {
			r.Output = text
		}
	}
	return r
}

const extensionsDoor = "/api/v1/extensions"

// user creates a user with an own token, whose rate limit is not shared.
func (s *server) somebody(t *testing.T, role string) *client.Client {
	t.Helper()
	var out struct{ Token string }
	if err := s.admin.Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]any{"role": role, "name": "test-" + rand.Text()},
		&out); err != nil {
		t.Fatal(err)
	}
	c, err := s.client(out.Token)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// records asks the audit as an operator does.
func (s *server) records(t *testing.T, query string) []json.RawMessage {
	t.Helper()
	var out struct{ Records []json.RawMessage }
	if err := s.admin.Do(t.Context(), http.MethodGet, "/api/v1/audit?"+query, nil, &out); err != nil {
		t.Fatal(err)
	}
	return out.Records
}

// recorded waits for a record that fits: most are written by other goroutines.
func (s *server) recorded(t *testing.T, query string, holds ...string) {
	t.Helper()
	var got []json.RawMessage
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		got = s.records(t, query)
		for _, raw := range got {
			text, fits := string(raw), true
			for _, want := range holds {
				fits = fits && strings.Contains(text, want)
			}
			if fits {
				return
			}
		}
	}
	t.Errorf("no record of %s holds %q: %s", query, holds, bytes.Join(asBytes(got), []byte("\n")))
}

func asBytes(list []json.RawMessage) (out [][]byte) {
	for _, raw := range list {
		out = append(out, raw)
	}
	return out
}

// log is one of the files under logs/.
func (s *server) log(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.home, "logs", name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// rss is how much memory the server holds, in bytes.
func (s *server) rss() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.pid))
	if err != nil {
		return 0
	}
	var size, resident int64
	_, _ = fmt.Sscan(string(data), &size, &resident)
	return resident * int64(os.Getpagesize())
}
