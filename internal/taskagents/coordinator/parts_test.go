package coordinator_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// launcher begins parts as launch.Launcher does: it says while it starts some.
type launcher struct {
	asked    atomic.Int32 // how often parts were to be begun
	fails    bool         // to begin c
	starting atomic.Bool
}

func (l *launcher) join(r *rig) {
	r.cfg.Model = script(complete)
	r.cfg.Starting = func(string) bool { return l.starting.Load() }
	r.cfg.Begin = func(context.Context, string) {
		if l.asked.Add(1); !l.fails {
			r.enter("c", nil)
		}
	}
}

// plan makes a thread of the parts a, b and c, of which c waits for a, and starts a and b.
func (l *launcher) plan(r *rig) {
	r.thread = r.create("build it", threads.Part{Title: "a", Label: "a"}, threads.Part{Title: "b", Label: "b"},
		threads.Part{Title: "c", Label: "c", DependsOn: []int{0}})
	l.starting.Store(true)
	r.start("a", nil)
	r.start("b", nil)
	l.starting.Store(false)
	r.Conclude(r.thread)
}

// part is the status of a part.
func (r *rig) part(label string) row.NodeStatus {
	r.t.Helper()
	for _, n := range r.detail().Nodes {
		if n.AssignedLabel == label {
			return n.Status
		}
	}
	r.t.Fatal("no part ", label)
	return ""
}

// done has the work at a part accepted.
func (r *rig) done(id string) {
	r.t.Helper()
	r.turn(id, "It is done.")
	r.wait(time.Second)
	r.status(id, row.SessionCompleted)
}

// TestAPartBeginsWhenWhatItWaitsForIsDone: whatever else runs, has failed before, or fails later.
func TestAPartBeginsWhenWhatItWaitsForIsDone(t *testing.T) {
	fails := sessions.Event{Type: sessions.Failed, Text: "segmentation fault"}
	for name, b := range map[string]func(r *rig, before bool){
		"while another runs": func(*rig, bool) {},
		"after another has failed": func(r *rig, before bool) {
			if before {
				r.send("b", fails)
			}
		},
		"and another fails besides": func(r *rig, before bool) {
			if !before {
				r.send("b", fails)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l launcher
			play(t, l.join, func(r *rig) {
				l.plan(r)
				b(r, true)
				if r.part("c") != row.NodePlanned || l.asked.Load() != 0 {
					t.Errorf(`r.part("c") = %q, want row.NodePlanned; l.asked.Load() = %v, want 0`, r.part("c"), l.asked.Load())
				}
				r.done("a")
				if r.part("c") != row.NodeClaimed || l.asked.Load() != 1 {
					t.Errorf(`r.part("c") = %q, want row.NodeClaimed; l.asked.Load() = %v, want 1`, r.part("c"), l.asked.Load())
				}
				b(r, false)
				r.count(0, "swarm_complete")
				r.done("c")
				want := row.ThreadFailed
				if strings.HasPrefix(name, "while") {
					r.count(0, "swarm_complete")
					r.done("b")
					want = row.ThreadDone
				}
				r.wait(time.Minute)
				if d := r.detail(); d.Status != want || l.asked.Load() != 1 {
					t.Errorf("d.Status = %q, want %q; l.asked.Load() = %v, want 1", d.Status, want, l.asked.Load())
				}
				r.count(1, "swarm_complete")
			})
		})
	}
}

// TestAPartThatCannotBeginEndsItsThread: it is not tried again and again, and the message says
// that it was not begun.
func TestAPartThatCannotBeginEndsItsThread(t *testing.T) {
	l := launcher{fails: true}
	play(t, l.join, func(r *rig) {
		l.plan(r)
		r.done("b")
		r.done("a")
		r.wait(time.Minute)
		r.count(1, "swarm_complete")
		if len(r.said) != 1 || !strings.Contains(r.said[0], "2 of 3 done, 1 not begun") || !strings.Contains(r.said[0], "- c (not begun)") ||
			l.asked.Load() != 1 {
			t.Errorf("messages = %q, asked %d times; want one with 2 of 3 done and c not begun, asked once", r.said, l.asked.Load())
		}
	})
}

// TestWhatWaitsForAFailedPartIsNotBegun, nor what is ready in a stopped thread.
func TestWhatWaitsForAFailedPartIsNotBegun(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"failed": func(r *rig) { r.send("a", sessions.Event{Type: sessions.Failed, Text: "segmentation fault"}) },
		"stopped": func(r *rig) {
			if _, err := r.reg.Control(r.t.Context(), r.thread, threads.Stop, ""); err != nil {
				r.t.Fatal(err)
			}
			r.done("a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l launcher
			play(t, l.join, func(r *rig) {
				l.plan(r)
				end(r)
				r.done("b")
				r.wait(time.Minute)
				r.count(1, "swarm_complete")
				if l.asked.Load() != 0 || !strings.Contains(r.said[0], "- c (not begun)") {
					t.Errorf(`l.asked.Load() = %v, want 0; r.said = %q, want r.said[0] to contain "- c (not begun)"`, l.asked.Load(), r.said)
				}
			})
		})
	}
}

// TestWhoStartsPartsIsNotInterrupted: while a launcher starts parts of a thread, none is begun
// beside them and no end is told; both come with Conclude.
func TestWhoStartsPartsIsNotInterrupted(t *testing.T) {
	var l launcher
	play(t, l.join, func(r *rig) {
		l.plan(r)
		l.starting.Store(true)
		r.done("a")
		r.done("b")
		if l.asked.Load() != 0 {
			t.Error("begun beside; want l.asked.Load() = 0")
		}
		r.count(0, "swarm_complete")
		l.starting.Store(false)
		r.Conclude(r.thread)
		r.wait(time.Second)
		if l.asked.Load() != 1 {
			t.Error("not begun after; want l.asked.Load() = 1")
		}
		r.done("c")
		r.count(1, "swarm_complete")
	})
}
