package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func TestRoutineGoesToTheSmallModelAndCreativeToTheParent(t *testing.T) {
	var small, large int
	play(t, func(r *rig) {
		r.cfg.Model = model(func(s bool, _ string) string {
			if s {
				small++
			} else {
				large++
			}
			return yes
		})
	}, func(r *rig) {
		x := r.start("s1", nil)
		r.dialog("s1", "Allow tool Bash?", "Yes", "No")
		if small != 1 || large != 0 || len(x.chosen) != 1 || x.chosen[0] != "Yes" {
			t.Errorf(`small = %v, want 1; large = %v, want 0; len(x.chosen) = %v, want 1; x.chosen = %q, want x.chosen[0] = "Yes"`,
				small, large, len(x.chosen), x.chosen)
		}
		r.status("s1", row.SessionActive)
		d := r.detail()
		if len(d.Decisions) != 1 || d.Decisions[0].Decision != row.Respond || d.Decisions[0].Response != "Yes" {
			t.Errorf(`%+v; want len(d.Decisions) = 1, d.Decisions[0].Decision = row.Respond, d.Decisions[0].Response = "Yes"`,
				d.Decisions)
		}
		if diff := cmp.Diff([]string{"task_registered", "blocked", "coordination_decision"},
			r.kinds("task_registered", "blocked", "coordination_decision", "escalation")); diff != "" {
			t.Errorf(`diff = %q, want ""`, diff)
		}
	})
}

func TestTenAnswersInARowAreEnough(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(yes) }, func(r *rig) {
		x := r.start("s1", nil)
		for range 10 {
			r.dialog("s1", "Allow tool Bash?", "Yes", "No")
		}
		r.count(0, "escalation")
		r.dialog("s1", "Allow tool Bash?", "Yes", "No")
		if len(x.chosen) != 10 {
			t.Errorf("len(x.chosen) = %v, want 10; x.chosen = %q", len(x.chosen), x.chosen)
		}
		r.count(1, "escalation")
		r.status("s1", row.SessionBlocked)
		if x.stopped != 0 {
			t.Errorf("an escalation stopped the session; got x.stopped = %v; want x.stopped = 0", x.stopped)
		}
	})
}

func TestAQuestionToTheUserIsEscalated(t *testing.T) {
	play(t, func(r *rig) {
		r.cfg.Model = script(`{"action":"respond","response":"Please provide the API key.","reasoning":"it is missing"}`)
	}, func(r *rig) {
		x := r.start("s1", nil)
		r.turn("s1", "I need a key.")
		if len(x.sent) != 0 || x.stopped != 0 || len(r.said) != 1 || r.said[0] != "room: Please provide the API key." {
			t.Errorf("sent = %q, %d stops, messages = %q; want only the question for the API key", x.sent, x.stopped, r.said)
		}
		r.status("s1", row.SessionBlocked)
		r.send("s1", sessions.Event{Type: sessions.BusyNow}) // the user answers in the terminal
		r.status("s1", row.SessionActive)
	})
}

func TestAFinishedTaskIsToldOnce(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(goOn, complete) }, func(r *rig) {
		x := r.start("s1", nil)
		r.turn("s1", "half of it")
		if len(x.sent) != 1 {
			t.Fatalf("len(x.sent) = %v, want 1; x.sent = %q; r.kinds() = %q", len(x.sent), x.sent, r.kinds())
		}
		r.turn("s1", "It is done: all of it.")
		r.status("s1", row.SessionCompleted)
		r.turn("s1", "It is done: all of it.") // another hook says the same
		r.count(1, "swarm_complete")
		r.count(1, "task_complete")
		if x.stopped != 0 {
			t.Errorf("stopped before anybody could go on; got x.stopped = %v; want x.stopped = 0", x.stopped)
		}
		r.wait(10 * time.Second)
		if x.stopped != 1 {
			t.Errorf("it was not stopped; got x.stopped = %v; want x.stopped = 1", x.stopped)
		}
		r.status("s1", row.SessionCompleted)
		r.count(1, "swarm_complete")
		// Who changes the thread again sees the same end, and it is not told again; a new
		// session arms it.
		if _, err := r.Register(r.t.Context(), threads.Registration{
			ThreadID: r.thread,
			Session:  row.Session{SessionID: "s2", Framework: "claude", Workdir: "/w"},
		}); err != nil {
			t.Fatal(err) // nothing runs for it, which is its end
		}
		r.wait(time.Second)
		r.status("s2", row.SessionStopped)
		r.count(2, "swarm_complete")
		if len(r.said) != 2 || !strings.Contains(r.said[0], "build it: 1 of 1 done.\n- s1 (completed): It is done: all of it.") {
			t.Errorf("messages = %q, want the second to report 1 of 1 done", r.said)
		}
	})
}

func TestWhatCannotBeResumedIsBegunAnew(t *testing.T) {
	play(t, func(r *rig) { r.cfg.Model = script(complete) }, func(r *rig) {
		r.term("s1")
		s := row.Session{
			SessionID: "s1", Framework: "claude", OriginalTask: "build it", Workdir: "/w",
			Metadata: row.WithMeta(nil, row.StartOver, "build it, from what is there"),
		}
		if _, err := r.Register(r.t.Context(), threads.Registration{ThreadID: r.thread, Session: s}); err != nil {
			t.Fatal(err)
		}
		r.send("s1", sessions.Event{Type: sessions.Failed, Text: "No conversation found"})
		r.wait(time.Second)
		if len(r.spawns) != 1 || r.spawns[0] != "build it, from what is there" {
			t.Errorf(`len(r.spawns) = %v, want 1; r.spawns = %q, want r.spawns[0] = "build it, from what is there"`, len(r.spawns), r.spawns)
		}
		r.status("s2", row.SessionActive)
		r.send("s2", sessions.Event{Type: sessions.Failed, Text: "No conversation found"}) // once
		r.wait(time.Second)
		r.status("s2", row.SessionError)
	})
}

func TestAProgramThatCannotBeStartedIsPassedOver(t *testing.T) {
	play(t, func(r *rig) {
		r.cfg.Model = script(complete)
		r.next, r.broken = []programs.Name{"opencode", "codex"}, "opencode"
	}, func(r *rig) {
		r.start("s1", nil)
		r.send("s1", sessions.Event{Type: sessions.TurnFailed, Kind: "billing_error", Text: "Credit balance is too low"})
		r.wait(time.Second)
		r.status("s2", row.SessionActive)
		if s := r.row("s2"); s.Framework != "codex" {
			t.Errorf(`%+v; want s.Framework = "codex"`, s)
		}
	})
}

func TestAFailureOfTheProviderIsRecovered(t *testing.T) {
	play(t, func(r *rig) {
		r.cfg.Model = script(complete)
		r.next = []programs.Name{"codex", "gemini", "pi"}
	}, func(r *rig) {
		x := r.start("s1", nil)
		x.screen = []string{"half of it is in a.go"}
		fail := sessions.Event{Type: sessions.TurnFailed, Kind: "billing_error", Text: "Credit balance is too low"}
		r.send("s1", fail)
		r.wait(time.Second)
		r.count(1, "task_recovery_started")
		r.status("s1", row.SessionStopped)
		r.status("s2", row.SessionActive)
		if s := r.row("s2"); s.Framework != "codex" || s.Workdir != "/w" {
			t.Errorf(`%+v; want s.Framework = "codex", s.Workdir = "/w"`, s)
		}
		if len(r.spawns) != 1 || !strings.Contains(r.spawns[0], "build it") || !strings.Contains(r.spawns[0], "half of it is in a.go") ||
			!strings.Contains(r.spawns[0], "do not start over") || !strings.Contains(r.spawns[0], "billing_error") {
			t.Errorf("spawns = %q, want one with the task, the work done so far and billing_error", r.spawns)
		}
		r.count(0, "stopped")
		r.count(0, "swarm_complete")
		r.send("s2", fail)
		r.wait(time.Second)
		r.status("s3", row.SessionActive)
		r.send("s3", fail) // twice is enough
		r.wait(10 * time.Second)
		r.count(2, "task_recovery_started")
		r.status("s3", row.SessionError)
		if diff := cmp.Diff([]programs.Name{"claude", "codex"}, r.rested); diff != "" {
			t.Errorf("diff (-want +got):\n%s", diff)
		}
		r.count(1, "swarm_complete")
		if d := r.detail(); d.Status != row.ThreadFailed {
			t.Errorf("d.Status = %q, want row.ThreadFailed", d.Status)
		}
	})
}
