package preflight_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
	"github.com/junctor-run/junctor/internal/testkit/programfile"
)

// machine is a home, and programs that are shell scripts.
type machine struct {
	t    *testing.T
	home string
	bin  string
	env  map[string]string
	wait time.Duration
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return &machine{t: t, home: t.TempDir(), bin: t.TempDir(), env: make(map[string]string), wait: time.Minute}
}

func (m *machine) program(name, script string) {
	m.t.Helper()
	programfile.Write(m.t, filepath.Join(m.bin, name), "#!/bin/sh\n"+script+"\n", 0o700)
}

func (m *machine) file(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.home, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) check(name programs.Name) preflight.Result {
	m.t.Helper()
	all := preflight.Check(m.t.Context(), preflight.Config{
		Home: m.home, Wait: m.wait, Env: func(k string) string { return m.env[k] },
		Find: func(binary string) (string, error) {
			path := filepath.Join(m.bin, filepath.Base(binary))
			if _, err := os.Stat(path); err != nil {
				return "", errors.New("not here")
			}
			return path, nil
		},
	})
	if len(all) != len(programs.All()) {
		m.t.Fatalf("%d programs; want len(all) = len(programs.All())", len(all))
	}
	for _, r := range all {
		if r.Adapter == name {
			return r
		}
	}
	m.t.Fatalf("%s is not among them", name)
	return preflight.Result{}
}

func TestWhatIsNotInstalledSaysHowToInstallIt(t *testing.T) {
	t.Parallel()
	want := preflight.Result{
		Adapter: programs.Claude, Binary: "claude", InstallCommand: "npm install -g @anthropic-ai/claude-code",
		DocsURL: "https://code.claude.com/docs",
		Auth:    preflight.Auth{Status: preflight.Unknown},
	}
	if diff := cmp.Diff(want, newMachine(t).check(programs.Claude)); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	const claudeIn = `if [ "$1" = --version ]; then echo "2.1.197 (Claude Code)"; else echo 'a note'; echo '{"loggedIn":true,"authMethod":"claude.ai","email":"somebody"}'; fi`
	for _, tt := range []struct {
		name    string
		of      programs.Name
		prepare func(*machine)
		version string
		want    preflight.Auth
	}{
		{
			"claude by its login", programs.Claude, func(m *machine) { m.program("claude", claudeIn) }, "2.1.197",
			preflight.Auth{Status: preflight.Authenticated, Method: "claude.ai", Detail: "claude auth status"},
		},
		{"claude by a key", programs.Claude, func(m *machine) {
			m.program("claude", claudeIn)
			m.env["ANTHROPIC_API_KEY"] = "sk-secret"
		}, "2.1.197", preflight.Auth{Status: preflight.Authenticated, Method: "api_key", Detail: "ANTHROPIC_API_KEY is set"}},
		{"claude by a subscription", programs.Claude, func(m *machine) {
			m.program("claude", claudeIn)
			m.env["CLAUDE_CODE_OAUTH_TOKEN"] = "sk-ant-oat"
		}, "2.1.197", preflight.Auth{Status: preflight.Authenticated, Method: "subscription", Detail: "CLAUDE_CODE_OAUTH_TOKEN is set"}},
		{"claude logged out", programs.Claude, func(m *machine) {
			m.program("claude", `[ "$1" = --version ] && echo 2.1.197 && exit; echo '{"loggedIn":false}'; exit 1`)
		}, "2.1.197", preflight.Auth{Status: preflight.Unauthenticated, LoginHint: "claude auth login"}},
		{"an old claude", programs.Claude, func(m *machine) {
			m.program("claude", `[ "$1" = --version ] && echo 0.9.1 && exit; echo "unknown command auth"; exit 1`)
		}, "0.9.1", preflight.Auth{Status: preflight.Unknown, Detail: "its answer cannot be read", LoginHint: "claude auth login"}},
		{"codex by its login", programs.Codex, func(m *machine) {
			m.program("codex", `[ "$1" = --version ] && echo "codex-cli 0.169.0" && exit; echo "WARNING: x" >&2; echo "Logged in using ChatGPT" >&2`)
		}, "0.169.0", preflight.Auth{Status: preflight.Authenticated, Method: "ChatGPT", Detail: "codex login status"}},
		{"codex by a key, of which nothing is shown", programs.Codex, func(m *machine) {
			m.program("codex", `[ "$1" = --version ] && echo "codex-cli 0.169.0" && exit; echo "Logged in using an API key - sk-proj-***ABCDE"`)
		}, "0.169.0", preflight.Auth{Status: preflight.Authenticated, Method: "api_key", Detail: "codex login status"}},
		{"codex 0.169 by a key", programs.Codex, func(m *machine) {
			m.program("codex", `[ "$1" = --version ] && echo "codex-cli 0.169.0" && exit; echo "API key configured - sk-proj-***ABCDE"`)
		}, "0.169.0", preflight.Auth{Status: preflight.Authenticated, Method: "api_key", Detail: "codex login status"}},
		{"codex logged out", programs.Codex, func(m *machine) {
			m.program("codex", `[ "$1" = --version ] && echo "codex-cli 0.169.0" && exit; echo "Not logged in"; exit 1`)
		}, "0.169.0", preflight.Auth{Status: preflight.Unauthenticated, LoginHint: "codex login"}},
		{"gemini by its login", programs.Gemini, func(m *machine) {
			m.program("gemini", `echo 0.61.0`)
			m.file(".gemini/google_accounts.json", `{"active":"somebody"}`)
		}, "0.61.0", preflight.Auth{Status: preflight.Authenticated, Method: "login", Detail: "~/.gemini/google_accounts.json"}},
		{"pi without one", programs.Pi, func(m *machine) {
			m.program("pi", `echo 0.74.2`)
			m.file(".pi/agent/auth.json", `{}`)
		}, "0.74.2", preflight.Auth{Status: preflight.Unauthenticated, LoginHint: "start pi and use /login"}},
		{"opencode with a broken file", programs.OpenCode, func(m *machine) {
			m.program("opencode", `echo 1.18.33`)
			m.file(".local/share/opencode/auth.json", `{"anthropic":`)
		}, "1.18.33", preflight.Auth{Status: preflight.Unauthenticated, LoginHint: "opencode auth login"}},
		{"aider by any provider's key", programs.Aider, func(m *machine) {
			m.program("aider", `echo "aider 0.86.1"`)
			m.env["DEEPSEEK_API_KEY"] = "k"
		}, "0.86.1", preflight.Auth{Status: preflight.Authenticated, Method: "api_key", Detail: "DEEPSEEK_API_KEY is set"}},
		{
			"the shell needs none", programs.Shell, func(m *machine) { m.program("bash", `echo never asked; exit 1`) }, "",
			preflight.Auth{Status: preflight.Authenticated, Method: "none"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			tt.prepare(m)
			got := m.check(tt.of)
			if !got.Installed || got.Version != tt.version || got.Error != "" || got.InstallCommand != "" {
				t.Errorf(`%+v; want got.Installed = true, got.Version = %v, got.Error = "", got.InstallCommand = ""`, got, tt.version)
			}
			if diff := cmp.Diff(tt.want, got.Auth); diff != "" {
				t.Errorf("diff (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAUserWithoutAHomeCanAskToo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.home = filepath.Join(m.home, "nowhere")
	m.program("codex", `[ "$1" = --version ] && echo 0.1.2 && exit; echo "Not logged in"`)
	if got := m.check(programs.Codex); got.Version != "0.1.2" || got.Auth.Status != preflight.Unauthenticated {
		t.Errorf(`%+v; want got.Version = "0.1.2", got.Auth.Status = preflight.Unauthenticated`, got)
	}
}

func TestProgramsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script, says string
		wait         time.Duration
	}{
		"without a version": {`echo hello`, "which version", time.Minute},
		"a flood":           {`[ "$1" = --version ] || exit 1; yes | head -c 5000000`, "which version", time.Minute},
		"one that hangs":    {`trap "" TERM; while :; do sleep 1; done`, "no answer within 500ms", 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.wait = tt.wait
			m.program("codex", tt.script)
			if got := m.check(programs.Codex); !got.Installed || !strings.Contains(got.Error, tt.says) || got.Auth.Status != preflight.Unknown {
				t.Errorf("%+v; want got.Installed = true, got.Error with %v, got.Auth.Status = preflight.Unknown", got, tt.says)
			}
		})
	}
}

// TestProgramsSeeNothingOfOurEnvironment: they are asked, not trusted.
func TestProgramsSeeNothingOfOurEnvironment(t *testing.T) {
	t.Setenv("JUNCTOR_TOKEN", "jt_secret")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "aws-secret")
	m := newMachine(t)
	seen := filepath.Join(m.bin, "seen")
	m.file(".codex/auth.json", `{"of":"the user"}`)
	m.program("codex", `[ "$1" = --version ] || exit 1; env > "`+seen+`"; cat "$HOME/.codex/auth.json" >> "`+seen+`"
		echo 1 > "$HOME/.codex/auth.json"
		mkdir -p "${XDG_CONFIG_HOME:-$HOME/.config}/codex"; echo 0.1.2`)
	m.check(programs.Codex)
	data, err := os.ReadFile(seen)
	text := string(data)
	if err != nil || strings.Contains(text, "secret") || strings.Contains(text, m.home) || !strings.Contains(text, `{"of":"the user"}`) {
		t.Errorf("the program saw %q (%v); want the copy of its file, no secret, and nothing of the folder %s", text, err, m.home)
	}
	_, home, _ := strings.Cut(text, "HOME=")
	home, _, _ = strings.Cut(home, "\n")
	if _, err := os.Stat(home); !errors.Is(err, fs.ErrNotExist) || home == "" {
		t.Errorf("the folder %q of the program afterwards: got %v, want that it is gone", home, err)
	}
	if kept, err := os.ReadFile(filepath.Join(m.home, ".codex/auth.json")); err != nil || string(kept) != `{"of":"the user"}` {
		t.Errorf("the user's file: got %q (%v), want it unchanged", kept, err)
	}
	if list, err := os.ReadDir(m.home); err != nil || len(list) != 1 {
		t.Errorf("the user's home: got %v (%v), want .codex only", list, err)
	}
}
