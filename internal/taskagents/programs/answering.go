package programs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// AnsweringHook returns the settings file with a hook that would answer for the user what the program
// asks; "" if none has. Such a hook wins over an answer over the protocol and takes dialogs from the
// screen. Codex is started with a home of its own and runs reviewed hooks only. A file that cannot be
// read or parsed counts if it may have such a hook.
func AnsweringHook(name Name, home, workdir string) string {
	if name != Claude {
		return ""
	}
	for _, path := range []string{
		managedSettings, filepath.Join(home, ".claude", "settings.json"),
		filepath.Join(workdir, ".claude", "settings.json"), filepath.Join(workdir, ".claude", "settings.local.json"),
	} {
		data, err := hostfs.ReadRegular(path, maxSettings)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var doc struct {
			Hooks map[string][]json.RawMessage `json:"hooks"`
		}
		broken := err != nil || json.Unmarshal(data, &doc) != nil && strings.Contains(string(data), permissionHook)
		if broken || len(doc.Hooks[permissionHook]) > 0 {
			return path
		}
	}
	return ""
}

// permissionHook is the event of hooks that answer what users are asked.
const permissionHook = "PermissionRequest"

// managedSettings is the file of the machine's administrator.
const managedSettings = "/etc/claude-code/managed-settings.json"
