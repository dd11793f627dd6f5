package clis

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// wrapped puts a command beside a program that reports version 99.0.0 and otherwise runs the shell lines, in which
// "$real" is the program.
func wrapped(t *testing.T, bin, name, lines string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nreal='%s'\ncase \"$1\" in --version|-v) echo 99.0.0; exit;; esac\n%s\n", filepath.Join(bin, name), lines)
	ok(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	return dir
}

// TestVersionsThatAreNotKnownAreChecked runs programs under a version that no rule file covers: one that asks as
// the known ones do is used, with a note, and is checked once; one that does not is only offered with
// presets that need no answer.
func TestVersionsThatAreNotKnownAreChecked(t *testing.T) {
	bin, node := commands(t)
	for _, c := range programs() {
		if c.name != "claude" && c.name != "codex" && (c.not["structured"] != "" || os.Getenv("TASK_AGENTS_SHORT") != "") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil {
				t.Skipf("%s is not installed; run: make test-agents", c.name)
			}
			fake, err := scriptedmodel.Start(scriptedmodel.Script{"PLAY-DONE": {{Say: "It is done."}}})
			ok(t, err)
			t.Cleanup(fake.Close)
			path := func(dir string) string { return "PATH=" + dir + ":" + bin + ":" + node + ":" + os.Getenv("PATH") }
			t.Run("one that asks", func(t *testing.T) {
				r := &run{program: c, plane: newPlane(t, built.Junctor(t), c.files, path(wrapped(t, bin, c.binary, `exec "$real" "$@"`))), fake: fake}
				for _, dir := range []string{"first", "second"} {
					s := r.spawnIn(t, "structured", "standard", r.workspace(t, dir), "Say it. PLAY-DONE", "")
					if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "99.0.0") || !strings.Contains(notes, "asks as it must") {
						t.Errorf("notes = %q, want that version 99.0.0 was checked", s.Notes)
					}
					r.completed(t, s.ID, 1)
					r.stop(t, s.ID)
				}
				r.userFiles(t)
			})
			t.Run("one that does not answer", func(t *testing.T) {
				r := &run{program: c, plane: newPlane(t, built.Junctor(t), c.files, path(wrapped(t, bin, c.binary, "exit 7"))), fake: fake}
				status, answer := r.request(t, "POST", "/api/coding-agents/spawn", map[string]any{
					"agentType": c.name, "workdir": r.workspace(t, "work"), "task": "Say it. PLAY-DONE", "approvalPreset": "standard",
					"mode": "structured", "baseUrl": fake.URL() + c.base, "model": c.model,
				})
				if status != http.StatusServiceUnavailable || !strings.Contains(answer, "agent_unproven") ||
					!strings.Contains(answer, "exit status 7") {
					t.Errorf("a session of it: %d %s, want 503, agent_unproven and what it did", status, answer)
				}
			})
		})
	}
}

// TestTheNewestVersionsAskAsTheyMust installs what is published now, beside the versions of package.json.
func TestTheNewestVersionsAskAsTheyMust(t *testing.T) {
	_, node := commands(t)
	if os.Getenv("TASK_AGENTS_SHORT") != "" {
		t.Skip("the newest versions are not tried; run: make test-agents")
	}
	dir := folder(t)
	for _, c := range []struct{ name, pkg string }{
		{"claude", "@anthropic-ai/claude-code"},
		{"codex", "@openai/codex"},
		{"gemini", "@google/gemini-cli"},
		{"qwen", "@qwen-code/qwen-code"},
		{"opencode", "opencode-ai"},
	} {
		t.Run(c.name, func(t *testing.T) {
			install := exec.CommandContext(t.Context(), "npm", "install", "--prefix", filepath.Join(dir, c.name),
				"--no-audit", "--no-fund", "--silent", c.pkg+"@latest")
			if out, err := install.CombinedOutput(); err != nil {
				t.Skipf("%s cannot be installed: %v\n%s", c.pkg, err, out)
			}
			user := filepath.Join(dir, "user-"+c.name)
			ok(t, os.Mkdir(user, 0o700))
			check := exec.CommandContext(t.Context(), built.Junctor(t), "--home", filepath.Join(user, "home"), "--json", "debug", "canary", c.name)
			check.Env = []string{
				"PATH=" + filepath.Join(dir, c.name, "node_modules", ".bin") + ":" + node + ":" + os.Getenv("PATH"), "HOME=" + user, "LANG=C.UTF-8",
			}
			out, err := check.Output()
			var r struct {
				Version, Failed, Finding string
				Held                     []string
			}
			if json.Unmarshal(out, &r) != nil || err != nil || len(r.Held) < 3 {
				t.Errorf("the check of %s %s: %v, %s; want all acts held", c.name, r.Version, err, out)
			}
			t.Logf("%s %s: %v", c.name, r.Version, r.Held)
		})
	}
}
