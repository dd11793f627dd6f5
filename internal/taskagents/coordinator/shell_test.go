package coordinator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func inShell(s *row.Session) { s.Framework = "shell" }

// TestAShellIsToldNothingButByTheUser: whatever it is told, it carries out. So neither a
// model's answer nor what falls short is typed into it; the user is asked.
func TestAShellIsToldNothingButByTheUser(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"a model's answer": func(r *rig) { r.cfg.Model = script(goOn) },
		"what falls short": func(r *rig) {
			r.cfg.Model = model(func(_ bool, prompt string) string {
				if strings.Contains(prompt, "You validate") {
					return `{"verdict":"revise","followUpPrompt":"again, with more care"}`
				}
				return complete
			})
			r.cfg.Validator = validation.New(validation.Config{Model: r.cfg.Model, Now: time.Now})
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, change, func(r *rig) {
				x := r.start("s1", inShell)
				r.turn("s1", "3 files\n")
				if len(x.sent) != 0 {
					t.Errorf("it was told %q; want len(x.sent) = 0", x.sent)
				}
				r.count(1, "escalation")
			})
		})
	}
}

// TestAProgramInAShellIsAnsweredInOneLine: what comes after it would be commands.
func TestAProgramInAShellIsAnsweredInOneLine(t *testing.T) {
	play(t, func(r *rig) {
		r.cfg.Model = script(`{"action":"respond","response":"a name for the package\ntouch x"}`)
	}, func(r *rig) {
		x := r.start("s1", inShell)
		r.dialog("s1", "package name:")
		if !slices.Equal(x.sent, []string{"a name for the package"}) {
			t.Errorf(`%q; want x.sent = []string{"a name for the package"}`, x.sent)
		}
	})
}

func TestAShellThatPrintedNothingSaysSo(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(complete) }, func(r *rig) {
		x := r.start("s1", inShell)
		x.screen = []string{"pty> true", "pty>"}
		r.send("s1", sessions.Event{Type: sessions.TaskComplete, Source: "hook"})
		r.wait(time.Second)
		if s := r.row("s1"); s.CompletionSummary != "It printed nothing." {
			t.Errorf(`%+v; want s.CompletionSummary = "It printed nothing."`, s)
		}
	})
}
