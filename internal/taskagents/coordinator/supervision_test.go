package coordinator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestADecisionWaitsForAYesAndSurvivesARestart(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model, r.cfg.Level = script(yes), coordinator.Confirm }, func(r *rig) {
		x := r.start("s1", nil)
		r.dialog("s1", "Allow tool Bash?", "Yes", "No")
		r.count(1, "pending_confirmation")
		if len(x.chosen) != 0 {
			t.Fatalf("it was not waited for %v; want len(x.chosen) = 0", x.chosen)
		}
		r.reopen() // the coordinator's; the session lives
		if err := r.Adopt(r.t.Context(), "s1"); err != nil {
			t.Fatal(err)
		}
		r.wait(time.Second)
		if err := r.Confirm(r.t.Context(), "s1", true, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"Yes"}, x.chosen); diff != "" {
			t.Errorf("diff (-want +got):\n%s", diff)
		}
		r.count(1, "confirmation_approved")
		if err := r.Confirm(r.t.Context(), "s1", true, nil); capability.AsError(err).Code != capability.CodeNotFound {
			t.Errorf("%v; want capability.AsError(err).Code = capability.CodeNotFound", err)
		}

		r.dialog("s1", "Allow tool Edit?", "Yes", "No")
		r.reopen() // the whole server's
		if _, err := r.reg.Restart(r.t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Confirm(r.t.Context(), "s1", true, nil); reason(err) != "session_gone" {
			t.Errorf(`%v; want reason(err) = "session_gone"`, err)
		}
		if err := r.Confirm(r.t.Context(), "s1", false, nil); err != nil {
			t.Error(err)
		}
		r.status("s1", row.SessionInterrupted)
		r.count(1, "confirmation_rejected")
	})
}

func TestAPendingDecisionIsOverriddenRejectedOrExpires(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model, r.cfg.Level = script(yes), coordinator.Confirm }, func(r *rig) {
		x := r.start("s1", nil)
		r.dialog("s1", "Allow tool Bash?", "Yes", "No")
		if err := r.Confirm(r.t.Context(), "s1", true, &directive.Answer{Response: "No"}); err != nil || len(x.chosen) != 1 ||
			x.chosen[0] != "No" {
			t.Errorf(`r.Confirm = %v, want nil; len(x.chosen) = %v, want 1; x.chosen = %q, want x.chosen[0] = "No"`, err, len(x.chosen), x.chosen)
		}
		r.dialog("s1", "Allow tool Edit?", "Yes", "No")
		r.send("s1", sessions.Event{Type: sessions.BusyNow}) // the user answered at the terminal
		r.count(1, "confirmation_expired")
		if err := r.Confirm(r.t.Context(), "s1", true, nil); capability.AsError(err).Code != capability.CodeNotFound {
			t.Errorf("%v; want capability.AsError(err).Code = capability.CodeNotFound", err)
		}
		r.dialog("s1", "Allow tool Write?", "Yes", "No")
		r.mu.Lock()
		x.info.Status, x.info.Blocker = "busy", nil // it is gone, and the event has not arrived yet
		r.mu.Unlock()
		if err := r.Confirm(r.t.Context(), "s1", true, nil); reason(err) != "dialog_gone" {
			t.Errorf(`%v; want reason(err) = "dialog_gone"`, err)
		}
		if len(x.chosen) != 1 {
			t.Errorf("len(x.chosen) = %v, want 1; x.chosen = %q", len(x.chosen), x.chosen)
		}
	})
}

func TestLevelsAreOfAllAndOfAThread(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(yes) }, func(r *rig) {
		x := r.start("s1", nil)
		if err := r.SetLevel(r.t.Context(), r.thread, coordinator.Notify); err != nil {
			t.Fatal(err)
		}
		r.dialog("s1", "Allow tool Bash?", "Yes", "No")
		r.turn("s1", "what now")
		if len(x.chosen)+len(x.sent) != 0 || len(r.kinds("blocked", "turn_complete")) != 2 {
			t.Errorf("chosen = %v, sent = %q, events = %q; want none, none, blocked and turn_complete", x.chosen, x.sent, r.kinds())
		}
		r.count(1, "supervision_changed")
		if err := r.SetLevel(r.t.Context(), r.thread, ""); err != nil || r.Level(r.thread) != coordinator.Autonomous {
			t.Errorf("%v; want no error, r.Level(r.thread) = coordinator.Autonomous", err)
		}
		if err := r.SetLevel(r.t.Context(), "", "sometimes"); reason(err) != "unknown_level" {
			t.Errorf(`%v; want reason(err) = "unknown_level"`, err)
		}
	})
}

type parent func(ctx context.Context, q coordinator.Question) (string, error)

func (p parent) Decide(ctx context.Context, q coordinator.Question) (string, error) { return p(ctx, q) }

func TestTheParentDecidesWhatNeedsJudgementAndHasHalfAMinute(t *testing.T) {
	var asked []string
	slow := false
	play(t, func(r *rig) {
		r.cfg.Model = script(goOn)
		r.cfg.Parent = parent(func(ctx context.Context, q coordinator.Question) (string, error) {
			asked = append(asked, q.Event+" in "+q.RoomID)
			if slow {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return `{"action":"respond","response":"Take the second way, it is shorter.","reasoning":"x","keyDecision":"second way"}`, nil
		})
	}, func(r *rig) {
		x := r.start("s1", nil)
		r.turn("s1", "There are two ways.")
		slow = true
		r.turn("s1", "There are two more.")
		if len(x.sent) != 1 {
			t.Errorf("len(x.sent) = %v, want 1; x.sent = %q", len(x.sent), x.sent)
		}
		r.wait(30 * time.Second)
		if diff := cmp.Diff([]string{"Take the second way, it is shorter.", "Go on with the tests, please."}, x.sent); diff != "" {
			t.Errorf(`diff = %q, want ""`, diff)
		}
		if diff := cmp.Diff([]string{"turn_complete in room", "turn_complete in room"}, asked); diff != "" {
			t.Errorf(`diff = %q, want ""`, diff)
		}
		r.count(1, "decision_shared")
	})
}

func TestWhatHappensWhileADecisionRunsIsHandledAfterIt(t *testing.T) {
	var release chan struct{}
	asked := 0
	play(t, func(r *rig) {
		release = make(chan struct{})
		r.cfg.Model = model(func(bool, string) string {
			if asked++; asked == 1 {
				<-release
			}
			return yes
		})
	}, func(r *rig) {
		x := r.start("s1", nil)
		r.dialog("s1", "Allow tool Bash?", "Yes", "No")
		for range 3 {
			r.dialog("s1", "Allow tool Edit?", "Yes, all", "No")
		}
		r.count(3, "blocked_buffered")
		close(release)
		r.wait(time.Second)
		if diff := cmp.Diff([]string{"Yes, all"}, x.chosen); diff != "" || asked != 2 {
			t.Errorf("diff (-want +got):\n%s; asked = %v, want 2", diff, asked) // the first dialog was gone, of the others the last counts
		}
	})
}

func TestTurnsAreCoalescedAndTheScreenIsNotBelievedAfterInput(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(goOn) }, func(r *rig) {
		x := r.start("s1", nil)
		for _, text := range []string{"a half", "a half of it", "half of it is done"} {
			r.send("s1", sessions.Event{Type: sessions.TaskComplete, Source: "signal", Text: text})
		}
		r.wait(time.Second)
		if len(x.sent) != 1 {
			t.Fatalf("len(x.sent) = %v, want 1; x.sent = %q", len(x.sent), x.sent)
		}
		screen := sessions.Event{Type: sessions.TaskComplete, Source: "signal", Text: "half of it is done"}
		r.send("s1", screen)
		r.wait(10 * time.Second)
		if len(x.sent) != 1 {
			t.Errorf("the screen of the turn before was answered %v; want len(x.sent) = 1", x.sent)
		}
		r.turn("s1", "more of it") // a hook is believed
		if len(x.sent) != 2 {
			t.Errorf("len(x.sent) = %v, want 2; x.sent = %q", len(x.sent), x.sent)
		}
		r.wait(16 * time.Second)
		r.send("s1", screen)
		r.wait(time.Second)
		if len(x.sent) != 3 {
			t.Errorf("len(x.sent) = %v, want 3; x.sent = %q", len(x.sent), x.sent)
		}
		r.send("s1", sessions.Event{Type: sessions.TaskComplete, Source: "hook", Text: "✻ Thinking…"})
		r.wait(time.Second)
		if len(x.sent) != 3 {
			t.Errorf("a status line was answered; got len(x.sent) = %v; want len(x.sent) = 3", len(x.sent))
		}
	})
}

func TestDecisionsAreSharedWithLaterMessages(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(goOn) }, func(r *rig) {
		r.start("s1", nil)
		y := r.start("s2", nil)
		r.turn("s1", "Half of it.\n\nDECISION: ports begin at 8000\n")
		r.turn("s2", "Half of mine.")
		r.turn("s2", "More of mine.")
		if len(y.sent) != 2 || !strings.Contains(y.sent[0], "ports begin at 8000") || strings.Contains(y.sent[1], "8000") {
			t.Errorf(`len(y.sent) = %v, want 2; y.sent = %q, want y.sent[0] to contain "ports begin at 8000" and y.sent[1] not to contain "8000"`,
				len(y.sent), y.sent)
		}
		r.Share("s1", "names are short")
		r.count(2, "decision_shared")
		r.turn("s1", "DECISION: cannot continue without a licence")
		r.status("s1", row.SessionBlocked)
		r.count(1, "turn_failed")
	})
}

func TestADecisionBeforeTheSessionIsRegisteredIsShared(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(goOn) }, func(r *rig) {
		r.Share("s1", "ports begin at 8000")
		r.Share("s1", "ports begin at 8000")
		r.Share("other", "names are long")
		r.start("s1", nil)
		y := r.start("s2", nil)
		r.turn("s1", "Half of it.")
		r.count(1, "decision_shared")
		r.turn("s2", "Half of mine.")
		if len(y.sent) != 1 || !strings.Contains(y.sent[0], "ports begin at 8000") || strings.Contains(y.sent[0], "names are long") {
			t.Errorf("y.sent = %q, want one message with the decision of s1 only", y.sent)
		}
	})
}

func TestADecisionIsSharedAfterALongJudgement(t *testing.T) {
	var release chan struct{}
	play(t, func(r *rig) {
		release = make(chan struct{})
		r.cfg.Model = model(func(bool, string) string {
			<-release
			return goOn
		})
	}, func(r *rig) {
		r.start("s1", nil)
		go func() {
			r.Share("s1", "ports begin at 8000") // the model has the turn before it
			time.Sleep(time.Minute)              // longer than any hook waits
			close(release)
		}()
		r.turn("s1", "Half of it.")
		r.wait(2 * time.Minute)
		r.count(1, "decision_shared")
	})
}

func TestAnswersStayInsideTheFolder(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(yes) }, func(r *rig) {
		x := r.start("s1", nil)
		r.dialog("s1", "Allow tool Edit on /etc/hosts?", "Yes", "No, and tell it why")
		r.dialog("s1", "Allow tool Edit on /w/a.go?", "Yes", "No, and tell it why")
		if diff := cmp.Diff([]string{"No, and tell it why", "Yes"}, x.chosen); diff != "" {
			t.Errorf("diff (-want +got):\n%s", diff)
		}
	})
}

func TestAToolThatAPresetAsksAbout(t *testing.T) {
	for name, c := range map[string]struct {
		answer    string
		level     coordinator.Level
		input     string
		allow, ok bool
	}{
		"is allowed": {
			answer: `{"action":"respond","response":"Allow","reasoning":"it is what the task says"}`, allow: true,
			ok: true,
		},
		"is denied":         {answer: `{"action":"respond","response":"Deny","reasoning":"it is not"}`, ok: true},
		"is the user's":     {answer: `{"action":"escalate","response":"May it?","reasoning":"only they know"}`},
		"is nobody's words": {answer: `sure`},
		"leads outside": {
			answer: `{"action":"respond","response":"Allow","reasoning":"why not"}`,
			input:  `{"file_path":"/etc/passwd"}`, ok: true,
		},
		"waits where a yes is due": {answer: `{"action":"respond","response":"Allow","reasoning":"x"}`, level: coordinator.Confirm},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(r *rig) {
				r.cfg.Level = c.level
				r.cfg.Model = model(func(_ bool, prompt string) string {
					if strings.Contains(prompt, `{"tier":`) {
						return `{"tier":"routine"}`
					}
					return c.answer
				})
			}, func(r *rig) {
				r.start("s1", nil)
				input := c.input
				if input == "" {
					input = `{"command":"make test"}`
				}
				allow, _, ok := r.Permit(r.t.Context(), "s1", "Bash", []byte(input))
				if allow != c.allow || ok != c.ok {
					t.Errorf("allow %v, ok %v; want allow = %v, ok = %v", allow, ok, c.allow, c.ok)
				}
				if _, _, ok := r.Permit(r.t.Context(), "s9", "Bash", []byte(input)); ok {
					t.Error("nobody knows that session")
				}
			})
		})
	}
}

func TestTheLevelOfAThreadWithoutSessionsIsTheStoredOne(t *testing.T) {
	play(t, func(*rig) {}, func(r *rig) {
		if err := r.SetLevel(r.t.Context(), r.thread, coordinator.Notify); err != nil {
			t.Fatal(err)
		}
		if got := r.Level(r.thread); got != coordinator.Notify {
			t.Errorf("Level = %s, want %s", got, coordinator.Notify)
		}
	})
}
