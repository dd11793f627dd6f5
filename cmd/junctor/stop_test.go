package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/server"
)

// servedHome returns a home with a running server, and its line.
func servedHome(t *testing.T) (*patient, server.ReadyLine) {
	t.Helper()
	h := &patient{home: t.TempDir()}
	serve := h.command(t, "serve")
	out, err := serve.StdoutPipe()
	if err == nil {
		err = serve.Start()
	}
	if err != nil {
		t.Fatalf("starting the server: %v", err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Kill()
		_ = serve.Wait()
	})
	var line server.ReadyLine
	if err := json.NewDecoder(out).Decode(&line); err != nil {
		t.Fatalf("reading the line of the server: %v", err)
	}
	return h, line
}

// bystander starts a process that a signal to it would end.
func bystander(t *testing.T) (pid int, lives func() bool) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatalf("starting a process: %v", err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	return c.Process.Pid, func() bool {
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
}

// replaceLine changes the process in a home's run/server.json.
func replaceLine(t *testing.T, h *patient, line server.ReadyLine, pid int) {
	t.Helper()
	h.put(t, "run/server.json", fmt.Sprintf(`{"url":%q,"pid":%d}`, line.URL, pid))
}

func TestStopEndsOnlyTheServerOfTheHome(t *testing.T) {
	other, otherLine := servedHome(t)
	token, err := os.ReadFile(other.path("run", "admin.token"))
	if err != nil {
		t.Fatalf("reading the token of another server: %v", err)
	}
	h, line := servedHome(t)
	h.env = []string{"JUNCTOR_URL=" + otherLine.URL, "JUNCTOR_TOKEN=" + strings.TrimSpace(string(token))}
	out, err := h.command(t, "--server", otherLine.URL, "stop").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "leave --server out") {
		t.Errorf("stop --server: got %v, %s; want a refusal that mentions --server", err, out)
	}

	pid, lives := bystander(t) // a server runs, and its file names another process
	replaceLine(t, h, line, pid)
	out, err = h.command(t, "stop").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is not it") || !lives() {
		t.Errorf("stop with another program's process: got %v, %s (it lives: %t); want a refusal, and the process alive", err, out, lives())
	}

	replaceLine(t, h, line, line.PID)
	if got, want := h.run(t, "stop"), fmt.Sprintf("(process %d)", line.PID); !strings.Contains(got, want) {
		t.Errorf("stop: got %s; want %s", got, want)
	}

	replaceLine(t, h, line, pid) // as a server that was killed leaves it; the other server answers
	if got := h.run(t, "stop"); !strings.Contains(got, "No server runs on the home") || !lives() {
		t.Errorf("stop with a stale file: got %s (process lives: %t); want that no server runs, and the process alive", got, lives())
	}
	if got := other.run(t, "tokens", "list"); !strings.Contains(got, "admin") {
		t.Errorf("the other server: got %s; want that it still answers", got)
	}
}

func TestSetupsOfHome(t *testing.T) {
	home := t.TempDir()
	var err error
	for _, name := range []string{"claude.json", "claude.journal", "claude.token", "codex.journal", "gemini.json", "zed.token"} {
		file := filepath.Join(home, "clients", name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600))
	}
	if err != nil {
		t.Fatalf("writing the records: %v", err)
	}
	if finished, interrupted := setups(home); finished != 1 || interrupted != 2 {
		t.Errorf("setups: got %d finished and %d interrupted; want 1 and 2", finished, interrupted)
	}
}
