// Package clis holds the server to the programs of task agents themselves: Claude Code,
// Codex, Gemini CLI, Qwen Code, OpenCode and Pi, in the versions of package.json, which it starts
// over its HTTP API. Their model is package scriptedmodel, on loopback; nothing else is
// reached.
//
//	make test-agents
//
// installs them and runs the tests. Without the variable TASK_AGENTS_CLIS, the folder of
// their commands, the tests are skipped.
package clis

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// waitTimeout bounds everything that waits for a program.
const waitTimeout = 90 * time.Second

// plane is a server whose user has a home with nothing in it but what a test puts there.
type plane struct {
	home, user, url, token string
	binary                 string
	env                    []string
	server                 *exec.Cmd
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// commands is the folder of the programs, and of the Node that runs them.
func commands(t *testing.T) (bin, node string) {
	t.Helper()
	bin = os.Getenv("TASK_AGENTS_CLIS")
	if bin == "" {
		t.Skip("the programs of task agents are not tried; run: make test-agents")
	}
	bin, err := filepath.Abs(bin)
	ok(t, err)
	node = filepath.Join(bin, "..", "node-linux-"+map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH], "bin")
	return bin, node
}

// outside of the temporary folder, where Codex refuses to keep its helpers.
func folder(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	ok(t, err)
	ok(t, os.MkdirAll(cache, 0o700))
	dir, err := os.MkdirTemp(cache, "junctor-clis-")
	ok(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a program may still write its history
	dir, err = filepath.EvalSymlinks(dir)
	ok(t, err)
	return dir
}

func newPlane(t *testing.T, binary string, files map[string]string, env ...string) *plane {
	t.Helper()
	bin, node := commands(t)
	top := folder(t)
	p := &plane{home: filepath.Join(top, "plane"), user: filepath.Join(top, "user"), binary: binary}
	ok(t, os.MkdirAll(filepath.Join(p.home, "workspaces"), 0o700))
	ok(t, os.Mkdir(p.user, 0o700))
	for name, text := range files {
		ok(t, os.MkdirAll(filepath.Dir(filepath.Join(p.user, name)), 0o700))
		ok(t, os.WriteFile(filepath.Join(p.user, name), []byte(text), 0o600))
	}
	p.env = append([]string{
		"PATH=" + bin + ":" + node + ":" + os.Getenv("PATH"), "HOME=" + p.user, "LANG=C.UTF-8", "SHELL=/bin/bash",
		"ANTHROPIC_API_KEY=sk-ant-api03-of-nobody-at-all-0123", "OPENAI_API_KEY=sk-of-nobody", "GEMINI_API_KEY=of-nobody",
		"PARALLAX_OPENCODE_API_KEY=of-nobody",
	}, env...)
	t.Cleanup(func() { p.end(os.Interrupt) })
	p.begin(t)
	return p
}

// begin starts the server.
func (p *plane) begin(t *testing.T) {
	t.Helper()
	p.server = exec.CommandContext(context.Background(), p.binary, "--home", p.home, "serve", "--listen", "127.0.0.1:0")
	p.server.WaitDelay = 20 * time.Second
	p.server.Env = p.env
	p.server.Stderr = logWriter{t}
	out, err := p.server.StdoutPipe()
	ok(t, err)
	ok(t, p.server.Start())
	var ready struct{ URL string }
	ok(t, json.NewDecoder(out).Decode(&ready))
	p.url = ready.URL
	token, err := os.ReadFile(filepath.Join(p.home, "run", "admin.token"))
	ok(t, err)
	p.token = strings.TrimSpace(string(token))
}

// end ends the server in its own time, or kills it.
func (p *plane) end(by os.Signal) {
	if p.server.Process == nil { // it was not started
		return
	}
	_ = p.server.Process.Signal(by)
	_ = p.server.Wait() // interrupted: its status says so
}

// restart kills the server and starts another one.
func (p *plane) restart(t *testing.T) {
	t.Helper()
	p.end(os.Kill)
	p.begin(t)
}

// logWriter shows what the server says beside the test that failed.
type logWriter struct{ t *testing.T }

func (l logWriter) Write(data []byte) (int, error) {
	l.t.Logf("server: %s", strings.TrimSpace(string(data)))
	return len(data), nil
}

func (p *plane) request(t *testing.T, method, path string, body any) (status int, answer string) {
	t.Helper()
	data, err := json.Marshal(body)
	ok(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(string(data)))
	ok(t, err)
	req.Header.Set("Authorization", "Bearer "+p.token)
	res, err := http.DefaultClient.Do(req)
	ok(t, err)
	defer res.Body.Close()
	data, err = io.ReadAll(res.Body)
	ok(t, err)
	return res.StatusCode, string(data)
}

// session is one as the API shows it.
type session struct {
	ID, Status, Phase, Workdir, ResumeToken string
	CompletedTurns                          int
	Decisions, Notes                        []string
	Elsewhere                               bool
	Mode                                    string
	Refusals                                []refusal
	ExitCode                                *int
	Error                                   string
	Blocker                                 *blocker
	Usage                                   usage
}

// usage is what a session or a thread has used.
type usage struct {
	InputTokens, OutputTokens int
	CostUSD                   float64
}

// blocker is what a session waits for.
type blocker struct {
	ID, Type, Prompt, Source, Tool string
	Input                          json.RawMessage
	Options                        []string
	Choices                        []choice
	Questions                      []struct {
		ID, Text string
		Multiple bool
	}
}

type choice struct {
	N             int
	Label, Effect string
}

func (b *blocker) String() string {
	data, _ := json.Marshal(b) // of plain values
	return string(data)
}

func (p *plane) shown(t *testing.T, id string) (s session) {
	t.Helper()
	status, answer := p.request(t, "GET", "/api/coding-agents/"+id, nil)
	if err := json.Unmarshal([]byte(answer), &s); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s; want no error, status = http.StatusOK", status, answer)
	}
	return s
}

// until polls a session, and shows its screen when it does not become as it should.
func (p *plane) until(t *testing.T, id, what string, holds func(s session) bool) session {
	t.Helper()
	began := time.Now()
	for {
		s := p.shown(t, id)
		if holds(s) {
			return s
		}
		if time.Since(began) > waitTimeout {
			t.Fatalf("not within %s: %s; it is %+v, blocker %v\n%s\nwant time.Since(began) at most %v",
				waitTimeout, what, s, s.Blocker, p.picture(t, id), waitTimeout)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// picture is what a person would see, and why the state is what it is.
func (p *plane) picture(t *testing.T, id string) string {
	t.Helper()
	_, screen := p.request(t, "GET", "/api/coding-agents/"+id+"/output?lines=40", nil)
	_, why := p.request(t, "GET", "/api/coding-agents/"+id+"/explain", nil)
	var doc struct{ Output string }
	_ = json.Unmarshal([]byte(screen), &doc) // of a session that is gone: empty
	return doc.Output + "\n" + why[:min(len(why), 4000)]
}

// post is a request to a session that must succeed.
func (p *plane) post(t *testing.T, id, what string, body any) string {
	t.Helper()
	status, answer := p.request(t, "POST", "/api/coding-agents/"+id+"/"+what, body)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s\n%s\nwant status = http.StatusOK", what, status, answer, p.picture(t, id))
	}
	return answer
}

// stop ends a session and sees that no process of it is left.
func (p *plane) stop(t *testing.T, id string) {
	t.Helper()
	p.post(t, id, "stop", map[string]any{})
	p.gone(t, id)
}

// gone waits until a session is over and what was prepared for it is undone.
func (p *plane) gone(t *testing.T, id string) {
	t.Helper()
	p.until(t, id, "it is over and undone", func(s session) bool {
		_, err := os.Stat(filepath.Join(p.home, "agents", "sessions", id))
		return (s.Status == "stopped" || s.Status == "error") && os.IsNotExist(err)
	})
	p.noProcess(t, id)
}

// noProcess sees that no process of a session is left.
func (p *plane) noProcess(t *testing.T, id string) {
	t.Helper()
	if left := processesOf(t, id); len(left) > 0 {
		t.Errorf("processes of %s: got %q, want none", id, left)
	}
}

// processesOf returns the command lines of a session's processes.
func processesOf(t *testing.T, id string) (lines []string) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/environ")
	ok(t, err)
	for _, path := range list {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), "PARALLAX_SESSION_ID="+id+"\x00") {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline")) // of a process that has ended: empty
			lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return lines
}

// workspace makes a folder for agents.
func (p *plane) workspace(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(p.home, "workspaces", name)
	ok(t, os.Mkdir(dir, 0o700))
	return dir
}

// holds states which files a workspace has.
func holds(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	ok(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the workspace holds %v instead of %v", got, want)
	}
}
