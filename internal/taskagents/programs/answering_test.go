package programs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// TestAnsweringHook: only files with a hook that answers for the user, or that may have one, count.
func TestAnsweringHook(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"another hook":              {`{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}`, false},
		"a hook that answers":       {`{"hooks": {"PermissionRequest": [{"hooks": [{"type": "command", "command": "true"}]}]}}`, true},
		"an empty list":             {`{"hooks": {"PermissionRequest": []}}`, false},
		"a rule with that name":     {`{"permissions": {"allow": ["PermissionRequest"]}}`, false},
		"not JSON":                  {`{`, true},
		"not JSON, with that event": {`{"hooks": {"PermissionRequest": [{}],}, // mine`, true},
		"a byte order mark":         {"\ufeff" + `{"hooks": {"Permission\u0052equest": [{"hooks": [{"type": "command"}]}]}}`, true},
		"a mark, another hook":      {"\ufeff" + `{"hooks": {"Stop": []}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, dir := t.TempDir(), t.TempDir()
			for _, path := range []string{
				filepath.Join(home, ".claude", "settings.json"), filepath.Join(dir, ".claude", "settings.json"),
				filepath.Join(dir, ".claude", "settings.local.json"),
			} {
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatalf("making its folder: %v", err)
				}
				if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
					t.Fatalf("writing settings: %v", err)
				}
				want := ""
				if c.want {
					want = path
				}
				if got := programs.AnsweringHook(programs.Claude, home, dir); got != want {
					t.Errorf("AnsweringHook = %q, want %q", got, want)
				}
				if got := programs.AnsweringHook(programs.Codex, home, dir); got != "" {
					t.Errorf("AnsweringHook of Codex = %q, want none", got)
				}
				if err := os.Remove(path); err != nil {
					t.Fatalf("removing settings: %v", err)
				}
			}
		})
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".claude", "settings.json"), 0o700); err != nil {
		t.Fatalf("making a folder in place of the file: %v", err)
	}
	if got := programs.AnsweringHook(programs.Claude, t.TempDir(), dir); got == "" {
		t.Errorf("AnsweringHook of a file that cannot be read = %q, want the file", got)
	}
}

// TestAnsweringHooksOfPlugins: only a plugin that is installed and enabled counts.
func TestAnsweringHooksOfPlugins(t *testing.T) {
	t.Parallel()
	const hook = `{"hooks": {"PermissionRequest": [{"hooks": [{"type": "command", "command": "true"}]}]}}`
	for name, c := range map[string]struct {
		enabled, installed, file, text string
		want                           bool
	}{
		"enabled":               {`{"enabledPlugins": {"a@b": true}}`, "a@b", "hooks/hooks.json", hook, true},
		"named in its manifest": {`{"enabledPlugins": {"a@b": true}}`, "a@b", ".claude-plugin/plugin.json", `{"hooks": "./more.json"}`, true},
		"in its manifest":       {`{"enabledPlugins": {"a@b": true}}`, "a@b", ".claude-plugin/plugin.json", hook, true},
		"disabled":              {`{"enabledPlugins": {"a@b": false}}`, "a@b", "hooks/hooks.json", hook, false},
		"another one":           {`{"enabledPlugins": {"c@b": true}}`, "a@b", "hooks/hooks.json", hook, false},
		"without such a hook":   {`{"enabledPlugins": {"a@b": true}}`, "a@b", "hooks/hooks.json", `{"hooks": {"Stop": [{}]}}`, false},
		"with a broken file":    {`{"enabledPlugins": {"a@b": true}}`, "a@b", "hooks/hooks.json", "{" + hook, true},
		"without any settings":  {`{}`, "a@b", "hooks/hooks.json", hook, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, dir, plugin := t.TempDir(), t.TempDir(), t.TempDir()
			path := filepath.Join(plugin, c.file)
			for file, text := range map[string]string{
				filepath.Join(dir, ".claude", "settings.json"):                      c.enabled,
				filepath.Join(home, ".claude", "plugins", "installed_plugins.json"): `{"version": 2, "plugins": {"` + c.installed + `": [{"installPath": "` + plugin + `"}]}}`,
				path: c.text,
			} {
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatalf("making the folder of %s: %v", file, err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatalf("writing %s: %v", file, err)
				}
			}
			want := ""
			if c.want {
				want = path
			}
			if got := programs.AnsweringHook(programs.Claude, home, dir); got != want {
				t.Errorf("AnsweringHook = %q, want %q", got, want)
			}
		})
	}
}
