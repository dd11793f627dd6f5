package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/sessions"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/term"
)

// TestAnswersToRecordedDialogs: in every recording of a real program, each dialog is
// answered by the choice that is meant, or not at all.
func TestAnswersToRecordedDialogs(t *testing.T) {
	want := map[string][]string{
		"claude-apikey-dialog":         {"api_key: Yes"},
		"claude-bypass-dialog":         {"trust: Yes, I accept"},
		"claude-onboarding-steps":      {"onboarding: Dark mode ✔", "onboarding: enter", "trust: Yes, I trust this folder"},
		"claude-paste-enter-swallowed": {"permission: -"},
		"claude-permission-done":       {"permission: -"},
		"claude-question-dialog":       {"question: -"},
		"claude-trust-dialog":          {"trust: Yes, I trust this folder"},
		"codex-approval-done":          {"permission: -"},
		"codex-hooks-review":           {"trust: -"},
		"codex-trust-dialog":           {"trust: Trust and continue"},
		"gemini-trust-dialog":          {"trust: Trust folder (work)"},
		"qwen-permission-done":         {"permission: -"},
	}
	files, err := detect.Load(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	casts, err := filepath.Glob("../term/testdata/casts/*.cast")
	if err != nil || len(casts) == 0 {
		t.Fatalf("%d recordings: %v; want no error, len(casts) other than 0", len(casts), err)
	}
	for _, path := range casts {
		name := strings.TrimSuffix(filepath.Base(path), ".cast")
		t.Run(name, func(t *testing.T) {
			first, _, _ := strings.Cut(name, "-")
			of, _ := programs.Normalise(first)
			rules, _, err := detect.Pick(files, of, "")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, b := range dialogs(t, path, rules) {
				chosen := "-"
				for _, a := range startAnswers(of, programs.Autonomous) {
					if option, ok := sessions.Fits(a, b); ok {
						chosen = strings.Join(a.Keys, " ")
						if option >= 0 {
							chosen = b.Options[option]
						}
						break
					}
				}
				got = append(got, b.Type+": "+chosen)
			}
			if d := cmp.Diff(want[name], got); d != "" {
				t.Errorf("diff (-want +got):\n%s", d)
			}
		})
	}
}

// dialogs are the dialogs of a recording, in order.
func dialogs(t *testing.T, path string, rules *detect.File) (list []*detect.Blocker) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec, err := cast.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(0, 0)
	now := start
	screen := term.New(rec.Cols, rec.Rows)
	d := detect.New(rules, "", screen)
	screen.OSC = func(n int, data string) { d.OSC(now, n, data) }
	seen := ""
	note := func(changes []detect.Change) {
		for _, c := range changes {
			if b := c.To.Blocker; b != nil && b.Fingerprint != seen {
				seen = b.Fingerprint
				list = append(list, b)
			}
		}
	}
	note(d.Start(start))
	for _, e := range rec.Events {
		if e.Kind == cast.Mark && e.Data == "end" {
			break
		}
		for at := start.Add(e.At); ; {
			next, ok := d.Next()
			if !ok || !next.Before(at) {
				now = at
				break
			}
			note(d.Tick(next))
		}
		switch e.Kind {
		case cast.Output:
			_, _ = screen.Write([]byte(e.Data))
			d.Output(now)
		case cast.Input:
			d.Input(now, []byte(e.Data))
		}
	}
	for end := now.Add(5 * time.Second); ; {
		next, ok := d.Next()
		if !ok || next.After(end) {
			return list
		}
		note(d.Tick(next))
	}
}
