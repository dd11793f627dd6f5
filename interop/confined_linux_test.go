package interop

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// confinedPlane is a server of its own user, whose programs reach the tier that its configuration permits.
type confinedPlane struct {
	*testing.T
	binary, home, node string
	user               *syscall.SysProcAttr // nil: ours
	uid                int                  // of confined programs
	server             *exec.Cmd
}

// otherUser is the user of servers that are not root.
const otherUser = 65534

// newConfinedPlane starts a server. It skips the test where the user, the tier or the packages are not there.
func newConfinedPlane(t *testing.T, tier sandbox.Tier, root bool) *confinedPlane {
	t.Helper()
	p := &confinedPlane{T: t, node: installed(t), uid: sandbox.DefaultUID}
	if root && os.Geteuid() != 0 {
		t.Skip("this test is not run by root")
	}
	dir, err := os.MkdirTemp("", "interop-confined-")
	ok(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ok(t, os.Chmod(dir, 0o755))
	p.binary, p.home = filepath.Join(dir, "junctor"), filepath.Join(dir, "home")
	ok(t, built.Copy(p.binary))
	ok(t, os.Mkdir(p.home, 0o700))
	if tier == sandbox.T2 {
		ok(t, os.WriteFile(filepath.Join(p.home, "config.yaml"), []byte("sandbox:\n  off: [namespaces]\n"), 0o644))
	}
	if !root {
		if p.uid = os.Geteuid(); p.uid == 0 {
			p.uid = otherUser
			p.user = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUser, Gid: otherUser}}
			ok(t, os.Chown(p.home, otherUser, otherUser))
		}
	}
	p.serve()
	status, err := p.try("sandbox", "status", "--json")
	if err != nil || !strings.Contains(status, `"tier":"`+tier.String()+`"`) && !strings.Contains(status, `"tier": "`+tier.String()+`"`) {
		t.Skipf("tier %s is not available here: %.200s", tier, status)
	}
	return p
}

func (p *confinedPlane) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	p.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, p.binary, append([]string{"--home", p.home}, args...)...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr, cmd.WaitDelay = filepath.Dir(p.home), append(environment(), "HOME="+p.home), p.user, 5*time.Second
	return cmd
}

func (p *confinedPlane) serve() {
	p.Helper()
	cmd := p.command("serve", "--listen", "127.0.0.1:0")
	cmd.Stderr = logWriter{p.T, "serve"}
	out, err := cmd.StdoutPipe()
	ok(p.T, err)
	ok(p.T, cmd.Start())
	var ready readyLine
	ok(p.T, json.NewDecoder(out).Decode(&ready))
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the server
	p.server = cmd
	p.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it was interrupted or killed, so its status is not checked
	})
}

func (p *confinedPlane) try(args ...string) (string, error) {
	out, err := p.command(args...).CombinedOutput()
	return string(out), err
}

func (p *confinedPlane) run(args ...string) string {
	p.Helper()
	out, err := p.try(args...)
	if err != nil {
		p.Fatalf("junctor %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// invoke calls a tool with an input, and returns all that the command prints.
func (p *confinedPlane) invoke(tool string, input map[string]any) string {
	p.Helper()
	data, err := json.Marshal(input)
	ok(p.T, err)
	out, _ := p.try("invoke", tool, string(data))
	return out
}

// folder is a directory of the programs' user.
func (p *confinedPlane) folder(name, text string) string {
	p.Helper()
	dir := filepath.Join(filepath.Dir(p.home), name)
	ok(p.T, os.Mkdir(dir, 0o755))
	ok(p.T, os.WriteFile(filepath.Join(dir, "text.txt"), []byte(text), 0o644))
	ok(p.T, os.Chown(dir, p.uid, p.uid))
	return dir
}

// running returns the processes whose command line holds a text.
func running(t *testing.T, text string) (list []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	ok(t, err)
	for _, file := range all {
		if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), text) {
			list = append(list, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return list
}

// awaitNone waits until no process has a text in its command line.
func awaitNone(t *testing.T, text string) {
	t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for left := running(t, text); len(left) > 0; left = running(t, text) {
		if time.Now().After(deadline) {
			t.Fatalf("these programs still run: %q; want not time.Now().After(deadline)", left)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestReferenceServersRunConfined(t *testing.T) {
	for _, c := range []struct {
		name string
		tier sandbox.Tier
		root bool
	}{
		{"T3 as root", sandbox.T3, true},
		{"T2 as root", sandbox.T2, true},
		{"T3 as another user", sandbox.T3, false},
		{"T2 as another user", sandbox.T2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newConfinedPlane(t, c.tier, c.root)
			p.useReferenceServers(c.tier)
		})
	}
}

func (p *confinedPlane) useReferenceServers(tier sandbox.Tier) {
	data, fixed, other := p.folder("data", "of data"), p.folder("fixed", "of fixed"), p.folder("other", "of other")
	add := func(name, server string, flags, args []string) {
		p.Helper()
		words := append([]string{"upstreams", "add", name, "--ro", npmModules()}, flags...)
		p.run(append(append(words, "--", p.node, npmServer(server)), args...)...)
	}
	expect := func(what, got, want string) {
		p.Helper()
		if !strings.Contains(got, want) {
			p.Errorf("%s = %s, want it to contain %q", what, got, want)
		}
	}
	add("files", "server-filesystem", []string{"--rw", data, "--ro", fixed}, []string{data, fixed})
	expect("the list", p.run("upstreams", "list"), tier.String()+", network all")
	file := func(dir string) map[string]any { return map[string]any{"path": filepath.Join(dir, "text.txt")} }
	written := func(dir string) map[string]any {
		return map[string]any{"path": filepath.Join(dir, "new.txt"), "content": "written by it"}
	}
	expect("reading data", p.invoke("mcp.files:tool:read_text_file", file(data)), "of data")
	expect("reading fixed", p.invoke("mcp.files:tool:read_text_file", file(fixed)), "of fixed")
	p.invoke("mcp.files:tool:write_file", written(data))
	if got, err := os.ReadFile(filepath.Join(data, "new.txt")); err != nil || string(got) != "written by it" {
		p.Errorf("the written file = %q, %v, want what was written", got, err)
	}
	p.invoke("mcp.files:tool:write_file", written(fixed))
	if _, err := os.Stat(filepath.Join(fixed, "new.txt")); err == nil {
		p.Error("a file was written into the folder that is only for reading, want a refusal")
	}

	// A server whose command names the whole machine still sees its own part only.
	add("wide", "server-filesystem", []string{"--ro", data}, []string{data, "/etc"})
	token, err := os.ReadFile(filepath.Join(p.home, "run", "admin.token"))
	ok(p.T, err)
	for _, path := range []string{filepath.Join(p.home, "run", "admin.token"), filepath.Join(other, "text.txt"), "/etc/shadow"} {
		got := p.invoke("mcp.wide:tool:read_text_file", map[string]any{"path": path})
		if strings.Contains(got, "of other") || strings.Contains(got, "root:") || strings.Contains(got, strings.TrimSpace(string(token))) {
			p.Errorf("reading %s = %s, want a refusal", path, got)
		}
	}

	entity := map[string]any{"entities": []any{map[string]any{"name": "ada", "entityType": "person", "observations": []any{"counts"}}}}
	add("memory", "server-memory", nil, nil)
	expect("writing into the package", p.invoke("mcp.memory:tool:create_entities", entity), "memory.jsonl")
	p.run("upstreams", "remove", "memory")
	add("memory", "server-memory", []string{"--rw", data, "--env", "MEMORY_FILE_PATH=" + filepath.Join(data, "memory.jsonl")}, nil)
	expect("remembering", p.invoke("mcp.memory:tool:create_entities", entity), "ada")
	p.run("upstreams", "restart", "memory")
	expect("the graph after a restart", p.invoke("mcp.memory:tool:read_graph", map[string]any{}), "ada")

	add("everything", "server-everything", []string{"--net", "none"}, nil)
	expect("echo", p.invoke("mcp.everything:tool:echo", map[string]any{"message": "said"}), "said")
	add("thinking", "server-sequential-thinking", nil, nil)
	expect("a thought", p.invoke("mcp.thinking:tool:sequentialthinking", map[string]any{
		"thought": "one", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1,
	}), "thoughtHistoryLength")

	p.run("upstreams", "remove", "everything")
	awaitNone(p.T, npmServer("server-everything"))
	p.run("upstreams", "restart", "thinking")
	if got := running(p.T, npmServer("server-sequential-thinking")); len(got) != 1 {
		p.Errorf("the programs of thinking after a restart = %q, want one", got)
	}
	ok(p.T, p.server.Process.Kill())
	awaitNone(p.T, npmModules()+"/@modelcontextprotocol/server-")
}
