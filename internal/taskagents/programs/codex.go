package programs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

func codexProgram() Program {
	return Program{
		Name: Codex, Title: "Codex", Aliases: []string{"codex", "openai", "openai-codex"},
		Binary: "codex", Install: "npm install -g @openai/codex", Docs: "https://developers.openai.com/codex", Login: "codex login",
		Account:  Account{Ask: []string{"login", "status"}, Read: readCodexAccount, Needs: []string{".codex/auth.json", ".codex/config.toml"}},
		SignIn:   []string{"login"},
		Keys:     apiKeys("OPENAI_API_KEY"),
		BaseURL:  "OPENAI_BASE_URL",
		Powerful: "gpt-5.5", Fast: "gpt-5.5-mini",
		Strengths: Strengths{1, .8, .75, .85, 1, .9, 1, .95}, Subscriptions: []string{"openai-codex", "openai-subscription"},
		Tools: []ToolGroup{
			{FileRead, []string{"grep_files", "read_file", "list_dir"}},
			{FileWrite, []string{"apply_patch"}},
			// In its hooks every command has the name Bash (measured).
			{ShellUse, []string{"exec_command", "write_stdin", "shell_command", "Bash"}},
			{Web, []string{"web_search", "view_image"}},
			{Agent, []string{"spawn_agent", "send_input", "resume_agent", "wait", "close_agent"}},
			{Planning, []string{"update_plan"}},
			{UserInteraction, []string{"request_user_input"}},
		},
		Files:           []WorkspaceFile{memoryFile("AGENTS.md"), configFile(".codex/config.toml", "toml")},
		ProjectSettings: []string{".codex"},
		Greeting:        "OpenAI Codex", DeliverDelay: 2 * time.Second, StrayTurns: true,
		Answers: func(Preset) []Answer {
			return []Answer{
				{ID: "trust", Type: "trust", Label: "Trust and continue"},
				{ID: "restricted", Type: "trust", Label: "Open restricted"}, // a folder whose trust is off
				{ID: "model", Type: "config", Label: "Use existing model"},
				{ID: "update", Type: "update", Label: "Skip"},
			}
		},
		Protocol: AppServer,
		Opens:    true,
		plan:     (*build).codex,
		approval: func(p Preset, a *Approval) {
			var t toml
			codexPermissions(&t, p, false)
			a.addFile(".codex/config.toml", t.String(), "toml")
		},
	}
}

// readCodexAccount parses the output of `codex login status`.
func readCodexAccount(answer string) (method string, loggedIn, known bool) {
	for line := range strings.Lines(answer) {
		switch method, in := strings.CutPrefix(strings.TrimSpace(line), "Logged in using "); {
		case in:
			if strings.Contains(strings.ToLower(method), "api key") {
				method = "api_key" // the rest of the line is a part of the key
			}
			return method, true, true
		case strings.HasPrefix(strings.TrimSpace(line), "API key configured"): // since 0.169; the rest is a part of the key
			return "api_key", true, true
		case strings.HasPrefix(strings.TrimSpace(line), "Not logged in"):
			return "", false, true
		}
	}
	return "", false, false
}

// codex plans a session of Codex. Its home is a folder of the session with settings, hooks,
// memory and login. The login is a link to the user's, so that a renewed token is renewed for
// both, unless an API key is given.
func (b *build) codex() error {
	home := b.folder("codex-home")
	b.env["CODEX_HOME"] = home
	hooks, trust := b.codexHooks(home + "/hooks.json")
	b.private(text(object{"hooks": hooks}), "codex-home", "hooks.json")
	b.private(b.codexConfig()+trust, "codex-home", "config.toml")
	b.private(b.memory(), "codex-home", "AGENTS.md")
	if key := b.credential("OPENAI_API_KEY"); key != "" {
		b.private(text(object{"auth_mode": "apikey", "OPENAI_API_KEY": key}), "codex-home", "auth.json")
	} else {
		b.link(b.Home+"/.codex/auth.json", "codex-home", "auth.json")
	}
	if b.KeepDir != "" {
		b.link(b.KeepDir, "codex-home", "sessions")
	}
	flags := []string{"--no-daemon", "-C", b.Workdir}
	if b.Resume != "" {
		b.plan.ResumeToken = b.Resume
		b.argv(append([]string{"resume"}, flags...), func(t string) []string { return []string{"--", b.Resume, t} })
		if !b.plan.TaskInArgv {
			b.plan.Argv = append(b.plan.Argv, "--", b.Resume)
		}
	} else {
		b.argv(flags, func(t string) []string { return []string{"--", t} })
	}
	b.structured([]string{"app-server"}, nil)
	return nil
}

// codexConfig returns config.toml without the trust in hooks. Tables come last, as TOML
// requires.
func (b *build) codexConfig() string {
	var t toml
	if b.Model != "" {
		t.set("model", tomlText(b.Model))
	}
	if b.BaseURL != "" {
		t.set("model_provider", `"proxy"`)
	}
	codexPermissions(&t, b.Preset, b.Structured)
	if b.Preset.Judge(Agent) != Auto { // it does not ask about them
		t.set("agents.enabled", "false")
	}
	t.set("check_for_update_on_startup", "false")
	if b.Structured {
		t.set("features.default_mode_request_user_input", "true")
	}
	t.set("notify", "["+tomlText(b.Self)+`, "child", "hook", "codex"]`)
	// Commands get the token of the helpers, but not the API key.
	t.table("shell_environment_policy")
	t.set("ignore_default_excludes", "true")
	t.set("exclude", `["OPENAI_API_KEY", "CODEX_API_KEY"]`)
	t.table("projects", b.Workdir)
	trust := "trusted"
	if b.withoutForeignSettings() {
		trust = "untrusted"
	}
	t.set("trust_level", tomlText(trust))
	if b.BaseURL != "" {
		t.table("model_providers", "proxy")
		t.set("name", `"proxy"`)
		t.set("base_url", tomlText(b.BaseURL))
		t.set("wire_api", `"responses"`)
		t.set("env_key", `"OPENAI_API_KEY"`)
		t.set("supports_websockets", "false")
	}
	t.table("mcp_servers", "junctor")
	t.set("url", tomlText(b.Server+"/mcp"))
	t.set("bearer_token_env_var", `"ELIZA_HOOK_TOKEN"`)
	approval := "prompt" // by default its tools run unasked
	if b.Preset.Judge(Agent) == Auto {
		approval = "approve"
	}
	t.set("default_tools_approval_mode", tomlText(approval))
	return t.String()
}

// codexPermissions writes the settings of a preset to config.toml. Current versions refuse the
// approval policy "untrusted" there, with which they ask about every command, and with "on-request"
// only commands that leave the sandbox are asked about. So in a terminal the sandbox of the presets
// that ask about commands is read-only: a command that writes fails there, unless it is asked about.
// In structured mode the conversation is started with "untrusted".
func codexPermissions(t *toml, p Preset, structured bool) {
	sandbox, approval, web := "read-only", "on-request", "live"
	if structured {
		sandbox = "workspace-write"
	}
	switch p {
	case Readonly: // its sandbox refuses to write; an accepted command would leave the sandbox
		sandbox, approval, web = "read-only", "never", "disabled"
	case Autonomous:
		sandbox, approval = "workspace-write", "never"
	}
	t.set("approval_policy", tomlText(approval))
	t.set("sandbox_mode", tomlText(sandbox))
	t.set("web_search", tomlText(web))
	if p == Autonomous {
		t.set("sandbox_workspace_write.network_access", "true")
	}
}

// codexHooks returns the hooks, and the settings that mark them as reviewed. Without these
// settings Codex would have to trust all hooks, including those of the project.
func (b *build) codexHooks(file string) (hooks object, trust string) {
	hooks = make(object)
	var t toml
	for _, e := range []struct{ name, key string }{
		{"SessionStart", "session_start"},
		{"UserPromptSubmit", "user_prompt_submit"},
		{"PreToolUse", "pre_tool_use"},
		{"PermissionRequest", "permission_request"},
		{"PostToolUse", "post_tool_use"},
		{"Stop", "stop"},
		{"SubagentStop", "subagent_stop"},
		{"PreCompact", "pre_compact"},
	} {
		if b.Structured && e.name == "PermissionRequest" { // its answer would win over that of the protocol
			continue
		}
		handler := object{"type": "command", "command": b.hookCommand(), "timeout": hookTimeout(e.name)}
		hooks[e.name] = []any{object{"hooks": []any{handler}}}
		t.table("hooks", "state", file+":"+e.key+":0:0")
		t.set("trusted_hash", tomlText(codexHookHash(e.key, handler)))
	}
	return hooks, t.String()
}

// codexHookHash returns the digest by which Codex recognises a hook (measured with 0.169.0): of
// its group as JSON with all defaults and sorted members.
func codexHookHash(event string, handler object) string {
	whole := object{"async": false}
	for k, v := range handler {
		whole[k] = v
	}
	data, _ := jsonx.Marshal(object{"event_name": event, "hooks": []any{whole}})
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// toml writes the subset of TOML that is needed here.
type toml struct{ strings.Builder }

func (t *toml) set(key, value string) { fmt.Fprintf(t, "%s = %s\n", key, value) }

func (t *toml) table(names ...string) {
	for i, n := range names {
		if strings.Trim(n, "abcdefghijklmnopqrstuvwxyz_") != "" {
			names[i] = tomlText(n)
		}
	}
	fmt.Fprintf(t, "\n[%s]\n", strings.Join(names, "."))
}

// tomlText returns a basic string of TOML. Control characters are escaped by number; bytes that
// are not UTF-8 cannot be represented.
func tomlText(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case unicode.IsControl(r):
			out.WriteString(`\u` + strings.Repeat("0", 4-len(strconv.FormatInt(int64(r), 16))) + strconv.FormatInt(int64(r), 16))
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}
