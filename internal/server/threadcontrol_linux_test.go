package server_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const threadsAt = "/api/coding-agents/coordinator"

func (n *node) create(t *testing.T, task string) (made createdThread) {
	t.Helper()
	n.ask(t, "POST", threadsAt+"/threads", mustJSON(t, map[string]any{"task": task, "agentType": "claude", "approvalPreset": "autonomous"}),
		http.StatusCreated, &made)
	return made
}

func withModel(env []string, model *script) []string {
	return append(env, "JUNCTOR_MODEL_KIND=openai", "JUNCTOR_MODEL_URL="+model.URL+"/v1", "JUNCTOR_MODEL_NAME=m")
}

func TestThreadsAreControlled(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), withModel(env, scripted(t, nil))...)
	made := n.create(t, "linger")
	at := threadsAt + "/threads/" + made.ThreadID
	eventually(t, "it works", func() bool { return n.shown(t, made.Agents[0].SessionID).Status == "busy" })

	n.ask(t, "POST", at+"/control", `{"action":"pause","note":"lunch"}`, http.StatusOK, nil)
	eventually(t, "it is paused", func() bool {
		return n.thread(t, made.ThreadID).Status == "waiting_on_user" && n.task(t, made.Task).Task.State == "input_required"
	})
	if s := n.shown(t, made.Agents[0].SessionID); s.Status != "stopped" {
		t.Errorf(`%+v; want s.Status = "stopped"`, s)
	}
	var on struct{ Agents []startedAgent }
	n.ask(t, "POST", at+"/control", `{"action":"resume"}`, http.StatusOK, &on)
	if len(on.Agents) != 1 || on.Agents[0].Workdir != made.Agents[0].Workdir || on.Agents[0].SessionID == made.Agents[0].SessionID {
		t.Fatalf("%+v; want len(on.Agents) = 1, on.Agents[0].Workdir = made.Agents[0].Workdir, on.Agents[0].SessionID other "+
			"than made.Agents[0].SessionID", on)
	}
	eventually(t, "it goes on to its end", func() bool { return n.task(t, made.Task).Task.State == "completed" })

	// Its task asks whether it goes on, and is answered.
	made = n.create(t, "linger")
	n.ask(t, "POST", threadsAt+"/threads/"+made.ThreadID+"/control", `{"action":"pause"}`, http.StatusOK, nil)
	eventually(t, "it asks", func() bool {
		asked := n.task(t, made.Task).Task.Requests
		return len(asked) == 1 && asked[0].Key == "resume"
	})
	answer := func(text string, status int) {
		n.ask(t, "POST", "/api/v1/tasks/"+made.Task+"/answer", mustJSON(t,
			map[string]any{"answer": map[string]any{"action": "accept", "content": map[string]string{"text": text}}}), status, nil)
	}
	answer("perhaps", http.StatusBadRequest)
	answer("Resume", http.StatusOK)
	eventually(t, "it works again", func() bool { return n.task(t, made.Task).Task.State == "working" })
	n.ask(t, "POST", "/api/v1/tasks/"+made.Task+"/cancel", "", http.StatusOK, nil)
	eventually(t, "it is cancelled", func() bool { return n.task(t, made.Task).Task.State == "cancelled" })
	if th := n.thread(t, made.ThreadID); th.Status != "interrupted" {
		t.Errorf(`%+v; want th.Status = "interrupted"`, th)
	}
	n.ask(t, "POST", threadsAt+"/threads/"+made.ThreadID+"/archive", "", http.StatusOK, nil)
	var count struct{ Total int }
	n.ask(t, "GET", threadsAt+"/threads/count?search=linger", "", http.StatusOK, &count)
	if count.Total != 1 {
		t.Errorf("%d threads are not archived; want count.Total = 1", count.Total)
	}
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		says               string
	}{
		"nothing is left to resume": {"POST", at + "/control", `{"action":"resume"}`, 409, "nothing_to_resume"},
		"no instruction":            {"POST", at + "/control", `{"action":"continue"}`, 400, "missing_instruction"},
		"no operation":              {"POST", at + "/control", `{"action":"dance"}`, 400, "invalid_operation"},
		"archived":                  {"POST", threadsAt + "/threads/" + made.ThreadID + "/control", `{"action":"resume"}`, 409, "wrong_state"},
		"no thread":                 {"GET", threadsAt + "/threads/thr_0", "", 404, "thread_not_found"},
		"no field":                  {"GET", at + "?fields=nothing", "", 400, "unknown_field"},
		"some fields":               {"GET", at + "?fields=nodes", "", 200, `"nodes"`},
		"no task":                   {"POST", threadsAt + "/threads", `{}`, 400, "no_parts"},
		"too many": {
			"POST", threadsAt + "/threads",
			`{"agents":[` + strings.TrimSuffix(strings.Repeat(`{"task":"x"},`, 9), ",") + `]}`, 400, "too_many_agents",
		},
		"in a circle":            {"POST", threadsAt + "/threads", `{"agents":[{"task":"x","dependsOn":[0]}]}`, 400, "invalid_plan"},
		"no level":               {"POST", threadsAt + "/supervision", `{"level":"lax"}`, 400, "unknown_level"},
		"nothing to confirm":     {"POST", threadsAt + "/confirm/" + made.Agents[0].SessionID, `{}`, 404, ""},
		"not a time":             {"GET", threadsAt + "/threads?createdAfter=noon", "", 400, "createdAfter"},
		"how everything stands":  {"GET", threadsAt + "/status", "", 200, `"supervisionLevel":"autonomous"`},
		"one session's task":     {"GET", threadsAt + "/tasks/" + on.Agents[0].SessionID, "", 200, `"decisions"`},
		"what can be shown":      {"GET", at + "/share", "", 200, `"workspace"`},
		"what cannot be started": {"POST", threadsAt + "/threads", `{"task":"x","agentType":"codex"}`, 201, "agent_not_installed"},
		"a folder that is not theirs": {
			"POST", threadsAt + "/threads", `{"task":"x","agentType":"claude","workdir":"/etc"}`, 201,
			"workdir_outside_allowed",
		},
	} {
		if a := n.request(t, c.method, c.path, n.token(t, "admin"), c.body); a.status != c.status || !strings.Contains(a.body, c.says) {
			t.Errorf("%s: %d %s; want a.status = %v, a.body with %v", name, a.status, a.body, c.status, c.says)
		}
	}
	n.ask(t, "POST", at+"/archive", "", http.StatusOK, nil)
	if a := n.request(t, "POST", at+"/control", n.token(t, "admin"), `{"action":"resume"}`); a.status != http.StatusConflict ||
		!strings.Contains(a.body, "wrong_state") {
		t.Errorf(`archived and done: %d %s; want a.status = http.StatusConflict, a.body with "wrong_state"`, a.status, a.body)
	}
	if a := n.request(t, "GET", threadsAt+"/status", n.token(t, "agent"), ""); a.status != http.StatusForbidden {
		t.Errorf("an agent sees %d %s; want a.status = http.StatusForbidden", a.status, a.body)
	}
	n.terminate(t)
}

// TestWhatIsDecidedWaitsForAYes: supervision level confirm, also over a restart.
func TestWhatIsDecidedWaitsForAYes(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	home := t.TempDir()
	env = withModel(env, scripted(t, nil))
	n := serve(t, home, env...)
	n.ask(t, "POST", threadsAt+"/supervision", `{"level":"confirm"}`, http.StatusOK, nil)
	pending := func() (list []struct{ SessionID string }) {
		n.ask(t, "GET", threadsAt+"/pending", "", http.StatusOK, &list)
		return list
	}
	made := n.create(t, "write a.txt a")
	eventually(t, "the end waits for a yes", func() bool { return len(pending()) == 1 && n.task(t, made.Task).Task.State == "input_required" })
	if requests := n.task(t, made.Task).Task.Requests; len(requests) != 1 || requests[0].Key != made.Agents[0].SessionID {
		t.Errorf("%+v; want len(requests) = 1, requests[0].Key = made.Agents[0].SessionID", requests)
	}
	n.needsCode(t, "/api/v1/tasks/"+made.Task+"/answer", `{"answer":{"action":"accept","content":{"approved":true}}}`)
	n.ask(t, "POST", "/api/v1/tasks/"+made.Task+"/answer", `{"answer":{"action":"accept","content":{"approved":true}}}`, http.StatusOK, nil)
	eventually(t, "it is done", func() bool { return n.task(t, made.Task).Task.State == "completed" })

	made = n.create(t, "write b.txt b")
	eventually(t, "the next one waits", func() bool { return len(pending()) == 1 })
	n.kill()
	n = serve(t, home, env...)
	if list := pending(); len(list) != 1 || list[0].SessionID != made.Agents[0].SessionID {
		t.Errorf("%+v; want len(list) = 1, list[0].SessionID = made.Agents[0].SessionID", list)
	}
	if a := n.request(t, "POST", threadsAt+"/confirm/"+made.Agents[0].SessionID, n.token(t, "admin"),
		`{}`); a.status != http.StatusConflict || !strings.Contains(a.body, "session_gone") {
		t.Errorf(`%d %s; want a.status = http.StatusConflict, a.body with "session_gone"`, a.status, a.body)
	}
	n.terminate(t)
}

// TestAQuestionIsTheUsers: what an agent asks becomes its task's question, and the answer
// goes back to it.
func TestAQuestionIsTheUsers(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	model := scripted(t, func(prompt string) string {
		if strings.Contains(prompt, "You coordinate agents") && strings.Contains(prompt, "red or blue") &&
			!strings.Contains(prompt, "it is blue") {
			return `{"action":"escalate","response":"Should it be red or blue?","reasoning":"a matter of taste"}`
		}
		return ""
	})
	n := serve(t, t.TempDir(), withModel(env, model)...)
	events := n.listen(t, "")
	made := n.create(t, "say Should it be red or blue?")
	eventually(t, "the user is asked", func() bool { return n.task(t, made.Task).Task.State == "input_required" })
	n.needsCode(t, "/api/v1/tasks/"+made.Task+"/answer", `{"answer":{"action":"accept","content":{"text":"write red.txt yes"}}}`)
	n.ask(t, "POST", "/api/v1/tasks/"+made.Task+"/answer", `{"answer":{"action":"accept","content":{"text":"write blue.txt yes\nsay it is blue"}}}`, http.StatusOK, nil)
	eventually(t, "it is done", func() bool { return n.task(t, made.Task).Task.State == "completed" })
	if th := n.thread(t, made.ThreadID); !strings.Contains(th.Sessions[0].CompletionSummary, "it is blue") || len(th.Transcripts) < 3 {
		t.Errorf(`%+v; want th.Sessions[0].CompletionSummary with "it is blue", len(th.Transcripts) at least 3`, th)
	}
	seen := map[string]bool{}
	id := ""
	for line := range events {
		for _, kind := range []string{
			"snapshot", "task_registered", "turn_complete", "escalation", "coordination_decision", "validation",
			"task_complete", "swarm_complete",
		} {
			seen[kind] = seen[kind] || strings.Contains(line, fmt.Sprintf(`"type":%q`, kind))
		}
		if at, found := strings.CutPrefix(line, "id: "); found && id == "" {
			id = at
		}
		if seen["swarm_complete"] {
			break
		}
	}
	if len(seen) != 8 {
		t.Errorf("%v; want len(seen) = 8", seen)
	}
	for kind, ok := range seen {
		if !ok {
			t.Errorf("nobody was told of %s; want ok = true", kind)
		}
	}
	// A client that was disconnected receives what it missed.
	for line := range n.listen(t, id) {
		if strings.Contains(line, `"type":"swarm_complete"`) {
			break
		}
	}
	n.terminate(t)
}

// listen yields the lines of the coordinator's events; the stream ends with the test.
func (n *node) listen(t *testing.T, after string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+threadsAt+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.token(t, "admin"))
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	first := bufio.NewReader(res.Body)
	if line, err := first.ReadString('\n'); err != nil || line != ":ok\n" {
		t.Fatalf(`%q %v; want no error, line = ":ok\n"`, line, err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		defer res.Body.Close()
		scanner := bufio.NewScanner(first)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// TestAPartMakesRoomForTheNext: where no more sessions may run, a part whose turn has come
// takes the place of those of its thread that are done.
func TestAPartMakesRoomForTheNext(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_MAX_SESSIONS=1")...)
	var made createdThread
	n.ask(t, "POST", threadsAt+"/threads", `{"task":"two steps","approvalPreset":"autonomous","agents":[
		{"label":"one","agentType":"claude","task":"say one"},{"label":"two","agentType":"claude","task":"say two","dependsOn":[0]}]}`, http.StatusCreated, &made)
	eventually(t, "both are done", func() bool {
		th := n.thread(t, made.ThreadID)
		return th.Status == "done" && len(th.Sessions) == 2 && n.task(t, made.Task).Task.State == "completed"
	})
	n.terminate(t)
}

// TestNobodyWaitsForAnAgentThatIsAtWork: what is said to it waits its turn, and who said it
// does not.
func TestNobodyWaitsForAnAgentThatIsAtWork(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), env...)
	made := n.create(t, "linger")
	id := made.Agents[0].SessionID
	eventually(t, "it works", func() bool { return n.shown(t, id).Status == "busy" })
	if a := n.ask(t, "POST", "/api/coding-agents/"+id+"/send", `{"input":"say hello"}`, http.StatusOK, nil); !strings.Contains(a, `"queued"`) {
		t.Errorf("answer = %s, want a queued input", a)
	}
	n.ask(t, "POST", "/api/coding-agents/"+id+"/send", `{"keys":["escape"]}`, http.StatusOK, nil)
	n.terminate(t)
}
