package preflight

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	framework "github.com/junctor-run/junctor/internal/taskagents/programs"
)

// facts is what is known of a program before it is looked for, and how it is asked for its
// account.
type facts struct {
	framework.Program

	ask  []string
	read func(answer) Auth // of the answer to ask
	file string            // below the user's home: a JSON object that is not empty is an account
}

func factsOf(name framework.Name) facts {
	f := facts{Program: framework.ProgramOf(name)}
	switch name {
	case framework.Claude:
		f.ask, f.read = []string{"auth", "status"}, readClaude
	case framework.Codex:
		f.ask, f.read = []string{"login", "status"}, readCodex
	case framework.Gemini:
		f.file = ".gemini/google_accounts.json"
	case framework.Pi:
		f.file = ".pi/agent/auth.json"
	case framework.OpenCode:
		f.file = ".local/share/opencode/auth.json"
	}
	return f
}

// auth finds an account, the surest sign first.
func (cfg *Config) auth(ctx context.Context, path string, f *facts) Auth {
	for _, k := range f.Keys {
		if cfg.Env(k.Name) != "" {
			return Auth{Status: Authenticated, Method: k.Method, Detail: k.Name + " is set"}
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
	case f.file != "" || len(f.Keys) > 0:
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
	return text.ValidBytes(s, 64)
}
