package programs

import (
	"time"
)

func aiderProgram() Program {
	return Program{
		Name: Aider, Title: "Aider", Aliases: []string{"aider"},
		Binary: "aider", Install: "pip install aider-chat", Docs: "https://aider.chat/docs",
		Login:       "set the API key of a provider, such as ANTHROPIC_API_KEY",
		Keys:        apiKeys("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY", "OPENROUTER_API_KEY"),
		OneProvider: true, BaseURL: "OPENAI_API_BASE",
		Strengths: Strengths{.9, .45, .45, .75, .85, .35, .95, 1},
		Tools: []ToolGroup{
			{FileRead, []string{"/read-only", "/ls", "/map", "/tokens", "/diff"}},
			{FileWrite, []string{"/add", "/code", "/architect", "/commit", "/undo", "/lint"}},
			{ShellUse, []string{"/run", "/test", "/git"}},
			{Web, []string{"/web"}},
			{Planning, []string{"/ask", "/context"}},
		},
		Files: []WorkspaceFile{
			{RelativePath: ".aider.conventions.md", Description: "what the agent is told about the project", Type: "memory", Format: "markdown"},
			configFile(".aider.conf.yml", "yaml"),
		},
		ProjectSettings: []string{".aider.conf.yml", ".env"},
		Greeting:        "Aider v", DeliverDelay: 200 * time.Millisecond, NoServer: true,
		Advice: "- You change files that are in the chat; ask for those that you need by their names.\n",
		plan:   (*build).aider,
		approval: func(p Preset, a *Approval) {
			a.CLIFlags = append(a.CLIFlags, aiderFlags(p)...)
			a.addFile(".aider.conf.yml", aiderConfig(p), "yaml")
		},
	}
}

// aider plans a session of Aider, which is configured by flags only. Its histories are outside
// of the workspace, and git ignores the files that it leaves there.
func (b *build) aider() error {
	if err := b.refuseForeignSettings(); err != nil {
		return err
	}
	model := b.Model
	if model == "" {
		model = map[string]string{"anthropic": "sonnet", "openai": "4o", "google": "gemini"}[b.Provider]
	}
	flags := []string{
		"--config", b.private(aiderConfig(b.Preset), "aider.conf.yml"),
		"--read", b.private(b.memory(), "memory.md"),
		"--no-check-update", "--no-gitignore",
		"--chat-history-file", b.state("aider.chat.md"), "--input-history-file", b.state("aider.input"), "--llm-history-file",
		b.state("aider.llm"),
	}
	if model != "" {
		flags = append(flags, "--model", model)
	}
	if b.BaseURL != "" {
		b.env["OPENAI_API_BASE"], b.env["ANTHROPIC_API_BASE"] = b.BaseURL, b.BaseURL
		flags = append(flags, "--no-show-model-warnings")
	}
	b.ignored += ".aider*\n"
	if b.Resume != "" {
		b.note("Aider cannot go on with an earlier conversation")
	}
	b.typed(append(flags, aiderFlags(b.Preset)...))
	return nil
}

func aiderFlags(p Preset) []string {
	switch p {
	case Readonly:
		// Nothing else keeps it from writing.
		return []string{"--no-auto-commits", "--dry-run", "--no-suggest-shell-commands"}
	case Permissive, Autonomous:
		return []string{"--yes-always"}
	}
	return nil
}

func aiderConfig(p Preset) string {
	if p == Readonly || p == Standard {
		return "yes-always: false\n"
	}
	return "yes-always: true\n"
}
