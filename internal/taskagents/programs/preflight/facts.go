package preflight

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// auth returns the account of a program: by a variable with a key, otherwise by the program's
// own answer, otherwise by a file in the user's home.
func (cfg *Config) auth(ctx context.Context, home, path string, p *programs.Program) Auth {
	for _, k := range p.Keys {
		if cfg.Env(k.Name) != "" {
			return Auth{Status: Authenticated, Method: k.Method, Detail: k.Name + " is set"}
		}
	}
	account := p.Account
	if account.Ask != nil {
		got, err := cfg.ask(ctx, home, path, account.Ask...)
		if err != nil {
			return Auth{Status: Unknown, Detail: "it was asked, and did not say"}
		}
		switch method, loggedIn, known := account.Read(got.text); {
		case !known:
			return Auth{Status: Unknown, Detail: "its answer cannot be read"}
		case !loggedIn:
			return Auth{Status: Unauthenticated}
		default:
			return Auth{Status: Authenticated, Method: word(method), Detail: p.Binary + " " + strings.Join(account.Ask, " ")}
		}
	}
	switch full := filepath.Join(cfg.Home, filepath.FromSlash(account.File)); {
	case account.File != "" && filled(full):
		return Auth{Status: Authenticated, Method: "login", Detail: "~/" + account.File}
	case account.File != "" || len(p.Keys) > 0:
		return Auth{Status: Unauthenticated}
	}
	return Auth{Status: Unknown}
}

// filled reports whether a file is a JSON object that is not empty.
func filled(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxAnswer))
	var object map[string]json.RawMessage
	return err == nil && json.Unmarshal(data, &object) == nil && len(object) > 0
}

// word cuts a program's name of a method to one short line.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	return text.ValidBytes(s, 64)
}
