package agents

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// The files from which a conversation is resumed are in a folder that outlives its session.
// The file with the conversation's id is written as soon as the id is known, so that the
// conversation can be resumed after the server was killed.
const resumeFile = "conversation"

var tokenForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

// keepFolder returns the folder of the conversation resume, or a new one for session id if
// that does not exist. Before creating one it may remove the oldest folder.
func (a *Agents) keepFolder(id, resume string) (string, error) {
	if dir := a.keptOf(resume); dir != "" {
		return dir, nil
	}
	a.forgetOldest()
	dir := filepath.Join(a.kept(), id)
	return dir, os.MkdirAll(dir, 0o700)
}

// keptOf returns the folder of a conversation, or "" if it has none.
func (a *Agents) keptOf(token string) string {
	if !tokenForm.MatchString(token) {
		return ""
	}
	for _, name := range a.keptFolders() {
		if data, err := os.ReadFile(filepath.Join(a.kept(), name, resumeFile)); err == nil && strings.TrimSpace(string(data)) == token {
			return filepath.Join(a.kept(), name)
		}
	}
	return ""
}

// keptFolders returns the names of the conversations' folders, the oldest first.
func (a *Agents) keptFolders() (names []string) {
	entries, err := os.ReadDir(a.kept())
	if err != nil {
		a.cfg.Logger.Warn("the folder of conversations cannot be read", "err", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names) // ids begin with a time
	return names
}

// forgetOldest removes the oldest conversations so that, with one more, at most maxKept exist.
// Those of running sessions stay.
func (a *Agents) forgetOldest() {
	names := a.keptFolders()
	a.mu.Lock()
	inUse := map[string]bool{}
	for _, g := range a.running {
		inUse[filepath.Base(g.kept)] = inUse[filepath.Base(g.kept)] || !g.over
	}
	a.mu.Unlock()
	for over := len(names) - maxKept + 1; over > 0 && len(names) > 0; names = names[1:] {
		if inUse[names[0]] {
			continue
		}
		if err := hostfs.RemoveAll(filepath.Join(a.kept(), names[0])); err != nil {
			a.cfg.Logger.Warn("an old conversation cannot be removed", "err", err)
		}
		over--
	}
}

// named stores the program's id of the conversation. ok is false if the id is invalid, or
// belongs to another conversation, whose client must not find files of this program.
func (a *Agents) named(g *agent, token string) (ok bool) {
	if !tokenForm.MatchString(token) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token == token {
		return true
	}
	if owner := a.keptOf(token); owner != "" && owner != g.kept {
		return false
	}
	g.token = token
	if err := os.WriteFile(filepath.Join(g.kept, resumeFile), []byte(token+"\n"), 0o600); err != nil {
		a.cfg.Logger.Warn("the name of a conversation cannot be kept, so it cannot be resumed", "err", err)
	}
	return true
}
