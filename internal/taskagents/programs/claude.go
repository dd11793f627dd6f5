package programs

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/overlay"
)

func claudeProgram() Program {
	return Program{
		Name: Claude, Title: "Claude Code", Aliases: []string{"claude", "claude-code"},
		Binary: "claude", Install: "npm install -g @anthropic-ai/claude-code", Docs: "https://code.claude.com/docs",
		Login: "claude auth login",
		Account: Account{
			Ask: []string{"auth", "status"}, Read: readClaudeAccount, Needs: []string{".claude.json", ".claude/.credentials.json"},
		},
		SignIn:      []string{"auth", "login"},
		Keys:        append(apiKeys("ANTHROPIC_API_KEY"), Key{"CLAUDE_CODE_OAUTH_TOKEN", "subscription"}),
		Credentials: []string{"ANTHROPIC_AUTH_TOKEN"},
		BaseURL:     "ANTHROPIC_BASE_URL",
		Powerful:    "claude-opus-4-7",
		Strengths:   Strengths{.95, .95, 1, .8, .85, 1, .9, .75}, Subscriptions: []string{"anthropic-subscription"},
		Tools: []ToolGroup{
			{FileRead, []string{"Read", "Grep", "Glob", "LS", "NotebookRead"}},
			{FileWrite, []string{"Write", "Edit", "NotebookEdit", "MultiEdit"}},
			{ShellUse, []string{"Bash", "BashOutput", "KillShell", "Monitor", "PowerShell", "REPL"}},
			{Web, []string{"WebSearch", "WebFetch"}},
			{Agent, []string{"Task", "Agent", "Skill", "SendMessage", "Workflow"}},
			{Planning, []string{"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "EnterPlanMode"}},
			{UserInteraction, []string{"AskUserQuestion", "ExitPlanMode"}},
		},
		Files: []WorkspaceFile{
			memoryFile("CLAUDE.md"), configFile(".claude/settings.json", "json"), configFile(".claude/settings.local.json", "json"),
			{RelativePath: ".claude/commands", Description: "commands of the project", AutoLoaded: true, Type: "rules", Format: "markdown"},
		},
		ProjectSettings: []string{".claude", ".mcp.json"},
		Greeting:        "Claude Code", DeliverDelay: 800 * time.Millisecond,
		Answers:  claudeAnswers,
		Protocol: StreamJSON,
		Opens:    true,
		Records:  ".claude/projects",
		plan:     (*build).claude,
		approval: func(p Preset, a *Approval) {
			a.CLIFlags = append(a.CLIFlags, claudePresetFlags(p, true)...)
			a.addFile(".claude/settings.local.json", readable(claudePermissions(p)), "json")
		},
	}
}

func claudeAnswers(p Preset) []Answer {
	list := []Answer{
		{ID: "trust", Type: "trust", Prompt: "trust", Label: "Yes, I trust"},
		{ID: "api-key", Type: "api_key", Label: "Yes", Once: true},
		{ID: "theme", Type: "onboarding", Label: "Dark mode", Once: true},
		{ID: "notes", Type: "onboarding", Keys: []string{"enter"}},
	}
	if p == Autonomous {
		list = append(list, Answer{ID: "bypass", Type: "trust", Label: "Yes, I accept", Once: true})
	}
	return list
}

// readClaudeAccount parses the JSON of `claude auth status`; text before it is ignored.
func readClaudeAccount(answer string) (method string, loggedIn, known bool) {
	var status struct {
		LoggedIn   *bool  `json:"loggedIn"`
		AuthMethod string `json:"authMethod"`
	}
	at := strings.IndexByte(answer, '{')
	if at < 0 || json.NewDecoder(strings.NewReader(answer[at:])).Decode(&status) != nil || status.LoggedIn == nil {
		return "", false, false
	}
	return status.AuthMethod, *status.LoggedIn, true
}

// object is a JSON object; its members are written in the order of their names.
type object = map[string]any

// text returns v as JSON for a program's file.
func text(v any) string {
	data, _ := jsonx.Marshal(v) // cannot fail for the values of this package
	return string(data) + "\n"
}

// readable returns v as indented JSON for a file that users read.
func readable(v any) string {
	data, _ := jsonx.MarshalIndent(v)
	return string(data) + "\n"
}

// Timeouts of hooks in seconds. A question about a permission may wait for a user.
const (
	hookSeconds    = 5
	consentSeconds = 60
)

func hookTimeout(event string) int {
	switch event {
	case "PreToolUse", "PermissionRequest", "BeforeTool":
		return consentSeconds
	}
	return hookSeconds
}

// claude plans a session of Claude Code. Settings, hooks, MCP servers and memory are files in
// the session's folder that its flags name. Only the trust in the folder and the approval of an
// API key are in a file of the user's.
func (b *build) claude() error {
	flags := b.claudeFlags()
	b.claudeHome()
	b.env["DISABLE_AUTOUPDATER"] = "1"
	// For a known terminal it sends sequences when it is busy and when it waits (measured).
	b.env["TERM_PROGRAM"], b.env["TERM_PROGRAM_VERSION"] = "ghostty", "1.3.0"
	if b.Model != "" {
		b.env["ANTHROPIC_MODEL"] = b.Model
	}
	if b.BaseURL != "" {
		b.env["ANTHROPIC_BASE_URL"] = b.BaseURL
	}
	if b.rootInSandbox() {
		b.env["IS_SANDBOX"] = "1"
	}
	b.plan.ResumeToken = b.UUID
	id := "--session-id=" + b.UUID
	if b.Resume != "" {
		b.plan.ResumeToken, id = b.Resume, "--resume="+b.Resume
	}
	flags = append(flags, id)
	b.argv(flags, func(t string) []string { return []string{"--", t} })
	b.structured([]string{"-p", "--input-format=stream-json", "--output-format=stream-json", "--permission-prompt-tool=stdio", "--verbose"},
		flags)
	return nil
}

func (b *build) claudeFlags() []string {
	settings := claudePermissions(b.Preset)
	settings["hooks"] = b.claudeHooks()
	if b.Preset == Autonomous && b.mayBypass() {
		settings["skipDangerousModePermissionPrompt"] = true // the default of this dialog ends the program
	}
	server := object{"type": "http", "url": b.Server + "/mcp", "headers": object{"Authorization": "Bearer ${ELIZA_HOOK_TOKEN}"}}
	// Flags with lists also consume the next arguments, so every value is joined to its flag.
	flags := []string{
		"--settings=" + b.private(text(settings), "claude-settings.json"),
		"--mcp-config=" + b.private(text(object{"mcpServers": object{"junctor": server}}), "claude-mcp.json"),
		"--append-system-prompt-file=" + b.private(b.memory(), "memory.md"),
	}
	if b.withoutForeignSettings() {
		flags = append(flags, "--setting-sources=user")
	}
	if b.Preset == Autonomous && !b.mayBypass() {
		b.note("Claude Code refuses to bypass permissions for root; its own rules allow everything, and hooks decide")
	}
	return append(flags, claudePresetFlags(b.Preset, b.mayBypass())...)
}

// mayBypass reports whether permissions can be bypassed. Claude Code exits at once if root does
// so, unless IS_SANDBOX is 1.
func (b *build) mayBypass() bool { return b.UID != 0 || b.rootInSandbox() }

func (b *build) rootInSandbox() bool { return b.UID == 0 && b.Parent["IS_SANDBOX"] == "1" }

func claudePresetFlags(p Preset, bypass bool) []string {
	switch {
	case p == Readonly: // a list of denied tools would not have those of later versions
		return []string{"--tools=" + strings.Join(append(claudeTools(p, Auto), claudeTools(p, Ask)...), ",")}
	case p == Permissive, p == Autonomous && !bypass:
		return []string{"--permission-mode=acceptEdits"}
	case p == Autonomous:
		return []string{"--dangerously-skip-permissions"}
	}
	return nil
}

// claudeTools returns the tools with verdict v for Claude Code's own rules. It warns of a rule
// about a tool that it no longer has (measured).
func claudeTools(p Preset, v Verdict) []string {
	return slices.DeleteFunc(toolsWith(Claude, p, v), func(t string) bool { return t == "MultiEdit" })
}

// claudePermissions returns the settings file of a preset.
func claudePermissions(p Preset) object {
	rules := make(object)
	for member, v := range map[string]Verdict{"allow": Auto, "ask": Ask, "deny": Blocked} {
		tools := claudeTools(p, v)
		if p.Judge(Agent) == v {
			tools = append(tools, "mcp__junctor")
		}
		if len(tools) > 0 {
			rules[member] = tools
		}
	}
	settings := object{"permissions": rules}
	if p == Autonomous {
		settings["sandbox"] = object{"enabled": true, "autoAllowBashIfSandboxed": true}
	}
	return settings
}

// claudeHooks returns hooks that post every event to the server. The file has a reference to the
// variable of the token, not the token.
func (b *build) claudeHooks() object {
	hooks := make(object)
	for _, event := range []string{
		"PreToolUse", "PermissionRequest", "Stop", "Notification", "TaskCompleted",
		"UserPromptSubmit", "PostToolUse", "StopFailure", "SubagentStop", "SessionEnd", "PreCompact",
	} {
		if b.Structured && event == "PermissionRequest" { // its answer would win over that of the protocol
			continue
		}
		hooks[event] = []any{object{"matcher": "*", "hooks": []any{object{
			"type": "http", "url": b.hooksURL(), "timeout": hookTimeout(event), "allowedEnvVars": []string{"ELIZA_HOOK_TOKEN"},
			"headers": object{"X-Parallax-Session-Id": b.Session, "X-Parallax-Hook-Token": "$ELIZA_HOOK_TOKEN"},
		}}}}
	}
	return hooks
}

// claudeHome changes Claude Code's file in the home to prevent the dialogs that no flag
// prevents: those about trust in the folder, about an API key, and in a home of the session's
// own those of the first start.
func (b *build) claudeHome() {
	edits := []overlay.Edit{{Keys: []string{"projects", b.Workdir, "hasTrustDialogAccepted"}, Value: []byte("true")}}
	if b.OwnHome {
		edits = append(edits,
			overlay.Edit{Keys: []string{"hasCompletedOnboarding"}, Value: []byte("true")},
			overlay.Edit{Keys: []string{"theme"}, Value: []byte(`"dark"`)})
	}
	if key := b.credential("ANTHROPIC_API_KEY"); key != "" {
		// The program stores approved keys by their last characters.
		end := jsonx.AppendString(nil, key[max(0, len(key)-20):])
		edits = append(edits, overlay.Edit{Keys: []string{"customApiKeyResponses", "approved"}, Value: end, Append: true})
	}
	b.plan.Changes = append(b.plan.Changes, overlay.Change{Kind: overlay.Merge, Root: b.Home, Path: b.Home + "/.claude.json", Edits: edits})
}
