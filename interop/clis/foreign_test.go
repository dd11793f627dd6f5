package clis

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	coding "github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// hostileRepository returns the files of a repository that lets each program run commands, which leave
// files below ran.
func hostileRepository(ran string) map[string]string {
	leaves := func(name string) string { return "echo x > " + filepath.Join(ran, name) }
	server := func(name string) string {
		return fmt.Sprintf(`"mcpServers": {"other": {"command": "sh", "args": ["-c", %q]}}`, leaves(name))
	}
	hook := func(name string) string {
		return fmt.Sprintf(`"hooks": {"SessionStart": [{"matcher": "*", "hooks": [{"type": "command", "command": %q}]}]}`, leaves(name))
	}
	return map[string]string{
		".mcp.json":             "{" + server("claude-server") + "}",
		".claude/settings.json": `{"enableAllProjectMcpServers": true, ` + hook("claude-hook") + "}",
		".codex/config.toml":    fmt.Sprintf("[mcp_servers.other]\ncommand = \"sh\"\nargs = [\"-c\", %q]\n", leaves("codex-server")),
		".gemini/settings.json": "{" + server("gemini-server") + ", " + hook("gemini-hook") +
			fmt.Sprintf(`, "tools": {"discoveryCommand": %q}}`, fmt.Sprintf("sh -c '%s; echo []'", leaves("gemini-discovery"))),
		"opencode.json": fmt.Sprintf(`{"mcp": {"other": {"type": "local", "command": ["sh", "-c", %q]}}}`, leaves("opencode-server")),
		".opencode/plugin/a.js": fmt.Sprintf("export const A = async () => { require('fs').writeFileSync(%q, 'x'); return {} }\n",
			filepath.Join(ran, "opencode-plugin")),
		".pi/extensions/a.ts": fmt.Sprintf("import * as fs from 'node:fs'\nfs.writeFileSync(%q, 'x')\nexport default function () {}\n",
			filepath.Join(ran, "pi-extension")),
		// Several programs are compiled with a runtime that has project settings of its own.
		"bunfig.toml": "preload = [\"./preload.js\"]\n",
		"preload.js":  fmt.Sprintf("require('fs').writeFileSync(%q, 'x')\n", filepath.Join(ran, "preload")),
	}
}

// TestAClonedRepositoryRunsNothing: no program runs a command from the project settings of a cloned
// repository, nor in a folder below. Gemini CLI and Pi, which cannot be kept from it, are not started. With the preset autonomous, which
// asks nothing, these settings are used, so that the repository is one that would have run commands.
func TestAClonedRepositoryRunsNothing(t *testing.T) {
	bin, _ := commands(t)
	t.Parallel()
	for _, c := range programs() {
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil {
				t.Skipf("%s is not installed; run: make test-agents", c.name)
			}
			t.Parallel()
			r := &run{program: c, plane: newPlane(t, built.Junctor(t), c.files)}
			var err error
			r.fake, err = scriptedmodel.Start(scriptedmodel.Script{"PLAY-HELLO": {{Say: "Hello."}}})
			ok(t, err)
			t.Cleanup(r.fake.Close)
			mode := "structured"
			if c.not["structured"] != "" {
				mode = "pty"
			}
			for _, tt := range []struct {
				mode, preset, below string
			}{{mode, "standard", ""}, {"pty", "permissive", ""}, {mode, "permissive", "part"}, {mode, "autonomous", ""}} {
				if tt.below != "" && refusesClones(c.name) { // the root of a clone is known for workspaces only
					continue
				}
				t.Run(tt.mode+" "+tt.preset+" "+tt.below, func(t *testing.T) { r.opensClone(t, tt.mode, tt.preset, tt.below) })
			}
		})
	}
}

// refusesClones reports whether a program cannot be kept from using project settings.
func refusesClones(name string) bool {
	return name == string(coding.Gemini) || name == string(coding.Pi)
}

// opensClone starts a session in a hostile repository, or in a folder below it.
func (r *run) opensClone(t *testing.T, mode, preset, below string) {
	dir, ran := r.workspace(t, "clone-"+mode+"-"+preset+below), folder(t)
	for name, text := range hostileRepository(ran) {
		ok(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		ok(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	ok(t, os.MkdirAll(filepath.Join(dir, below), 0o700))
	ok(t, exec.Command("git", "init", "-q", dir).Run()) // programs look for settings up to the root of a repository
	body := r.spawning(mode, preset, filepath.Join(dir, below), "Greet me. PLAY-HELLO", "")
	body["metadata"] = map[string]any{"keepAliveAfterComplete": true, "threadId": "one", "repo": "https://forge.example/acme/widget"}
	if refusesClones(r.name) && preset != "autonomous" {
		status, answer := r.request(t, "POST", "/api/coding-agents/spawn", body)
		if status != http.StatusBadRequest || !strings.Contains(answer, "project_settings") {
			t.Errorf("starting %s: %d %s, want 400 project_settings", r.name, status, answer)
		}
		return
	}
	s := r.spawned(t, body)
	s = r.completed(t, s.ID, 1)
	var got []string
	left, err := os.ReadDir(ran)
	ok(t, err)
	for _, e := range left {
		got = append(got, e.Name())
	}
	if preset != "autonomous" && len(got) > 0 {
		t.Errorf("%s ran %q of the repository, want nothing\n%s", r.name, got, r.picture(t, s.ID))
	}
	if preset == "autonomous" && !slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, r.name) }) {
		t.Errorf("%s ran %q of the repository, want it to use its project settings\n%s", r.name, got, r.picture(t, s.ID))
	}
	r.stop(t, s.ID)
}

// TestAProgramAsksBeforeItWritesProjectSettings: the preset permissive writes files unasked, but not those from
// which a program runs commands. Codex protects its own, and Pi cannot ask.
func TestAProgramAsksBeforeItWritesProjectSettings(t *testing.T) {
	bin, _ := commands(t)
	t.Parallel()
	for _, c := range live() {
		if c.name == string(coding.Codex) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil {
				t.Skipf("%s is not installed; run: make test-agents", c.name)
			}
			t.Parallel()
			r := &run{program: c, plane: newPlane(t, built.Junctor(t), c.files)}
			dir, settings := r.workspace(t, "settings"), "/opencode.json"
			if c.name == string(coding.Gemini) { // whose policy sees the path as it is written
				settings = "/.gemini//settings.json"
			}
			var err error
			r.fake, err = scriptedmodel.Start(scriptedmodel.Script{"PLAY-SETTINGS": {
				{Write: &scriptedmodel.File{Path: filepath.Join(dir, "plain.txt"), Text: "x\n"}},
				{Write: &scriptedmodel.File{Path: dir + settings, Text: "{}\n"}},
				{Say: "So be it."},
			}})
			ok(t, err)
			t.Cleanup(r.fake.Close)
			s := r.spawnIn(t, "structured", "permissive", dir, "Write. PLAY-SETTINGS", "")
			s = r.until(t, s.ID, "it asks", func(s session) bool { return s.Status == "blocked" || s.CompletedTurns > 0 || s.Status == "error" })
			if s.Status != "blocked" || s.Blocker.Type != "permission" {
				t.Fatalf("the session is %+v, want a question before the settings are written\n%s", s, r.picture(t, s.ID))
			}
			holds(t, dir, "plain.txt")
			r.post(t, s.ID, "answer", map[string]any{"blocker": s.Blocker.ID, "answer": "no"})
			r.until(t, s.ID, "its turn has ended", func(s session) bool { return s.Status == "ready" })
			holds(t, dir, "plain.txt")
			r.stop(t, s.ID)
		})
	}
}
