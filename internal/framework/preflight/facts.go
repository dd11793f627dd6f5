package preflight

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/internal/framework"
)

// facts is what is known of a program before it is looked for (task-agents, section 5.3).
type facts struct {
	binary, install, docs, login string

	keys []key // variables that are an account
	ask  []string
	read func(answer) Auth // of the answer to ask
	file string            // below the user's home: a JSON object that is not empty is an account
}

// key is a variable, and the name of what it stands for.
type key struct{ name, method string }

func factsOf(name framework.Name) facts {
	apiKey := func(names ...string) (keys []key) {
		for _, n := range names {
			keys = append(keys, key{n, "api_key"})
		}
		return keys
	}
	switch name {
	case framework.Claude:
		return facts{
			binary: "claude", install: "npm install -g @anthropic-ai/claude-code", docs: "https://code.claude.com/docs", login: "claude auth login",
			keys: append(apiKey("ANTHROPIC_API_KEY"), key{"CLAUDE_CODE_OAUTH_TOKEN", "subscription"}), ask: []string{"auth", "status"}, read: readClaude,
		}
	case framework.Codex:
		return facts{
			binary: "codex", install: "npm install -g @openai/codex", docs: "https://developers.openai.com/codex", login: "codex login",
			ask: []string{"login", "status"}, read: readCodex,
		}
	case framework.Gemini:
		return facts{
			binary: "gemini", install: "npm install -g @google/gemini-cli", docs: "https://geminicli.com/docs", login: "start gemini once, or set GEMINI_API_KEY",
			keys: apiKey("GEMINI_API_KEY", "GOOGLE_API_KEY"), file: ".gemini/google_accounts.json",
		}
	case framework.Aider:
		return facts{
			binary: "aider", install: "pip install aider-chat", docs: "https://aider.chat/docs", login: "set the API key of a provider, such as ANTHROPIC_API_KEY",
			keys: apiKey("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY", "OPENROUTER_API_KEY"),
		}
	case framework.Pi:
		return facts{
			binary: "pi", install: "npm install -g @earendil-works/pi-coding-agent", login: "start pi and use /login",
			keys: apiKey("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), file: ".pi/agent/auth.json",
		}
	case framework.OpenCode:
		return facts{
			binary: "opencode", install: "npm install -g opencode-ai", docs: "https://opencode.ai/docs", login: "opencode auth login",
			keys: apiKey("ANTHROPIC_API_KEY", "OPENAI_API_KEY"), file: ".local/share/opencode/auth.json",
		}
	case framework.Shell:
		return facts{binary: "/bin/bash"}
	}
	return facts{binary: string(name)}
}

// auth finds an account, the surest sign first.
func (cfg *Config) auth(ctx context.Context, path string, f *facts) Auth {
	for _, k := range f.keys {
		if cfg.Env(k.name) != "" {
			return Auth{Status: Authenticated, Method: k.method, Detail: k.name + " is set"}
		}
	}
	if f.ask != nil {
		got, err := cfg.ask(ctx, path, f.ask...)
		if err != nil {
			return Auth{Status: Unknown, Detail: "it was asked, and did not say"}
		}
		return f.read(got)
	}
	switch full := filepath.Join(cfg.Home, filepath.FromSlash(f.file)); {
	case f.file != "" && filled(full):
		return Auth{Status: Authenticated, Method: "login", Detail: "~/" + f.file}
	case f.file != "" || len(f.keys) > 0:
		return Auth{Status: Unauthenticated}
	}
	return Auth{Status: Unknown}
}

// filled reports whether a file is a JSON object with something in it.
func filled(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, askMost))
	var object map[string]json.RawMessage
	return err == nil && json.Unmarshal(data, &object) == nil && len(object) > 0
}

// readClaude reads the JSON of `claude auth status`; what comes before it is chatter.
func readClaude(a answer) Auth {
	var said struct {
		LoggedIn   *bool  `json:"loggedIn"`
		AuthMethod string `json:"authMethod"`
	}
	at := strings.IndexByte(a.text, '{')
	if at < 0 || json.NewDecoder(bytes.NewReader([]byte(a.text[at:]))).Decode(&said) != nil || said.LoggedIn == nil {
		return Auth{Status: Unknown, Detail: "its answer cannot be read"}
	}
	if !*said.LoggedIn {
		return Auth{Status: Unauthenticated}
	}
	return Auth{Status: Authenticated, Method: word(said.AuthMethod), Detail: "claude auth status"}
}

// readCodex reads the line of `codex login status`.
func readCodex(a answer) Auth {
	for line := range strings.Lines(a.text) {
		switch method, in := strings.CutPrefix(strings.TrimSpace(line), "Logged in using "); {
		case in:
			if strings.Contains(strings.ToLower(method), "api key") {
				method = "api_key" // the line goes on with a part of it
			}
			return Auth{Status: Authenticated, Method: word(method), Detail: "codex login status"}
		case strings.HasPrefix(strings.TrimSpace(line), "Not logged in"):
			return Auth{Status: Unauthenticated}
		}
	}
	return Auth{Status: Unknown, Detail: "its answer cannot be read"}
}

// word keeps what a program calls its method short, and to one line.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), 64)], "")
}
