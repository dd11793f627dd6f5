package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
)

// modelRequest is a request to the model, in the form of OpenAI's chat completions.
type modelRequest struct {
	Messages []struct {
		Role       string
		Content    any
		ToolCalls  []struct{ ID string } `json:"tool_calls"`
		ToolCallID string                `json:"tool_call_id"`
	}
	Tools []struct {
		Function struct{ Name, Description string }
	}
	ToolChoice string `json:"tool_choice"`
	Stream     bool
}

// last returns the content of the last message.
func (r modelRequest) last() string {
	if len(r.Messages) == 0 {
		return ""
	}
	s, _ := r.Messages[len(r.Messages)-1].Content.(string)
	return s
}

// toolCall is a call that the scripted model makes.
type toolCall struct{ name, input string }

// modelAnswer is what the scripted model answers: a text, calls, or both.
type modelAnswer struct {
	text  string
	calls []toolCall
}

// scriptedModel answers the requests of the agent, streamed, with what a function returns.
type scriptedModel struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
}

func newScriptedModel(t testing.TB, answer func(n int, r modelRequest) modelAnswer) *scriptedModel {
	t.Helper()
	m := &scriptedModel{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // The gateway was killed while it sent the request.
		}
		var req modelRequest
		if err := json.Unmarshal(body, &req); err != nil {
			t.Errorf("the request to the model: got %v, want JSON", err)
		}
		m.mu.Lock()
		m.bodies = append(m.bodies, string(body))
		n := len(m.bodies)
		m.mu.Unlock()
		a := answer(n, req)
		if !req.Stream { // the coordinator of task agents
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"id": "c", "choices": []any{map[string]any{
				"index": 0, "message": map[string]any{"role": "assistant", "content": a.text}, "finish_reason": "stop",
			}}})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(delta map[string]any, finish any) {
			data, _ := json.Marshal(map[string]any{"id": "c", "choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
			fmt.Fprintf(w, "data: %s\n\n", data)
			w.(http.Flusher).Flush()
		}
		for piece := range strings.SplitAfterSeq(a.text, " ") {
			if piece != "" {
				send(map[string]any{"content": piece}, nil)
			}
		}
		for i, c := range a.calls {
			send(map[string]any{"tool_calls": []any{map[string]any{
				"index": i, "id": fmt.Sprintf("call_%d_%d", n, i), "type": "function", "function": map[string]any{"name": c.name, "arguments": c.input},
			}}}, nil)
		}
		finish := "stop"
		if len(a.calls) > 0 {
			finish = "tool_calls"
		}
		send(map[string]any{}, finish)
		io.WriteString(w, `data: {"id":"c","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":10,"total_tokens":1010}}`+"\n\n")
		io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *scriptedModel) asked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string{}, m.bodies...)
}

func (m *scriptedModel) env() []string {
	return []string{"JUNCTOR_MODEL_URL=" + m.URL + "/v1", "JUNCTOR_MODEL_NAME=tiny"}
}

type agentReply struct {
	Type    string
	Run     string
	Message struct {
		Text     string
		Metadata struct {
			Status string
			Calls  []struct {
				Name, Effect, Approval string
				Failed                 bool
			}
		}
	}
	Error *capability.Error
}

func (n *node) tell(t testing.TB, session, text string) (out agentReply) {
	t.Helper()
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/chat/messages",
		map[string]any{"session": session, "text": text}, &out); err != nil {
		t.Fatalf("chat: got %v, want no error", err)
	}
	return out
}

type agentRun struct {
	ID, State, Approval string
	ModelCalls          int
	Error               *capability.Error
}

func (n *node) agentRun(t testing.TB, id string) (out agentRun) {
	t.Helper()
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/agent/runs/"+id, nil, &out); err != nil {
		t.Fatalf("run %s: got %v, want no error", id, err)
	}
	return out
}

func (n *node) decide(t testing.TB, approval, decision string) {
	t.Helper()
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/approvals/"+approval,
		map[string]string{"decision": decision}, nil); err != nil {
		t.Fatalf("%s of %s: got %v, want no error", decision, approval, err)
	}
}

// results returns how many results of calls the conversation has.
func (r modelRequest) results() (n int) {
	for _, m := range r.Messages {
		if m.Role == "tool" {
			n++
		}
	}
	return n
}

// readsAndWrites is a model that reads a file, writes another one, and reports.
func readsAndWrites(_ int, r modelRequest) modelAnswer {
	switch r.results() {
	case 0:
		return modelAnswer{text: "I look.", calls: []toolCall{{"fs_readText", `{"path":"in.txt"}`}}}
	case 1:
		return modelAnswer{calls: []toolCall{{"fs_writeText", `{"path":"out.txt","text":"copied"}`}}}
	}
	return modelAnswer{text: "Done: " + r.last()}
}

// withFile returns a home whose root has the file in.txt.
func withFile(t testing.TB) (home, dir string) {
	t.Helper()
	home = t.TempDir()
	dir = filepath.Join(home, "files")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatalf("mkdir: got %v, want no error", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "in.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	return home, dir
}

type message struct {
	Role, Text string
	Metadata   json.RawMessage
}

func (n *node) history(t testing.TB, session string) []message {
	t.Helper()
	var out struct{ Messages []message }
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/chat/sessions/"+session+"/messages", nil, &out); err != nil {
		t.Fatalf("history: got %v, want no error", err)
	}
	return out.Messages
}

// ended waits until a run has ended.
func (n *node) ended(t testing.TB, run string) (out agentRun) {
	t.Helper()
	eventually(t, "the run "+run+" has ended", func() bool {
		out = n.agentRun(t, run)
		return out.State == "completed" || out.State == "failed" || out.State == "cancelled"
	})
	return out
}

func TestTheAgentReadsAsksAndWrites(t *testing.T) {
	t.Parallel()
	home, dir := withFile(t)
	model := newScriptedModel(t, readsAndWrites)
	character := filepath.Join(home, "character.json")
	if err := os.WriteFile(character, []byte(`{"name":"Ada","bio":"A copyist."}`), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	n := serve(t, home, append(model.env(), "JUNCTOR_AGENT_CHARACTER="+character)...)
	r := n.tell(t, "s1", "copy it")
	if r.Type != "confirmation" || r.Run == "" || r.Error == nil || r.Error.Code != capability.CodeApprovalRequired {
		t.Fatalf("the reply: got %+v, want a confirmation of a run", r)
	}
	run := n.agentRun(t, r.Run)
	if run.State != "waiting" || run.Approval == "" || exists(filepath.Join(dir, "out.txt")) {
		t.Fatalf("the run: got %+v, want it to wait, and nothing written", run)
	}
	if again := n.tell(t, "s1", "in capitals, please"); again.Type != "confirmation" || again.Run != r.Run {
		t.Errorf("a message while the run waits: got %+v, want it to wait still", again)
	}
	n.decide(t, run.Approval, "once")
	if got := n.ended(t, r.Run); got.State != "completed" || got.ModelCalls != 3 {
		t.Errorf("the run after the approval: got %+v, want it completed after 3 requests to the model", got)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "out.txt")); err != nil || string(text) != "copied" {
		t.Errorf("out.txt: got %q and %v, want copied", text, err)
	}
	history := n.history(t, "s1")
	last := history[len(history)-1]
	if !strings.HasPrefix(last.Text, "I look.\n\nDone: ") || !strings.Contains(string(last.Metadata), run.Approval) {
		t.Errorf("the reply: got %q with %s, want the texts of the model, and the calls with their approval", last.Text, last.Metadata)
	}
	asked := model.asked()
	if !strings.Contains(asked[0], "You are Ada.") {
		t.Errorf("the prompt: got %s, want it to begin with the character", asked[0])
	}
	if len(asked) != 3 || !strings.Contains(asked[2], "in capitals, please") || !strings.Contains(asked[1], "hello") {
		t.Errorf("requests to the model: got %d, want 3: the second with the content of the file, the last with the addition",
			len(asked))
	}
	for i := 1; i < len(asked); i++ {
		if before := strings.TrimSuffix(asked[i-1], "]}"); !strings.HasPrefix(asked[i], before) {
			t.Errorf("request %d does not begin with the bytes of the one before; want the same beginning", i+1)
		}
	}
	var list struct{ Runs []agentRun }
	if err := n.agent.Do(t.Context(), http.MethodGet, "/api/v1/agent/runs", nil, &list); err != nil || len(list.Runs) != 0 {
		t.Errorf("the runs of another principal: got %+v and %v, want none", list, err)
	}
	err := n.agent.Do(t.Context(), http.MethodGet, "/api/v1/agent/runs/"+r.Run, nil, nil)
	if capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("the run as another principal: got %v, want not_found", err)
	}
	n.verify(t)
}

func TestWhatAPersonDecidesAboutACallOfTheAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do    func(t *testing.T, n *node, r agentReply, approval string)
		state string
		reply string // part of it
		wrote bool
	}{
		"approved": {func(t *testing.T, n *node, _ agentReply, id string) { n.decide(t, id, "once") }, "completed", "Done: ", true},
		"denied":   {func(t *testing.T, n *node, _ agentReply, id string) { n.decide(t, id, "deny") }, "completed", "a person denied it", false},
		"cancelled": {func(t *testing.T, n *node, r agentReply, _ string) {
			if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/agent/runs/"+r.Run+"/cancel", nil, nil); err != nil {
				t.Errorf("cancel: got %v, want no error", err)
			}
		}, "cancelled", "(stopped)", false},
		"stopped": {func(t *testing.T, n *node, _ agentReply, _ string) { n.tell(t, "s1", "/stop") }, "cancelled", "(stopped)", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, dir := withFile(t)
			n := serve(t, home, newScriptedModel(t, readsAndWrites).env()...)
			r := n.tell(t, "s1", "copy it")
			c.do(t, n, r, n.agentRun(t, r.Run).Approval)
			if got := n.ended(t, r.Run); got.State != c.state {
				t.Errorf("the run: got %+v, want %s", got, c.state)
			}
			replies := 0
			for _, m := range n.history(t, "s1") {
				if m.Role == "assistant" && strings.Contains(m.Text, c.reply) {
					replies++
				}
			}
			var open struct{ Approvals []struct{ ID string } }
			err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/approvals?state=pending", nil, &open)
			if err != nil || len(open.Approvals) != 0 {
				t.Errorf("pending approvals after the end: got %+v and %v, want none", open, err)
			}
			if wrote := exists(filepath.Join(dir, "out.txt")); replies != 1 || wrote != c.wrote {
				t.Errorf("replies with %q: got %d and written %v, want 1 and %v", c.reply, replies, wrote, c.wrote)
			}
		})
	}
}

// A model may ask for anything, and gets no more than the rules allow and the limits leave.
func TestAModelThatMisbehavesIsBounded(t *testing.T) {
	t.Parallel()
	many := make([]toolCall, 100)
	for i := range many {
		many[i] = toolCall{"fs_readText", fmt.Sprintf(`{"path":"in.txt","maxBytes":%d}`, i+1)}
	}
	for name, c := range map[string]struct {
		env    []string
		answer func(n int, r modelRequest) modelAnswer
		state  string
		want   string // in the reply
		most   int    // requests to the model
	}{
		"an unknown tool": {nil, func(n int, r modelRequest) modelAnswer {
			if n == 1 {
				return modelAnswer{calls: []toolCall{{"format_disk", `{}`}}}
			}
			return modelAnswer{text: r.last()}
		}, "completed", `no tool has the name "format_disk"`, 2},
		"malformed arguments": {nil, func(n int, r modelRequest) modelAnswer {
			if n == 1 {
				return modelAnswer{calls: []toolCall{{"fs_writeText", `{"path": out`}}}
			}
			return modelAnswer{text: r.last()}
		}, "completed", "not a JSON object", 2},
		"a hundred calls at once": {nil, func(int, modelRequest) modelAnswer {
			return modelAnswer{calls: many}
		}, "failed", "100 calls at once", 1},
		"the same call again and again": {nil, func(_ int, r modelRequest) modelAnswer {
			if r.ToolChoice == "none" {
				return modelAnswer{text: "I give up: " + r.last()}
			}
			return modelAnswer{calls: []toolCall{{"fs_readText", `{"path":"in.txt"}`}}}
		}, "completed", "the same result again", 4},
		"calls without end": {nil, func(n int, r modelRequest) modelAnswer {
			if r.ToolChoice == "none" {
				return modelAnswer{text: "I give up: " + r.last()}
			}
			return modelAnswer{calls: many[n : n+1]}
		}, "completed", "the limit of 16 calls is reached", 17},
		"calls although none are allowed any more": {[]string{"JUNCTOR_AGENT_BUDGET_MODEL_CALLS=3"}, func(n int, _ modelRequest) modelAnswer {
			return modelAnswer{text: "more", calls: many[n : n+1]}
		}, "completed", "more", 3},
		"a write where only reads are offered": {[]string{"JUNCTOR_AGENT_TOOLS=reads"}, func(n int, r modelRequest) modelAnswer {
			for _, tool := range r.Tools {
				if tool.Function.Name == "fs_writeText" || tool.Function.Name == "catalog_call" {
					return modelAnswer{text: "I was offered " + tool.Function.Name}
				}
			}
			if n == 1 {
				return modelAnswer{calls: []toolCall{{"fs_writeText", `{"path":"out.txt","text":"x"}`}}}
			}
			return modelAnswer{text: r.last()}
		}, "completed", "does not cover fs.writeText", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, dir := withFile(t)
			model := newScriptedModel(t, c.answer)
			n := serve(t, home, append(model.env(), c.env...)...)
			r := n.tell(t, "s1", "go")
			if run := n.agentRun(t, r.Run); run.State != c.state || !strings.Contains(r.Message.Text, c.want) {
				t.Errorf("got %s with %q (%v), want %s with %q", run.State, r.Message.Text, run.Error, c.state, c.want)
			}
			if got := len(model.asked()); got > c.most || exists(filepath.Join(dir, "out.txt")) {
				t.Errorf("requests to the model: got %d, want %d at most, and nothing written", got, c.most)
			}
		})
	}
}

// counts is a model that adds a line to a file by an endpoint, and reports.
func counts(file string) func(int, modelRequest) modelAnswer {
	return func(_ int, r modelRequest) modelAnswer {
		if r.results() > 0 {
			return modelAnswer{text: "Result: " + r.last()}
		}
		for _, tool := range r.Tools {
			if strings.Contains(strings.ToLower(tool.Function.Name), "count") {
				return modelAnswer{calls: []toolCall{{tool.Function.Name, fmt.Sprintf(`{"file":%q}`, file)}}}
			}
		}
		return modelAnswer{text: "COUNT is not offered"}
	}
}

// lines returns the number of lines of a file that may be missing.
func lines(file string) int {
	data, _ := os.ReadFile(file)
	return strings.Count(string(data), "\n")
}

func TestTheAgentEndsWithThePersonsToken(t *testing.T) {
	t.Parallel()
	home, dir := withFile(t)
	n := serve(t, home, newScriptedModel(t, readsAndWrites).env()...)
	var made struct{ Token string }
	err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]any{"name": "ann", "role": "operator"}, &made)
	if err != nil {
		t.Fatalf("token: got %v, want no error", err)
	}
	ann := n.client(t, made.Token)
	say := func() (out agentReply) {
		t.Helper()
		if err := ann.Do(t.Context(), http.MethodPost, "/api/v1/chat/messages",
			map[string]any{"session": "s1", "text": "copy it"}, &out); err != nil {
			t.Fatalf("chat: got %v, want no error", err)
		}
		return out
	}
	r := say()
	approval := n.agentRun(t, r.Run).Approval
	if err := ann.Do(t.Context(), http.MethodPost, "/api/v1/approvals/"+approval, map[string]string{"decision": "always"}, nil); err != nil {
		t.Fatalf("the person approves a call of their agent: got %v, want no error", err)
	}
	n.ended(t, r.Run)
	if err := os.Remove(filepath.Join(dir, "out.txt")); err != nil {
		t.Fatalf("remove: got %v, want no error", err)
	}
	if again := say(); again.Type != "text" || !exists(filepath.Join(dir, "out.txt")) {
		t.Errorf("the next message after an approval for always: got %+v, want it done without another approval", again)
	}

	if err := os.Remove(filepath.Join(dir, "out.txt")); err != nil {
		t.Fatalf("remove: got %v, want no error", err)
	}
	var grants struct {
		Grants []struct{ ID, Approval string }
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/grants", nil, &grants); err != nil || len(grants.Grants) != 1 {
		t.Fatalf("grants: got %+v and %v, want the one that was given", grants, err)
	}
	if err := n.admin.Do(t.Context(), http.MethodDelete, "/api/v1/grants/"+grants.Grants[0].ID, nil, nil); err != nil {
		t.Fatalf("revoke the grant: got %v, want no error", err)
	}
	r = say()
	approval = n.agentRun(t, r.Run).Approval
	if err := n.admin.Do(t.Context(), http.MethodDelete, "/api/v1/tokens/ann", nil, nil); err != nil {
		t.Fatalf("revoke the token: got %v, want no error", err)
	}
	n.decide(t, approval, "once")
	if got := n.ended(t, r.Run); got.State != "failed" || exists(filepath.Join(dir, "out.txt")) {
		t.Errorf("the run after the person's token ended: got %+v, want it failed and nothing written", got)
	}
}

// A client that returns with the id of its last event gets the rest, and all texts together are the
// reply, also after the server was killed in the middle of one.
func TestTheEventsOfARunContinue(t *testing.T) {
	t.Parallel()
	home, _ := withFile(t)
	stuck, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	model := newScriptedModel(t, func(n int, r modelRequest) modelAnswer {
		if n == 3 {
			once.Do(func() { close(stuck) })
			<-leave
		}
		return readsAndWrites(n, r)
	})
	n := serve(t, home, model.env()...)
	r := n.tell(t, "s1", "copy it")
	type event struct{ id, kind, text string }
	follow := func(last string, most int) (list []event) {
		t.Helper()
		a := n.request(t, http.MethodGet, "/api/v1/agent/runs/"+r.Run+"/events", n.token(t, "admin"), "", func(req *http.Request) {
			if last != "" {
				req.Header.Set("Last-Event-ID", last)
			}
		})
		for block := range strings.SplitSeq(a.body, "\n\n") {
			var ev event
			for line := range strings.SplitSeq(block, "\n") {
				if id, ok := strings.CutPrefix(line, "id: "); ok {
					ev.id = id
				}
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					var d struct{ Type, Text string }
					if err := json.Unmarshal([]byte(data), &d); err != nil {
						t.Fatalf("event %q: got %v, want JSON", data, err)
					}
					ev.kind, ev.text = d.Type, d.Text
				}
			}
			if ev.id != "" && len(list) < most {
				list = append(list, ev)
			}
		}
		return list
	}
	n.decide(t, n.agentRun(t, r.Run).Approval, "once")
	<-stuck
	n.kill()
	close(leave)
	n = serve(t, home, model.env()...)
	n.ended(t, r.Run)
	all := follow("", 1000)
	history := n.history(t, "s1")
	want := history[len(history)-1].Text
	for cut := 0; cut <= len(all); cut++ {
		text, last := "", ""
		for _, ev := range all[:cut] {
			text, last = text+ev.text, ev.id
		}
		for _, ev := range follow(last, 1000) {
			text += ev.text
		}
		if text != want {
			t.Errorf("cut after %d of %d events: got the text %q, want %q", cut, len(all), text, want)
		}
	}
	if len(all) < 5 || all[len(all)-1].kind != "end" {
		t.Errorf("events: got %+v, want texts and calls, and the end last", all)
	}
}

// The agent is a tool of MCP and of A2A: another agent gives it a task in words, as itself.
func TestOtherAgentsAskTheAgent(t *testing.T) {
	t.Parallel()
	home, dir := withFile(t)
	model := newScriptedModel(t, readsAndWrites)
	n := serve(t, home, model.env()...)
	var out struct {
		Result struct {
			State, Text, Run string
			Approvals        []string
			Calls            []struct{ Name string }
		}
	}
	ask := func(input string) {
		t.Helper()
		if err := n.agent.Do(t.Context(), http.MethodPost, "/api/v1/invocations",
			map[string]any{"target": "chat.ask", "input": json.RawMessage(input)}, &out); err != nil {
			t.Fatalf("chat.ask %s: got %v, want no error", input, err)
		}
	}
	ask(`{"text":"copy it"}`)
	if got := out.Result; got.State != "waiting" || len(got.Approvals) != 1 || exists(filepath.Join(dir, "out.txt")) {
		t.Fatalf("got %+v, want that it waits for an approval", got)
	}
	run := out.Result.Run
	n.decide(t, out.Result.Approvals[0], "once")
	eventually(t, "the run has ended", func() bool {
		ask(fmt.Sprintf(`{"run":%q}`, run))
		return out.Result.State == "completed"
	})
	if got := out.Result; !strings.Contains(got.Text, "Done: ") || len(got.Calls) != 2 || !exists(filepath.Join(dir, "out.txt")) {
		t.Errorf("got %+v, want the reply with its two calls", got)
	}
	// The agent that a run belongs to is not offered the tool, and may not begin a run with it.
	for _, body := range model.asked() {
		if strings.Contains(body, "chat_ask") {
			t.Errorf("the model is offered chat_ask: %s", body)
		}
	}

	// A message of A2A without a skill.
	a := n.request(t, http.MethodPost, "/a2a", n.token(t, "agent"), `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":`+
		`{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"copy it again"}]}}}`, func(r *http.Request) {
		r.Header.Set("A2A-Version", "1.0")
		r.Header.Set("Content-Type", "application/json")
	})
	if a.status != http.StatusOK || !strings.Contains(a.body, "apr_") {
		t.Errorf("a message without a skill: got %d %s, want the task of a run that waits for an approval", a.status, a.body)
	}
}

// What the agent creates for a person is the person's: a task for a coding agent is in their list.
func TestATaskThatTheAgentGivesBelongsToThePerson(t *testing.T) {
	t.Parallel()
	model := newScriptedModel(t, func(_ int, r modelRequest) modelAnswer {
		if r.results() > 0 || len(r.Tools) == 0 {
			return modelAnswer{text: "It is begun."}
		}
		return modelAnswer{calls: []toolCall{{"task-agent_task_create", `{"task":"sleep 60","agentType":"shell","label":"greeter"}`}}}
	})
	n := serve(t, t.TempDir(), model.env()...)
	var made struct{ Token string }
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]any{"name": "ann", "role": "agent"}, &made); err != nil {
		t.Fatalf("token: got %v, want no error", err)
	}
	ann := n.client(t, made.Token)
	var r agentReply
	if err := ann.Do(t.Context(), http.MethodPost, "/api/v1/chat/messages", map[string]any{"session": "s1", "text": "delegate"}, &r); err != nil {
		t.Fatalf("chat: got %v, want no error", err)
	}
	n.decide(t, n.agentRun(t, r.Run).Approval, "once")
	n.ended(t, r.Run)
	var list struct {
		Tasks []struct{ ID, Kind, Owner string }
	}
	if err := ann.Do(t.Context(), http.MethodGet, "/api/v1/tasks", nil, &list); err != nil {
		t.Fatalf("tasks: got %v, want no error", err)
	}
	threads := 0
	for _, task := range list.Tasks {
		if task.Kind == "thread" && task.Owner == "agent:ann" {
			threads++
		}
	}
	if threads != 1 {
		t.Errorf("the person's tasks: got %+v, want the one that the agent gave", list.Tasks)
	}
	asking := func(c *client.Client, session string) string {
		t.Helper()
		if err := c.Do(t.Context(), http.MethodPost, "/api/v1/chat/messages", map[string]any{"session": session, "text": "what is up?"}, &r); err != nil {
			t.Fatalf("chat: got %v, want no error", err)
		}
		for _, body := range slices.Backward(model.asked()) {
			if strings.Contains(body, "what is up?") {
				return conversationIn(body)
			}
		}
		return ""
	}
	if got := asking(ann, "s1"); !strings.Contains(got, "[outlook task-agent.list, data ") || !strings.Contains(got, "greeter") {
		t.Errorf("the next prompt: got %s, want what the person's task agents do", got)
	}
	if got := asking(n.admin, "s9"); got == "" || strings.Contains(got, "greeter") {
		t.Errorf("the prompt of another person: got %s, want it without the task", got)
	}
}

// A person's limit of a day ends a run with one last answer without tools, and refuses the next run.
func TestTheLimitsOfADay(t *testing.T) {
	t.Parallel()
	home, _ := withFile(t)
	config := filepath.Join(home, "config.yaml")
	model := newScriptedModel(t, func(_ int, r modelRequest) modelAnswer {
		if r.ToolChoice == "none" {
			return modelAnswer{text: "That is all for today."}
		}
		return modelAnswer{calls: []toolCall{{"fs_readText", fmt.Sprintf(`{"path":"in.txt","maxBytes":%d}`, 1+r.results())}}}
	})
	settings := fmt.Sprintf("model: {url: %q, name: tiny, price_in: 2000, price_out: 10000}\nagent: {budget: {day: {cost: 4}}}\n", model.URL+"/v1")
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	n := serve(t, home)
	r := n.tell(t, "s1", "read it again and again")
	if r.Message.Text != "That is all for today." {
		t.Errorf("the reply: got %+v, want the last answer without tools", r)
	}
	// Each answer costs 1,000 * 2 + 10 * 10 millionths: after two, 4 thousandths are used.
	asked := model.asked()
	if len(asked) != 3 || !strings.Contains(asked[2], "the limit of the cost of a day is reached") {
		t.Errorf("requests to the model: got %d, want 3, the last with the reason: %s", len(asked), conversationIn(asked[len(asked)-1]))
	}
	if again := n.tell(t, "s2", "and again"); again.Error == nil || again.Error.Code != capability.CodeOverloaded || again.Error.Reason != "budget" {
		t.Errorf("a message after that: got %+v, want it refused", again)
	}
	if got := len(model.asked()); got != 3 {
		t.Errorf("requests to the model after that: got %d, want 3", got)
	}
	var usage struct {
		Usage []struct {
			Person, Day                   string
			ModelCalls, ToolCalls, Tokens int
			Cost                          float64
		}
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/agent/usage", nil, &usage); err != nil || len(usage.Usage) != 1 {
		t.Fatalf("usage: got %+v and %v, want one day of one person", usage, err)
	}
	if u := usage.Usage[0]; u.Person != "admin:local-admin" || u.ModelCalls != 3 || u.ToolCalls != 2 || u.Tokens != 3030 || u.Cost < 0.0062 || u.Cost > 0.0064 {
		t.Errorf("usage: got %+v, want 3 requests, 2 calls, 3,030 tokens and 0.0063", u)
	}
	if err := n.agent.Do(t.Context(), http.MethodGet, "/api/v1/agent/usage", nil, &usage); err != nil || len(usage.Usage) != 0 {
		t.Errorf("the usage that another principal sees: got %+v and %v, want none", usage, err)
	}
}

// A run that reads much goes on with a summary of its beginning.
func TestALongRunGoesOnWithASummary(t *testing.T) {
	t.Parallel()
	home, dir := withFile(t)
	if err := os.WriteFile(filepath.Join(dir, "in.txt"), []byte(strings.Repeat("0123456789abcde\n", 4<<10)), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	read := 0
	model := newScriptedModel(t, func(_ int, r modelRequest) modelAnswer {
		if strings.HasPrefix(fmt.Sprint(r.Messages[0].Content), "Summarise the work") {
			return modelAnswer{text: "Page after page was read."}
		}
		if read++; read > 12 {
			return modelAnswer{text: "Read."}
		}
		return modelAnswer{calls: []toolCall{{"fs_readText", fmt.Sprintf(`{"path":"in.txt","maxBytes":%d}`, 60000+read)}}}
	})
	n := serve(t, home, model.env()...)
	if r := n.tell(t, "s1", "read it"); r.Message.Text != "Read." || len(r.Message.Metadata.Calls) != 12 {
		t.Errorf("the reply: got %q with %d calls, want that of a run with 12", r.Message.Text, len(r.Message.Metadata.Calls))
	}
	asked := model.asked()
	last := conversationIn(asked[len(asked)-1])
	if !strings.Contains(last, "[summary of records ") || !strings.Contains(last, "Page after page was read.") || len(last) > 150<<10 {
		t.Errorf("the last request: got %d bytes beginning with %.500s, want the summary", len(last), last)
	}
	n.verify(t)
}
