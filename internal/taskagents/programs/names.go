// Package framework knows the command-line task agents: their names, and what their
// screens mean. That knowledge is data, one rule file for each program and range of
// versions (task-agents, sections 5.1, 5.7 and 5.8); this package reads the files,
// finds the regions of a screen that rules speak about, among them dialogs, and says
// which rules match. What follows from it is decided by package detect.
package framework

import "github.com/junctor-run/junctor/internal/config/agentprogram"

// Name is the canonical name of a task agent's program.
type Name string

// The canonical names (task-agents, section 5.1).
const (
	Claude   Name = "claude"
	Codex    Name = "codex"
	Gemini   Name = "gemini"
	Aider    Name = "aider"
	Pi       Name = "pi"
	OpenCode Name = "opencode"
	Shell    Name = "shell"
	Hermes   Name = agentprogram.Hermes
)

// Accepted is one row of the table of names.
type Accepted struct {
	Name  Name
	Words []string // as they are written; case, blanks, _ and - do not count
}

// Names returns every canonical name with the other names it goes by, in the order of
// task-agents, section 5.1.
func Names() (out []Accepted) {
	for _, p := range agentprogram.All() {
		out = append(out, Accepted{Name(p.Name), p.Words})
	}
	return out
}

// Normalise returns the canonical name for any accepted one. ok is false for a name
// that nobody goes by.
func Normalise(text string) (name Name, ok bool) {
	p, ok := agentprogram.Find(text)
	return Name(p.Name), ok
}
