package programs

import (
	"slices"
	"strings"
)

// Preset says what a session may do without being asked (task-agents, section 5.6).
type Preset string

// The presets.
const (
	Readonly   Preset = "readonly"
	Standard   Preset = "standard"
	Permissive Preset = "permissive"
	Autonomous Preset = "autonomous"
)

// Category is what a tool does, as far as presets care.
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

// Verdict is what a preset says of a category.
type Verdict string

// The verdicts.
const (
	Auto    Verdict = "auto"
	Ask     Verdict = "ask"
	Blocked Verdict = "blocked"
)

// Risk is how much harm a category can do: low, medium or high.
func (c Category) Risk() string {
	switch c {
	case FileRead, Planning, UserInteraction:
		return "low"
	case ShellUse:
		return "high"
	}
	return "medium"
}

// PresetRow is one preset as GET /approval-presets shows it (task-agents, section 9.1).
type PresetRow struct {
	Preset      Preset     `json:"preset"`
	Description string     `json:"description"`
	Auto        []Category `json:"autoApprove"`
	Ask         []Category `json:"requireApproval"`
	Blocked     []Category `json:"blocked"`
}

// Presets returns the table of presets, the strictest first.
func Presets() []PresetRow {
	return []PresetRow{
		{Readonly, "It may read and plan; everything else is refused.", []Category{FileRead, Planning, UserInteraction}, nil, []Category{FileWrite, ShellUse, Web, Agent}},
		{Standard, "It may read, plan and use the web; it asks before it writes, runs commands or starts agents.", []Category{FileRead, Planning, UserInteraction, Web}, []Category{FileWrite, ShellUse, Agent}, nil},
		{Permissive, "It asks before it runs commands, and for nothing else.", []Category{FileRead, FileWrite, Web, Agent, Planning, UserInteraction}, []Category{ShellUse}, nil},
		{Autonomous, "It asks for nothing.", []Category{FileRead, FileWrite, ShellUse, Web, Agent, Planning, UserInteraction}, nil, nil},
	}
}

// row finds a preset; ok is false for one that does not exist.
func (p Preset) row() (PresetRow, bool) {
	for _, r := range Presets() {
		if r.Preset == p {
			return r, true
		}
	}
	return PresetRow{}, false
}

// Judge says what the preset says of a category; an unknown preset blocks everything.
func (p Preset) Judge(c Category) Verdict {
	switch r, _ := p.row(); {
	case slices.Contains(r.Auto, c):
		return Auto
	case slices.Contains(r.Ask, c):
		return Ask
	}
	return Blocked
}

// toolRow is the tools of one category.
type toolRow struct {
	category Category
	tools    []string
}

// toolsOf lists a program's own tools, those of earlier versions too.
func toolsOf(name Name) []toolRow {
	switch name {
	case Claude:
		return []toolRow{
			{FileRead, []string{"Read", "Grep", "Glob", "LS", "NotebookRead"}},
			{FileWrite, []string{"Write", "Edit", "NotebookEdit", "MultiEdit"}},
			{ShellUse, []string{"Bash", "BashOutput", "KillShell"}},
			{Web, []string{"WebSearch", "WebFetch"}},
			{Agent, []string{"Task", "Agent", "Skill", "SendMessage", "Workflow"}},
			{Planning, []string{"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "EnterPlanMode", "ExitPlanMode"}},
			{UserInteraction, []string{"AskUserQuestion"}},
		}
	case Gemini:
		return []toolRow{
			{FileRead, []string{"read_file", "read_many_files", "list_directory", "glob", "search_file_content", "grep_search"}},
			{FileWrite, []string{"write_file", "replace"}},
			{ShellUse, []string{"run_shell_command"}},
			{Web, []string{"web_fetch", "google_web_search"}},
			{Agent, []string{"activate_skill", "get_internal_docs"}},
			{Planning, []string{"save_memory", "write_todos"}},
			{UserInteraction, []string{"ask_user"}},
		}
	case Codex:
		return []toolRow{
			{FileRead, []string{"grep_files", "read_file", "list_dir"}},
			{FileWrite, []string{"apply_patch"}},
			// Its hooks call every command Bash (measured).
			{ShellUse, []string{"exec_command", "write_stdin", "shell_command", "Bash"}},
			{Web, []string{"web_search", "view_image"}},
			{Agent, []string{"spawn_agent", "send_input", "resume_agent", "wait", "close_agent"}},
			{Planning, []string{"update_plan"}},
			{UserInteraction, []string{"request_user_input"}},
		}
	case Pi:
		return []toolRow{
			{FileRead, []string{"read", "grep", "find", "ls"}},
			{FileWrite, []string{"edit", "write"}},
			{ShellUse, []string{"bash"}},
		}
	case OpenCode:
		return []toolRow{
			{FileRead, []string{"read", "grep", "glob", "list", "lsp"}},
			{FileWrite, []string{"edit"}},
			{ShellUse, []string{"bash"}},
			{Web, []string{"webfetch", "websearch", "codesearch"}},
			{Agent, []string{"task", "skill"}},
			{Planning, []string{"todoread", "todowrite"}},
			{UserInteraction, []string{"question"}},
		}
	case Aider:
		return []toolRow{
			{FileRead, []string{"/read-only", "/ls", "/map", "/tokens", "/diff"}},
			{FileWrite, []string{"/add", "/code", "/architect", "/commit", "/undo", "/lint"}},
			{ShellUse, []string{"/run", "/test", "/git"}},
			{Web, []string{"/web"}},
			{Planning, []string{"/ask", "/context"}},
		}
	}
	return nil
}

// CategoryOf says what a tool does. One that is not known, such as a tool of an MCP
// server, can do what an agent can.
func CategoryOf(name Name, tool string) Category {
	for _, r := range toolsOf(name) {
		if slices.ContainsFunc(r.tools, func(t string) bool { return strings.EqualFold(t, tool) }) {
			return r.category
		}
	}
	return Agent
}

// toolsWith lists a program's tools of which the preset says one of the verdicts.
func toolsWith(name Name, p Preset, verdicts ...Verdict) (tools []string) {
	for _, r := range toolsOf(name) {
		if slices.Contains(verdicts, p.Judge(r.category)) {
			tools = append(tools, r.tools...)
		}
	}
	return tools
}
