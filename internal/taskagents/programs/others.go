package programs

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// aider plans Aider, which is told everything by flags; its histories stay out of the
// workspace, and what it leaves there git ignores.
func (b *build) aider() {
	model := b.Model
	if model == "" {
		model = map[string]string{"anthropic": "sonnet", "openai": "4o", "google": "gemini"}[b.Provider]
	}
	flags := []string{
		"--config", b.private(aiderConfig(b.Preset), "aider.conf.yml"),
		"--read", b.private(b.memory(), "memory.md"),
		"--no-check-update", "--no-gitignore",
		"--chat-history-file", b.state("aider.chat.md"), "--input-history-file", b.state("aider.input"), "--llm-history-file", b.state("aider.llm"),
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

// pi plans Pi. It never asks, so what a preset would ask about is not among its tools.
func (b *build) pi() {
	b.env["PI_OFFLINE"] = "1"
	flags := []string{"--append-system-prompt", b.private(b.memory(), "memory.md")}
	flags = append(flags, b.piTools()...)
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

// openCodeKey holds the key of a provider that we describe ourselves.
const openCodeKey = "PARALLAX_OPENCODE_API_KEY"

// openCode plans OpenCode, which does one task and ends. All its settings are in a
// variable.
func (b *build) openCode() error {
	if b.Model == "" {
		return capability.Errorf(capability.CodeInvalidInput, "task.spawn", "OpenCode has no model to work with").
			With("OPENCODE_NO_PROVIDER", "name a model of the user's own configuration, as provider/model, or give the address and the model of a server")
	}
	config := object{
		"autoupdate": false, "share": "disabled", "model": b.Model,
		"instructions": []string{b.private(b.memory(), "memory.md")},
		"permission":   openCodePermissions(b.Preset),
		"mcp": object{"junctor": object{
			"type": "remote", "url": b.Server + "/mcp", "enabled": true, "oauth": false,
			"headers": object{"Authorization": "Bearer {env:ELIZA_HOOK_TOKEN}"},
		}},
	}
	if b.BaseURL != "" {
		_, model, named := strings.Cut(b.Model, "/")
		if !named {
			model = b.Model
		}
		config["model"] = "junctor/" + model
		config["provider"] = object{"junctor": object{
			"npm": "@ai-sdk/openai-compatible", "name": "junctor", "models": object{model: object{}},
			"options": object{"baseURL": b.BaseURL, "apiKey": "{env:" + openCodeKey + "}"},
		}}
	}
	b.env["OPENCODE_CONFIG_CONTENT"] = strings.TrimSuffix(text(config), "\n")
	b.env["OPENCODE_DISABLE_AUTOUPDATE"] = "1"
	if len(toolsWith(OpenCode, b.Preset, Ask)) > 0 {
		b.note("OpenCode refuses what it would have to ask about, except in structured mode")
	}
	flags := []string{"run"}
	if b.Resume != "" {
		b.plan.ResumeToken = b.Resume
		flags = append(flags, "--session", b.Resume)
	}
	b.argv(flags, func(t string) []string { return []string{"--", t} })
	if !b.plan.TaskInArgv { // without a task there is nothing to run: its own screen
		b.plan.Argv = slices.Delete(b.plan.Argv, 1, 2)
	}
	b.structured([]string{"acp"}, nil)
	return nil
}

// openCodePermissions says of each of its tools what the preset does.
func openCodePermissions(p Preset) object {
	words := map[Verdict]string{Auto: "allow", Ask: "ask", Blocked: "deny"}
	rules := object{"*": words[p.Judge(Agent)], "external_directory": "deny"}
	for _, r := range toolsOf(OpenCode) {
		for _, t := range r.tools {
			rules[t] = words[p.Judge(r.category)]
		}
	}
	return rules
}

// shell plans a plain shell. One that we know tells by sequences when a command begins and
// how it ended; what it says about that in words does not count.
func (b *build) shell() {
	if own := b.Parent["SHELL"]; own != "" && b.Binary == ProgramOf(Shell).Binary {
		b.Binary = own
	}
	b.env["PS1"] = "pty> "
	switch filepath.Base(b.Binary) {
	case "bash":
		b.typed([]string{"--noprofile", "--rcfile", b.private(bashMarks, "bashrc"), "-i"})
	case "zsh":
		b.folder("zsh")
		b.private(zshMarks, "zsh", ".zshrc")
		b.env["ZDOTDIR"] = b.state("zsh")
		b.typed([]string{"-i"})
	default:
		b.note(b.Binary + " cannot tell when a command has ended: only its prompt says so")
		b.typed([]string{"-i"})
	}
	if b.Preset != Autonomous {
		b.note("a shell runs what it is told: the preset does not hold it back")
	}
}

// The marks of OSC 133: A and B around the prompt, C before a command, D with its status
// after it.
const (
	bashMarks = `PS1='pty> '
PS0='\e]133;C\a'
__junctor_mark() {
	local status=$?
	if [ -n "$__junctor_began" ]; then printf '\e]133;D;%s\a' "$status"; fi
	__junctor_began=1
	printf '\e]133;A\a'
}
PROMPT_COMMAND=__junctor_mark
PS1="$PS1"'\[\e]133;B\a\]'
`
	zshMarks = `PS1='pty> '
preexec() { printf '\e]133;C\a' }
precmd() {
	local st=$?
	if [[ -n $__junctor_began ]]; then printf '\e]133;D;%s\a' $st; fi
	__junctor_began=1
	printf '\e]133;A\a'
}
PS1="$PS1"$'%{\e]133;B\a%}'
`
)
