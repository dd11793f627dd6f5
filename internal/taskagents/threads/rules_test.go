package threads

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// sessionsOf reads "active replaced:error": sessions, some of them replaced.
func sessionsOf(text string) (out []row.Session) {
	for i, w := range strings.Fields(text) {
		s := row.Session{SessionID: fmt.Sprint("s", i)}
		status, was := strings.CutPrefix(w, "replaced:")
		if s.Status = row.SessionStatus(status); was {
			s.Metadata = row.WithMeta(nil, row.ReplacedBy, "another")
		}
		out = append(out, s)
	}
	return out
}

func TestAThreadFollowsItsSessionsInTheOrderOfTheSpec(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name     string
		was      row.ThreadStatus
		control  string
		sessions string
		nodes    string
		want     row.ThreadStatus
	}{
		{"no sessions", "", "", "", "", "open"},
		{"archived stays, whatever works", "archived", "", "active", "", "archived"},
		{"archived stays, whatever is wanted", "archived", "stopped", "", "", "archived"},
		{"paused with nothing", "", "paused", "", "", "waiting_on_user"},
		{"paused and all ended", "", "paused", "stopped completed error", "", "waiting_on_user"},
		{"paused and one waits", "", "paused", "waiting_on_user", "", "waiting_on_user"},
		{"paused and one still works", "", "paused", "stopped active", "", "active"},
		{"paused and one still runs a tool", "", "paused", "tool_running", "", "active"},
		{"paused and one is blocked", "", "paused", "blocked interrupted", "", "blocked"},
		{"paused, and what works was replaced", "", "paused", "replaced:active", "", "waiting_on_user"},
		{"stopped with nothing", "", "stopped", "", "", "interrupted"},
		{"stopped and all ended", "", "stopped", "completed error", "", "interrupted"},
		{"stopped and one still works", "", "stopped", "active", "", "active"},
		{"stopped and one is blocked", "", "stopped", "blocked", "", "blocked"},
		{"stopped and one waits", "", "stopped", "waiting_on_user completed", "", "waiting_on_user"},
		{"one works beside all others", "", "", "waiting_on_user blocked interrupted completed error active", "", "active"},
		{"one runs a tool", "", "", "error tool_running", "", "active"},
		{"waiting before blocked", "", "", "blocked waiting_on_user", "", "waiting_on_user"},
		{"blocked before interrupted", "", "", "interrupted blocked", "", "blocked"},
		{"interrupted before done", "", "", "completed interrupted", "", "interrupted"},
		{"stopped before failed", "", "", "error stopped", "", "interrupted"},
		{"all completed", "", "", "completed completed", "", "done"},
		{"one failed", "", "", "completed error", "", "failed"},
		{"one failed and was replaced", "", "", "replaced:error completed", "", "done"},
		{"one stopped and was replaced", "", "", "replaced:stopped replaced:interrupted error", "", "failed"},
		{"an unknown control", "", "dancing", "completed", "", "done"},
		{"a thread that was done continues", "done", "", "completed active", "", "active"},
		{"all ended, and a part is about to start", "", "", "completed", "a @completed, b ready <a", "active"},
		{"one failed, and another part is about to start", "", "", "error", "a @error, b ready", "active"},
		{"interrupted, and a part is about to start", "", "", "interrupted", "a @interrupted, b ready", "interrupted"},
		{"paused, and a part could start", "", "paused", "completed", "a @completed, b ready <a", "waiting_on_user"},
		{"stopped, and a part could start", "", "stopped", "completed", "a @completed, b ready <a", "interrupted"},
		{"none started, and a part is about to start", "", "", "", "a ready", "open"},
		{"a part waits for one that failed", "", "", "error", "a @error, b blocked <a", "failed"},
		{"a part could not be started", "", "", "completed", "a @completed, b failed <a", "failed"},
		{"a goal is about to end", "", "", "completed", "a @completed, g goal ready <a", "done"},
	} {
		th := row.Thread{Status: one.was, Metadata: row.WithMeta(nil, row.ControlState, one.control)}
		if got := Status(th, sessionsOf(one.sessions), graph(one.nodes).Nodes); got != one.want {
			t.Errorf("%s: %s, not %s; want got = %v", one.name, got, one.want, one.want)
		}
	}
}

func TestEveryThreadStatusIsATaskState(t *testing.T) {
	t.Parallel()
	want := map[row.ThreadStatus]tasks.State{
		row.ThreadOpen: tasks.Submitted, row.ThreadActive: tasks.Working, row.ThreadValidating: tasks.Working,
		row.ThreadWaiting: tasks.InputRequired,
		row.ThreadBlocked: tasks.InputRequired, row.ThreadDone: tasks.Completed, row.ThreadFailed: tasks.Failed,
		row.ThreadInterrupted: tasks.Interrupted,
	}
	for status, state := range want {
		if got, ok := TaskState(row.Thread{Status: status}); got != state || !ok || !status.Valid() {
			t.Errorf("%s: %s %v; want got = %v, ok = true, status.Valid()", status, got, ok, state)
		}
	}
	if got, ok := TaskState(row.Thread{Status: row.ThreadArchived}); ok {
		t.Errorf("TaskState: ok = true, want false; got = %q", got)
	}
	if got, ok := TaskState(row.Thread{
		Status:   row.ThreadInterrupted,
		Metadata: row.WithMeta(nil, row.ControlState, row.Halted),
	}); got != tasks.Cancelled || !ok {
		t.Errorf("TaskState: got = %q, want tasks.Cancelled; ok = %v, want true", got, ok)
	}
}

// graph reads "a goal, b completed <a…": nodes by their names, with status, or with the
// status of their session after @, and what they wait for.
func graph(text string) (g Graph) {
	for part := range strings.SplitSeq(text, ",") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		n := row.Node{ID: words[0], Kind: row.ExecutionNode, Status: row.NodePlanned}
		for _, w := range words[1:] {
			session, has := strings.CutPrefix(w, "@")
			from, waits := strings.CutPrefix(w, "<")
			switch {
			case w == "goal":
				n.Kind = row.GoalNode
			case has:
				n.AssignedSessionID = "s-" + n.ID
				g.Sessions = append(g.Sessions, row.Session{SessionID: n.AssignedSessionID, Status: row.SessionStatus(session), TaskDelivered: true})
			case waits:
				g.Dependencies = append(g.Dependencies, row.Dependency{FromNodeID: from, ToNodeID: n.ID, RequiredStatus: row.NodeCompleted})
			case w == "verifying":
				g.Jobs = append(g.Jobs, row.VerifierJob{NodeID: n.ID, Status: row.JobRunning})
			default:
				n.Status = row.NodeStatus(w)
			}
		}
		g.Nodes = append(g.Nodes, n)
	}
	return g
}

func TestNodesFollowTheirSessionsAndDependencies(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name, graph string
		thread      row.ThreadStatus
		want        string
	}{
		{"what waits for nothing is ready", "a, b", "", "ready ready"},
		{"what waits is planned", "a, b <a", "", "ready planned"},
		{"all satisfied", "a completed, b completed, c <a <b", "", "completed completed ready"},
		{"one is missing", "a completed, b, c <a <b", "", "completed ready planned"},
		{"one failed", "a failed, b completed, c <a <b", "", "failed completed blocked"},
		{"one failed, in the other order", "a, b failed, c <a <b", "", "ready failed blocked"},
		{"one was canceled", "a canceled, b <a", "", "canceled blocked"},
		{"one was interrupted and may go on", "a interrupted, b <a", "", "interrupted planned"},
		{"what is blocked by another is not a failure", "a failed, b <a, c <b", "", "failed blocked planned"},
		{"a failure that was mended", "a completed, b blocked <a", "", "completed ready"},
		{"what is ready may have to wait again", "a running, b ready <a", "", "running planned"},
		{"what somebody set stays", "a failed, b completed <a, c verifying running <a", "", "failed completed running"},
		{
			"a session decides", "a @active, b @blocked, c @waiting_on_user, d @stopped, e @error, f @completed", "",
			"running blocked waiting_on_user interrupted failed completed",
		},
		{"and tells who waits", "a @error, b <a, c @completed, d <c", "", "failed blocked completed ready"},
		{"a validation under way", "a @active verifying, b @blocked verifying, c @completed verifying", "", "verifying blocked completed"},
		{"a goal waits for its parts", "g goal <a <b, a @completed, b", "active", "planned completed ready"},
		{"a goal whose parts are there", "g goal <a, a @completed", "active", "ready completed"},
		{"a goal ends with its thread", "g goal <a, a @completed", "done", "completed completed"},
		{"but not before its parts", "g goal <a <b, a @completed, b", "done", "planned completed ready"},
		{"a goal fails with its thread", "g goal <a, a @error", "failed", "failed failed"},
		{"a goal that goes on", "g goal completed <a, a @active", "active", "planned running"},
		{"an archived goal", "g goal completed <a, a @error", "archived", "completed failed"},
		{"what waits for a goal", "x <g, g goal <a, a @completed", "done", "ready completed completed"},
	} {
		g := graph(one.graph)
		g.Thread.Status = one.thread
		settleNodes(&g)
		var got []string
		for _, n := range g.Nodes {
			got = append(got, string(n.Status))
		}
		if s := strings.Join(got, " "); s != one.want {
			t.Errorf("%s: %s, not %s; want s = %v", one.name, s, one.want, one.want)
		}
	}
}

func TestPlansThatGoInACircle(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		";": false, ";0": false, "1;": false, "0": true, "1;0": true, "1;2;0": true, ";0;0,1": false,
		"7": true, "-1": true,
	} {
		var parts []Part
		for part := range strings.SplitSeq(text, ";") {
			var p Part
			for on := range strings.SplitSeq(part, ",") {
				var n int
				if _, err := fmt.Sscan(on, &n); err == nil {
					p.DependsOn = append(p.DependsOn, n)
				}
			}
			parts = append(parts, p)
		}
		if got := circular(parts); got != want {
			t.Errorf("%q: %v; want got = %v", text, got, want)
		}
	}
}

func TestPiecesBecomeRowsThatFit(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1e12)
	long := strings.Repeat("€", row.MaxText) // three bytes each
	rows := rowsOf([]Piece{{Direction: row.Stdout, Content: "a"}, {At: at, Direction: row.Stdout, Content: long}}, at)
	var all strings.Builder
	for _, r := range rows {
		all.WriteString(r.Content)
		if len(r.Content) > row.MaxText || row.Text(r.Content) != r.Content {
			t.Errorf("%d bytes; want len(r.Content) at most row.MaxText, row.Text(r.Content) = %v", len(r.Content), r.Content)
		}
	}
	if all.String() != "a"+long || len(rows) != 4 {
		t.Errorf("all.String() = %q, want %q; len(rows) = %v, want 4; all.Len() = %v", all.String(), "a"+long, len(rows), all.Len())
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != len(rows) {
		t.Errorf("ids repeat; want len(slices.Compact(ids)) = %v", len(rows))
	}
	if diff := cmp.Diff([]row.TranscriptItem(nil), rowsOf([]Piece{{Direction: row.Keys}}, at)); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
}

func TestSearchLooksAtValues(t *testing.T) {
	t.Parallel()
	got := searchText(row.Thread{
		Title: "A", OriginalRequest: "B", Summary: "C",
		Metadata: []byte(`{"Key":"D","l":[["\u00c9"],1.5,true,null,{"x":"F"}]}`),
	})
	if got != "a\nb\nc\nd\né\n1.5\nf\n" {
		t.Errorf(`%q; want got = "a\nb\nc\nd\né\n1.5\nf\n"`, got)
	}
}
