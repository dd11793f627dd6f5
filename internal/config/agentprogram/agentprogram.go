// Package agentprogram lists the command-line programs of task agents as far as the
// configuration names them: their names, and the variables that hold their accounts.
// Everything else about a program is in the wing of task agents.
package agentprogram

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Program is one row of the list.
type Program struct {
	Name  string   // canonical
	Words []string // accepted names; case, blanks, _ and - are ignored
	Keys  []Key    // variables that hold an account
}

// Key is a variable and the kind of account that it holds.
type Key struct{ Name, Method string }

// Hermes is accepted as a name and cannot be chosen as the default.
const Hermes = "hermes"

// All returns every program.
func All() []Program {
	return []Program{
		{"claude", []string{"claude", "claude-code"}, append(apiKeys("ANTHROPIC_API_KEY"), Key{"CLAUDE_CODE_OAUTH_TOKEN", "subscription"})},
		{"codex", []string{"codex", "openai", "openai-codex"}, apiKeys("OPENAI_API_KEY")},
		{"gemini", []string{"gemini", "google", "gemini-cli"}, apiKeys("GEMINI_API_KEY", "GOOGLE_API_KEY")},
		{"aider", []string{"aider"}, apiKeys("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY", "OPENROUTER_API_KEY")},
		{"pi", []string{"pi", "pi-ai", "pi-coding-agent"}, apiKeys("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")},
		{"opencode", []string{"opencode", "opencode-agent"}, apiKeys("ANTHROPIC_API_KEY", "OPENAI_API_KEY")},
		{"shell", []string{"shell", "bash"}, nil},
		{Hermes, []string{"hermes"}, nil},
	}
}

func apiKeys(names ...string) (keys []Key) {
	for _, n := range names {
		keys = append(keys, Key{n, "api_key"})
	}
	return keys
}

// Find returns the program with an accepted name.
func Find(text string) (Program, bool) {
	want := squeeze(text)
	for _, p := range All() {
		for _, w := range p.Words {
			if squeeze(w) == want {
				return p, true
			}
		}
	}
	return Program{}, false
}

func squeeze(s string) string {
	return strings.NewReplacer(" ", "", "\t", "", "_", "", "-", "").Replace(strings.ToLower(s))
}

// ValidModel reports whether s can name a model on a program's command line: one word of
// at most 200 characters that does not look like an option. A regular expression for it
// would take 8 MB.
func ValidModel(s string) bool {
	strange := func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.C, r) }
	return s != "" && s[0] != '-' && utf8.RuneCountInString(s) <= 200 && !strings.ContainsFunc(s, strange)
}
