package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// judge answers validations with a verdict, and everything else with complete.
func judge(verdict string) model {
	return func(_ bool, prompt string) string {
		if strings.Contains(prompt, "You validate") {
			return verdict
		}
		return complete
	}
}

func validated(t *testing.T, m model) func(*rig) {
	dir := t.TempDir()
	return func(r *rig) {
		r.cfg.Model = m
		r.cfg.Validator = validation.New(validation.Config{Model: m, Dir: dir, Now: time.Now})
	}
}

func TestWorkIsSentBackThreeTimesAndThenTheUserIsAsked(t *testing.T) {
	play(t, validated(t, judge(`{"verdict":"revise","summary":"no tests","followUpPrompt":"Write tests and run them."}`)), func(r *rig) {
		x := r.start("s1", nil)
		for n := range 3 {
			r.turn("s1", "It is done.")
			r.status("s1", row.SessionActive)
			if len(x.sent) != n+1 {
				t.Fatalf("len(x.sent) = %v, want %v; x.sent = %q; r.kinds() = %q", len(x.sent), n+1, x.sent, r.kinds())
			}
		}
		r.turn("s1", "It is done.")
		r.status("s1", row.SessionWaiting)
		r.wait(time.Minute)
		if len(x.sent) != 3 || x.sent[0] != "Write tests and run them." || x.stopped != 0 {
			t.Errorf(`len(x.sent) = %v, want 3; x.sent = %q, want x.sent[0] = "Write tests and run them."; x.stopped = %v, want 0`,
				len(x.sent), x.sent, x.stopped)
		}
		d := r.detail()
		if d.Status != row.ThreadWaiting || len(d.VerifierJobs) != 4 || len(d.Evidence) != 4 || len(d.Artifacts) != 4 {
			t.Errorf("status = %v, %d jobs, %d pieces of evidence, %d artifacts; want waiting, 4, 4, 4",
				d.Status, len(d.VerifierJobs), len(d.Evidence), len(d.Artifacts))
		}
		for _, j := range d.VerifierJobs {
			if j.Status != row.JobFailed {
				t.Errorf("j.Status = %q, want row.JobFailed", j.Status)
			}
		}
		if raw, err := os.ReadFile(d.Artifacts[0].Path); err != nil || !strings.Contains(string(raw), "no tests") {
			t.Errorf(`os.ReadFile(d.Artifacts[0].Path): err = %v, want nil; string(raw) = %q, want it to contain "no tests"`, err, string(raw))
		}
		if len(r.said) != 1 || !strings.Contains(r.said[0], "It is done.") {
			t.Errorf(`len(r.said) = %v, want 1; r.said = %q, want r.said[0] to contain "It is done."`, len(r.said), r.said)
		}
	})
}

func TestAPassCompletesAndAnEscalationKeepsTheSession(t *testing.T) {
	play(t, validated(t, judge(`{"verdict":"pass","summary":"fine"}`)), func(r *rig) {
		x := r.start("s1", nil)
		r.turn("s1", "It is done.")
		r.status("s1", row.SessionCompleted)
		r.wait(10 * time.Second)
		if d := r.detail(); x.stopped != 1 || d.Status != row.ThreadDone || d.VerifierJobs[0].Status != row.JobPassed {
			t.Errorf("%d stops, status = %v, jobs = %+v; want one, done, passed", x.stopped, d.Status, d.VerifierJobs)
		}
	})
	play(t, validated(t, judge("I do not know")), func(r *rig) {
		x := r.start("s1", nil)
		r.turn("s1", "It is done.")
		r.status("s1", row.SessionWaiting)
		r.wait(23 * time.Hour)
		if x.stopped != 0 {
			t.Errorf("it was stopped; got x.stopped = %v; want x.stopped = 0", x.stopped)
		}
		r.wait(2 * time.Hour)
		r.status("s1", row.SessionInterrupted)
		r.count(1, "swarm_complete")
	})
}

func TestAProgramThatEndsLeavesAnEnd(t *testing.T) {
	for name, c := range map[string]struct {
		events []sessions.Event
		want   row.SessionStatus
		thread row.ThreadStatus
	}{
		"before anything was accepted": {[]sessions.Event{{Type: sessions.Ended}}, row.SessionStopped, row.ThreadInterrupted},
		"at once after its last turn": {[]sessions.Event{
			{Type: sessions.TaskComplete, Source: "hook", Text: "It is done."},
			{Type: sessions.Ended},
		}, row.SessionCompleted, row.ThreadDone},
		"by a crash": {
			[]sessions.Event{{Type: sessions.Failed, Text: "segmentation fault"}},
			row.SessionError,
			row.ThreadFailed,
		},
		"and nothing else can be used": {
			[]sessions.Event{{Type: sessions.Failed, Text: "usage limit reached"}},
			row.SessionError,
			row.ThreadFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(r *rig) { r.cfg.Model = script(complete) }, func(r *rig) {
				r.start("s1", nil)
				for _, e := range c.events {
					r.send("s1", e)
				}
				r.wait(time.Minute)
				r.status("s1", c.want)
				r.count(1, "swarm_complete")
				if d := r.detail(); d.Status != c.thread || d.Sessions[0].CompletionSummary == "" {
					t.Errorf(`d.Status = %q, want %q; d.Sessions = %+v, want d.Sessions[0].CompletionSummary other than ""`,
						d.Status, c.thread, d.Sessions)
				}
			})
		})
	}
}

func TestWhatCannotBeStartedIsAnEndToo(t *testing.T) {
	play(t, func(r *rig) {
		r.next, r.unable = []programs.Name{"codex"}, capability.Errorf(capability.CodeOverloaded, "test", "no room")
	}, func(r *rig) {
		r.start("s1", nil)
		r.send("s1", sessions.Event{Type: sessions.TurnFailed, Kind: "authentication_failed"})
		r.wait(time.Minute)
		r.status("s1", row.SessionError)
		if s := r.row("s1"); !strings.Contains(row.Meta(s.Metadata, "reason"), "no room") {
			t.Errorf("metadata = %s, want the reason no room", s.Metadata)
		}
		r.count(1, "swarm_complete")
	})
}

func TestAProgramThatRetriesHasNotFailed(t *testing.T) {
	play(t, func(r *rig) { r.next = []programs.Name{"codex"} }, func(r *rig) {
		r.start("s1", nil)
		retry := sessions.Event{Type: sessions.State, To: &detect.Status{State: detect.Busy, Phase: detect.PhaseRetry}}
		r.send("s1", retry)
		r.wait(4 * time.Minute)
		r.send("s1", sessions.Event{Type: sessions.State, To: &detect.Status{State: detect.Busy}})
		r.wait(2 * time.Minute)
		r.count(0, "task_recovery_started")
		r.send("s1", retry)
		r.wait(6 * time.Minute)
		r.count(1, "task_recovery_started")
	})
}

func TestTheWatchdogLooksFourTimes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rig)
		looks  int
	}{
		"with a model": {func(r *rig) { r.cfg.Model = script(leave) }, 4},
		"without":      {nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, c.change, func(r *rig) {
				x := r.start("s1", nil)
				x.screen = []string{"working"}
				r.wait(4*time.Minute + 30*time.Second)
				r.count(0, "idle_check_decision")
				r.wait(30 * time.Minute)
				r.count(c.looks, "idle_check_decision")
				r.count(1, "escalation")
				r.status("s1", row.SessionBlocked)
				if x.stopped != 0 {
					t.Errorf("it was stopped; got x.stopped = %v; want x.stopped = 0", x.stopped)
				}
			})
		})
	}
}

// forgetful is a registry that loses every other answer about what it has kept.
type forgetful struct {
	coordinator.Registry
	calls atomic.Int32
}

func (f *forgetful) lose(m threads.Moved, err error) (threads.Moved, error) {
	if err == nil && f.calls.Add(1)%2 == 1 {
		err = capability.Errorf(capability.CodeUnavailable, "test", "the answer is lost")
	}
	return m, err
}

func (f *forgetful) UpdateSession(ctx context.Context, id string, change func(*row.Session)) (threads.Moved, error) {
	return f.lose(f.Registry.UpdateSession(ctx, id, change))
}

func (f *forgetful) UpdateThread(ctx context.Context, id string, change func(*row.Thread)) (threads.Moved, error) {
	return f.lose(f.Registry.UpdateThread(ctx, id, change))
}

func TestAnEndIsToldOnceThoughAnswersAreLost(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model, r.cfg.Registry = script(complete), &forgetful{Registry: r.reg} }, func(r *rig) {
		r.start("s1", nil)
		r.turn("s1", "It is done.")
		r.wait(time.Minute)
		r.status("s1", row.SessionCompleted)
		r.count(1, "swarm_complete")
	})
}

func TestALoginIsToldOnce(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.start("s1", nil)
		r.send("s1", sessions.Event{Type: sessions.LoginRequired, Text: "open https://login.example"})
		r.send("s1", sessions.Event{Type: sessions.LoginRequired, Text: "open https://login.example"})
		r.status("s1", row.SessionBlocked)
		if len(r.said) != 1 || !strings.Contains(r.said[0], "https://login.example") {
			t.Errorf(`len(r.said) = %v, want 1; r.said = %q, want r.said[0] to contain "https://login.example"`, len(r.said), r.said)
		}
	})
}

func TestARuleThatAnsweredIsRecordedAndDoesNotCount(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(yes) }, func(r *rig) {
		r.start("s1", nil)
		r.send("s1", sessions.Event{
			Type: sessions.BlockedNow, Answered: "trust",
			To: &detect.Status{State: detect.Blocked, Blocker: &detect.Blocker{Prompt: "Do you trust it?", Fingerprint: "f"}},
		})
		if s := r.row("s1"); s.AutoResolvedCount != 1 || s.Status != row.SessionActive {
			t.Errorf("%+v; want s.AutoResolvedCount = 1, s.Status = row.SessionActive", s)
		}
		r.count(1, "blocked_auto_resolved")
		r.count(0, "coordination_decision")
	})
}

func TestEventsBeforeTheRegistrationAreNotMissed(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(complete) }, func(r *rig) {
		r.term("s1")
		r.turn("s1", "It is done.")
		if _, err := r.Register(r.t.Context(), threads.Registration{
			ThreadID: r.thread,
			Session:  row.Session{SessionID: "s1", Framework: "claude", Workdir: "/w"},
		}); err != nil {
			t.Fatal(err)
		}
		r.wait(time.Second)
		r.status("s1", row.SessionCompleted)
	})
}

func TestWhoDoesNotListenIsNotWaitedFor(t *testing.T) {
	play(t, nil, func(r *rig) {
		events, end := r.Subscribe(1)
		defer end()
		r.start("s1", nil)
		r.dialog("s1", "Which approach?", "a", "b")
		n := 0
		for range events { // it was closed
			n++
		}
		if n != 1 {
			t.Errorf("n = %v, want 1", n)
		}
	})
}

// TestEveryThreadEndsAndIsToldOnce: whatever comes, a thread whose sessions are gone is
// over, states why, and was told exactly once.
func TestEveryThreadEndsAndIsToldOnce(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 1))
			play(t, func(r *rig) {
				verdicts := []string{
					`{"verdict":"pass"}`, `{"verdict":"revise","followUpPrompt":"again, with more care"}`, `{"verdict":"escalate"}`,
					"?",
				}
				answers := []string{
					yes, goOn, complete, complete, leave, `{"action":"escalate","response":"Help?"}`, "nonsense",
					`{"action":"respond","useKeys":true,"keys":["enter"]}`,
				}
				said := rand.New(rand.NewPCG(seed, 2))
				var mu sync.Mutex
				m := model(func(_ bool, prompt string) string {
					mu.Lock()
					defer mu.Unlock()
					if strings.Contains(prompt, "You validate") {
						return verdicts[said.IntN(len(verdicts))]
					}
					return answers[said.IntN(len(answers))]
				})
				if seed%5 != 0 {
					r.cfg.Model = m
				}
				r.cfg.Validator = validation.New(validation.Config{Model: r.cfg.Model, Now: time.Now})
				r.cfg.Level = []coordinator.Level{coordinator.Autonomous, coordinator.Autonomous, coordinator.Confirm, coordinator.Notify}[seed%4]
				r.next = []programs.Name{"codex", "gemini"}
				if seed%7 == 6 {
					r.unable = errors.New("no room")
				}
			}, func(r *rig) {
				r.start("s1", nil)
				texts := []string{"", "It is done.", "What now?", "DECISION: cannot continue", "All 3 tests pass", "✻ Thinking…"}
				for range 40 {
					var id string
					r.mu.Lock()
					var live []string
					for n := range len(r.terms) {
						if id := fmt.Sprint("s", n+1); r.terms[id].info.Status != detect.Stopped && r.terms[id].info.Status != detect.Error {
							live = append(live, id)
						}
					}
					if len(live) > 0 {
						id = live[rnd.IntN(len(live))]
					}
					r.mu.Unlock()
					if id == "" {
						break
					}
					b := &detect.Blocker{
						Type: []string{"permission", "question"}[rnd.IntN(2)], Prompt: []string{"Edit /etc/x?", "Proceed?"}[rnd.IntN(2)],
						Options: []string{"Yes", "No"}[:2*rnd.IntN(2)], Fingerprint: fmt.Sprint(rnd.IntN(3)),
					}
					e := []sessions.Event{
						{Type: sessions.BusyNow},
						{Type: sessions.ReadyAgain},
						{Type: sessions.ToolRunning},
						{Type: sessions.Message},
						{Type: sessions.TaskComplete, Source: "hook", Text: texts[rnd.IntN(len(texts))]},
						{Type: sessions.TaskComplete, Source: "signal", Text: texts[rnd.IntN(len(texts))]},
						{Type: sessions.BlockedNow, To: &detect.Status{State: detect.Blocked, Blocker: b}},
						{Type: sessions.BlockedNow, To: &detect.Status{State: detect.Blocked, Blocker: b}},
						{Type: sessions.BlockedNow, Answered: "rule", To: &detect.Status{State: detect.Blocked, Blocker: b}},
						{Type: sessions.LoginRequired},
						{Type: sessions.State, To: &detect.Status{State: detect.Busy, Phase: detect.PhaseRetry}},
						{Type: sessions.TurnFailed, Kind: []string{"billing_error", "other"}[rnd.IntN(2)]},
						{Type: sessions.Failed, Text: []string{"crash", "quota exceeded"}[rnd.IntN(2)]},
						{Type: sessions.Ended},
					}[rnd.IntN(14)]
					r.send(id, e)
					r.wait(time.Duration(rnd.IntN(3)*rnd.IntN(300)) * time.Second)
					if rnd.IntN(4) == 0 {
						_ = r.Confirm(r.t.Context(), id, rnd.IntN(3) > 0, nil) // there may be nothing to confirm
					}
				}
				for n := 1; ; n++ { // then all programs end
					id := fmt.Sprint("s", n)
					r.mu.Lock()
					x := r.terms[id]
					r.mu.Unlock()
					if x == nil {
						break
					}
					x.Stop(true)
					r.wait(time.Minute)
				}
				d := r.detail()
				if !d.Status.Closed() {
					t.Errorf("d.Status.Closed() = false, want true; d.Status = %q; r.kinds() = %q", d.Status, r.kinds())
				}
				for _, s := range d.Sessions {
					if !s.Status.Over() || s.CompletionSummary == "" && row.Meta(s.Metadata, row.ReplacedBy) == "" {
						t.Errorf(`%+v; want s.Status.Over(), not (s.CompletionSummary == "" && row.Meta(s.Metadata, row.ReplacedBy) == "")`,
							s)
					}
				}
				if len(d.PendingDecisions) != 0 {
					t.Errorf("something still waits to be confirmed; got len(d.PendingDecisions) = %v; want len(d.PendingDecisions) = 0",
						len(d.PendingDecisions))
				}
				// Told for each time that it ended: the registry's events say how often.
				ended := 0
				for _, e := range d.Events {
					if e.EventType == row.TaskStatusChanged && (strings.HasSuffix(e.Summary, "→ done") || strings.HasSuffix(e.Summary, "→ failed") ||
						strings.HasSuffix(e.Summary, "→ interrupted")) {
						ended++
					}
				}
				if got := len(r.kinds("swarm_complete")); got != ended || got == 0 {
					t.Errorf(`ends: told of: len(r.kinds("swarm_complete")) = %v, want %v and other than 0; r.kinds() = %q`, got, ended, r.kinds())
				}
			})
		})
	}
}
