package clis

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/testkit/built"
)

// TestSetupConnectsTheProgramsThemselves lets each program list its MCP servers after junctor
// setup, which those that connect for it do with the entry as it was written, and restores the
// files.
func TestSetupConnectsTheProgramsThemselves(t *testing.T) { connectPrograms(t) }

// TestSetupConnectsTheProgramsOverHTTP does the same with a URL and a token in the files.
func TestSetupConnectsTheProgramsOverHTTP(t *testing.T) { connectPrograms(t, "--http") }

func connectPrograms(t *testing.T, flags ...string) {
	t.Helper()
	bin, _ := commands(t)
	binary := built.Junctor(t)
	files := map[string]string{
		".claude.json":                   `{"hasCompletedOnboarding":true,"mine":[1, 2]}` + "\n",
		".codex/config.toml":             "model = \"mine\" # a comment\n",
		".gemini/settings.json":          "{\n  // a comment\n  \"theme\": \"Default\"\n}\n",
		".config/opencode/opencode.json": "{\n  \"$schema\": \"https://opencode.ai/config.json\"\n}\n",
	}
	p := newPlane(t, binary, files)
	run := func(name string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env, cmd.Dir = p.env, p.user
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", filepath.Base(name), args, err, out)
		}
		return string(out)
	}
	args := []string{"--home", p.home, "setup", "--yes"}
	args = append(args, flags...)
	want := map[string]string{"claude": "✔ Connected", "codex": "enabled", "gemini": "junctor", "opencode": "connected"}
	for name := range want {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Logf("%s is not installed, so it is not tried", name)
			delete(want, name)
			continue
		}
		args = append(args, "--client", name)
	}
	out := run(binary, args...)
	if n := strings.Count(out, "verified: "); n != len(want) {
		t.Errorf("setup verified %d clients, want %d:\n%s", n, len(want), out)
	}
	for name, state := range want {
		list := run(filepath.Join(bin, name), "mcp", "list")
		if !strings.Contains(list, "junctor") || !strings.Contains(list, state) {
			t.Errorf("%s mcp list has\n%s\nwant junctor and %q", name, list, state)
		}
	}
	run(binary, "--home", p.home, "setup", "--undo")
	for name, text := range files {
		got, err := os.ReadFile(filepath.Join(p.user, name))
		switch {
		case err != nil:
			t.Error(err)
		case strings.Contains(string(got), "junctor"):
			t.Errorf("after the undo %s has\n%s\nwant no entry of junctor", name, got)
		case name != ".claude.json" && string(got) != text: // Claude Code rewrites its file at every start
			t.Errorf("after the undo %s has\n%s\nwant\n%s", name, got, text)
		}
	}
}
