package agents

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// What a conversation is resumed from lies in a folder of its own that outlives its
// session. The file that names the conversation is written as soon as its name is
// known: a server that is killed says nothing.
const (
	resumeFile = "conversation"
	maxKept    = 200 // folders; the oldest go first
)

var tokenForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

// keepFolder is the folder of the conversation that is resumed, or a new one.
func (a *Agents) keepFolder(id, resume string) (string, error) {
	if dir := a.keptOf(resume); dir != "" {
		return dir, nil
	}
	a.forgetOldest()
	dir := filepath.Join(a.kept(), id)
	return dir, os.MkdirAll(dir, 0o700)
}

// keptOf is the folder of a conversation; "" if it has none.
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

// keptFolders are the folders of conversations, the oldest first.
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

// forgetOldest makes room for one more conversation; those of running sessions stay.
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
		if err := os.RemoveAll(filepath.Join(a.kept(), names[0])); err != nil {
			a.cfg.Logger.Warn("an old conversation cannot be removed", "err", err)
		}
		over--
	}
}

// named notes what the program calls the conversation. ok is false for an invalid
// name, and for that of another session's: its next client would find what
// this program has left.
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
