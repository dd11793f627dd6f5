package programs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// codex plans Codex, whose home is a folder of the session's own: settings, hooks, memory
// and login. The login is the user's by a link, so that a token that is renewed is
// renewed for both.
func (b *build) codex() {
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
}

// codexConfig is config.toml but for the trust in hooks. Tables come last, as TOML wants.
func (b *build) codexConfig() string {
	var t toml
	if b.Model != "" {
		t.set("model", tomlText(b.Model))
	}
	if b.BaseURL != "" {
		t.set("model_provider", `"proxy"`)
	}
	codexPermissions(&t, b.Preset)
	t.set("check_for_update_on_startup", "false")
	t.set("notify", "["+tomlText(b.Self)+`, "child", "hook", "codex"]`)
	// Commands find our helpers' token, and not the key.
	t.table("shell_environment_policy")
	t.set("ignore_default_excludes", "true")
	t.set("exclude", `["OPENAI_API_KEY", "CODEX_API_KEY"]`)
	t.table("projects", b.Workdir)
	t.set("trust_level", `"trusted"`)
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
	return t.String()
}

// codexPermissions is what a preset says in config.toml. "untrusted", and the
// "workspace-read" of old, are refused by today's versions (task-agents, section 5.6).
func codexPermissions(t *toml, p Preset) {
	sandbox, approval, web := "workspace-write", "on-request", "live"
	switch p {
	case Readonly:
		sandbox, web = "read-only", "disabled"
	case Autonomous:
		approval = "never"
	}
	t.set("approval_policy", tomlText(approval))
	t.set("sandbox_mode", tomlText(sandbox))
	t.set("web_search", tomlText(web))
}

// codexHooks are the hooks, and the settings by which Codex takes them for reviewed: with
// those it need not be told to trust every hook there is, the project's too.
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
		handler := object{"type": "command", "command": b.hookCommand(), "timeout": hookTimeout(e.name)}
		hooks[e.name] = []any{object{"hooks": []any{handler}}}
		t.table("hooks", "state", file+":"+e.key+":0:0")
		t.set("trusted_hash", tomlText(codexHookHash(e.key, handler)))
	}
	return hooks, t.String()
}

// codexHookHash is how Codex knows a hook again (measured with 0.169.0): by the digest of
// its group, with every default written out, as JSON whose members are sorted.
func codexHookHash(event string, handler object) string {
	whole := object{"async": false}
	for k, v := range handler {
		whole[k] = v
	}
	data, _ := jsonx.Marshal(object{"event_name": event, "hooks": []any{whole}})
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// toml writes the little of TOML that is needed here.
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

// tomlText is a basic string. Of control characters TOML knows few short forms, so all are
// written by their number; what is no UTF-8 cannot be written at all.
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
