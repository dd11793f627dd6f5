package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/extensions/exec/db"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/worker"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// roleVariable makes this test binary a server or an endpoint, so that tests
// can kill them.
const roleVariable = "JUNCTORTEST_ROLE"

func TestMain(m *testing.M) {
	if worker.IsWorker(os.Args) {
		syscall.Exit(worker.Main()) // os.Exit waits a second with the race detector
	}
	if sandbox.IsHelper(os.Args) {
		syscall.Exit(sandbox.HelperMain(os.Args)) // os.Exit waits a second with the race detector
	}
	if db.IsWorker(os.Args) {
		syscall.Exit(db.WorkerMain(os.Stdin, os.Stdout)) // os.Exit waits a second with the race detector
	}
	var err error
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "server":
		err = serverMain(os.Args[1])
	case "mcp":
		err = mcpMain()
	case "endpoint":
		err = endpointMain(os.Args[1], os.Args[2])
	case "rawstdio":
		err = rawStdio()
	case "claude":
		err = claudeMain(os.Args[1:])
	case "scripted":
		err = scriptedMain(os.Args[1:])
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv(roleVariable) != "server" { // whose exit code reports data races
		syscall.Exit(0) // os.Exit waits a second with the race detector
	}
	os.Exit(0)
}

func serverMain(home string) error {
	signal.Ignore(syscall.SIGXFSZ) // as serve does
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := config.Load(home, filepath.Join(home, "config.yaml"), false, os.Environ(), map[string]any{"listen": "127.0.0.1:0"},
		programs.Configurable())
	if err != nil {
		return err
	}
	s, err := server.New(ctx, cfg, server.Options{Version: "test", Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	return s.Run(ctx, func(line server.ReadyLine) error { return json.NewEncoder(os.Stdout).Encode(line) })
}

// trialManifest is the module of the endpoint below.
const trialManifest = `{"modules":[{"id":%[1]q,"name":%[1]q,"version":"1.0.0","actions":[
	{"name":"PING","description":"Answers at once."},
	{"name":"COUNT","description":"Adds a line to a file."},
	{"name":"HANG","description":"Says that it was called, and never answers."}]}]}`

// endpointMain serves PING, COUNT, which adds a line to a file, and HANG, which writes to a file and
// then does nothing until it is cancelled.
func endpointMain(address, module string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	return http.Serve(listener, router.Handler(router.RequireToken(secret.Value{}, trial{module}),
		router.HandlerOptions{})) //nolint:gosec // killed, not timed out
}

type trial struct{ module string }

func (trial) Availability(context.Context) (router.Availability, error) {
	a := router.Availability{Available: true, Environment: "server"}
	a.Capabilities.Plugin = true
	return a, nil
}

func (e trial) Invoke(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	switch method {
	case "plugin.modules.list":
		return json.RawMessage(fmt.Sprintf(trialManifest, e.module)), nil
	case "plugin.action.invoke":
		var p struct {
			Action  string
			Content struct{ File string }
		}
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		if p.Action == "COUNT" {
			f, err := os.OpenFile(p.Content.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, err
			}
			_, err = f.WriteString("counted\n")
			return json.RawMessage(`{"text":"counted"}`), errors.Join(err, f.Close())
		}
		if p.Action != "HANG" {
			return json.RawMessage(`{"text":"pong"}`), nil
		}
		if err := os.WriteFile(p.Content.File, []byte("called"), 0o600); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, capability.Errorf(capability.CodeUnavailable, "trial", "%s is not offered", method)
}

// process is a child of the test.
type process struct {
	*exec.Cmd
	first  string // its first line
	stderr *bytes.Buffer
	done   chan error // holds the result of Wait
}

// spawn starts this binary in a role and waits for its first line.
func spawn(t testing.TB, role string, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(self, args...), stderr: &bytes.Buffer{}, done: make(chan error, 1)}
	p.Env = append(append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0"), env...)
	p.Stderr = p.stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line := make(chan string, 1)
	go func() {
		r := bufio.NewReader(out)
		s, _ := r.ReadString('\n')
		line <- strings.TrimSpace(s)
		_, _ = io.Copy(io.Discard, r)
		p.done <- p.Wait()
	}()
	select {
	case p.first = <-line:
	case <-time.After(2 * time.Minute):
		p.kill()
		t.Fatalf("the %s did not become ready in two minutes: %s", role, p.stderr)
	}
	if p.first == "" {
		err := <-p.done
		p.done <- err
		t.Fatalf("the %s ended at once: %v: %s", role, err, p.stderr)
	}
	return p
}

// kill is SIGKILL; it returns when the process is gone and may be called again.
func (p *process) kill() {
	_ = p.Process.Kill()
	err := <-p.done
	p.done <- err
}

// terminate is SIGTERM; it returns how the process ended.
func (p *process) terminate(t testing.TB) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.done:
		p.done <- err
		if err != nil {
			t.Errorf("after SIGTERM: %v: %s", err, p.stderr)
		}
	case <-time.After(killGrace):
		t.Fatalf("still running %s after SIGTERM", killGrace)
	}
}

// node is a running server with clients of the two tokens every home has.
type node struct {
	*process
	home         string
	url          string
	admin, agent *client.Client
}

// serve starts a server on home with one root, home/files.
func serve(t testing.TB, home string, env ...string) *node {
	t.Helper()
	files := filepath.Join(home, "files")
	if err := os.MkdirAll(files, 0o700); err != nil {
		t.Fatal(err)
	}
	n := &node{home: home, process: spawn(t, "server", append([]string{"JUNCTOR_FS_ROOTS=files=" + files}, env...), home)}
	var ready server.ReadyLine
	if err := json.Unmarshal([]byte(n.first), &ready); err != nil {
		t.Fatalf("ready line %q: %v", n.first, err)
	}
	n.url = ready.URL
	n.admin, n.agent = n.client(t, n.token(t, "admin")), n.client(t, n.token(t, "agent"))
	return n
}

func (n *node) token(t testing.TB, role string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.home, "run", role+".token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func (n *node) client(t testing.TB, token string) *client.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Config{URL: n.url, Token: secret.New(token), Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (n *node) connect(t testing.TB, id, url string, persist bool) {
	t.Helper()
	body := map[string]any{"endpoint": map[string]any{"id": id, "baseUrl": url}, "persist": persist}
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/capability-router/connect", body, nil); err != nil {
		t.Fatal(err)
	}
}

// record is what the tests look at of an audit record.
type record struct {
	Event    string
	Seq      uint64
	Error    string
	Metadata struct {
		RunID  string `json:"run_id"`
		Reason string
		Code   string
	}
}

func (n *node) records(t testing.TB, query string) []record {
	t.Helper()
	var out struct{ Records []record }
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/audit?"+query, nil, &out); err != nil {
		t.Fatal(err)
	}
	return out.Records
}

// verify checks the chain through the server.
func (n *node) verify(t testing.TB) {
	t.Helper()
	var out struct {
		Records  uint64          `json:"records"`
		FirstBad json.RawMessage `json:"first_bad"`
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/audit/verify", nil, &out); err != nil {
		t.Fatal(err)
	}
	if out.FirstBad != nil || out.Records == 0 {
		t.Errorf("the chain does not hold: %d records, first bad %s; want out.FirstBad = nil, out.Records other than 0",
			out.Records, out.FirstBad)
	}
}

// eventually waits until ok holds: what it asks about is another process.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	eventuallyWithin(t, 20*time.Second, what, ok)
}

func eventuallyWithin(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s; want not time.Now().After(deadline)", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
