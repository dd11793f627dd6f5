package validation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

type model func(small bool, prompt string) (string, error)

func (m model) Ask(_ context.Context, small bool, prompt string) (string, error) {
	return m(small, prompt)
}

func says(text string) model {
	return func(bool, string) (string, error) { return text, nil }
}

type runner map[string]int

func (r runner) Run(_ context.Context, _ string, argv []string) (int, string, error) {
	exit, known := r[strings.Join(argv, " ")]
	if !known {
		return 0, "", errors.New("no such program")
	}
	return exit, "what it printed", nil
}

type services func(service, method string, params json.RawMessage) (json.RawMessage, error)

func (s services) Call(_ context.Context, _, service, method string, params json.RawMessage) (json.RawMessage, error) {
	return s(service, method, params)
}

func now() time.Time { return time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC) }

func TestCriteriaComeFromWhoeverSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model    validation.Model
		provided []string
		kind     row.ThreadKind
		want     validation.Criteria
	}{
		"provided": {
			says(`["a","b","c"]`),
			[]string{" - it works", "* It  works", "", "2) it is fast"},
			row.Coding,
			validation.Criteria{[]string{"it works", "it is fast"}, "provided"},
		},
		"model": {
			says("here:\n[\"1. a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"]"), nil, row.Coding,
			validation.Criteria{[]string{"a", "b", "c", "d", "e", "f", "g"}, "model"},
		},
		"too few": {says(`["a","A","b"]`), nil, row.Research, validation.Criteria{[]string{
			"The full request was addressed.",
			"This part is done: p", "There is evidence of the result.", "Nothing that would hinder it is left open.",
		}, "baseline"}},
		"none": {nil, nil, row.Coding, validation.Criteria{
			[]string{
				"The full request was addressed.", "This part is done: p",
				"The project's checks were run and pass.", "There is evidence of the result.", "Nothing that would hinder it is left open.",
			},
			"baseline",
		}},
	} {
		if diff := cmp.Diff(c.want, validation.SettleCriteria(t.Context(), c.model, "task", c.kind, c.provided, []string{"p"})); diff != "" {
			t.Errorf(`%s: %s; want diff = ""`, name, diff)
		}
	}
}

func TestVerdictsAreReadWithCare(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]validation.Outcome{
		`{"verdict":"pass","summary":"ok"}`:                     validation.Pass,
		`I think {so}: {"verdict":"approved"}`:                  validation.Pass,
		`{"verdict":"pass","checklist":[{"a":1},"b"]}`:          validation.Pass,
		`{"verdict":"revise","followUpPrompt":"run the tests"}`: validation.Revise,
		`{"verdict":"revise"}`:                                  validation.Escalate,
		`{"verdict":"escalate"}`:                                validation.Escalate,
		`{"verdict":"maybe"}`:                                   validation.Escalate,
		`pass`:                                                  validation.Escalate,
		``:                                                      validation.Escalate,
		`{"verdict":"pass"} but then {"verdict":"escalate","summary":"no"}`: validation.Escalate,
		strings.Repeat("{", 300_000) + "}":                                  validation.Escalate,
	} {
		if got := validation.ReadVerdict(text); got.Verdict != want {
			t.Errorf("%.60q: %s; want got.Verdict = %v", text, got.Verdict, want)
		}
	}
}

func TestACustomResultIsAPassOnlyWhenItSaysSo(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]validation.CustomResult{
		`{"verdict":"pass"}`: {Pass: true},
		`{"verdict":"fail","retryablePromptForChild":"fix a"}`: {Prompt: "fix a"},
		`{"verdict":"fail","followUpPrompt":"fix b"}`:          {Prompt: "fix b"},
		`{"verdict":"fail"}`:                                   {Prompt: "The verification failed and does not say why. Check the work against the task, correct it, and say again that it is done."},
		`{"verdict":"PASS"}`:                                   {Prompt: "The work could not be verified: the verifier's answer has no verdict. Check that it is complete, and say again that it is done."},
		`true`:                                                 {Prompt: "The work could not be verified: the verifier's answer has no verdict. Check that it is complete, and say again that it is done."},
	} {
		if diff := cmp.Diff(want, validation.ReadCustom(json.RawMessage(raw), nil)); diff != "" {
			t.Errorf(`%s: %s; want diff = ""`, raw, diff)
		}
	}
	if got := validation.ReadCustom(json.RawMessage(`{"verdict":"pass"}`), errors.New("it broke.")); got.Pass ||
		!strings.Contains(got.Prompt, "it broke.") {
		t.Errorf(`got.Pass = %v, want false; got.Prompt = %q, want it to contain "it broke."`, got.Pass, got.Prompt)
	}
}

func TestChecksFollowConventions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := validation.Conventions(dir); got != nil {
		t.Errorf("validation.Conventions(dir) = %+v, want nil", got)
	}
	write(t, dir, "go.mod", "module x")
	write(t, dir, "package.json", `{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}`)
	if diff := cmp.Diff([][]string{{"go", "test", "./..."}}, validation.Conventions(dir)); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	write(t, dir, "package.json", `{"scripts":{"test":"vitest run"}}`)
	write(t, dir, "Cargo.toml", "")
	if diff := cmp.Diff([][]string{{"go", "test", "./..."}, {"npm", "test"}, {"cargo", "test"}}, validation.Conventions(dir)); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	elsewhere := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "go.mod"), filepath.Join(elsewhere, "go.mod")); err != nil {
		t.Fatal(err)
	}
	if got := validation.Conventions(elsewhere); got != nil {
		t.Errorf("a link out of the folder was followed %v; want got = nil", got)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWhoDecidesAndWhat(t *testing.T) {
	t.Parallel()
	const proof = `APP_CREATE_DONE {"appName":"a","files":["%s"],"tests":{"passed":3,"failed":0},"lint":"ok","typecheck":"ok"}`
	two := 2
	custom := &validation.Custom{Service: "s", Method: "m", Params: json.RawMessage(`{"x":1}`)}
	pass := services(func(service, method string, params json.RawMessage) (json.RawMessage, error) {
		if service != "s" || method != "m" || !strings.Contains(string(params), `"x":1`) {
			return nil, fmt.Errorf("%s.%s(%s)", service, method, params)
		}
		return json.RawMessage(`{"verdict":"pass"}`), nil
	})
	fail := services(func(string, string, json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"verdict":"fail","followUpPrompt":"again"}`), nil
	})
	never := model(func(bool, string) (string, error) { t.Error("the model was asked"); return "", nil })
	checks := [][]string{{"make", "check"}}
	for name, c := range map[string]struct {
		cfg      validation.Config
		s        validation.Subject
		want     validation.Outcome
		by       string
		followUp string
	}{
		"the task's checks pass": {
			validation.Config{Model: never, Runner: runner{"make check": 0}},
			validation.Subject{Checks: checks},
			validation.Pass, "checks", "",
		},
		"a check fails": {
			validation.Config{Model: never, Runner: runner{"make check": 2}},
			validation.Subject{Checks: checks},
			validation.Revise, "checks", "`make check` exits with 2",
		},
		"a check of the task cannot be run": {
			validation.Config{Model: never, Runner: runner{}},
			validation.Subject{Checks: checks},
			validation.Revise, "checks", "no such program",
		},
		"customary checks support a model": {
			validation.Config{Model: says(`{"verdict":"escalate"}`), Runner: runner{"go test ./...": 0}},
			validation.Subject{Kind: row.Coding},
			validation.Escalate, "model", "",
		},
		"customary checks decide alone": {
			validation.Config{Runner: runner{"go test ./...": 0}},
			validation.Subject{Kind: row.Coding},
			validation.Pass, "checks", "",
		},
		"nobody is there": {validation.Config{}, validation.Subject{Kind: row.Coding}, validation.Pass, "nobody", ""},
		"a model passes an answer": {
			validation.Config{Model: says(`{"verdict":"pass"}`)},
			validation.Subject{Kind: row.Research, Text: "Paris"},
			validation.Pass, "model", "",
		},
		"a model passes nothing": {
			validation.Config{Model: says(`{"verdict":"pass"}`)},
			validation.Subject{Kind: row.Coding, Repo: "r", Text: "done"},
			validation.Revise, "model", "no change",
		},
		"a model sends back": {
			validation.Config{Model: says(`{"verdict":"revise","followUpPrompt":"run it"}`)},
			validation.Subject{Rounds: 2},
			validation.Revise, "model", "run it",
		},
		"a model sends back too often": {
			validation.Config{Model: says(`{"verdict":"revise","followUpPrompt":"run it"}`)},
			validation.Subject{Rounds: 3},
			validation.Escalate, "model", "",
		},
		"a model cannot be asked": {validation.Config{Model: model(func(bool, string) (string, error) {
			return "",
				errors.New("down")
		})}, validation.Subject{}, validation.Escalate, "model", ""},
		"a custom validator passes": {
			validation.Config{Model: never, Services: pass},
			validation.Subject{Custom: custom},
			validation.Pass, "custom", "",
		},
		"a custom validator fails": {
			validation.Config{Model: never, Services: fail},
			validation.Subject{Custom: custom},
			validation.Revise, "custom", "again",
		},
		"there is no such service": {
			validation.Config{Model: never},
			validation.Subject{Custom: custom},
			validation.Revise, "custom",
			"there is no service",
		},
		"there are no custom retries": {
			validation.Config{Services: fail, Retries: func() int { return 0 }},
			validation.Subject{Custom: &validation.Custom{}},
			validation.Escalate, "custom", "",
		},
		"custom retries are used up": {
			validation.Config{Services: fail},
			validation.Subject{Custom: &validation.Custom{MaxRetries: &two}, Rounds: 2},
			validation.Escalate, "custom", "",
		},
		"custom failures escalate": {
			validation.Config{Services: fail},
			validation.Subject{Custom: &validation.Custom{OnFail: validation.Escalate}},
			validation.Escalate, "custom", "",
		},
		"a claimed file is missing": {
			validation.Config{Model: never},
			validation.Subject{Text: fmt.Sprintf(proof, "missing.go")},
			validation.Revise, "proof", "missing.go",
		},
		"a claimed file is outside": {
			validation.Config{Model: never},
			validation.Subject{Text: fmt.Sprintf(proof, "../x")},
			validation.Revise, "proof", "../x",
		},
		"a claimed file is there": {
			validation.Config{Model: says(`{"verdict":"pass"}`)},
			validation.Subject{Text: fmt.Sprintf(proof, "go.mod")},
			validation.Pass, "model", "",
		},
		"a proof that is none": {
			validation.Config{Model: never},
			validation.Subject{Text: "APP_CREATE_DONE {}"},
			validation.Revise,
			"proof", "proof",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, kept := t.TempDir(), t.TempDir()
			write(t, dir, "go.mod", "module x")
			c.cfg.Now, c.cfg.Dir = now, kept
			c.s.Workdir, c.s.ThreadID, c.s.SessionID = dir, "thr", "ses"
			r := validation.New(c.cfg).Validate(t.Context(), c.s)
			if r.Outcome != c.want || r.By != c.by || !strings.Contains(r.FollowUp, c.followUp) || c.want == validation.Revise && r.FollowUp == "" {
				t.Errorf(`%+v; want r.Outcome = %v, r.By = %v, r.FollowUp with %v, not (c.want == validation.Revise && r.FollowUp == "")`,
					r, c.want, c.by, c.followUp)
			}
			raw, err := os.ReadFile(r.Path)
			if err != nil || !strings.Contains(string(raw), `"`+string(c.want)+`"`) {
				t.Errorf("err = %v, want nil; string(raw) = %q, want it to contain %q; r.Notes = %q", err, string(raw), `"`+string(c.want)+`"`, r.Notes)
			}
		})
	}
}

func FuzzVerdicts(f *testing.F) {
	f.Add(`{"verdict":"revise","followUpPrompt":"x","checklist":["a"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		v := validation.ReadVerdict(text)
		if v.Verdict == validation.Revise && v.FollowUp == "" || v.Verdict == "" {
			t.Errorf(`%+v; want not (v.Verdict == validation.Revise && v.FollowUp == ""), v.Verdict other than ""`, v)
		}
		if r := validation.ReadCustom(json.RawMessage(text), nil); !r.Pass && r.Prompt == "" {
			t.Error(`no prompt; want not (!r.Pass && r.Prompt == "")`)
		}
	})
}
