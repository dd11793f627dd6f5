package server_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSwarmsOfAKilledServer kills the server at random points of swarms, some times here
// and a hundred times in the soak.
func TestSwarmsOfAKilledServer(t *testing.T) {
	t.Parallel()
	killSwarms(t, 6)
}

// killSwarms kills the server so often while swarms run that are resumed by themselves.
// Whatever it was doing, every thread comes to its end, which is told once, and nothing is
// left of the programs.
func killSwarms(t *testing.T, times int) {
	model := scripted(t, nil)
	user, env := scriptedHome(t)
	home := t.TempDir()
	env = append(env, "JUNCTOR_AGENTS_AUTO_RESUME=true", "JUNCTOR_MODEL_KIND=openai", "JUNCTOR_MODEL_URL="+model.URL+"/v1",
		"JUNCTOR_MODEL_NAME=m")
	random := rand.New(rand.NewPCG(8, uint64(times)))
	open := 0
	for i := range times {
		n := serve(t, home, env...)
		if open < 2 {
			body := mustJSON(t, map[string]any{"task": fmt.Sprintf("swarm %d", i), "agents": []any{
				map[string]any{"label": "one", "agentType": "claude", "task": "write one.txt 1\ndecide one is first"},
				map[string]any{"label": "two", "agentType": "claude", "task": "write two.txt 2"},
				map[string]any{"label": "three", "agentType": "claude", "dependsOn": []int{0, 1}, "task": "write three.txt 3"},
			}})
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/api/coding-agents/coordinator/threads",
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+n.token(t, "admin"))
			go func() { // the server may be killed meanwhile
				if res, err := http.DefaultClient.Do(req); err == nil {
					res.Body.Close()
				}
			}()
		}
		after := time.NewTimer(time.Duration(random.IntN(3000)) * time.Millisecond)
		<-after.C
		n.kill()
		open = (open + 1) % 3
	}
	n := serve(t, home, env...)
	var list []struct{ ID, Title, Status, Summary string }
	defer func() {
		if t.Failed() {
			for _, th := range list {
				t.Logf("%+v", th)
				if th.Status != "done" {
					t.Logf("%+v", n.thread(t, th.ID))
				}
			}
		}
	}()
	eventuallyWithin(t, 4*time.Minute, "every thread is over, and told", func() bool {
		list = nil
		n.ask(t, "GET", "/api/coding-agents/coordinator/threads?limit=500", "", http.StatusOK, &list)
		for _, th := range list {
			if th.Status != "done" || th.Summary == "" {
				return false
			}
		}
		return len(list) > 0
	})
	for _, short := range list {
		th := n.thread(t, short.ID)
		told := 0
		for _, e := range th.Events {
			if e.EventType == "swarm_complete" {
				told++
			}
		}
		completed := 0
		for _, node := range th.Nodes {
			if node.Status == "completed" {
				completed++
			}
		}
		if told != 1 || completed != len(th.Nodes) || !strings.HasPrefix(th.Summary, "Synthesis") {
			t.Errorf(`%s: told %d times, %d of %d parts, %q, of %+v; want told = 1, completed = %v, th.Summary beginning with "Synthesis"`,
				short.Title, told, completed, len(th.Nodes), th.Summary, th, len(th.Nodes))
		}
	}
	var tasks struct {
		Tasks []struct{ ID, State, Thread string }
	}
	n.ask(t, "GET", "/api/v1/tasks?limit=100", "", http.StatusOK, &tasks)
	for _, task := range tasks.Tasks {
		eventually(t, "the handle "+task.ID+" says so", func() bool { return n.task(t, task.ID).Task.State == "completed" })
	}
	eventually(t, "nothing is left of the programs", func() bool {
		left, err := os.ReadDir(filepath.Join(home, "agents", "sessions"))
		return err == nil && len(left) == 0
	})
	if data, err := os.ReadFile(filepath.Join(user, ".claude.json")); string(data) != userSettings {
		t.Errorf("the user's settings are %s %v; want string(data) = %v", data, err, userSettings)
	}
	t.Logf("%d threads came through %d kills", len(list), times)
	n.terminate(t)
}

// TestMoreIsResumedThanMayRun: what was interrupted goes on one after the other where the
// server has fewer places than it had.
func TestMoreIsResumedThanMayRun(t *testing.T) {
	t.Parallel()
	model := scripted(t, nil)
	_, env := scriptedHome(t)
	home := t.TempDir()
	env = append(env, "JUNCTOR_MODEL_KIND=openai", "JUNCTOR_MODEL_URL="+model.URL+"/v1", "JUNCTOR_MODEL_NAME=m")
	n := serve(t, home, env...)
	var made createdThread
	n.ask(t, "POST", "/api/coding-agents/coordinator/threads", mustJSON(t, map[string]any{"task": "three at once", "agents": []any{
		map[string]any{"label": "one", "agentType": "claude", "task": "write one.txt 1"},
		map[string]any{"label": "two", "agentType": "claude", "task": "write two.txt 2"},
		map[string]any{"label": "three", "agentType": "claude", "task": "write three.txt 3"},
	}}), http.StatusCreated, &made)
	n.kill()
	n = serve(t, home, append(env, "JUNCTOR_AGENTS_AUTO_RESUME=true", "JUNCTOR_AGENTS_MAX_SESSIONS=1")...)
	n.whole(t, made.ThreadID, 4)
	n.terminate(t)
}

// whole waits for the end of a thread of so many nodes, each of which is to be completed.
func (n *node) whole(t *testing.T, thread string, nodes int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%+v", n.thread(t, thread))
		}
	}()
	eventuallyWithin(t, time.Minute, "the thread is over", func() bool {
		th := n.thread(t, thread)
		return th.Status == "done" && th.Summary != ""
	})
	th, told, completed := n.thread(t, thread), n.ends(t, thread), 0
	for _, node := range th.Nodes {
		if node.Status == "completed" {
			completed++
		}
	}
	if told != 1 || completed != nodes {
		t.Errorf("told %d times, %d of %d nodes, of %+v; want told = 1, completed = %v", told, completed, nodes, th, nodes)
	}
}

// TestMoreIsGivenThanMayRun: parts of a task that find no place wait for those that have
// one; a task of which no part finds one is given up, and states why.
func TestMoreIsGivenThanMayRun(t *testing.T) {
	t.Parallel()
	model := scripted(t, nil)
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_MAX_SESSIONS=1", "JUNCTOR_MODEL_KIND=openai", "JUNCTOR_MODEL_URL="+model.URL+"/v1",
		"JUNCTOR_MODEL_NAME=m")...)
	const threads = "/api/coding-agents/coordinator/threads"
	var made, refused createdThread
	n.ask(t, "POST", threads, mustJSON(t, map[string]any{"task": "three at once", "agents": []any{
		map[string]any{"label": "one", "agentType": "claude", "task": "write one.txt 1"},
		map[string]any{"label": "two", "agentType": "claude", "task": "write two.txt 2"},
		map[string]any{"label": "three", "agentType": "claude", "dependsOn": []int{1}, "task": "write three.txt 3"},
	}}), http.StatusCreated, &made)
	states := map[string]int{}
	for _, a := range made.Agents {
		if a.Error != nil {
			t.Errorf("%+v; want a.Error = nil", a)
		}
		if a.SessionID == "" {
			states[a.Status]++
		}
	}
	if len(made.Agents) != 3 || states["ready"] != 1 || states["planned"] != 1 {
		t.Errorf(`%+v; want len(made.Agents) = 3, states["ready"] = 1, states["planned"] = 1`, made.Agents)
	}
	n.whole(t, made.ThreadID, 4)

	var busy createdThread
	n.ask(t, "POST", threads, `{"task":"linger","agentType":"claude"}`, http.StatusCreated, &busy)
	n.ask(t, "POST", threads, mustJSON(t, map[string]any{"task": "two in vain", "agents": []any{
		map[string]any{"label": "four", "agentType": "claude", "task": "write four.txt 4"},
		map[string]any{"label": "five", "agentType": "claude", "dependsOn": []int{0}, "task": "write five.txt 5"},
	}}), http.StatusCreated, &refused)
	for _, a := range refused.Agents {
		if a.Error == nil || a.Error.Reason != "too_many_sessions" || a.Status != "failed" {
			t.Errorf(`%+v; want a.Error not nil, a.Error.Reason = "too_many_sessions", a.Status = "failed"`, a)
		}
	}
	n.terminate(t)
}
