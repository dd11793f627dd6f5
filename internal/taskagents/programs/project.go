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

// distrusts reports whether project settings are not used: those of a cloned repository may be of others. A preset
// that asks nothing uses them.
func (b *build) distrusts() bool { return b.Clone != "" && b.Preset != Autonomous }

// foreignSettings returns the first of the program's ProjectSettings between the working folder, which it looks up
// from, and the root of a cloned repository that it distrusts, or "". Files that cannot be looked at count.
func (b *build) foreignSettings() string {
	if !b.distrusts() {
		return ""
	}
	for dir := b.Workdir; ; dir = filepath.Dir(dir) {
		for _, name := range b.program.ProjectSettings {
			if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
				return name
			}
		}
		if dir == b.Clone || !strings.HasPrefix(dir, b.Clone+"/") {
			return ""
		}
	}
}

// withoutForeignSettings reports whether the plan must turn project settings off, also those that come later or are
// in a folder below. It notes what is not used.
func (b *build) withoutForeignSettings() bool {
	if name := b.foreignSettings(); name != "" {
		b.note(name + " of the repository is not used: " + b.program.Title + " would run commands from it without a question")
	}
	return b.distrusts()
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
