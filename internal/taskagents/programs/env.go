package programs

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	basetext "github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/secret"
)

// inherited returns the variables that a session gets from the server's environment.
func inherited() []string {
	return []string{
		"PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "COLORTERM", "TZ", "TMPDIR", "XDG_RUNTIME_DIR",
		"NODE_OPTIONS", "BUN_INSTALL", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "GITHUB_TOKEN",
	}
}

// denied reports whether a variable never gets into a session, even if the caller requests it:
// keys and accounts that do not belong to a task, and settings and tokens of the server.
func denied(name string) bool {
	upper := strings.ToUpper(name)
	for _, prefix := range []string{"AWS_", "DISCORD_", "TELEGRAM_", "JUNCTOR_", "ELIZA_API_"} {
		if strings.HasPrefix(upper, prefix) {
			return true
		}
	}
	return strings.HasSuffix(upper, "_PRIVATE_KEY")
}

// steers reports whether a variable changes what programs load or execute, so that callers must
// not set it.
func steers(name string) bool {
	upper := strings.ToUpper(name)
	if basetext.IsSteering(name) {
		return true
	}
	for _, prefix := range []string{"ELIZA_HOOK_", "PARALLAX_SESSION"} {
		if strings.HasPrefix(upper, prefix) {
			return true
		}
	}
	if strings.HasPrefix(upper, "GIT_") {
		return !strings.HasPrefix(upper, "GIT_AUTHOR_") && !strings.HasPrefix(upper, "GIT_COMMITTER_")
	}
	return slices.Contains([]string{"PATH", "HOME", "SHELL", "CLAUDE_CONFIG_DIR"}, upper) // another folder may have hooks that answer
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// credentialNames returns the variables with which the program may log in.
func (b *build) credentialNames() (names []string) {
	if own := map[string]string{
		"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY",
		"google": "GEMINI_API_KEY",
	}[b.Provider]; own != "" && b.program.OneProvider {
		return []string{own}
	}
	for _, k := range b.program.Keys {
		names = append(names, k.Name)
	}
	return append(names, b.program.Credentials...)
}

// environment returns all variables of a session. Later groups win: inherited ones, those of
// the caller, credentials, and those that the plan requires.
func (b *build) environment() []string {
	env := make(map[string]string)
	for _, name := range inherited() {
		if value, set := b.Parent[name]; set && (name != "GITHUB_TOKEN" || b.Repo) && !secret.WellFormed(value) {
			env[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Custom)) {
		switch {
		case !variable.MatchString(name) || denied(name) || steers(name) || secret.WellFormed(b.Custom[name]):
			b.note("the variable " + printable(name) + " is not passed to a session")
		case name == "GITHUB_TOKEN" && !b.Repo:
			b.note("GITHUB_TOKEN is passed only to tasks with a repository")
		default:
			env[name] = b.Custom[name]
		}
	}
	if b.Framework == Shell { // a shell needs no login
		b.Credentials = nil
	}
	for _, name := range b.credentialNames() {
		if value := b.Credentials[name]; value != "" {
			env[name] = value
		}
	}
	// The token of a subscription is refused as an API key.
	if key := env["ANTHROPIC_API_KEY"]; strings.HasPrefix(key, "sk-ant-oat") {
		delete(env, "ANTHROPIC_API_KEY")
		if env["CLAUDE_CODE_OAUTH_TOKEN"] == "" {
			env["CLAUDE_CODE_OAUTH_TOKEN"] = key
		}
	}
	maps.Copy(env, b.env)
	maps.Copy(env, map[string]string{
		"HOME": b.Home, "TERM": "xterm-256color", "COLORTERM": "truecolor",
		"PARALLAX_SESSION_ID": b.Session, "ELIZA_HOOK_PORT": b.port, "ELIZA_HOOK_TOKEN": b.Token,
	})
	list := make([]string, 0, len(env))
	for name, value := range env {
		if strings.ContainsRune(value, 0) {
			b.note("the variable " + name + " holds a NUL character and is not passed")
			continue
		}
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	slices.Sort(b.plan.Notes)
	return list
}

// credential returns the value that the program will get for a variable.
func (b *build) credential(name string) string {
	if v := b.Credentials[name]; v != "" {
		return v
	}
	return b.Custom[name]
}

// printable cuts an untrusted text to one short line.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), 64)], "?")
}
