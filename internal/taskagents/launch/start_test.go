package launch_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/threads/threadsql"
)

// programs start where there are places.
type programs struct {
	places, spawned atomic.Int32
}

func (p *programs) Spawn(context.Context, capability.Principal, agents.Request) (agents.Info, error) {
	time.Sleep(time.Second) // who comes meanwhile must not start the same
	if p.places.Add(-1) < 0 {
		p.places.Add(1)
		return agents.Info{}, capability.Errorf(capability.CodeOverloaded, "test", "full").With("too_many_sessions", "")
	}
	i := agents.Info{}
	i.ID = fmt.Sprint("s", p.spawned.Add(1))
	return i, nil
}

func (*programs) Keep(string) (agents.Info, error)           { return agents.Info{}, nil }
func (*programs) Send(context.Context, string, string) error { return nil }
func (*programs) Stop(string, bool)                          {}

// coordinated enters sessions into the registry.
type coordinated struct{ *threads.Registry }

func (coordinated) SetContext(context.Context, string, string) error { return nil }
func (coordinated) Conclude(string)                                  {}

// planned runs a test with a thread of two parts that have not been started, in fake time.
func planned(t *testing.T, standing func(string) (capability.Principal, error),
	test func(t *testing.T, l *launch.Launcher, p *programs, r *threads.Registry, thread string),
) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "junctor.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		st, err := threadsql.Open(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		r, err := threads.New(threads.Config{Store: st, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.Create(t.Context(), threads.Plan{
			Thread: row.Thread{Title: "x"},
			Parts:  []threads.Part{{Title: "a", AgentType: "claude"}, {Title: "b", AgentType: "claude"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		p := &programs{}
		l := launch.New(launch.Config{Registry: r, Agents: p, Standing: standing, Logger: slog.New(slog.DiscardHandler)})
		l.Use(coordinated{r})
		test(t, l, p, r, c.Thread.ID)
	})
}

func anybody(string) (capability.Principal, error) { return capability.Principal{}, nil }

func statuses(t *testing.T, r *threads.Registry, thread string) (list []row.NodeStatus, sessions int) {
	t.Helper()
	d, err := r.Detail(t.Context(), thread, threads.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range d.Nodes[1:] {
		list = append(list, n.Status)
	}
	return list, len(d.Sessions)
}

// TestAPartIsStartedOnce: of those who see it ready at the same time, one starts it.
func TestAPartIsStartedOnce(t *testing.T) {
	t.Parallel()
	planned(t, anybody, func(t *testing.T, l *launch.Launcher, p *programs, r *threads.Registry, thread string) {
		p.places.Store(8)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() { l.Begin(t.Context(), thread) })
			group.Go(func() {
				_, _ = l.Control(t.Context(), capability.Principal{}, launch.Control{ThreadID: thread, Operation: launch.Resume}) // nothing may be left
			})
		}
		group.Wait()
		if list, sessions := statuses(t, r, thread); p.spawned.Load() != 2 || sessions != 2 || list[0] != row.NodeClaimed ||
			list[1] != row.NodeClaimed || l.Starting(thread) {
			t.Errorf("%d spawned, %d sessions, nodes = %v; want 2, 2, all claimed", p.spawned.Load(), sessions, list)
		}
	})
}

// TestWhoResumesDoesNotWaitForThoseThatDo: parts that wait for a place go on waiting, and are
// said to be ready.
func TestWhoResumesDoesNotWaitForThoseThatDo(t *testing.T) {
	t.Parallel()
	planned(t, anybody, func(t *testing.T, l *launch.Launcher, p *programs, r *threads.Registry, thread string) {
		var group sync.WaitGroup
		group.Go(func() { l.Begin(t.Context(), thread) })
		time.Sleep(time.Minute)
		begun := time.Now()
		c, err := l.Control(t.Context(), capability.Principal{}, launch.Control{ThreadID: thread, Operation: launch.Resume})
		if err != nil || len(c.Agents) != 2 || c.Agents[0].Status != "ready" || c.Agents[0].Error != nil || time.Since(begun) > 0 ||
			!l.Starting(thread) {
			t.Errorf(`%+v %v after %v; want no error, len(c.Agents) = 2, c.Agents[0].Status = "ready", c.Agents[0].Error = nil, `+
				"time.Since(begun) at most 0, l.Starting(thread)", c, err, time.Since(begun))
		}
		p.places.Store(1)
		time.Sleep(time.Minute)
		if list, sessions := statuses(t, r, thread); sessions != 1 || list[0] == list[1] {
			t.Errorf("nodes = %v, %d sessions; want different states, one session", list, sessions)
		}
		// Who stops the thread ends the waiting.
		if _, err := l.Control(t.Context(), capability.Principal{}, launch.Control{ThreadID: thread, Operation: launch.Stop}); err != nil {
			t.Error(err)
		}
		group.Wait()
		if _, sessions := statuses(t, r, thread); sessions != 1 || l.Starting(thread) {
			t.Errorf("%d sessions, starting = %v; want 1, false", sessions, l.Starting(thread))
		}
	})
}

// TestAPartOfNobodyFails: if the creator of the thread is gone, its parts cannot be begun.
func TestAPartOfNobodyFails(t *testing.T) {
	t.Parallel()
	gone := func(string) (capability.Principal, error) {
		return capability.Principal{}, capability.Errorf(capability.CodeNotFound, "test", "gone")
	}
	planned(t, gone, func(t *testing.T, l *launch.Launcher, p *programs, r *threads.Registry, thread string) {
		l.Begin(t.Context(), thread)
		if list, _ := statuses(t, r, thread); list[0] != row.NodeFailed || list[1] != row.NodeFailed || p.spawned.Load() != 0 {
			t.Errorf("nodes = %v, %d spawned; want all failed, none spawned", list, p.spawned.Load())
		}
	})
}

// TestAThreadInWhichSomethingRunsIsNotGivenUp: that a part of it cannot go on for want of a
// place is an error, and no end of the others.
func TestAThreadInWhichSomethingRunsIsNotGivenUp(t *testing.T) {
	t.Parallel()
	for status, held := range map[row.SessionStatus]bool{row.SessionActive: false, row.SessionInterrupted: true} {
		planned(t, anybody, func(t *testing.T, l *launch.Launcher, _ *programs, r *threads.Registry, thread string) {
			d, err := r.Detail(t.Context(), thread, threads.Selection{})
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range []row.SessionStatus{status, row.SessionError} {
				s := row.Session{SessionID: fmt.Sprint(i), Framework: "claude", Status: s}
				if _, err := r.Register(t.Context(), threads.Registration{ThreadID: thread, Node: d.Nodes[i+1].ID, Session: s}); err != nil {
					t.Fatal(err)
				}
			}
			_, err = l.Control(t.Context(), capability.Principal{}, launch.Control{ThreadID: thread, Operation: launch.Resume})
			d, _ = r.Detail(t.Context(), thread, threads.Selection{})
			if capability.AsError(err).Reason != "too_many_sessions" || d.Held() != held {
				t.Errorf("%v: err = %v, metadata = %s; want too_many_sessions, held = %v", status, err, d.Metadata, held)
			}
		})
	}
}
