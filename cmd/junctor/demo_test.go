package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/server"
)

// process is a running junctor whose output a test reads.
type process struct {
	*exec.Cmd
	stdout, stderr *bufio.Reader
}

// start runs the junctor command as its own process; it is killed with the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startProgram(t, "junctor", args...)
}

func startProgram(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), program, args...)}
	p.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	p.WaitDelay = 10 * time.Second
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout, p.stderr = bufio.NewReader(out), bufio.NewReader(errs)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// until reads lines to the one that holds mark, which is the last it returns.
func until(t *testing.T, r *bufio.Reader, mark string) []string {
	t.Helper()
	var lines []string
	for {
		line, err := r.ReadString('\n')
		lines = append(lines, strings.TrimSuffix(line, "\n"))
		if strings.Contains(line, mark) {
			return lines
		}
		if err != nil {
			t.Fatalf("no line with %q came: %v\n%s", mark, err, strings.Join(lines, "\n"))
		}
	}
}

// TestDemoBanner runs every command the demo prints, as it is printed, from a
// home whose name a shell would take apart.
func TestDemoBanner(t *testing.T) {
	home := filepath.Join(t.TempDir(), "a home; with $odd 'name'")
	path, err := exec.LookPath("junctor")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "junctor")
	if err := os.Link(path, elsewhere); err != nil {
		t.Fatal(err)
	}
	branches := func() string {
		out, _ := exec.CommandContext(t.Context(), "git", "branch", "--list", "junctor/*").Output() // nothing outside a checkout
		return string(out)
	}
	before := branches()
	p := startProgram(t, elsewhere, "--home", home, "serve", "--demo", "--listen", "127.0.0.1:0")
	tryBanner(t, until(t, p.stderr, "Ctrl-C stops everything."))
	for _, part := range []struct{ command, shows string }{
		{"endpoints list", `"demo"`},
		{"nodes list", `"demo-device"`},
		{"upstreams list", `"units"`},
		{"extensions list", `"tools.words"`},
		{"extensions list", `"tools.machine"`},
		{"tasks list", `"state":"working"`},
		{"doctor", `"ok":true`},
	} {
		out, err := exec.CommandContext(t.Context(), "junctor", append([]string{"--json", "--home", home},
			strings.Fields(part.command)...)...).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte(part.shows)) {
			t.Errorf("%s: %v\n%s\nwant no error, out with []byte(part.shows)", part.command, err, out)
		}
	}
	// The demo is started in a checkout, such as this one, and leaves it as it is.
	if after := branches(); after != before {
		t.Errorf("the demo made branches in the checkout: got %q, want %q", after, before)
	}
	var endpoint struct{ PID int }
	data, err := os.ReadFile((&demo{home: home}).endpointReady())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &endpoint); err != nil {
		t.Fatal(err)
	}
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if err := syscall.Kill(endpoint.PID, 0); err == nil {
		t.Error("the endpoint outlived the demo; want an error")
	}

	// Once more, by a program in another place, where the variables name another server.
	if err := os.Remove(elsewhere); err != nil {
		t.Fatal(err)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("another server was asked %s %s, with a token: %t", r.Method, r.URL, r.Header.Get("Authorization") != "")
		w.WriteHeader(http.StatusTeapot)
	}))
	defer other.Close()
	t.Setenv("JUNCTOR_URL", other.URL)
	t.Setenv("JUNCTOR_TOKEN", "of-another-server")
	t.Setenv("JUNCTOR_GATEWAY", other.URL)
	again := start(t, "--home", home, "serve", "--demo", "--listen", "127.0.0.1:0")
	var ready server.ReadyLine
	if err := json.Unmarshal([]byte(until(t, again.stdout, `"url"`)[0]), &ready); err != nil {
		t.Fatal(err)
	}
	tryBanner(t, until(t, again.stderr, "Ctrl-C stops everything."))
	token, err := os.ReadFile(ready.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "junctor", "--json", "--server", ready.URL, "--token", strings.TrimSpace(string(token)),
		"upstreams", "show", demoUpstream).CombinedOutput()
	if !bytes.Contains(out, []byte(`"state":"ready"`)) || bytes.Contains(out, []byte(elsewhere)) {
		t.Errorf("the MCP server of a program that has moved: %v\n%s\nwant out with []byte(`\"state\":\"ready\"`), out without "+
			"[]byte(elsewhere)", err, out)
	}
	if err := again.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(); err != nil {
		t.Errorf("a home that was used before: %v", err)
	}
}

// TestDemoIsForItself: the demo uses no existing home, port or database.
func TestDemoIsForItself(t *testing.T) {
	home := t.TempDir()
	t.Setenv("JUNCTOR_HOME", home)
	p := start(t, "serve", "--demo")
	line := until(t, p.stdout, "}")[0]
	if !strings.Contains(line, `"url":"http://127.0.0.1:`) || strings.Contains(line, ":7777") || strings.Contains(line, home) {
		t.Errorf(`it is ready as %s; want line with "\"url\":\"http://127.0.0.1:", line without ":7777", line without %v`, line, home)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("the home of another server has %v, %v; want no error, len(left) at most 0", left, err)
	}
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = p.status(t)

	file := filepath.Join(home, "shared.yaml")
	if err := os.WriteFile(file, []byte("store:\n  url: postgres://ann@127.0.0.1:1/shared\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, shared := range []struct{ env, args string }{
		{env: "JUNCTOR_STORE_URL=postgres://ann@127.0.0.1:1/shared"},
		{env: "JUNCTOR_NATS_URL=nats://127.0.0.1:1 JUNCTOR_NATS_KEY_SECRET=shared"},
		{args: "--config shared.yaml"},
	} {
		args := append([]string{"--home", "own", "serve", "--demo", "--listen", "127.0.0.1:0"}, strings.Fields(shared.args)...)
		cmd := exec.CommandContext(t.Context(), "junctor", args...)
		cmd.Dir = home
		cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), strings.Fields(shared.env)...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || !bytes.Contains(out, []byte("unset JUNCTOR_STORE_URL")) {
			t.Errorf("%+v: %v\n%s\nwant an error, cmd.ProcessState.ExitCode() = 2, out with []byte(\"unset JUNCTOR_STORE_URL\")",
				shared, err, out)
		}
	}
}

// tryBanner does what the lines of a banner say, as a shell and as an agent.
func tryBanner(t *testing.T, lines []string) {
	t.Helper()
	var commands []string
	var config strings.Builder
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "  ") && strings.Contains(line, " --home "):
			commands = append(commands, strings.TrimSpace(line))
		case config.Len() > 0 || line == "{":
			if !strings.HasPrefix(line, "Ctrl-C") {
				config.WriteString(line + "\n")
			}
		}
	}
	if len(commands) != 5 {
		t.Errorf("the banner has %d commands, want 5:\n%s", len(commands), strings.Join(lines, "\n"))
	}
	for _, command := range commands {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		if err != nil || len(bytes.TrimSpace(out)) == 0 {
			t.Errorf("%s: %v\n%s\nwant no error, len(bytes.TrimSpace(out)) other than 0", command, err, out)
		}
	}
	tryMCP(t, config.String())
}

// tryMCP starts what the banner's configuration says and asks it for its tools.
func tryMCP(t *testing.T, config string) {
	t.Helper()
	if strings.Index(config, `"command"`) > strings.Index(config, `"args"`) {
		t.Errorf("the configuration names args before command:\n%s\nwant strings.Index(config, `\"command\"`) at most "+
			"strings.Index(config, `\"args\"`)", config)
	}
	var file struct {
		Servers map[string]struct {
			Command string
			Args    []string
			Env     map[string]string
		} `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(config), &file); err != nil {
		t.Fatalf("%v:\n%s", err, config)
	}
	entry := file.Servers["junctor"]
	cmd := exec.CommandContext(t.Context(), entry.Command, entry.Args...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	for name, value := range entry.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s %q: %v", entry.Command, entry.Args, err)
	}
	if !bytes.Contains(out, []byte(`"fs_readText"`)) {
		t.Errorf("the agent sees no fs_readText:\n%s\nwant out with []byte(`\"fs_readText\"`)", out)
	}
}

// status waits for the end of the process.
func (p *process) status(t *testing.T) int {
	t.Helper()
	_, _ = io.Copy(io.Discard, p.stdout)
	if _, ok := errors.AsType[*exec.ExitError](p.Wait()); !ok {
		return 0
	}
	return p.ProcessState.ExitCode()
}

// TestCtrlC: whatever a command is doing, Ctrl-C ends it with status 130.
func TestCtrlC(t *testing.T) {
	called := make(chan struct{}, 1)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer silent.Close()
	p := start(t, "--server", silent.URL, "--token", "any", "--json", "invoke", "fs.list")
	<-called
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	out := until(t, p.stdout, `"code":"cancelled"`)
	if len(out) != 1 || !json.Valid([]byte(out[0])) {
		t.Errorf("an interrupted call prints %q; want len(out) = 1, json.Valid([]byte(out[0]))", out)
	}
	if code := p.status(t); code != 130 {
		t.Errorf("an interrupted call ends with status %d; want code = 130", code)
	}

	home := t.TempDir()
	server := start(t, "--home", home, "serve", "--listen", "127.0.0.1:0")
	until(t, server.stdout, `"url"`)
	for _, following := range [][]string{{"audit", "tail", "--json"}, {"events", "--json"}} {
		p := start(t, append([]string{"--home", home}, following...)...)
		seen := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { // until it follows, there is something to see
			for {
				_ = exec.CommandContext(t.Context(), "junctor", "--home", home, "audit", "verify").Run()
				select {
				case <-seen:
					return
				default:
				}
			}
		})
		until(t, p.stdout, "{")
		close(seen)
		wg.Wait()
		if err := p.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if code := p.status(t); code != 130 {
			t.Errorf("%q: interrupted, it ends with status %d; want code = 130", following, code)
		}
	}
}
