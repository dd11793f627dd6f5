package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

type startedAgent struct {
	SessionID, Workdir, Status, Label string
	Error                             *struct{ Reason, Message string }
}

type createdThread struct {
	ThreadID, Task string
	Agents         []startedAgent
}

// ask makes a request of an administrator's and decodes its answer.
func (n *node) ask(t *testing.T, method, path, body string, status int, into any) string {
	t.Helper()
	a := n.request(t, method, path, n.token(t, "admin"), body)
	if a.status != status {
		t.Fatalf("%s %s: %d %s; want a.status = %v", method, path, a.status, a.body, status)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(a.body), into); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, a.body)
		}
	}
	return a.body
}

type shownThread struct {
	ID, Status, Summary string
	Sessions            []struct{ SessionID, Status, CompletionSummary, Workdir, Framework string }
	Nodes               []struct{ Kind, Status string }
	Events              []struct{ EventType, SessionID, Summary string }
	Transcripts         []struct{ Direction, Content string }
}

func (n *node) thread(t *testing.T, id string) (th shownThread) {
	t.Helper()
	n.ask(t, "GET", "/api/coding-agents/coordinator/threads/"+id, "", http.StatusOK, &th)
	return th
}

type shownTask struct {
	Task struct {
		ID, Kind, State, Status, Thread string
		Result                          json.RawMessage
		Requests                        []struct{ Key, Method string }
	}
}

func (n *node) task(t *testing.T, id string) (got shownTask) {
	t.Helper()
	n.ask(t, "GET", "/api/v1/tasks/"+id, "", http.StatusOK, &got)
	return got
}

// TestAThreadOfOneAgent follows a task from its creation to its result.
func TestAThreadOfOneAgent(t *testing.T) {
	t.Parallel()
	_, env := agentHome(t)
	n := serve(t, t.TempDir(), env...)
	var made createdThread
	n.ask(t, "POST", "/api/coding-agents/coordinator/threads", `{"task":"say hello","agentType":"claude","label":"greeter"}`,
		http.StatusCreated, &made)
	if len(made.Agents) != 1 || made.Agents[0].SessionID == "" || made.Task == "" {
		t.Fatalf(`%+v; want len(made.Agents) = 1, made.Agents[0].SessionID other than "", made.Task other than ""`, made)
	}
	eventually(t, "the task is completed", func() bool { return n.task(t, made.Task).Task.State == "completed" })
	done, th := n.task(t, made.Task), n.thread(t, made.ThreadID)
	if done.Task.Kind != "thread" || done.Task.Thread != made.ThreadID || !strings.Contains(string(done.Task.Result), "say hello") {
		t.Errorf(`%+v %s; want done.Task.Kind = "thread", done.Task.Thread = %v, string(done.Task.Result) with "say hello"`,
			done, done.Task.Result, made.ThreadID)
	}
	if th.Status != "done" || !strings.Contains(th.Summary, "greeter") || th.Sessions[0].Status != "completed" {
		t.Errorf(`%+v; want th.Status = "done", th.Summary with "greeter", th.Sessions[0].Status = "completed"`, th)
	}
	eventually(t, "its program is stopped", func() bool { return n.shown(t, made.Agents[0].SessionID).Status == "stopped" })
	// It goes on with a further instruction, in the same folder and conversation.
	var again struct {
		Task   string
		Agents []startedAgent
	}
	n.ask(t, "POST", "/api/task-agents/coordinator/threads/"+made.ThreadID+"/control", `{"action":"continue","instruction":"and once more"}`,
		http.StatusOK, &again)
	if len(again.Agents) != 1 || again.Agents[0].Workdir != made.Agents[0].Workdir || again.Task == made.Task {
		t.Fatalf("%+v; want len(again.Agents) = 1, again.Agents[0].Workdir = made.Agents[0].Workdir, again.Task other than %v",
			again, made.Task)
	}
	eventually(t, "it is completed again", func() bool { return n.task(t, again.Task).Task.State == "completed" })
	n.terminate(t)
}
