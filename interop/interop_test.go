// Package interop holds the server to the MCP clients that agents are built on:
// the official TypeScript SDK in its first and second version, and the
// Inspector, each over HTTP and over stdio. The clients come with
//
//	npm ci --prefix interop
//
// Without them the tests are skipped, unless INTEROP_REQUIRED is set; then
// they fail.
package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/testkit/built"
)

// waitTimeout bounds everything that waits for another process.
const waitTimeout = time.Minute

// world is a server with a local root, an endpoint with another, and the clients.
type world struct {
	t                            *testing.T
	node, binary, home, url, tok string
}

func newWorld(t *testing.T, prepare ...func(home string)) *world {
	t.Helper()
	w := &world{t: t, node: installed(t)}
	dir := t.TempDir()
	w.binary, w.home = built.Junctor(t), filepath.Join(dir, "home")
	local, remote := filepath.Join(dir, "local"), filepath.Join(dir, "remote")
	for _, d := range []string{w.home, local, remote} {
		ok(t, os.Mkdir(d, 0o700))
	}
	ok(t, os.WriteFile(filepath.Join(local, "here.txt"), []byte("here"), 0o600))
	ok(t, os.WriteFile(filepath.Join(remote, "there.txt"), []byte("there"), 0o600))
	ok(t, os.WriteFile(filepath.Join(w.home, "config.yaml"), fmt.Appendf(nil, "fs:\n  roots:\n    - {id: files, path: %q}\n", local), 0o600))
	for _, f := range prepare {
		f(w.home)
	}
	server := w.serve("--home", w.home, "serve", "--listen", "127.0.0.1:0")
	endpoint := w.serve("endpoint", "serve", "--root", remote)
	w.url = server.URL + "/mcp"
	token, err := os.ReadFile(filepath.Join(w.home, "run", "agent.token"))
	ok(t, err)
	w.tok = strings.TrimSpace(string(token))
	w.cli("connect", endpoint.URL, "--id", "cloud")
	return w
}

// installed is the node program; without it the test is skipped.
func installed(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	ok(t, err)
	node := filepath.Join(here, "node_modules", "node-linux-"+map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH], "bin",
		"node")
	if _, err := os.Stat(node); err != nil {
		text := "the clients are not installed; run: npm ci --prefix interop"
		if os.Getenv("INTEROP_REQUIRED") != "" {
			t.Fatalf(`INTEROP_REQUIRED is set: %s; want os.Getenv("INTEROP_REQUIRED") = ""`, text)
		}
		t.Skip(text)
	}
	return node
}

type readyLine struct{ URL string }

// serve starts a process of ours that says on stdout where it listens.
func (w *world) serve(args ...string) readyLine {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, w.binary, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Env = environment()
	cmd.Stderr = logWriter{w.t, args[len(args)-1]}
	out, err := cmd.StdoutPipe()
	ok(w.t, err)
	ok(w.t, cmd.Start())
	w.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // interrupted: its status says so
	})
	var ready readyLine
	ok(w.t, json.NewDecoder(out).Decode(&ready))
	return ready
}

// logWriter shows what a process says on stderr beside the test that failed.
type logWriter struct {
	t    *testing.T
	name string
}

func (l logWriter) Write(data []byte) (int, error) {
	l.t.Logf("%s: %s", l.name, strings.TrimSpace(string(data)))
	return len(data), nil
}

func (w *world) cli(args ...string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), w.binary, append([]string{"--home", w.home}, args...)...)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("junctor %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// environment is ours without what configures junctor: the server refuses
// variables of its prefix that it does not know. Calls that need an approval end at once.
func environment() []string {
	return append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "JUNCTOR_") }),
		"JUNCTOR_APPROVALS_WAIT=0s")
}

// command is a node program that finds the server in its environment.
func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.node, args...)
	cmd.Env = append(environment(),
		"HOME="+w.home, // the Inspector keeps a catalog there
		"INTEROP_URL="+w.url, "INTEROP_TOKEN="+w.tok, "INTEROP_BIN="+w.binary, "INTEROP_HOME="+w.home)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func TestClients(t *testing.T) {
	w := newWorld(t)
	for _, kind := range []string{"v1", "v2-legacy", "v2-modern"} {
		for _, transport := range []string{"http", "stdio"} {
			t.Run(kind+" over "+transport, func(t *testing.T) { w.scenario(t, kind, transport) })
		}
	}
	for _, transport := range []string{"http", "stdio"} {
		t.Run("inspector over "+transport, func(t *testing.T) { w.inspect(t, transport) })
	}
}

// step is one line of client.mjs.
type step struct {
	Step, Server, Version, Text string
	Names                       []string
	IsError                     bool
	Code                        int
}

var approvalID = regexp.MustCompile(`apr_[0-9a-f]+`)

// scenario is what an agent does in its first minute: look, read here, read
// there, and be asked to wait for a person.
func (w *world) scenario(t *testing.T, kind, transport string) {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	cmd := w.command(ctx, "client.mjs", kind, transport)
	cmd.Stderr = logWriter{t, kind}
	in, err := cmd.StdinPipe()
	ok(t, err)
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	next := func(want string) step {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the client ended before %q: %v, %v; want lines.Scan()", want, lines.Err(), cmd.Wait())
		}
		var s step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil || s.Step != want {
			t.Fatalf("%s instead of %q", lines.Text(), want)
		}
		return s
	}
	connected := next("connected")
	modern := connected.Version == "2026-07-28"
	if connected.Server != "junctor" || modern != (kind == "v2-modern") {
		t.Errorf(`connected: %+v; want connected.Server = "junctor", modern = (kind == "v2-modern")`, connected)
	}
	names := next("tools").Names
	for _, name := range []string{"DEVICE_PING", "fs_list", "fs_readText"} {
		if !slices.Contains(names, name) {
			t.Errorf("no tool %s among %v; want names with %v", name, names, name)
		}
	}
	if s := next("list"); s.IsError || !strings.Contains(s.Text, "here.txt") {
		t.Errorf(`fs_list: %+v; want s.IsError = false, s.Text with "here.txt"`, s)
	}
	if s := next("read"); s.IsError || !strings.Contains(s.Text, `"text":"there"`) {
		t.Errorf(`fs_readText: %+v; want s.IsError = false, s.Text with "\"text\":\"there\""`, s)
	}
	asked := next("asked")
	id := approvalID.FindString(asked.Text)
	if !asked.IsError || id == "" || !strings.Contains(asked.Text, "junctor approvals approve "+id) {
		t.Fatalf(`DEVICE_PING: %+v; want asked.IsError = true, id other than "", asked.Text with "junctor approvals approve " + id`,
			asked)
	}
	w.cli("approvals", "approve", id)
	_, err = io.WriteString(in, "approved\n")
	ok(t, err)
	if s := next("approved"); s.IsError || !strings.Contains(s.Text, kind+" over "+transport) {
		t.Errorf(`after the approval: %+v; want s.IsError = false, s.Text with kind + " over " + transport`, s)
	}
	if s := next("unknown"); s.Code != -32602 || !strings.Contains(s.Text, "unknown tool") {
		t.Errorf(`unknown tool: %+v; want s.Code = -32602, s.Text with "unknown tool"`, s)
	}
	ok(t, cmd.Wait())
}

// inspect runs the Inspector's command line.
func (w *world) inspect(t *testing.T, transport string) {
	run := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		defer cancel()
		all := []string{filepath.Join("node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js"), "--cli"}
		if transport == "http" {
			all = append(all, w.url, "--transport", "http", "--header", "Authorization: Bearer "+w.tok)
			all = append(all, args...)
		} else {
			all = append(all, args...)
			all = append(all, "--", w.binary, "--home", w.home, "mcp")
		}
		cmd := w.command(ctx, all...)
		cmd.Stderr = logWriter{t, "inspector"}
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("inspector %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := run("--method", "tools/list"); !strings.Contains(out, `"fs_readText"`) || !strings.Contains(out, `"selector"`) {
		t.Errorf(`tools/list: %s; want out with "\"fs_readText\"", out with "\"selector\""`, out)
	}
	out := run("--method", "tools/call", "--tool-name", "fs_readText", "--tool-arg", "path=there.txt", `selector={"endpoint":"cloud"}`)
	if !strings.Contains(out, "there") || strings.Contains(out, `"isError": true`) {
		t.Errorf(`tools/call: %s; want out with "there", out without "\"isError\": true"`, out)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
