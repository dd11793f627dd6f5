package programs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// AnsweringHook returns the file with a hook that would answer for the user what the program asks; "" if
// none has: settings of the machine, the user and the folder, and hooks of plugins that one of them enables.
// Such a hook wins over an answer over the protocol and takes dialogs from the screen. A PreToolUse hook that
// allows does not: the rules of the preset ask nevertheless (measured with Claude Code 2.1.197). Codex is started
// with a home of its own and runs reviewed hooks only. A file that cannot be read or parsed counts, because it
// may have such a hook.
func AnsweringHook(name Name, home, workdir string) string {
	if name != Claude {
		return ""
	}
	paths := []string{
		managedSettings, filepath.Join(home, ".claude", "settings.json"),
		filepath.Join(workdir, ".claude", "settings.json"), filepath.Join(workdir, ".claude", "settings.local.json"),
	}
	more, _ := filepath.Glob(strings.TrimSuffix(managedSettings, ".json") + ".d/*.json") // the pattern is valid
	enabled := make(map[string]bool)
	for _, path := range append(paths, more...) {
		plugins, answers := readHooks(path)
		if answers {
			return path
		}
		for plugin, on := range plugins {
			enabled[plugin] = enabled[plugin] || string(on) != "false"
		}
	}
	var installed struct {
		Plugins map[string][]struct{ InstallPath string }
	}
	list := filepath.Join(home, ".claude", "plugins", "installed_plugins.json")
	data, err := hostfs.ReadRegular(list, maxSettings)
	switch {
	case len(enabled) == 0 || errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil || json.Unmarshal(data, &installed) != nil:
		return list
	}
	for plugin, on := range enabled {
		if !on {
			continue
		}
		for _, at := range installed.Plugins[plugin] {
			for _, file := range []string{"hooks/hooks.json", ".claude-plugin/plugin.json"} {
				path := filepath.Join(at.InstallPath, file)
				if _, answers := readHooks(path); answers {
					return path
				}
			}
		}
	}
	return ""
}

// readHooks returns which plugins a file with hooks enables, and reports whether one of its hooks answers for
// the user. The hooks of a plugin may also be named as files, which are not read, so that they count as such.
func readHooks(path string) (plugins map[string]json.RawMessage, answers bool) {
	data, err := hostfs.ReadRegular(path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	var doc map[string]json.RawMessage
	var hooks map[string][]json.RawMessage
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // which Claude Code skips
	broken := err == nil && json.Unmarshal(data, &doc) != nil
	if named := doc["hooks"]; len(named) > 0 && (named[0] == '"' || named[0] == '[') {
		return nil, true
	}
	for name, to := range map[string]any{"hooks": &hooks, "enabledPlugins": &plugins} {
		broken = broken || doc[name] != nil && json.Unmarshal(doc[name], to) != nil
	}
	// The program may be able to read what cannot be read here.
	return plugins, err != nil || broken || len(hooks[permissionHook]) > 0
}

// permissionHook is the event of hooks that answer what users are asked.
const permissionHook = "PermissionRequest"

// managedSettings is the file of the machine's administrator.
const managedSettings = "/etc/claude-code/managed-settings.json"
