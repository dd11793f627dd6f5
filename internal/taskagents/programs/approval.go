package programs

import (
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

// Approval is a preset in the form of a program's own flags, variables and files, as shown by
// GET /approval-config. The files are for users who start the program without junctor; sessions
// of junctor have theirs outside of the workspace.
type Approval struct {
	Preset         Preset            `json:"preset"`
	CLIFlags       []string          `json:"cliFlags"`
	WorkspaceFiles []WorkspaceFile   `json:"workspaceFiles"`
	EnvVars        map[string]string `json:"envVars"`
	Summary        string            `json:"summary"`
}

// ApprovalOf returns a preset in the form of a program's settings.
func ApprovalOf(name Name, p Preset) (Approval, error) {
	row, ok := p.row()
	if !ok {
		return Approval{}, capability.Errorf(capability.CodeInvalidInput, "task.presets", "there is no approval preset %q", p).
			With("adapter_preset", "use readonly, standard, permissive or autonomous")
	}
	a := Approval{Preset: p, CLIFlags: []string{}, WorkspaceFiles: []WorkspaceFile{}, EnvVars: map[string]string{}, Summary: row.Description}
	if approval := Of(name).approval; approval != nil {
		approval(p, &a)
	}
	return a, nil
}

// addFile adds a file that a user who starts the program without junctor would write.
func (a *Approval) addFile(path, content, format string) {
	a.WorkspaceFiles = append(a.WorkspaceFiles, WorkspaceFile{RelativePath: path, Content: content, Format: format})
}

// memoryFile describes a program's memory file about the project.
func memoryFile(path string) WorkspaceFile {
	return WorkspaceFile{
		RelativePath: path, Description: "what the agent is told about the project", AutoLoaded: true, Type: "memory",
		Format: "markdown",
	}
}

// configFile describes a program's settings of the project.
func configFile(path, format string) WorkspaceFile {
	return WorkspaceFile{
		RelativePath: path, Description: "the project's settings of the program", AutoLoaded: true, Type: "config",
		Format: format,
	}
}
