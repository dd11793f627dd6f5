package programs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

var update = flag.Bool("update", false, "write the golden files anew")

const token = "the-task-token"

// spawn is a session of every program's.
func spawn(name programs.Name, p programs.Preset) programs.Spawn {
	return programs.Spawn{
		Framework: name, Session: "pty-1700000000000-0a1b2c3d", UUID: "11111111-2222-4333-8444-555555555555",
		Server: "http://127.0.0.1:2138", Token: token, Self: "/opt/junctor",
		Workdir: "/w/project", StateDir: "/state/sessions/one", KeepDir: "/state/threads/one", Home: "/home/user", UID: 1000,
		Task: "Create hello.txt.", Preset: p, Model: "some/model",
		Credentials: map[string]string{"ANTHROPIC_API_KEY": "sk-ant-api03-0123456789", "OPENAI_API_KEY": "sk-openai", "GEMINI_API_KEY": "gm-key"},
		Parent: map[string]string{
			"PATH": "/usr/bin", "SHELL": "/bin/bash", "LANG": "C.UTF-8", "TERM": "dumb", "GITHUB_TOKEN": "gh", "EDITOR": "vi",
			"ANTHROPIC_API_KEY": "ours", "AWS_SECRET_ACCESS_KEY": "aws",
		},
	}
}

// allNames returns the programs that can be started.
func allNames() (names []programs.Name) {
	for _, p := range programs.All() {
		if p.Startable() {
			names = append(names, p.Name)
		}
	}
	return names
}

func presets() []programs.Preset {
	return []programs.Preset{programs.Readonly, programs.Standard, programs.Permissive, programs.Autonomous}
}

func build(t *testing.T, s programs.Spawn) programs.Plan {
	t.Helper()
	p, err := programs.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// render is a plan for people who review a golden file.
func render(p programs.Plan) string {
	var b strings.Builder
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&b, "== %s\n%s\n", title, strings.Join(lines, "\n"))
		}
	}
	quoted := func(words []string) (out []string) {
		for _, w := range words {
			out = append(out, fmt.Sprintf("%q", w))
		}
		return out
	}
	list("argv", quoted(p.Argv))
	list("structured", quoted(p.Structured))
	list("env", p.Env)
	typed := p.FirstInput
	if p.TaskInArgv {
		typed = ""
	}
	list("delivery", []string{fmt.Sprintf("in argv: %v; typed: %q after %v; resume: %q", p.TaskInArgv, typed, p.DeliverDelay, p.ResumeToken)})
	list("notes", p.Notes)
	for _, c := range p.Changes {
		what := c.Text
		if c.Target != "" {
			what = "-> " + c.Target + "\n"
		}
		for _, e := range c.Edits {
			data, _ := json.Marshal(e)
			what += string(data) + "\n"
		}
		list(fmt.Sprintf("%s %s (in %s)", c.Kind, c.Path, c.Root), []string{strings.TrimSuffix(what, "\n")})
	}
	return b.String()
}

// TestPlans holds every program with every preset to a golden file: `go test -update`
// writes them, and the difference is what to review.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, name := range allNames() {
		for _, p := range presets() {
			t.Run(string(name)+"-"+string(p), func(t *testing.T) {
				t.Parallel()
				got := render(build(t, spawn(name, p)))
				path := filepath.Join("testdata", string(name)+"-"+string(p)+".golden")
				if *update {
					if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("(-golden +got):\n%s\nwant diff = \"\"", diff)
				}
			})
		}
	}
}

// TestSecretsAreInTheEnvironmentOnly: what is on a command line every user of the machine
// can read, and the token is in no file either.
func TestSecretsAreInTheEnvironmentOnly(t *testing.T) {
	t.Parallel()
	for _, name := range allNames() {
		for _, p := range presets() {
			s := spawn(name, p)
			s.BaseURL = "http://127.0.0.1:9/v1"
			plan := build(t, s)
			for _, secret := range []string{token, "sk-ant-api03-0123456789", "sk-openai", "gm-key"} {
				for _, word := range slices.Concat(plan.Argv, plan.Structured, plan.Notes) {
					if strings.Contains(word, secret) {
						t.Errorf("%s %s: %q is on the command line; want word without %v", name, p, word, secret)
					}
				}
			}
			if !slices.Contains(plan.Env, "ELIZA_HOOK_TOKEN="+token) {
				t.Errorf(`%s %s: no token; want plan.Env with "ELIZA_HOOK_TOKEN=" + token`, name, p)
			}
			for _, c := range plan.Changes {
				if data, _ := json.Marshal(c); strings.Contains(string(data), token) {
					t.Errorf("%s %s: %s holds the token; want string(data) without %v", name, p, c.Path, token)
				}
			}
		}
	}
}
