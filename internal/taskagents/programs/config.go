package programs

import (
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// WorkspaceFile is a file of a program in a workspace.
type WorkspaceFile struct {
	RelativePath string `json:"relativePath"`
	Content      string `json:"content,omitempty"`
	Description  string `json:"description,omitempty"`
	AutoLoaded   bool   `json:"autoLoaded,omitempty"`
	Type         string `json:"type,omitempty"` // memory, config or rules
	Format       string `json:"format"`
}

// Approval is a preset in a program's own words, as GET /approval-config shows it
// (task-agents, section 9.1). The files are for somebody who starts the program without
// us; sessions of ours have theirs outside of the workspace.
type Approval struct {
	Preset         Preset            `json:"preset"`
	CLIFlags       []string          `json:"cliFlags"`
	WorkspaceFiles []WorkspaceFile   `json:"workspaceFiles"`
	EnvVars        map[string]string `json:"envVars"`
	Summary        string            `json:"summary"`
}

// ApprovalOf says what a preset is for a program.
func ApprovalOf(name Name, p Preset) (Approval, error) {
	row, ok := p.row()
	if !ok {
		return Approval{}, capability.Errorf(capability.CodeInvalidInput, "task.presets", "there is no approval preset %q", p).
			With("adapter_preset", "use readonly, standard, permissive or autonomous")
	}
	a := Approval{Preset: p, CLIFlags: []string{}, WorkspaceFiles: []WorkspaceFile{}, EnvVars: map[string]string{}, Summary: row.Description}
	file := func(path, content, format string) {
		a.WorkspaceFiles = append(a.WorkspaceFiles, WorkspaceFile{RelativePath: path, Content: content, Format: format})
	}
	switch name {
	case Claude:
		a.CLIFlags = append(a.CLIFlags, claudePresetFlags(p, true)...)
		file(".claude/settings.local.json", readable(claudePermissions(p)), "json")
	case Codex:
		var t toml
		codexPermissions(&t, p)
		file(".codex/config.toml", t.String(), "toml")
	case Gemini:
		a.CLIFlags = append(a.CLIFlags, geminiFlags(p)...)
		if policy := geminiPolicy(p); policy != "" {
			file(".gemini/policies/junctor.toml", policy, "toml")
		}
	case Aider:
		a.CLIFlags = append(a.CLIFlags, aiderFlags(p)...)
		file(".aider.conf.yml", aiderConfig(p), "yaml")
	case Pi:
		a.CLIFlags = append(a.CLIFlags, piFlags(p)...)
	case OpenCode:
		a.EnvVars["OPENCODE_PERMISSION"] = strings.TrimSpace(text(openCodePermissions(p)))
	}
	return a, nil
}

// Files lists what a program reads in a workspace, its memory file first; GET
// /workspace-files (task-agents, sections 5.3 and 9.1).
func Files(name Name) []WorkspaceFile {
	memory := func(path string) WorkspaceFile {
		return WorkspaceFile{RelativePath: path, Description: "what the agent is told about the project", AutoLoaded: path != ".aider.conventions.md", Type: "memory", Format: "markdown"}
	}
	config := func(path, format string) WorkspaceFile {
		return WorkspaceFile{RelativePath: path, Description: "the project's settings of the program", AutoLoaded: true, Type: "config", Format: format}
	}
	switch name {
	case Claude:
		return []WorkspaceFile{
			memory("CLAUDE.md"), config(".claude/settings.json", "json"), config(".claude/settings.local.json", "json"),
			{RelativePath: ".claude/commands", Description: "commands of the project", AutoLoaded: true, Type: "rules", Format: "markdown"},
		}
	case Codex:
		return []WorkspaceFile{memory("AGENTS.md"), config(".codex/config.toml", "toml")}
	case Gemini:
		return []WorkspaceFile{memory("GEMINI.md"), config(".gemini/settings.json", "json")}
	case Aider:
		return []WorkspaceFile{memory(".aider.conventions.md"), config(".aider.conf.yml", "yaml")}
	case Pi:
		return []WorkspaceFile{memory("AGENTS.md"), config(".pi/settings.json", "json")}
	case OpenCode:
		return []WorkspaceFile{memory("AGENTS.md"), config("opencode.json", "json")}
	}
	return nil
}

// Models are the names of a program's models where nobody has set others: one for hard
// tasks and one for quick ones; "" is the program's own choice (task-agents, section 3).
func Models(name Name) (powerful, fast string) {
	switch name {
	case Claude:
		return "claude-opus-4-7", ""
	case Codex:
		return "gpt-5.5", "gpt-5.5-mini"
	}
	return "", ""
}
