package programs

import (
	"path/filepath"
	"strings"
)

func piProgram() Program {
	return Program{
		Name: Pi, Title: "Pi", Aliases: []string{"pi", "pi-ai", "pi-coding-agent"},
		Binary: "pi", Install: "npm install -g @earendil-works/pi-coding-agent", Login: "start pi and use /login",
		Account:     Account{File: ".pi/agent/auth.json"},
		Keys:        apiKeys("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"),
		OneProvider: true,
		Strengths:   Strengths{.55, .5, .55, .5, .5, .35, .5, .5},
		Tools: []ToolGroup{
			{FileRead, []string{"read", "grep", "find", "ls"}},
			{FileWrite, []string{"edit", "write"}},
			{ShellUse, []string{"bash"}},
		},
		Files:           []WorkspaceFile{memoryFile("AGENTS.md"), configFile(".pi/settings.json", "json")},
		ProjectSettings: []string{".pi/settings.json", ".pi/extensions"},
		Greeting:        "π - ", DeliverDelay: defaultDeliverDelay, NoServer: true,
		plan:     (*build).pi,
		approval: func(p Preset, a *Approval) { a.CLIFlags = append(a.CLIFlags, piFlags(p)...) },
	}
}

// pi plans a session of Pi. Pi never asks, so tools for which the preset requires a question are
// left out.
func (b *build) pi() error {
	b.env["PI_OFFLINE"] = "1"
	b.withoutEditor()
	flags := []string{"--append-system-prompt", b.private(b.memory(), "memory.md")}
	flags = append(flags, b.piTools()...)
	if err := b.refuseForeignSettings(); err != nil { // it runs the npmCommand that they name
		return err
	}
	if b.withoutForeignSettings() {
		flags = append(flags, "--no-extensions")
	}
	if b.Provider != "" {
		flags = append(flags, "--provider", b.Provider)
	}
	if b.Model != "" {
		flags = append(flags, "--model", b.Model)
	}
	if b.BaseURL != "" {
		dir := b.folder("pi-agent")
		provider := b.Provider
		if provider == "" {
			provider = "google" // its own default
		}
		b.private(text(object{"providers": object{provider: object{"baseUrl": b.BaseURL}}}), "pi-agent", "models.json")
		b.env["PI_CODING_AGENT_DIR"] = dir
	}
	switch {
	case b.Resume != "":
		b.plan.ResumeToken = b.Resume
		flags = append(flags, "--session", b.Resume)
	case b.KeepDir != "":
		b.plan.ResumeToken = filepath.Join(b.KeepDir, b.UUID+".jsonl")
		flags = append(flags, "--session", b.plan.ResumeToken)
	}
	b.argv(flags, func(t string) []string { return []string{t} })
	return nil
}

func (b *build) piTools() []string {
	left := toolsWith(Pi, b.Preset, Ask)
	if len(left) > 0 {
		b.note("Pi cannot ask, so it does without: " + strings.Join(left, ", "))
	}
	return piFlags(b.Preset)
}

func piFlags(p Preset) []string {
	return []string{"--tools", strings.Join(toolsWith(Pi, p, Auto), ",")}
}
