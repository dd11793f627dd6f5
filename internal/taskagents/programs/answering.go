package programs

import (
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
// with a home of its own and runs reviewed hooks only. A file that cannot be read or parsed counts if it may have
// such a hook.
func AnsweringHook(name Name, home, workdir string) string {
	if name != Claude {
		return ""
	}
	paths := []string{
		managedSettings, filepath.Join(home, ".claude", "settings.json"),
		filepath.Join(workdir, ".claude", "settings.json"), filepath.Join(workdir, ".claude", "settings.local.json"),
	}
	more, _ := filepath.Glob(managedSettings[:len(managedSettings)-len(".json")] + ".d/*.json") // the pattern is valid
	enabled := make(map[string]bool)
	for _, path := range append(paths, more...) {
		doc, answers := readHooks(path)
		if answers {
			return path
		}
		for plugin, on := range doc.Plugins {
			enabled[plugin] = enabled[plugin] || string(on) != "false"
		}
	}
	var installed struct {
		Plugins map[string][]struct {
			Path string `json:"installPath"`
		} `json:"plugins"`
	}
	list := filepath.Join(home, ".claude", "plugins", "installed_plugins.json")
	data, err := hostfs.ReadRegular(list, maxSettings)
	switch {
	case len(enabled) == 0 || errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil || json.Unmarshal(data, &installed) != nil:
		return list
	}
	for plugin, places := range installed.Plugins {
		for _, place := range places {
			for _, file := range []string{"hooks/hooks.json", ".claude-plugin/plugin.json"} {
				path := filepath.Join(place.Path, file)
				if _, answers := readHooks(path); answers && enabled[plugin] {
					return path
				}
			}
		}
	}
	return ""
}

// hookSettings is what is read of a file with hooks.
type hookSettings struct {
	Hooks   map[string][]json.RawMessage `json:"hooks"`
	Plugins map[string]json.RawMessage   `json:"enabledPlugins"`
}

// readHooks reads a file with hooks, and reports whether one of them answers for the user.
func readHooks(path string) (doc hookSettings, answers bool) {
	data, err := hostfs.ReadRegular(path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return doc, false
	}
	broken := err != nil || json.Unmarshal(data, &doc) != nil && strings.Contains(string(data), permissionHook)
	return doc, broken || len(doc.Hooks[permissionHook]) > 0
}

// permissionHook is the event of hooks that answer what users are asked.
const permissionHook = "PermissionRequest"

// managedSettings is the file of the machine's administrator.
const managedSettings = "/etc/claude-code/managed-settings.json"
