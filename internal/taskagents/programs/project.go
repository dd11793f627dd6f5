package programs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// foreignSettings returns the first of the program's ProjectSettings in a cloned repository, or "". It returns
// "" for a preset that asks nothing. Files that cannot be looked at count.
func (b *build) foreignSettings() string {
	if !b.Cloned || b.Preset == Autonomous {
		return ""
	}
	for _, name := range b.program.ProjectSettings {
		if _, err := os.Lstat(filepath.Join(b.Workdir, name)); !errors.Is(err, fs.ErrNotExist) {
			return name
		}
	}
	return ""
}

// withoutForeignSettings reports whether the plan must turn the program's project settings off, and notes so.
func (b *build) withoutForeignSettings() bool {
	name := b.foreignSettings()
	if name != "" {
		b.note(name + " of the repository is not used: " + b.program.Title + " would run commands from it without a question")
	}
	return name != ""
}

// refuseForeignSettings returns an error for a repository whose project settings the program cannot be kept
// from using.
func (b *build) refuseForeignSettings() error {
	name := b.foreignSettings()
	if name == "" {
		return nil
	}
	return capability.Errorf(capability.CodeInvalidInput, "task.spawn",
		"the repository has %s, from which %s would run commands without a question", name, b.program.Title).
		With("project_settings", "use another program, remove the file, or use the preset autonomous")
}

// IsProjectSettings reports whether a file is one from which a program may run commands without a question.
// The path is relative to a workspace or absolute; letter case is ignored, as some file systems do.
func IsProjectSettings(path string) bool {
	path = "/" + strings.ToLower(filepath.ToSlash(path)) + "/"
	return slices.ContainsFunc(allProjectSettings(), func(name string) bool { return strings.Contains(path, "/"+name+"/") })
}

// allProjectSettings returns the ProjectSettings of all programs.
func allProjectSettings() (names []string) {
	for _, p := range All() {
		names = append(names, p.ProjectSettings...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
