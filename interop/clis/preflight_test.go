package clis

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
)

// TestAskingProgramsLeavesTheHomeAsItIs examines the real programs, as the doctor does, and compares every byte
// below the user's home.
func TestAskingProgramsLeavesTheHomeAsItIs(t *testing.T) {
	bin, node := commands(t)
	home := folder(t)
	t.Setenv("HOME", home)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+node+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, text := range map[string]string{
		".claude.json":                    `{"mcpServers":{"files":{"command":"x"}}}`,
		".claude/settings.json":           `{}`,
		".codex/config.toml":              "model = \"m\"\n",
		".codex/auth.json":                `{"OPENAI_API_KEY":"sk-proj-0123456789abcdefghij"}`,
		".gemini/settings.json":           `{}`,
		".config/opencode/opencode.jsonc": `{}`,
	} {
		ok(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700))
		ok(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
	}
	tree := func() map[string]string {
		files := make(map[string]string)
		ok(t, filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				files[path] = "a folder"
				return err
			}
			data, err := os.ReadFile(path)
			files[path] = string(data)
			return err
		}))
		return files
	}
	before := tree()
	asked := 0
	none := func(string) string { return "" }
	for _, r := range preflight.Check(t.Context(), preflight.Config{Home: home, Find: exec.LookPath, Env: none, Wait: time.Minute}) {
		if r.Installed && r.Version != "" {
			asked++
			t.Logf("%s %s: %+v", r.Adapter, r.Version, r.Auth)
		}
		if r.Adapter == "codex" && r.Installed && r.Auth.Status != preflight.Authenticated {
			t.Errorf("the account of codex: got %+v, want the key of its file", r)
		}
	}
	if asked < 3 {
		t.Errorf("%d programs answered with their version, want at least 3", asked)
	}
	if after := tree(); !maps.Equal(before, after) {
		for path, text := range after {
			if was, had := before[path]; !had || was != text {
				t.Errorf("%s: got %.200q, want %.200q", path, text, was)
			}
		}
	}
}
