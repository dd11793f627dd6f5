// Package framework knows the command-line task agents: their names, and what their
// screens mean. That knowledge is data, one rule file for each program and range of
// versions (task-agents, sections 5.1, 5.7 and 5.8); this package reads the files,
// finds the regions of a screen that rules speak about, among them dialogs, and says
// which rules match. What follows from it is decided by package detect.
package programs

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name is the canonical name of a task agent's program.
type Name string

// ValidModel says whether s can name a model on a program's command line: one word of at
// most 200 characters that does not look like an option. A regular expression for it
// would take 8 MB.
func ValidModel(s string) bool {
	strange := func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.C, r) }
	return s != "" && s[0] != '-' && utf8.RuneCountInString(s) <= 200 && !strings.ContainsFunc(s, strange)
}

// The canonical names (task-agents, section 5.1).
const (
	Claude   Name = "claude"
	Codex    Name = "codex"
	Gemini   Name = "gemini"
	Aider    Name = "aider"
	Pi       Name = "pi"
	OpenCode Name = "opencode"
	Shell    Name = "shell"
	Hermes   Name = "hermes"
)

// Accepted is one row of the table of names.
type Accepted struct {
	Name  Name
	Words []string // as they are written; case, blanks, _ and - do not count
}

// Names returns every canonical name with the other names it goes by, in the order of
// task-agents, section 5.1.
func Names() []Accepted {
	return []Accepted{
		{Claude, []string{"claude", "claude-code"}},
		{Codex, []string{"codex", "openai", "openai-codex"}},
		{Gemini, []string{"gemini", "google", "gemini-cli"}},
		{Aider, []string{"aider"}},
		{Pi, []string{"pi", "pi-ai", "pi-coding-agent"}},
		{OpenCode, []string{"opencode", "opencode-agent"}},
		{Shell, []string{"shell", "bash"}},
		{Hermes, []string{"hermes"}},
	}
}

// Normalise returns the canonical name for any accepted one. ok is false for a name
// that nobody goes by.
func Normalise(text string) (name Name, ok bool) {
	want := squeeze(text)
	for _, row := range Names() {
		for _, w := range row.Words {
			if squeeze(w) == want {
				return row.Name, true
			}
		}
	}
	return "", false
}

func squeeze(s string) string {
	return strings.NewReplacer(" ", "", "\t", "", "_", "", "-", "").Replace(strings.ToLower(s))
}
