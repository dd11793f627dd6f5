package programs

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

func geminiProgram() Program {
	return Program{
		Name: Gemini, Title: "Gemini CLI", Aliases: []string{"gemini", "google", "gemini-cli"},
		Binary: "gemini", Install: "npm install -g @google/gemini-cli", Docs: "https://geminicli.com/docs",
		Login:     "start gemini once, or set GEMINI_API_KEY",
		Account:   Account{File: ".gemini/google_accounts.json"},
		Keys:      apiKeys("GEMINI_API_KEY", "GOOGLE_API_KEY"),
		BaseURL:   "GOOGLE_GEMINI_BASE_URL",
		Strengths: Strengths{.7, 1, .95, .7, .6, .7, .65, .7},
		Tools: []ToolGroup{
			{FileRead, []string{"read_file", "read_many_files", "list_directory", "glob", "search_file_content", "grep_search"}},
			{FileWrite, []string{"write_file", "replace"}},
			{ShellUse, []string{"run_shell_command"}},
			{Web, []string{"web_fetch", "google_web_search"}},
			{Agent, []string{"activate_skill", "get_internal_docs", "invoke_agent"}},
			{Planning, []string{"save_memory", "write_todos"}},
			{UserInteraction, []string{"ask_user", "exit_plan_mode"}},
		},
		Files:           []WorkspaceFile{memoryFile("GEMINI.md"), configFile(".gemini/settings.json", "json")},
		ProjectSettings: []string{".gemini/settings.json", ".gemini/.env", ".gemini/agents", ".gemini/extensions", ".gemini/policies"},
		Greeting:        "Gemini CLI", DeliverDelay: defaultDeliverDelay,
		Answers: func(Preset) []Answer {
			return []Answer{
				{ID: "trust", Type: "trust", Label: "Trust folder"},
				{ID: "data", Type: "config", Label: "No"},
			}
		},
		Protocol: ACP,
		Opens:    true,
		Records:  ".gemini/tmp",
		Kinds: map[string]string{
			"read": "read_file", "edit": "write_file", "delete": "write_file", "move": "write_file",
			"search": "glob", "execute": "run_shell_command", "fetch": "web_fetch",
		},
		FailedHook: `{"continue":true}`,
		plan:       (*build).gemini,
		approval: func(p Preset, a *Approval) {
			a.CLIFlags = append(a.CLIFlags, geminiFlags(p)...)
			if policy := geminiPolicy(p); policy != "" {
				a.addFile(".gemini/policies/junctor.toml", policy, "toml")
			}
		},
	}
}

// gemini plans a session of Gemini CLI. A variable names the system settings, which win over
// those of the user and the project, so that neither file is changed. The memory file is in a
// folder of the session that belongs to the workspace. Permissions are a policy file, because
// lists of tools are deprecated.
func (b *build) gemini() error {
	// In a folder that it does not trust it uses neither hooks nor MCP servers of the session.
	if err := b.refuseForeignSettings(); err != nil {
		return err
	}
	context := b.folder("gemini-context")
	b.private(b.memory(), "gemini-context", "GEMINI.md")
	settings := object{
		"general":     object{"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
		"context":     object{"includeDirectories": []string{context}, "loadMemoryFromIncludeDirectories": true},
		"hooksConfig": object{"enabled": true},
		"hooks":       b.geminiHooks(),
		"mcpServers":  object{"junctor": object{"httpUrl": b.Server + "/mcp", "headers": object{"Authorization": "Bearer $ELIZA_HOOK_TOKEN"}}},
	}
	if b.distrusts() { // variables such as LD_PRELOAD run commands
		settings["advanced"] = object{"ignoreLocalEnv": true}
	}
	security := object{"environmentVariableRedaction": object{"allowed": []string{
		"PARALLAX_SESSION_ID", "ELIZA_HOOK_PORT",
		"ELIZA_HOOK_TOKEN",
	}}}
	if b.credential("GEMINI_API_KEY") != "" {
		security["auth"] = object{"selectedType": "gemini-api-key"} // without it a menu opens
	}
	settings["security"] = security
	b.env["GEMINI_CLI_SYSTEM_SETTINGS_PATH"] = b.private(text(settings), "gemini-settings.json")
	// --skip-trust applies to the workspace only, not to further folders (measured).
	b.env["GEMINI_CLI_TRUSTED_FOLDERS_PATH"] = b.private(text(object{b.Workdir: "TRUST_FOLDER", context: "TRUST_FOLDER"}),
		"gemini-trusted.json")
	if b.Model != "" {
		b.env["GEMINI_MODEL"] = b.Model
	}
	if b.BaseURL != "" {
		b.env["GOOGLE_GEMINI_BASE_URL"] = b.BaseURL
	}
	b.plan.ResumeToken = b.UUID
	id := "--session-id=" + b.UUID
	if b.Resume != "" {
		b.plan.ResumeToken, id = b.Resume, "--resume="+b.Resume
	}
	flags := append([]string{"--skip-trust"}, geminiFlags(b.Preset)...)
	if policy := geminiPolicy(b.Preset); policy != "" {
		flags = append(flags, "--policy="+b.private(policy, "gemini-policy.toml"))
	}
	b.argv(append(flags, id), func(t string) []string { return []string{"--prompt-interactive=" + t} })
	if b.Structured {
		b.note("Gemini CLI offers its question tool in a terminal only (--mode terminal): it asks in its answers")
	}
	b.structured([]string{"--acp"}, flags)
	return nil
}

// geminiFlags returns the mode of a preset. With auto_edit it would not ask about any file, whatever the policy.
func geminiFlags(p Preset) []string {
	return []string{"--approval-mode=" + map[Preset]string{
		Readonly: "plan", Standard: "default", Permissive: "default",
		Autonomous: "yolo",
	}[p]}
}

// geminiPolicy returns the policy file of a preset, or "" for the autonomous one.
func geminiPolicy(p Preset) string {
	if p == Autonomous {
		return ""
	}
	var out strings.Builder
	for _, d := range []struct {
		word    string
		verdict Verdict
	}{{"allow", Auto}, {"ask_user", Ask}, {"deny", Blocked}} {
		if tools := toolsWith(Gemini, p, d.verdict); len(tools) > 0 {
			names, _ := jsonx.Marshal(tools)
			fmt.Fprintf(&out, "[[rule]]\ntoolName = %s\ndecision = %q\npriority = 900\n\n", names, d.word)
		}
		if p.Judge(FileWrite) == d.verdict && d.verdict == Auto {
			at := slices.IndexFunc(Of(Gemini).Tools, func(g ToolGroup) bool { return g.Category == FileWrite })
			names, _ := jsonx.Marshal(Of(Gemini).Tools[at].Tools)
			fmt.Fprintf(&out, "[[rule]]\ntoolName = %s\nargsPattern = '%s'\ndecision = \"ask_user\"\npriority = 950\n\n", names, settingsPattern())
		}
		if p.Judge(Agent) == d.verdict {
			fmt.Fprintf(&out, "[[rule]]\nmcpName = \"junctor\"\ntoolName = \"*\"\ndecision = %q\npriority = 900\n\n", d.word)
		}
	}
	return out.String()
}

// settingsPattern returns a regular expression for a JSON text with the path of a project setting, in any
// letter case. JavaScript has no flag for that within an expression.
func settingsPattern() string {
	var out strings.Builder
	var first []string // folders within them may be written in several ways
	for _, name := range allProjectSettings() {
		name, _, _ = strings.Cut(name, "/")
		first = append(first, name)
	}
	for _, r := range strings.Join(slices.Compact(first), "|") {
		switch {
		case unicode.IsLetter(r):
			out.WriteString("[" + string(r) + string(unicode.ToUpper(r)) + "]")
		case r == '.':
			out.WriteString(`\.`)
		default:
			out.WriteRune(r)
		}
	}
	return `("|/)(` + out.String() + `)("|/)`
}

// geminiHooks returns hooks that run this binary, which posts the event and prints the reply.
func (b *build) geminiHooks() object {
	hooks := make(object)
	for _, event := range []string{"SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "Notification", "SessionEnd"} {
		// Its timeouts are in milliseconds.
		hooks[event] = []any{object{"matcher": "*", "hooks": []any{object{
			"type": "command", "name": "junctor", "command": b.hookCommand(),
			"timeout": hookTimeout(event) * 1000,
		}}}}
	}
	return hooks
}
