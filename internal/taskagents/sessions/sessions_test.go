package sessions_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/term"
	"github.com/junctor-run/junctor/internal/testkit/fakecli"
)

// turns answers everything that is submitted.
func turns(ctx context.Context, s *fakecli.Screen) {
	for {
		text, ok := s.Prompt(ctx)
		if !ok {
			return
		}
		s.Work(ctx, 2*time.Second)
		s.Done("You said: " + text)
	}
}

func reason(t *testing.T, err error, code capability.Code, reason string) {
	t.Helper()
	if e := capability.AsError(err); err == nil || e.Code != code || e.Reason != reason {
		t.Errorf("%v, want %s %s", err, code, reason)
	}
}

func TestASession(t *testing.T) {
	play(t, func(s *sessions.Spec, _ *pipes) { s.Task, s.Name, s.ThreadID = "Say hello.", "greeter", "t1" }, turns, func(r *rig) {
		done := r.until(sessions.TaskComplete)
		if done.Text != "● You said: Say hello." || done.Source != "signal" {
			r.Errorf("%+v", done)
		}
		if d := cmp.Diff([]string{"starting", "ready", "busy", "done"}, r.words()); d != "" {
			r.Error(d)
		}
		for i, e := range r.events {
			if e.Seq != uint64(i+1) || e.Session != r.session.ID() || e.At.IsZero() {
				r.Errorf("event %d: %+v", i, e)
			}
		}
		i := r.session.Info()
		if !sessions.ValidID(i.ID) || i.Status != detect.Ready || i.Phase != "done" || i.AdapterType != "claude" ||
			i.AgentType != "claude-code" || i.Workdir != "/project" ||
			i.Name != "greeter" || i.ThreadID != "t1" || i.Cols != 120 || i.Rows != 40 || i.ReadyAt.IsZero() || i.LastInput.IsZero() ||
			i.Pid == 0 || !i.Live() {
			r.Errorf("%+v", i)
		}
		if !slices.Contains(r.terminal.spec.Env, sessions.Mark(i.ID)) || r.terminal.spec.Mark != sessions.Mark(i.ID) {
			r.Errorf("%v", r.terminal.spec)
		}
		if outcome, err := r.session.Send(r.Context(), "And goodbye.", false); outcome != sessions.Delivered || err != nil {
			r.Errorf("%s %v", outcome, err)
		}
		if done := r.until(sessions.TaskComplete); done.Text != "● You said: And goodbye." {
			r.Errorf("%+v", done)
		}
		if lines := r.session.Lines(3); !slices.Contains(lines, "✻ Churned for 3s") &&
			!slices.Contains(r.session.Lines(8), "✻ Churned for 3s") {
			r.Errorf("%q", lines)
		}
		if got, err := r.Get(i.ID); got != r.session || err != nil {
			r.Error(err)
		}
		_, err := r.Get("pty-1-a")
		reason(r.T, err, capability.CodeNotFound, "session_not_found")
		if list := r.List(); len(list) != 1 || list[0] != r.session {
			r.Error(list)
		}
	})
}

func TestATaskOnTheCommandLine(t *testing.T) {
	t.Run("begins by itself", func(t *testing.T) {
		play(t, func(s *sessions.Spec, _ *pipes) { s.Task, s.TaskInArgv = "Say hello.", true }, func(ctx context.Context, s *fakecli.Screen) {
			s.Say("❯ Say hello.")
			s.Work(ctx, 2*time.Second)
			s.Done("Hello.")
			<-ctx.Done()
		}, func(r *rig) {
			r.until(sessions.TaskComplete)
			if !r.session.Info().LastInput.IsZero() {
				r.Error("something was typed")
			}
			if !r.session.Asked([]string{"a title for it", "Say hello.\n"}) || r.session.Asked([]string{"a title for: Say hello."}) {
				r.Error("what was asked is not known")
			}
		})
	})
	t.Run("and is seen to end however short it is", func(t *testing.T) {
		play(t, func(s *sessions.Spec, _ *pipes) { s.Task, s.TaskInArgv = "Say hello.", true }, func(ctx context.Context, s *fakecli.Screen) {
			s.Say("❯ Say hello.")
			s.Done("Hello.")
			<-ctx.Done()
		}, func(r *rig) {
			r.until(sessions.TaskComplete)
			if n := r.session.Info().Completed; n != 1 {
				r.Errorf("%d turns were completed", n)
			}
		})
	})
	t.Run("and after a dialog of the start", func(t *testing.T) {
		play(t, func(s *sessions.Spec, _ *pipes) {
			s.Task, s.TaskInArgv, s.Answers = "Say hello.", true, []programs.Answer{{ID: "trust", Type: "trust", Label: "Yes"}}
		}, func(ctx context.Context, s *fakecli.Screen) {
			s.Ask(ctx, fakecli.Trust())
			s.Say("❯ Say hello.")
			s.Work(ctx, 2*time.Second)
			s.Done("Hello.")
			turns(ctx, s)
		}, func(r *rig) {
			r.until(sessions.TaskComplete)
			if outcome, err := r.session.Send(r.Context(), "And goodbye.", false); outcome != sessions.Delivered || err != nil {
				r.Errorf("%s %v", outcome, err)
			}
			r.until(sessions.TaskComplete)
			for _, e := range r.events {
				if e.Type == sessions.SubmitFailed {
					r.Errorf("%+v", e)
				}
			}
		})
	})
	t.Run("or somebody is told", func(t *testing.T) {
		play(t, func(s *sessions.Spec, _ *pipes) { s.Task, s.TaskInArgv = "Say hello.", true }, func(ctx context.Context, s *fakecli.Screen) {
			_, _ = s.Prompt(ctx)
		}, func(r *rig) {
			if e := r.until(sessions.SubmitFailed); e.Kind != "not_started" {
				r.Errorf("%+v", e)
			}
		})
	})
}

// Acceptance test 6.
func TestManyLinesAreSubmittedOnce(t *testing.T) {
	var got []string
	play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
		s.Swallow = 100 * time.Millisecond
		for {
			text, ok := s.Prompt(ctx)
			if !ok {
				return
			}
			got = append(got, text)
			s.Work(ctx, 500*time.Millisecond)
			s.Done("ok")
		}
	}, func(r *rig) {
		var sent []string
		for i := range 50 {
			text := strings.Repeat("line of a text\n", i%7) + "the last one:" + strings.Repeat("x", i)
			sent = append(sent, text)
			if outcome, err := r.session.Send(r.Context(), "  "+text+"\n", false); outcome != sessions.Delivered || err != nil {
				r.Fatalf("%d: %s %v", i, outcome, err)
			}
		}
		if d := cmp.Diff(sent, got); d != "" {
			r.Error(d)
		}
	})
}

func TestEnterIsPressedAgainWhereItWasLost(t *testing.T) {
	for name, c := range map[string]struct {
		swallow time.Duration
		want    sessions.Outcome
	}{"once": {1500 * time.Millisecond, sessions.Delivered}, "always": {time.Hour, sessions.NotSent}} {
		t.Run(name, func(t *testing.T) {
			var got []string
			var screen *fakecli.Screen
			play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
				s.Swallow, screen = c.swallow, s
				for {
					text, ok := s.Prompt(ctx)
					if !ok {
						return
					}
					got = append(got, text)
					s.Work(ctx, time.Second)
					s.Done("ok")
				}
			}, func(r *rig) {
				outcome, err := r.session.Send(r.Context(), "do this", false)
				if outcome != c.want || (err == nil) != (c.want == sessions.Delivered) {
					r.Errorf("%s %v", outcome, err)
				}
				if c.want == sessions.Delivered {
					if len(got) != 1 {
						r.Errorf("%q", got)
					}
					return
				}
				reason(r.T, err, capability.CodeFailed, "submit_failed")
				if e := r.until(sessions.SubmitFailed); e.Kind != "submit_failed" {
					r.Errorf("%+v", e)
				}
				// What is left in the box is not part of the next text.
				screen.Swallow = 0
				if outcome, err := r.session.Send(r.Context(), "do that", false); outcome != sessions.Delivered || err != nil {
					r.Errorf("%s %v", outcome, err)
				}
				if len(got) != 1 || got[0] != "do that" {
					r.Errorf("%q", got)
				}
			})
		})
	}
}

func TestATurnBeforeDoesNotCountAsTheStartOfATextWhoseEnterWasLost(t *testing.T) {
	for name, begins := range map[string]script{
		"the program draws late, and looks busy before it shows the text": func(ctx context.Context, s *fakecli.Screen) {
			s.Idle()
			time.Sleep(5050 * time.Millisecond)
			s.Work(ctx, 400*time.Millisecond)
		},
		"the program draws its whole screen again, and the box is empty for a moment": func(_ context.Context, s *fakecli.Screen) {
			s.Flicker = 200 * time.Millisecond
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
				s.Swallow = time.Second
				begins(ctx, s)
				for {
					text, ok := s.Prompt(ctx)
					if !ok {
						return
					}
					got = append(got, text)
					s.Work(ctx, time.Second)
					s.Done("ok")
				}
			}, func(r *rig) {
				time.Sleep(5 * time.Second)
				if outcome, err := r.session.Send(r.Context(), "do this", false); outcome != sessions.Delivered || err != nil {
					r.Errorf("Send = %s %v, want %s", outcome, err, sessions.Delivered)
				}
				if len(got) != 1 || got[0] != "do this" {
					r.Errorf("the program received %q, want the text once", got)
				}
			})
		})
	}
}

func TestDialogs(t *testing.T) {
	trust := programs.Answer{ID: "trust", Type: "trust", Label: "Yes, I trust", Once: true}
	// asks shows a dialog, tells what was chosen, and goes on.
	asks := func(d fakecli.Dialog, chosen *[]int) script {
		return func(ctx context.Context, s *fakecli.Screen) {
			*chosen = append(*chosen, s.Ask(ctx, d))
			if (*chosen)[0] == 1 {
				return
			}
			turns(ctx, s)
		}
	}
	t.Run("a default of no is not taken", func(t *testing.T) {
		var chosen []int
		play(t, func(s *sessions.Spec, _ *pipes) { s.Task, s.Answers = "hello", []programs.Answer{trust} }, asks(fakecli.Trust(), &chosen),
			func(r *rig) {
				e := r.until(sessions.BlockedNow)
				if e.Answered != "Yes, I trust" || e.To.Blocker.Type != "trust" {
					r.Errorf("%+v", e)
				}
				r.until(sessions.TaskComplete)
				if d := cmp.Diff([]int{0}, chosen); d != "" {
					r.Error(d)
				}
				if d := cmp.Diff([]string{"starting", "blocked:trust", "ready", "busy", "done"}, r.words()); d != "" {
					r.Error(d)
				}
			})
	})
	t.Run("an Enter that was lost is pressed again", func(t *testing.T) {
		var chosen []int
		d := fakecli.Trust()
		d.Deaf = 2
		play(t, func(s *sessions.Spec, _ *pipes) { s.Task, s.Answers = "hello", []programs.Answer{trust} }, asks(d, &chosen), func(r *rig) {
			r.until(sessions.TaskComplete)
			if d := cmp.Diff([]int{0}, chosen); d != "" {
				r.Error(d)
			}
		})
	})
	t.Run("a task is held until its user has answered", func(t *testing.T) {
		var chosen []int
		play(t, func(s *sessions.Spec, _ *pipes) { s.Task = "hello" }, asks(fakecli.Trust(), &chosen), func(r *rig) {
			e := r.until(sessions.BlockedNow)
			if e.Answered != "" {
				r.Errorf("%+v", e)
			}
			outcome, err := r.session.Send(r.Context(), "typed into a dialog", false)
			reason(r.T, err, capability.CodeConflict, "agent_blocked")
			if outcome != sessions.NotSent {
				r.Error(outcome)
			}
			reason(r.T, r.session.Choose(r.Context(), e.To.Blocker.Fingerprint, "Maybe"), capability.CodeInvalidInput, "no_such_option")
			reason(r.T, r.session.Choose(r.Context(), "another", "Yes"), capability.CodeConflict, "no_dialog")
			time.Sleep(time.Minute) // and nothing happens
			if len(chosen) > 0 {
				r.Error(chosen)
			}
			if err := r.session.Choose(r.Context(), e.To.Blocker.Fingerprint, "yes"); err != nil {
				r.Error(err)
			}
			r.until(sessions.TaskComplete)
			reason(r.T, r.session.Choose(r.Context(), "", "Yes"), capability.CodeConflict, "no_dialog")
		})
	})
	t.Run("one that opens on a text is told", func(t *testing.T) {
		play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
			_, _ = s.Prompt(ctx)
			if s.Ask(ctx, fakecli.Permission("hello.txt")) == 0 {
				s.Done("written")
			}
			<-ctx.Done()
		}, func(r *rig) {
			if outcome, err := r.session.Send(r.Context(), "write it", false); outcome != sessions.ButBlocked || err != nil {
				r.Errorf("%s %v", outcome, err)
			}
			if e := r.until(sessions.BlockedNow); e.To.Blocker.Type != "permission" || len(e.To.Blocker.Options) != 3 {
				r.Errorf("%+v", e.To.Blocker)
			}
			if err := r.session.Keys(r.Context(), []string{"down", "up", "enter"}); err != nil {
				r.Error(err)
			}
			r.until(sessions.TaskComplete)
		})
	})
	t.Run("the same one is answered three times and no more", func(t *testing.T) {
		play(t, func(s *sessions.Spec, _ *pipes) {
			s.Answers = []programs.Answer{{ID: "q", Type: "question", Label: "Blue"}}
		}, func(ctx context.Context, s *fakecli.Screen) {
			for s.Ask(ctx, fakecli.Question("Which colour?", "Red", "Blue")) >= 0 {
				s.Work(ctx, 5*time.Second) // and asks again, without an end of its turn
			}
		}, func(r *rig) {
			var answered []string
			for range 4 {
				answered = append(answered, r.until(sessions.BlockedNow).Answered)
			}
			if d := cmp.Diff([]string{"Blue", "Blue", "Blue", ""}, answered); d != "" {
				r.Error(d)
			}
		})
	})
	t.Run("notes are left by a key", func(t *testing.T) {
		play(t, func(s *sessions.Spec, _ *pipes) {
			s.Task, s.Answers = "hello", []programs.Answer{{ID: "notes", Type: "onboarding", Keys: []string{"enter"}}}
		}, func(ctx context.Context, s *fakecli.Screen) {
			s.Notes(ctx, " Security notes:", " be careful")
			turns(ctx, s)
		}, func(r *rig) {
			if e := r.until(sessions.BlockedNow); e.Answered != "enter" || e.To.Blocker.Type != "onboarding" {
				r.Errorf("%+v", e)
			}
			r.until(sessions.TaskComplete)
		})
	})
	t.Run("a person in control is not disturbed", func(t *testing.T) {
		var chosen []int
		play(t, func(s *sessions.Spec, _ *pipes) { s.Answers = []programs.Answer{trust} }, func(ctx context.Context, s *fakecli.Screen) {
			if text, _ := s.Prompt(ctx); text != "mine" {
				s.Say("what is " + text)
			}
			chosen = append(chosen, s.Ask(ctx, fakecli.Trust()))
			turns(ctx, s)
		}, func(r *rig) {
			r.until(sessions.ReadyAgain)
			if err := r.session.Control("me", true); err != nil {
				r.Fatal(err)
			}
			reason(r.T, r.session.Control("you", true), capability.CodeConflict, "control_taken")
			reason(r.T, r.session.Raw(r.Context(), "you", []byte("x")), capability.CodeConflict, "control_taken")
			reason(r.T, r.session.Resize("you", 100, 30), capability.CodeConflict, "control_taken")
			sent := make(chan error, 1)
			go func() {
				_, err := r.session.Send(r.Context(), "theirs", false)
				sent <- err
			}()
			synctest.Wait()
			if i := r.session.Info(); !i.Control {
				r.Errorf("%+v", i)
			}
			if err := r.session.Raw(r.Context(), "me", []byte("mine")); err != nil {
				r.Error(err)
			}
			time.Sleep(time.Second)
			if err := r.session.Raw(r.Context(), "me", []byte("\r")); err != nil {
				r.Error(err)
			}
			if e := r.until(sessions.BlockedNow); e.Answered != "" {
				r.Errorf("%+v", e)
			}
			if err := r.session.Keys(r.Context(), []string{"up", "enter"}); err != nil {
				r.Error(err)
			}
			for {
				if e := r.until(sessions.Controlled); e.Cause == "no input" {
					break
				}
			}
			if err := <-sent; err != nil {
				r.Error(err)
			}
			r.until(sessions.TaskComplete)
		})
	})
}

func TestWhatIsSentIsText(t *testing.T) {
	var got []string
	play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
		for {
			text, ok := s.Prompt(ctx)
			if !ok {
				return
			}
			got = append(got, text)
			s.Work(ctx, 500*time.Millisecond)
			s.Done("ok")
		}
	}, func(r *rig) {
		for _, text := range []string{"\x1b[201~plain\x03 \x1b]0;title\a and \x1b[31mred", "two\r\nlines\x1b"} {
			if _, err := r.session.Send(r.Context(), text, false); err != nil {
				r.Error(err)
			}
		}
		if d := cmp.Diff([]string{"plain  and red", "two\nlines"}, got); d != "" {
			r.Error(d)
		}
		_, err := r.session.Send(r.Context(), " \x1b[A\x00\n", false)
		reason(r.T, err, capability.CodeInvalidInput, "no_input")
		_, err = r.session.Send(r.Context(), strings.Repeat("x", sessions.MaxMessage+1), false)
		reason(r.T, err, capability.CodeTooLarge, "")
		reason(r.T, r.session.Keys(r.Context(), []string{"enter", "nokey"}), capability.CodeInvalidInput, "unknown_key")
		reason(r.T, r.session.Keys(r.Context(), nil), capability.CodeInvalidInput, "no_input")
		reason(r.T, r.session.Resize("", 10, 10), capability.CodeInvalidInput, "bad_size")
		if err := r.session.Resize("", 100, 30); err != nil || r.session.Screen().Cols != 100 || len(r.terminal.sizes) != 1 {
			r.Error(err, r.terminal.sizes)
		}
	})
}

func TestMessagesWaitTheirTurn(t *testing.T) {
	var got []string
	play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
		for {
			text, ok := s.Prompt(ctx)
			if !ok {
				return
			}
			got = append(got, text)
			s.Work(ctx, 10*time.Second)
			s.Done("ok")
		}
	}, func(r *rig) {
		if _, err := r.session.Send(r.Context(), "first", false); err != nil {
			r.Fatal(err)
		}
		ends := make(chan error, 30)
		leave, cancel := context.WithCancel(r.Context())
		for i := range 21 { // one is about to be typed, twenty wait
			ctx := r.Context()
			if i == 5 {
				ctx = leave
			}
			go func() {
				_, err := r.session.Send(ctx, "next", false)
				ends <- err
			}()
			synctest.Wait()
		}
		_, err := r.session.Send(r.Context(), "one too many", false)
		reason(r.T, err, capability.CodeOverloaded, "too_many_messages")
		if n := r.session.Info().Queued; n != 20 {
			r.Error(n)
		}
		cancel()
		cancelled := 0
		for range 21 {
			if err := <-ends; errors.Is(err, context.Canceled) {
				cancelled++
			} else if err != nil {
				r.Error(err)
			}
		}
		if cancelled != 1 || len(got) != 21 {
			r.Errorf("%d cancelled, %d arrived", cancelled, len(got))
		}
	})
}

func TestTheEnd(t *testing.T) {
	t.Run("asked for", func(t *testing.T) {
		cleaned := 0
		play(t, func(s *sessions.Spec, _ *pipes) { s.Cleanup = func() error { cleaned++; return nil } }, turns, func(r *rig) {
			r.until(sessions.ReadyAgain)
			r.session.Stop(false)
			r.session.Stop(false)
			e := r.until(sessions.Ended)
			<-r.session.Done()
			if i := r.session.Info(); i.Status != detect.Stopped || *i.ExitCode != 0 || *e.ExitCode != 0 || i.EndedAt.IsZero() || i.Live() {
				r.Errorf("%+v", i)
			}
			_, err := r.session.Send(r.Context(), "hello", false)
			reason(r.T, err, capability.CodeUnavailable, "session_ended")
			reason(r.T, r.session.Keys(r.Context(), []string{"enter"}), capability.CodeUnavailable, "session_ended")
			reason(r.T, r.session.Resize("", 90, 30), capability.CodeUnavailable, "session_ended")
			if lines := r.session.Lines(10); len(lines) == 0 {
				r.Error("nothing is left to read")
			}
			if cleaned != 1 || r.terminal.asked != 1 {
				r.Errorf("cleaned up %d times, asked %d times", cleaned, r.terminal.asked)
			}
		})
	})
	t.Run("of a program that does not listen", func(t *testing.T) {
		play(t, func(_ *sessions.Spec, p *pipes) { p.deaf = true }, turns, func(r *rig) {
			r.until(sessions.ReadyAgain)
			began := time.Now()
			r.session.Stop(false)
			e := r.until(sessions.Ended)
			if took := time.Since(began); e.Signal != "SIGKILL" || took < 5*time.Second || took > 6*time.Second {
				r.Errorf("%+v after %s", e, took)
			}
		})
	})
	t.Run("by force", func(t *testing.T) {
		play(t, func(_ *sessions.Spec, p *pipes) { p.deaf = true }, turns, func(r *rig) {
			r.until(sessions.ReadyAgain)
			began := time.Now()
			r.session.Stop(false)
			r.session.Stop(true)
			r.until(sessions.Ended)
			if took := time.Since(began); took > 2*time.Second {
				r.Errorf("after %s", took)
			}
		})
	})
	t.Run("of its own, with a task unfinished", func(t *testing.T) {
		play(t, func(_ *sessions.Spec, p *pipes) {}, func(ctx context.Context, s *fakecli.Screen) {
			_, _ = s.Prompt(ctx)
			s.Print("\r\npanic: out of luck\r\n")
		}, func(r *rig) {
			r.terminal.exit.Code = 3
			sent, err := r.session.Send(r.Context(), "hello", false)
			if sent != sessions.NotSent || err == nil {
				r.Error(sent, err)
			}
			e := r.until(sessions.Failed)
			if i := r.session.Info(); i.Status != detect.Error || *i.ExitCode != 3 || !strings.Contains(i.Error, "out of luck") || e.Kind != "exit" {
				r.Errorf("%+v %+v", e, i)
			}
		})
	})
	t.Run("the word exit is no end", func(t *testing.T) {
		play(t, nil, turns, func(r *rig) {
			if _, err := r.session.Send(r.Context(), "exit", false); err != nil {
				r.Error(err)
			}
			r.until(sessions.TaskComplete)
			r.state(detect.Ready)
		})
	})
}

func TestTheManagerHasLimits(t *testing.T) {
	rules := claude(t)
	synctest.Test(t, func(t *testing.T) {
		fail := errors.New("no")
		var failing bool
		var cleaned atomic.Int32
		m := sessions.New(sessions.Config{MaxLive: 2, Start: func(spec process.Spec) (sessions.Terminal, error) {
			if failing {
				return nil, fail
			}
			p := &pipes{}
			p.run(turns, 0)
			return p, nil
		}})
		spec := sessions.Spec{Rules: rules, Cleanup: func() error { cleaned.Add(1); return nil }}
		one, err := m.Start(spec)
		if err != nil {
			t.Fatal(err)
		}
		failing = true
		if _, err := m.Start(spec); !errors.Is(err, fail) || cleaned.Load() != 1 || len(m.List()) != 1 {
			t.Errorf("err = %v, cleaned %d times, %d sessions; want %v, once, one", err, cleaned.Load(), len(m.List()), fail)
		}
		failing = false
		_, err = m.Start(sessions.Spec{ID: one.ID(), Rules: rules})
		reason(t, err, capability.CodeConflict, "session_exists")
		if _, err := m.Start(spec); err != nil {
			t.Error(err)
		}
		_, err = m.Start(spec)
		reason(t, err, capability.CodeOverloaded, "too_many_sessions")
		if !strings.Contains(err.Error(), "Concurrent session limit reached (2)") {
			t.Errorf(`%v; want err.Error() with "Concurrent session limit reached (2)"`, err)
		}
		one.Stop(false)
		<-one.Done()
		if _, err := m.Start(spec); err != nil { // those that have ended do not count
			t.Error(err)
		}
		m.Close(t.Context())
		for _, s := range m.List() {
			if s.Info().Live() {
				t.Errorf("%+v; want not s.Info().Live()", s.Info())
			}
		}
		_, err = m.Start(spec)
		reason(t, err, capability.CodeUnavailable, "shutting_down")
	})
}

func TestFactsOfHooks(t *testing.T) {
	play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
		s.Silent = true
		for {
			if _, ok := s.Prompt(ctx); !ok {
				return
			}
			s.Say("● Thinking about it")
		}
	}, func(r *rig) {
		r.until(sessions.ReadyAgain)
		sent := make(chan sessions.Outcome, 1)
		go func() {
			o, _ := r.session.Send(r.Context(), "hello", false)
			sent <- o
		}()
		time.Sleep(300 * time.Millisecond)
		r.session.Fact(detect.Fact{Class: 2, State: detect.Busy, Source: "hook:UserPromptSubmit"}, "", "conversation-1")
		if o := <-sent; o != sessions.Delivered {
			r.Error(o)
		}
		r.session.Fact(detect.Fact{Class: 2, State: detect.Busy, Phase: "tool:Bash", Source: "hook:PreToolUse"}, "", "")
		if e := r.until(sessions.ToolRunning); e.Tool != "Bash" {
			r.Errorf("%+v", e)
		}
		r.session.Fact(detect.Fact{Class: 2, State: detect.Ready, Phase: "done", Source: "hook:Stop"}, "It is **done**.", "")
		if e := r.until(sessions.TaskComplete); e.Text != "It is **done**." || e.Source != "hook" {
			r.Errorf("%+v", e)
		}
		r.session.Fact(detect.Fact{Class: 2, State: detect.Ready, Source: "hook:Notification"}, "", "")
		time.Sleep(5 * time.Second)
		if i := r.session.Info(); i.ResumeToken != "conversation-1" || i.Phase != "done" {
			r.Errorf("%+v", i)
		}
	})
}

func TestASessionThatStandsStill(t *testing.T) {
	t.Run("without a sign of work", func(t *testing.T) {
		play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
			s.Silent = true
			_, _ = s.Prompt(ctx)
			s.Say("● Something")
			<-ctx.Done()
		}, func(r *rig) {
			r.until(sessions.ReadyAgain)
			go func() { _, _ = r.session.Send(r.Context(), "hello", false) }()
			time.Sleep(300 * time.Millisecond)
			r.session.Fact(detect.Fact{Class: 1, State: detect.Busy, Source: "turn/started"}, "", "")
			began := time.Now()
			var after []time.Duration
			for range 5 {
				e := r.until(sessions.Stall)
				after = append(after, time.Since(began).Round(10*time.Second))
				if e.Report != len(after) || e.Text == "" {
					r.Errorf("%+v", e)
				}
			}
			want := []time.Duration{time.Minute, 3 * time.Minute, 7 * time.Minute, 11 * time.Minute, 15 * time.Minute}
			if d := cmp.Diff(want, after); d != "" {
				r.Error(d)
			}
			if !slices.Contains(r.types(), sessions.Wedged) {
				r.Error(r.types())
			}
			time.Sleep(20 * time.Minute)
			r.session.Stop(true)
			r.until(sessions.Ended)
			if n := len(slices.DeleteFunc(r.types(), func(t sessions.Type) bool { return t != sessions.Stall })); n != 5 {
				r.Errorf("%d reports", n)
			}
		})
	})
	t.Run("with a spinner", func(t *testing.T) {
		play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
			_, _ = s.Prompt(ctx)
			s.Work(ctx, 4*time.Minute)
			s.Done("ok")
			<-ctx.Done()
		}, func(r *rig) {
			if _, err := r.session.Send(r.Context(), "hello", false); err != nil {
				r.Error(err)
			}
			r.until(sessions.TaskComplete)
			if slices.Contains(r.types(), sessions.Stall) || slices.Contains(r.types(), sessions.Wedged) {
				r.Error(r.types())
			}
		})
	})
}

func TestTheConsole(t *testing.T) {
	play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
		s.Print(strings.Repeat("0123456789 abcdefgh\r\n", 20_000))
		turns(ctx, s)
	}, func(r *rig) {
		r.until(sessions.ReadyAgain)
		data, next := r.session.Console(0)
		if len(data) > 100_000 || len(data) < 99_000 || !strings.HasPrefix(string(data), "0123456789") || next < 400_000 {
			r.Errorf("%d bytes, %d in all, %.20q", len(data), next, data)
		}
		if rest, again := r.session.Console(next); len(rest) != 0 || again != next {
			r.Errorf("%q", rest)
		}
		if rest, _ := r.session.Console(next - 10); string(rest) != string(data[len(data)-10:]) {
			r.Errorf("%q", rest)
		}
		shot := r.session.Snapshot()
		again := term.New(shot.Cols, shot.Rows)
		_, _ = again.Write(shot.Data)
		if again.Row(0) != r.session.Screen().Lines[0] || len(again.Scrollback()) != term.MaxScrollback || shot.Offset != next {
			r.Errorf("%q, %d lines before it, offset %d", again.Row(0), len(again.Scrollback()), shot.Offset)
		}
		if all, _ := r.session.Console(next + 1000); len(all) != len(data) {
			r.Error(len(all))
		}
	})
}

func TestSubscribersAreNotWaitedFor(t *testing.T) {
	play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
		for range 400 {
			s.Print(strings.Repeat("x", 4000) + "\r\n")
		}
		turns(ctx, s)
	}, func(r *rig) {
		if _, err := r.session.Send(r.Context(), "hello", false); err != nil {
			r.Fatal(err)
		}
		other := r.Subscribe()
		r.session.Stop(false)
		<-r.session.Done()
		var kept int
		for {
			e, ok, err := r.heard.Next(r.Context())
			if !ok {
				r.Fatal(err)
			}
			if kept += len(e.Data); e.Type == sessions.Ended {
				break
			}
			if e.Type != sessions.Output {
				r.events = append(r.events, e)
			}
		}
		if kept > 1<<20 || kept == 0 {
			r.Errorf("%d bytes of output were kept", kept)
		}
		if words := r.words(); words[0] != "starting" || !slices.Contains(words, "busy") {
			r.Error(words)
		}
		other.Close()
		for ok := true; ok; {
			_, ok, _ = other.Next(r.Context())
		}
	})
}
