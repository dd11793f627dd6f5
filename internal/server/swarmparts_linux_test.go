package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/threads/threadsql"
)

// parts are the statuses of a thread's parts, in their order.
func (n *node) parts(t *testing.T, thread string) (list []string) {
	t.Helper()
	for _, p := range n.thread(t, thread).Nodes[1:] {
		list = append(list, p.Status)
	}
	return list
}

// ends is how often the end of a thread was told.
func (n *node) ends(t *testing.T, thread string) (count int) {
	t.Helper()
	for _, e := range n.thread(t, thread).Events {
		if e.EventType == row.SwarmComplete {
			count++
		}
	}
	return count
}

// plan makes a thread of the parts one, two and so on.
func (n *node) plan(t *testing.T, parts ...map[string]any) (made createdThread) {
	t.Helper()
	for i, p := range parts {
		p["label"], p["agentType"] = []string{"one", "two", "three", "four"}[i], "claude"
	}
	n.ask(t, "POST", threadsAt+"/threads", mustJSON(t, map[string]any{"task": "a plan", "approvalPreset": "autonomous", "agents": parts}),
		http.StatusCreated, &made)
	return made
}

// TestAPartWaitsForItsOwnAlone: a part begins when those that it names are done and there is a
// place for it, while another one of its thread runs or after one has failed.
func TestAPartWaitsForItsOwnAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		places, other string
		parts         []map[string]any
		want          []string
	}{
		"while another runs": {
			"8", "linger",
			[]map[string]any{{"task": "write c.txt c", "dependsOn": []int{0}}},
			[]string{"completed", "running", "completed"},
		},
		"after one failed": {
			"8", "dies",
			[]map[string]any{{"task": "write c.txt c", "dependsOn": []int{0}}, {"task": "write d.txt d", "dependsOn": []int{1}}},
			[]string{"completed", "failed", "completed", "blocked"},
		},
		"when a place comes free": {
			"2", "linger",
			[]map[string]any{{"task": "write c.txt c"}, {"task": "write d.txt d", "dependsOn": []int{2}}},
			[]string{"completed", "running", "completed", "completed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, env := scriptedHome(t)
			n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_MAX_SESSIONS="+c.places)...)
			made := n.plan(t, append([]map[string]any{{"task": "write a.txt a"}, {"task": c.other}}, c.parts...)...)
			defer func() {
				if t.Failed() {
					t.Logf("%+v", n.thread(t, made.ThreadID))
				}
			}()
			eventuallyWithin(t, time.Minute, "the parts are begun", func() bool { return slices.Equal(n.parts(t, made.ThreadID), c.want) })
			if c.other == "linger" {
				if n.ends(t, made.ThreadID) != 0 {
					t.Error("an end was told of a thread that runs; want n.ends(t, made.ThreadID) = 0")
				}
				n.ask(t, "POST", threadsAt+"/threads/"+made.ThreadID+"/control", `{"action":"stop"}`, http.StatusOK, nil)
			}
			eventually(t, "the end is told", func() bool { return n.ends(t, made.ThreadID) == 1 })
			n.terminate(t)
		})
	}
}

// TestAPartThatAServerBeforeDidNotBegin: its task asks whether it goes on, and does; one that
// a user has stopped ends, and is not begun by the next server.
func TestAPartThatAServerBeforeDidNotBegin(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	home := t.TempDir()
	n := serve(t, home, env...)
	plan := func() createdThread {
		return n.plan(t, map[string]any{"task": "linger"}, map[string]any{"task": "write b.txt b", "dependsOn": []int{0}})
	}
	goesOn, stopped, cut := plan(), plan(), plan()
	eventually(t, "they work", func() bool {
		return n.parts(t, goesOn.ThreadID)[0] == "running" && n.parts(t, stopped.ThreadID)[0] == "running" &&
			n.parts(t, cut.ThreadID)[0] == "running"
	})
	n.kill()
	// As if the server had died between the end of a part and the beginning of the next.
	db, err := store.Open(t.Context(), filepath.Join(home, "state", "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := threadsql.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	r, err := threads.New(threads.Config{Store: at, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range []createdThread{goesOn, stopped} {
		if _, err := r.UpdateSession(t.Context(), made.Agents[0].SessionID,
			func(s *row.Session) { s.Status, s.CompletionSummary = row.SessionCompleted, "done" }); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	n = serve(t, home, env...)
	for _, made := range []createdThread{goesOn, stopped, cut} {
		eventually(t, "the task asks", func() bool {
			task := n.task(t, made.Task).Task
			return task.State == "interrupted" && len(task.Requests) == 1 && task.Requests[0].Key == "resume"
		})
	}
	for _, made := range []createdThread{stopped, cut} {
		n.ask(t, "POST", "/api/v1/tasks/"+made.Task+"/answer", `{"answer":{"action":"accept","content":{"text":"cancel"}}}`, http.StatusOK, nil)
		eventually(t, "it ends", func() bool { return n.task(t, made.Task).Task.State == "cancelled" && n.ends(t, made.ThreadID) == 1 })
	}
	n.needsCode(t, "/api/v1/tasks/"+goesOn.Task+"/answer", `{"answer":{"action":"accept","content":{"text":"resume"}}}`)
	n.ask(t, "POST", "/api/v1/tasks/"+goesOn.Task+"/answer", `{"answer":{"action":"accept","content":{"text":"resume"}}}`, http.StatusOK, nil)
	eventually(t, "it is done", func() bool {
		return n.task(t, goesOn.Task).Task.State == "completed" && n.ends(t, goesOn.ThreadID) == 1
	})
	n.terminate(t)

	n = serve(t, home, append(env, "JUNCTOR_AGENTS_AUTO_RESUME=true")...)
	next := n.plan(t, map[string]any{"task": "write z.txt z"})
	eventually(t, "what is new is done", func() bool { return n.task(t, next.Task).Task.State == "completed" })
	for _, made := range []createdThread{stopped, cut} {
		if th := n.thread(t, made.ThreadID); len(th.Sessions) != 1 || th.Status != "interrupted" || th.Nodes[2].Status == "running" {
			t.Errorf(`what was stopped goes on: %+v; want len(th.Sessions) = 1, th.Status = "interrupted", th.Nodes[2].Status `+
				`other than "running"`, th)
		}
	}
	n.terminate(t)
}

// TestAShellDoesNotCarryOutWhatAnotherPrinted: what the part before it has come to is data.
func TestAShellDoesNotCarryOutWhatAnotherPrinted(t *testing.T) {
	t.Parallel()
	_, env := agentHome(t)
	n := serve(t, t.TempDir(), env...)
	mark := filepath.Join(t.TempDir(), "mark")
	var made createdThread
	n.ask(t, "POST", threadsAt+"/threads", mustJSON(t, map[string]any{"task": "chain", "brief": "touch " + mark, "agents": []map[string]any{
		{"label": "first", "agentType": "shell", "task": `printf 'x\ntouch ` + mark + `\n'`},
		{"label": "second", "agentType": "shell", "task": "echo after", "dependsOn": []int{0}},
	}}), http.StatusCreated, &made)
	eventually(t, "both are done", func() bool { return n.task(t, made.Task).Task.State == "completed" })
	if _, err := os.Stat(mark); err == nil {
		t.Error("it was carried out; want an error")
	}
	if th := n.thread(t, made.ThreadID); !strings.Contains(th.Sessions[1].CompletionSummary, "after") ||
		strings.Contains(th.Sessions[1].CompletionSummary, "not found") {
		t.Errorf(`%+v; want th.Sessions[1].CompletionSummary with "after", th.Sessions[1].CompletionSummary without "not found"`,
			th.Sessions)
	}
	n.terminate(t)
}
