package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// upstreamsConfig is what the plane of these tests is configured with: work is a
// view of four programs, web one of a server at a URL.
const upstreamsConfig = `
mcp:
  views:
    - {name: work, modules: [mcp.everything, mcp.filesystem, mcp.memory, mcp.thinking], own_names: true, exposure: full}
    - {name: web, modules: [mcp.web], own_names: true, exposure: full}
`

// upstreamsRules let agents do everything except think: that needs the yes of
// the user of the client.
const upstreamsRules = `
@id("all") permit (principal, action, resource)
unless { resource in Module::"mcp.thinking" };
@id("thinking") @consent("client") permit (principal, action, resource in Module::"mcp.thinking");
`

// newUpstreams is a plane in front of the reference servers from npm, all but the
// one that the clients see arrive.
func newUpstreams(t *testing.T) (*world, string) {
	t.Helper()
	w := newWorld(t)
	p := &world{t: t, node: w.node, binary: w.binary, home: filepath.Join(t.TempDir(), "plane")}
	ok(t, os.MkdirAll(filepath.Join(p.home, "policy"), 0o700))
	ok(t, os.WriteFile(filepath.Join(p.home, "policy", "default.cedar"), []byte(upstreamsRules), 0o600))
	ok(t, os.WriteFile(filepath.Join(p.home, "config.yaml"), []byte(upstreamsConfig), 0o600))
	p.url = p.serve("--home", p.home, "serve", "--listen", "127.0.0.1:0").URL + "/mcp"
	token, err := os.ReadFile(filepath.Join(p.home, "run", "agent.token"))
	ok(t, err)
	p.tok = strings.TrimSpace(string(token))
	files := sharedDir(t)
	p.addProgram("everything", "server-everything", "")
	p.addProgram("filesystem", "server-filesystem", files, files)
	p.cli("upstreams", "add", "memory", "--env", "MEMORY_FILE_PATH="+filepath.Join(files, "memory.jsonl"), "--ro", npmModules(), "--rw", files,
		"--", p.node, npmServer("server-memory"))
	p.cli("upstreams", "add", "web", "--url", p.everythingOverHTTP(freeAddress(t))+"/mcp", "--local")
	return p, files
}

// npmModules is the folder of the installed packages.
func npmModules() string {
	path, err := filepath.Abs("node_modules")
	if err != nil {
		panic(err)
	}
	return path
}

// npmServer is the program of a reference server.
func npmServer(name string) string {
	return filepath.Join(npmModules(), "@modelcontextprotocol", name, "dist", "index.js")
}

// addProgram adds a reference server, confined, with one folder to write unless it is "".
func (w *world) addProgram(name, server, folder string, args ...string) {
	w.t.Helper()
	add := []string{"upstreams", "add", name, "--ro", npmModules()}
	if folder != "" {
		add = append(add, "--rw", folder)
	}
	w.cli(slices.Concat(add, []string{"--", w.node, npmServer(server)}, args)...)
}

// sharedDir is a folder that confined programs of a server may be given: as root they run as
// another user, to whom it belongs.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "interop-shared-")
	ok(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		ok(t, os.Chown(dir, sandbox.DefaultUID, sandbox.DefaultUID))
	}
	return dir
}

// everythingOverHTTP starts server-everything at an address.
func (w *world) everythingOverHTTP(address string) (url string) {
	w.t.Helper()
	_, port, _ := strings.Cut(address, ":")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, w.node, npmServer("server-everything"), "streamableHttp")
	cmd.Env = append(environment(), "PORT="+port)
	cmd.WaitDelay = 5 * time.Second
	ok(w.t, cmd.Start())
	w.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed: its status says so
	})
	awaitListener(w.t, address)
	return "http://" + address
}

// agentStep is one thing that a client saw of the upstreams.
type agentStep struct {
	Step, Server, Version, Text string
	Names                       []string
	Progress                    []float64
	IsError                     bool
}

func TestClientsUseRealUpstreams(t *testing.T) {
	w, files := newUpstreams(t)
	for _, kind := range []string{"v1", "v2-legacy", "v2-modern"} {
		for _, transport := range []string{"http", "stdio"} {
			for _, view := range []string{"work", "web"} {
				t.Run(kind+" over "+transport+" to "+view, func(t *testing.T) {
					next, goOn := w.typescript(t, kind, transport, view, files)
					w.usesUpstreams(t, kind, transport, view, next, goOn)
				})
			}
		}
	}
	for _, kind := range []string{"go-legacy", "go-modern"} {
		for _, transport := range []string{"http", "stdio"} {
			for _, view := range []string{"work", "web"} {
				t.Run(kind+" over "+transport+" to "+view, func(t *testing.T) {
					next, goOn := w.golang(t, kind, transport, view, files)
					w.usesUpstreams(t, kind, transport, view, next, goOn)
				})
			}
		}
	}
	for _, transport := range []string{"http", "stdio"} {
		t.Run("inspector over "+transport, func(t *testing.T) { w.inspectUpstreams(t, transport, files) })
	}
}

// typescript runs upstreams.mjs; what it returns gives its steps one by one, and lets
// it go on where it waits.
func (w *world) typescript(t *testing.T, kind, transport, view, files string) (next func() (agentStep, error), goOn func()) {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	cmd := w.command(ctx, "upstreams.mjs", kind, transport, view)
	cmd.Env = append(cmd.Env, "INTEROP_FILES="+files)
	cmd.Stderr = logWriter{t, kind}
	out, err := cmd.StdoutPipe()
	ok(t, err)
	in, err := cmd.StdinPipe()
	ok(t, err)
	ok(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // the last step reports whether it got there
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	return func() (s agentStep, err error) {
		if !lines.Scan() {
			return s, errors.Join(errors.New("the client has ended"), lines.Err())
		}
		return s, json.Unmarshal(lines.Bytes(), &s)
	}, func() { _, _ = io.WriteString(in, "go on\n") }
}

// usesUpstreams checks what a client saw, step by step, and does between them what
// happens outside of it.
func (w *world) usesUpstreams(t *testing.T, kind, transport, view string, steps func() (agentStep, error), goOn func()) {
	t.Helper()
	next := func(want string) agentStep {
		t.Helper()
		s, err := steps()
		if err != nil || s.Step != want {
			t.Fatalf("%+v, %v instead of %q", s, err, want)
		}
		if s.IsError != (want == "asked") {
			t.Errorf(`%s: %s; want s.IsError = (want == "asked")`, want, s.Text)
		}
		return s
	}
	says := func(step string, parts ...string) agentStep {
		t.Helper()
		s := next(step)
		for _, p := range parts {
			if !strings.Contains(s.Text, p) {
				t.Errorf("%s: %q is not in %q; want s.Text with %v", step, p, s.Text, p)
			}
		}
		return s
	}
	names := func(step string, want ...string) agentStep {
		t.Helper()
		s := next(step)
		for _, name := range want {
			if !slices.Contains(s.Names, name) {
				t.Errorf("%s: no %s among %v; want s.Names with %v", step, name, s.Names, name)
			}
		}
		return s
	}
	if s := next("connected"); s.Server != "junctor" || (s.Version == "2026-07-28") != strings.HasSuffix(kind, "modern") {
		t.Errorf(`connected: %+v; want s.Server = "junctor", (s.Version == "2026-07-28") = strings.HasSuffix(kind, "modern")`, s)
	}
	tools := names("tools", "echo", "get-sum", "trigger-long-running-operation", "trigger-elicitation-request")
	if slices.Contains(tools.Names, "write_file") != (view == "work") || slices.Contains(tools.Names, "sequentialthinking") {
		t.Errorf(`in view %s: %v; want slices.Contains(tools.Names, "write_file") = (view == "work"), tools.Names without `+
			`"sequentialthinking"`, view, tools.Names)
	}
	says("echo", "Echo: hello")
	if p := says("long", "Long running operation completed").Progress; len(p) < 2 || !slices.IsSorted(p) ||
		len(slices.Compact(slices.Clone(p))) != len(p) || p[len(p)-1] > 4 {
		t.Errorf("progress: %v; want len(p) at least 2, slices.IsSorted(p), len(slices.Compact(slices.Clone(p))) = %v, "+
			"p[len(p)-1] at most 4", p, len(p))
	}
	names("prompts", "args-prompt", "completable-prompt")
	says("prompt", "Paris")
	names("resources", "demo://resource/static/document/features.md", "demo://resource/dynamic/text/{resourceId}")
	if s := next("read"); len(s.Names) != 2 || !strings.Contains(s.Names[0], "Everything Server") ||
		!strings.Contains(s.Names[1], "Resource 7") {
		t.Errorf(`read: %v; want len(s.Names) = 2, s.Names[0] with "Everything Server", s.Names[1] with "Resource 7"`, s.Names)
	}
	names("completion", "Engineering")
	says("updated", "demo://resource/static/document/features.md")
	if s := says("elicited", "Ada"); len(s.Names) != 1 || !strings.Contains(s.Names[0], "Please provide inputs") {
		t.Errorf(`the upstream's question: %v; want len(s.Names) = 1, s.Names[0] with "Please provide inputs"`, s.Names)
	}
	if view == "work" {
		// It says of itself that it destroys: no rule spares agents the operator's yes.
		id := approvalID.FindString(says("asked", "junctor approvals approve").Text)
		w.cli("approvals", "approve", id)
		goOn()
		says("written", "Successfully wrote")
		says("file", "written by "+kind)
		says("memory", kind+"-"+transport, "was here")
		next("ready")
		w.addProgram("thinking", "server-sequential-thinking", "")
		defer w.cli("upstreams", "remove", "thinking")
		names("changed", "sequentialthinking", "echo")
		s := says("thought", "thoughtNumber")
		if len(s.Names) != 1 || !strings.Contains(s.Names[0], "junctor asks for your approval") {
			t.Errorf(`asked for consent: %v; want len(s.Names) = 1, s.Names[0] with "junctor asks for your approval"`, s.Names)
		}
	}
	next("closed")
}

// inspectUpstreams runs the Inspector's command line against the upstreams.
func (w *world) inspectUpstreams(t *testing.T, transport, files string) {
	run := func(want string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		defer cancel()
		all := []string{filepath.Join("node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js"), "--cli"}
		if transport == "http" {
			all = append(all, w.url+"/work", "--transport", "http", "--header", "Authorization: Bearer "+w.tok)
			all = append(all, args...)
		} else {
			all = append(append(all, args...), "--", w.binary, "--home", w.home, "mcp", "--view", "work")
		}
		cmd := w.command(ctx, all...)
		cmd.Stderr = logWriter{t, "inspector"}
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), `"isError": true`) {
			t.Errorf("inspector %v: %v, no %q in\n%s\nwant no error, string(out) with %v, string(out) without \"\\\"isError\\\": true\"",
				args, err, want, out, want)
		}
	}
	path := filepath.Join(files, "inspector-"+transport+".txt")
	run(`"trigger-long-running-operation"`, "--method", "tools/list")
	run("Echo: hello", "--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=hello")
	ok(t, os.WriteFile(path, []byte("by somebody"), 0o644))
	run("by somebody", "--method", "tools/call", "--tool-name", "read_text_file", "--tool-arg", "path="+path)
	run(`"args-prompt"`, "--method", "prompts/list")
	run("Paris", "--method", "prompts/get", "--prompt-name", "args-prompt", "--prompt-args", "city=Paris")
	run("demo://resource/static/document/features.md", "--method", "resources/list")
	run("Everything Server", "--method", "resources/read", "--uri", "demo://resource/static/document/features.md")
}
