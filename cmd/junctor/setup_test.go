package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/server"
)

// BenchmarkSetup measures junctor setup on a machine with three clients, which have eight servers in all,
// from the start of the command to its end: it starts the server, moves each MCP server, whose program
// is started confined, and connects as each client. A new home and new files are used each time.
func BenchmarkSetup(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		user, home, dir := b.TempDir(), b.TempDir(), b.TempDir()
		tools := filepath.Join(dir, "tools.json")
		err := errors.Join(os.WriteFile(tools, []byte(`[{"name":"greet","inputSchema":{"type":"object"}}]`), 0o644),
			os.WriteFile(filepath.Join(home, "config.yaml"), []byte("listen: 127.0.0.1:0\n"), 0o600))
		for file, numbers := range map[string][]int{".claude.json": {1, 2, 3}, ".cursor/mcp.json": {4, 5, 6}, ".gemini/settings.json": {7, 8}} {
			servers := map[string]any{}
			for _, n := range numbers {
				servers[fmt.Sprint("server", n)] = map[string]any{
					"command": "mcpserver", "args": []string{tools}, "env": map[string]string{"API_TOKEN": fmt.Sprint("very-secret-", n)},
				}
			}
			text, encoding := json.Marshal(map[string]any{"mcpServers": servers})
			path := filepath.Join(user, file)
			err = errors.Join(err, encoding, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600))
		}
		if err != nil {
			b.Fatalf("preparing the clients: %v", err)
		}
		setup := exec.CommandContext(b.Context(), "junctor", "setup", "--yes", "--move", "*")
		setup.Env = []string{"HOME=" + user, "JUNCTOR_HOME=" + home, "PATH=" + os.Getenv("PATH")}
		b.StartTimer()
		out, err := setup.CombinedOutput()
		b.StopTimer()
		stopServerOf(b, home)
		if err != nil || strings.Count(string(out), "  moved ") != 8 || !strings.Contains(string(out), "Cursor sees 8 tools") {
			b.Fatalf("junctor setup: %v\n%s\nwant eight servers moved, and the last client to see the tools of all", err, out)
		}
		b.StartTimer()
	}
}

// stopServerOf ends the server that runs on a home, and waits until it has left it.
func stopServerOf(b *testing.B, home string) {
	b.Helper()
	line, err := server.ReadServer(home)
	if err != nil {
		b.Fatalf("reading which server runs: %v", err)
	}
	if err := syscall.Kill(line.PID, syscall.SIGTERM); err != nil {
		b.Fatalf("ending the server: %v", err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) { // a poll of another process
		if _, err := server.ReadServer(home); err != nil {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("the server (process %d) did not end in 30 s", line.PID)
		}
	}
}
