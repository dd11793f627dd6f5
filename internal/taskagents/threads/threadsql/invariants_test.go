package threadsql_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func quote(s string) []byte { return jsonx.AppendString(nil, row.Text(s)) }

// hold checks what must be true of every thread at every moment, said in other words
// than the registry's.
func (w *world) hold(t testing.TB) {
	t.Helper()
	list := must(w.List(t.Context(), threads.Filter{Archived: true, Limit: threads.MaxLimit}))(t)
	for _, s := range list {
		for _, broken := range violations(w.detail(t, s.ID)) {
			t.Errorf("thread %s: %s", s.ID, broken)
		}
	}
}

func violations(d threads.Detail) (out []string) {
	say := func(ok bool, format string, args ...any) {
		if !ok {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	say(d.Status == expected(d), "is %s, and its sessions say %s", d.Status, expected(d))
	if d.Status != row.ThreadArchived {
		say(d.Status.Closed() == !d.ClosedAt.IsZero(), "is %s, closed %v", d.Status, d.ClosedAt)
	}
	say((d.Status == row.ThreadArchived) == !d.ArchivedAt.IsZero(), "is %s, archived %v", d.Status, d.ArchivedAt)
	sessions, nodes, jobs := map[string]row.Session{}, map[string]row.Node{}, map[string]bool{}
	decided := map[string]int{}
	for _, s := range d.Sessions {
		sessions[s.SessionID] = s
		by := row.Meta(s.Metadata, row.ReplacedBy)
		say(by == "" || !s.Status.Live(), "session %s was replaced and is %s", s.SessionID, s.Status)
		say(s.Status.Live() == (s.StoppedAt == 0), "session %s is %s, stopped at %d", s.SessionID, s.Status, s.StoppedAt)
	}
	for _, s := range d.Sessions {
		by := row.Meta(s.Metadata, row.ReplacedBy)
		_, there := sessions[by]
		say(by == "" || there, "session %s was replaced by nobody", s.SessionID)
	}
	for _, x := range d.Decisions {
		decided[x.SessionID]++
	}
	for id, s := range sessions {
		say(decided[id] == s.DecisionCount, "session %s has %d decisions and says %d", id, decided[id], s.DecisionCount)
	}
	for _, n := range d.Nodes {
		nodes[n.ID] = n
		_, there := sessions[n.AssignedSessionID]
		say(n.AssignedSessionID == "" || there, "node %s has the session %s, which is not there", n.Title, n.AssignedSessionID)
		say(n.Status.Over() == !n.CompletedAt.IsZero(), "node %s is %s, completed %v", n.Title, n.Status, n.CompletedAt)
	}
	for _, n := range d.Nodes {
		failed, open := 0, 0
		for _, x := range d.Dependencies {
			from, there := nodes[x.FromNodeID]
			_, to := nodes[x.ToNodeID]
			say(there && to, "dependency %s leads nowhere", x.ID)
			if x.ToNodeID != n.ID || from.Status == row.NodeCompleted {
				continue
			}
			open++
			if from.Status == row.NodeFailed || from.Status == row.NodeCanceled {
				failed++
			}
		}
		switch n.Status {
		case row.NodeReady:
			say(open == 0, "node %s is ready and waits for %d", n.Title, open)
		case row.NodePlanned:
			say(open > 0 && failed == 0, "node %s is planned, waits for %d of which %d failed", n.Title, open, failed)
		case row.NodeBlocked:
			say(failed > 0 || sessions[n.AssignedSessionID].Status == row.SessionBlocked, "node %s is blocked by nothing", n.Title)
		}
	}
	active := map[string]string{}
	for _, c := range d.Claims {
		_, node := nodes[c.NodeID]
		s, there := sessions[c.SessionID]
		say(node && there, "claim %s is of nothing", c.ID)
		say((c.Status == row.ClaimActive) == c.ReleasedAt.IsZero(), "claim %s is %s, released %v", c.ID, c.Status, c.ReleasedAt)
		if c.Status == row.ClaimActive {
			say(active[c.NodeID] == "", "node %s has two claims", c.NodeID)
			active[c.NodeID] = c.ID
			say(s.Status.Live() && nodes[c.NodeID].AssignedSessionID == c.SessionID, "claim %s is active, its session %s", c.ID, s.Status)
		}
	}
	for _, j := range d.VerifierJobs {
		jobs[j.ID] = true
		say(j.Status.Over() == !j.CompletedAt.IsZero(), "verification %s is %s, completed %v", j.ID, j.Status, j.CompletedAt)
	}
	for _, e := range d.Evidence {
		say(e.VerifierJobID == "" || jobs[e.VerifierJobID], "evidence %s is of no verification", e.ID)
	}
	for _, p := range d.PendingDecisions {
		_, there := sessions[p.SessionID]
		say(there, "a decision is pending for nobody")
	}
	// The events tell the thread's whole way, each from where the last one led.
	at := row.ThreadOpen
	for _, e := range d.Events {
		if e.EventType == row.TaskStatusChanged {
			say(row.Meta(e.Data, "from") == string(at), "an event leads from %s, and the thread was %s", row.Meta(e.Data, "from"), at)
			at = row.ThreadStatus(row.Meta(e.Data, "to"))
		}
	}
	say(at == d.Status || len(d.Events) == threads.MaxEvents, "its events lead to %s, and it is %s", at, d.Status)
	return out
}

// expected computes the status of a thread independently of the product code.
func expected(d threads.Detail) row.ThreadStatus {
	n := map[row.SessionStatus]int{}
	all := 0
	for _, s := range d.Sessions {
		if row.Meta(s.Metadata, row.ReplacedBy) == "" {
			n[s.Status]++
			all++
		}
	}
	control := row.Meta(d.Metadata, "controlState")
	busy := n["active"] + n["tool_running"]
	if d.Status == "archived" {
		return "archived"
	}
	if control == "paused" && busy == 0 && n["blocked"] == 0 {
		return "waiting_on_user"
	}
	if control == "stopped" && busy == 0 && n["blocked"] == 0 && n["waiting_on_user"] == 0 {
		return "interrupted"
	}
	if all == 0 {
		return "open"
	}
	if busy > 0 {
		return "active"
	}
	if n["waiting_on_user"] > 0 {
		return "waiting_on_user"
	}
	if n["blocked"] > 0 {
		return "blocked"
	}
	if n["interrupted"]+n["stopped"] > 0 {
		return "interrupted"
	}
	failed := n["error"] > 0
	for _, part := range d.Nodes {
		if part.AssignedSessionID == "" && part.Kind == "execution" {
			if part.Status == "ready" {
				return "active"
			}
			failed = failed || part.Status == "failed"
		}
	}
	if failed {
		return "failed"
	}
	return "done"
}

// player does random things to a registry.
type player struct {
	*world
	r    *rand.Rand
	name string   // no two players' sessions share it
	ids  []string // threads
	ptys []string
	n    int
}

func pick[T any](p *player, list ...T) (v T) {
	if len(list) == 0 {
		return v
	}
	return list[p.r.IntN(len(list))]
}

// act does one thing; err is the registry's, which may well refuse it.
func (p *player) act(t testing.TB) (what string, err error) {
	ctx := t.Context()
	p.n++
	thread, pty := pick(p, p.ids...), pick(p, p.ptys...)
	var d threads.Detail
	if thread != "" {
		if d, err = p.Detail(ctx, thread, threads.Selection{Fields: []threads.Field{
			threads.FieldSessions, threads.FieldNodes,
			threads.FieldJobs,
		}}); err != nil {
			return "look", err
		}
	}
	node := ""
	if n := pick(p, d.Nodes...); p.r.IntN(3) > 0 {
		node = n.ID
	}
	switch k := p.r.IntN(16); {
	case k == 0 && len(p.ids) < 8 || thread == "":
		plan := threads.Plan{Thread: row.Thread{Title: fmt.Sprint("t", p.n)}}
		for i := range 1 + p.r.IntN(4) {
			part := threads.Part{Title: fmt.Sprint("part", i)}
			for on := range i {
				if p.r.IntN(3) == 0 {
					part.DependsOn = append(part.DependsOn, on)
				}
			}
			plan.Parts = append(plan.Parts, part)
		}
		c, err := p.Create(ctx, plan)
		if err == nil {
			p.ids = append(p.ids, c.Thread.ID)
		}
		return "create", err
	case k <= 2 || pty == "":
		in := threads.Registration{ThreadID: thread, Node: node, Session: row.Session{
			SessionID: fmt.Sprintf("pty-%s-%d", p.name, p.n),
			Metadata:  raw(`{"resumeToken":"x"}`),
		}}
		for _, s := range d.Sessions {
			if p.r.IntN(3) == 0 {
				in.Replaces = append(in.Replaces, s.SessionID)
			}
		}
		_, err := p.Register(ctx, in)
		if err == nil {
			p.ptys = append(p.ptys, in.Session.SessionID)
		}
		return "register", err
	case k <= 7:
		to := pick(p, row.SessionActive, row.SessionBlocked, row.SessionWaiting, row.SessionCompleted, row.SessionCompleted, row.SessionStopped,
			row.SessionError, row.SessionToolRunning, row.SessionInterrupted)
		_, err := p.UpdateSession(ctx, pty, func(s *row.Session) { s.Status, s.TaskDelivered = to, p.n%2 == 0 })
		return "update", err
	case k == 8:
		_, err := p.Decide(ctx, row.Decision{SessionID: pty, EventType: "blocked", Decision: pick(p, row.Respond, row.AutoResolved)})
		return "decide", err
	case k == 9:
		_, err := p.SetNode(ctx, thread, node, pick(p, row.NodePlanned, row.NodeCompleted, row.NodeFailed, row.NodeCanceled))
		return "set", err
	case k <= 11:
		_, err := p.Control(ctx, thread, pick(p, threads.Pause, threads.Stop, threads.Resume, threads.Resume, threads.Resume, threads.Archive,
			threads.Reopen, threads.Reopen), "")
		return "control", err
	case k == 12:
		if j := pick(p, d.VerifierJobs...); j.ID != "" && p.r.IntN(2) == 0 {
			_, err := p.EndJob(ctx, thread, j.ID, pick(p, row.JobPassed, row.JobFailed, row.JobCanceled), "")
			return "verified", err
		}
		_, err := p.StartJob(ctx, row.VerifierJob{ThreadID: thread, NodeID: node, VerifierType: "x"})
		return "verify", err
	case k == 13:
		if p.r.IntN(2) == 0 {
			_, err := p.TakePending(ctx, pty, p.r.IntN(2) == 0)
			return "take", err
		}
		return "pend", p.PutPending(ctx, row.PendingDecision{SessionID: pty})
	case k == 14 && p.r.IntN(4) == 0:
		_, err := p.Restart(ctx)
		return "restart", err
	}
	return "transcribe", p.Transcribe(ctx, pty, []threads.Piece{{Direction: row.Stdout, Content: "x"}})
}

func TestWhateverIsDoneTheInvariantsHold(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			p := &player{world: sqlite(t), r: rand.New(rand.NewPCG(seed, 1)), name: "a"}
			done := map[string]int{}
			for range 120 {
				what, err := p.act(t)
				switch reason(err) {
				case "":
					done[what]++
				case threads.ReasonState, threads.ReasonGone, threads.ReasonNoRow, threads.ReasonNoNode:
				default:
					t.Fatalf("%v: err = %v, want nil or a state that refuses it", what, err)
				}
				if p.n%30 == 0 {
					p.hold(t)
				}
				if t.Failed() {
					t.Fatalf("after %d: %s; want not t.Failed()", p.n, what)
				}
			}
			for _, what := range []string{"create", "register", "update", "control", "decide", "transcribe"} {
				if done[what] == 0 {
					t.Errorf("nothing did %s: %v; want done[what] other than 0", what, done)
				}
			}
		})
	}
}

// TestWhoeverMeetsTheInvariantsHold has several at the same threads at once.
func TestWhoeverMeetsTheInvariantsHold(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	var ids []string
	for range 3 {
		ids = append(ids, w.thread(t, "shared", 3).Thread.ID)
	}
	var all sync.WaitGroup
	for i := range 4 {
		p := &player{world: w, r: rand.New(rand.NewPCG(uint64(i), 2)), name: fmt.Sprint(i), ids: slices.Clone(ids)}
		all.Go(func() {
			for i := range 20 {
				what, err := p.act(t)
				if code := capability.CodeOf(err); err != nil && code != capability.CodeConflict && code != capability.CodeNotFound {
					t.Errorf("%v: err = %v, want nil, conflict or not_found", what, err)
				}
				if i%5 == 0 {
					for _, broken := range violations(w.detail(t, pick(p, ids...))) {
						t.Errorf("after %v: %v, want every invariant to hold", what, broken)
					}
				}
			}
		})
	}
	all.Wait()
	w.hold(t)
}
