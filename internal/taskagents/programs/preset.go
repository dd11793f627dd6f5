package programs

import (
	"slices"
	"strings"
)

// Preset selects what a session may do without a question to the user.
type Preset string

// The presets.
const (
	Readonly   Preset = "readonly"
	Standard   Preset = "standard"
	Permissive Preset = "permissive"
	Autonomous Preset = "autonomous"
)

// Category classifies tools for presets.
type Category string

// The categories.
const (
	FileRead        Category = "file_read"
	FileWrite       Category = "file_write"
	ShellUse        Category = "shell"
	Web             Category = "web"
	Agent           Category = "agent"
	Planning        Category = "planning"
	UserInteraction Category = "user_interaction"
)

// Verdict is the decision of a preset about a category.
type Verdict string

// The verdicts.
const (
	Auto    Verdict = "auto"
	Ask     Verdict = "ask"
	Blocked Verdict = "blocked"
)

// PresetRow is one preset in the answer of GET /approval-presets.
type PresetRow struct {
	Preset      Preset     `json:"preset"`
	Description string     `json:"description"`
	Auto        []Category `json:"autoApprove"`
	Ask         []Category `json:"requireApproval"`
	Blocked     []Category `json:"blocked"`
}

// Presets returns the table of presets, the strictest first. Every preset leaves questions and plans
// to the user.
func Presets() []PresetRow {
	return []PresetRow{
		{
			Readonly, "It may read; everything else but questions and plans is refused.",
			[]Category{FileRead, Planning},
			[]Category{UserInteraction},
			[]Category{FileWrite, ShellUse, Web, Agent},
		},
		{
			Standard, "It may read, plan and use the web; it asks before it writes, runs commands or starts agents.",
			[]Category{FileRead, Planning, Web},
			[]Category{FileWrite, ShellUse, Agent, UserInteraction},
			nil,
		},
		{
			Permissive, "It asks before it runs commands.",
			[]Category{FileRead, FileWrite, Web, Agent, Planning},
			[]Category{ShellUse, UserInteraction},
			nil,
		},
		{
			Autonomous, "It asks for nothing but what only a user can answer: questions and plans.",
			[]Category{FileRead, FileWrite, ShellUse, Web, Agent, Planning},
			[]Category{UserInteraction},
			nil,
		},
	}
}

// row returns the row of a preset; ok is false if it does not exist.
func (p Preset) row() (PresetRow, bool) {
	for _, r := range Presets() {
		if r.Preset == p {
			return r, true
		}
	}
	return PresetRow{}, false
}

// Judge returns the preset's verdict about a category. An unknown preset blocks everything.
func (p Preset) Judge(c Category) Verdict {
	switch r, _ := p.row(); {
	case slices.Contains(r.Auto, c):
		return Auto
	case slices.Contains(r.Ask, c):
		return Ask
	}
	return Blocked
}

// MustAsk reports whether a program keeps a preset only by asking about the use of tools. OpenCode also
// asks at readonly, where junctor refuses.
func MustAsk(name Name, p Preset) bool {
	return p != Autonomous && (p != Readonly || name == OpenCode)
}

// CategoryOf returns the category of a tool. An unknown tool, for example of an MCP server, has
// the category Agent.
func CategoryOf(name Name, tool string) Category {
	if c, ok := categoryOf(name, tool); ok {
		return c
	}
	return Agent
}

// Listed reports whether a tool is in the program's table of tools.
func Listed(name Name, tool string) bool {
	_, ok := categoryOf(name, tool)
	return ok
}

func categoryOf(name Name, tool string) (Category, bool) {
	for _, r := range Of(name).Tools {
		if slices.ContainsFunc(r.Tools, func(t string) bool { return strings.EqualFold(t, tool) }) {
			return r.Category, true
		}
	}
	return "", false
}

// DecisionOf returns the kind of decision that a tool requests from the user, question or plan, or
// "" if the tool does neither.
func DecisionOf(name Name, tool string) string {
	switch {
	case CategoryOf(name, tool) != UserInteraction:
		return ""
	case strings.Contains(strings.ToLower(tool), "plan"):
		return "plan"
	}
	return "question"
}

// toolsWith returns a program's tools for which the preset has one of the verdicts.
func toolsWith(name Name, p Preset, verdicts ...Verdict) (tools []string) {
	for _, r := range Of(name).Tools {
		if slices.Contains(verdicts, p.Judge(r.Category)) {
			tools = append(tools, r.Tools...)
		}
	}
	return tools
}
