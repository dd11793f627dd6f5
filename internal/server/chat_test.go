package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// modelService speaks OpenAI's chat completions, streamed, and keeps what it was
// asked.
type modelService struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	keys   []string
}

func newModelService(t *testing.T) *modelService {
	t.Helper()
	m := &modelService{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		m.bodies, m.keys = append(m.bodies, string(body)), append(m.keys, r.Header.Get("Authorization"))
		m.mu.Unlock()
		if !strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"id":"c1","model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"It is fine."},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range []string{"Try ", "/say hello"} {
			fmt.Fprintf(w, "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n", piece)
		}
		io.WriteString(w, "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *modelService) asked() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.bodies, "\n")
}

type chatReply struct {
	Type    string
	Message struct {
		Text     string
		Metadata map[string]any
	}
	Error *capability.Error
}

func (n *node) chat(t *testing.T, session, text string) (out chatReply) {
	t.Helper()
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/chat/messages", map[string]any{"session_id": session, "text": text},
		&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestChatRunsCommandsAndAsksTheModel(t *testing.T) {
	t.Parallel()
	model := newModelService(t)
	n := serve(t, t.TempDir(), "JUNCTOR_MODEL_URL="+model.URL+"/v1", "JUNCTOR_MODEL_NAME=tiny", "JUNCTOR_MODEL_KEY_SECRET=model-key")
	if err := n.install(t, sayPackage(t, "1.0.0")); err != nil {
		t.Fatal(err)
	}
	if r := n.chat(t, "s1", "/say hello"); r.Type != "extension_prompt" || r.Message.Metadata["prompt"] == nil {
		t.Errorf(`%+v; want r.Type = "extension_prompt", r.Message.Metadata["prompt"] not nil`, r)
	}
	if err := n.enableSay(t); err != nil {
		t.Fatal(err)
	}
	if r := n.chat(t, "s1", "/say hello a 'b c'"); r.Type != "extension_output" || r.Message.Text != "a b c\n" ||
		r.Message.Metadata["status"] != "succeeded" {
		t.Errorf(`%+v; want r.Type = "extension_output", r.Message.Text = "a b c\n", r.Message.Metadata["status"] = "succeeded"`, r)
	}
	if r := n.chat(t, "s1", "what now?"); r.Type != "error" || r.Error.Code != capability.CodeUnavailable {
		t.Errorf(`without its key: %+v; want r.Type = "error", r.Error.Code = capability.CodeUnavailable`, r)
	}
	if a := n.request(t, http.MethodPut, "/api/v1/secrets/model-key", n.token(t, "admin"), "sk-0123456789", func(r *http.Request) {
		r.Header.Set("Content-Type", "application/octet-stream")
	}); a.status >= 300 {
		t.Fatalf("storing the secret: status %d, body %s, want success", a.status, a.body)
	}
	// Streamed: the pieces are text, and the end is what is kept.
	a := n.request(t, http.MethodPost, "/api/v1/chat/messages", n.token(t, "admin"), `{"session_id":"s1","text":"what now?","stream":true}`,
		func(r *http.Request) {
			r.Header.Set("Accept", "application/x-ndjson")
		})
	var text string
	var last chatReply
	for lines := bufio.NewScanner(strings.NewReader(a.body)); lines.Scan(); {
		var item struct {
			Text  string
			Reply *chatReply
		}
		if err := json.Unmarshal(lines.Bytes(), &item); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		text += item.Text
		if item.Reply != nil {
			last = *item.Reply
		}
	}
	if text != "Try /say hello" || last.Message.Text != text {
		t.Errorf(`%s; want text = "Try /say hello", last.Message.Text = %v`, a.body, text)
	}
	if asked := model.asked(); !strings.Contains(asked, "/say") || !strings.Contains(asked, "a b c") ||
		model.keys[len(model.keys)-1] != "Bearer sk-0123456789" {
		t.Errorf("request to the model = %s, want /say, \"a b c\" and the stored key", asked)
	}
	var history struct{ Messages []struct{ Role, Text string } }
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/chat/sessions/s1/messages", nil, &history); err != nil ||
		len(history.Messages) != 8 {
		t.Errorf("%+v %v; want no error, len(history.Messages) = 8", history, err)
	}
	// A conversation is its owner's.
	history.Messages = nil
	if err := n.agent.Do(t.Context(), http.MethodGet, "/api/v1/chat/sessions/s1/messages", nil, &history); err != nil ||
		len(history.Messages) != 0 {
		t.Errorf("%+v %v; want no error, len(history.Messages) = 0", history, err)
	}
	if err := n.admin.Do(t.Context(), http.MethodDelete, "/api/v1/chat/sessions/s1", nil, nil); err != nil {
		t.Error(err)
	}
	if r := n.chat(t, "s1", "/say explain"); r.Type != "error" { // no action has this name
		t.Errorf(`%+v; want r.Type = "error"`, r)
	}
	n.verify(t)
}

func TestARunThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	if err := n.install(t, sayPackage(t, "1.0.0")); err != nil {
		t.Fatal(err)
	}
	if err := n.enableSay(t); err != nil {
		t.Fatal(err)
	}
	start := func(line string) (out struct {
		RunID  string `json:"run_id"`
		Status tasks.RunStatus
	},
	) {
		t.Helper()
		if err := n.admin.Do(t.Context(), http.MethodPost, extensionsDoor+"/execute", map[string]any{"command": line, "async": true},
			&out); err != nil || out.Status.Over() {
			t.Fatalf("execute = %+v, error %v, want a run in progress", out, err)
		}
		return out
	}
	poll := func(id string, until func(tasks.Run) bool) tasks.Run {
		t.Helper()
		for {
			var one tasks.Run
			if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/invocations/"+id, nil, &one); err != nil {
				t.Fatal(err)
			}
			if until(one) {
				return one
			}
		}
	}
	over := func(r tasks.Run) bool { return r.Status.Over() }
	if one := poll(start("/say hello x").RunID, over); one.Status != tasks.RunSucceeded ||
		!strings.Contains(string(one.Result), `"output":"x\n"`) || one.Extension != "tools.say" {
		t.Errorf(`%+v; want one.Status = tasks.RunSucceeded, string(one.Result) with "\"output\":\"x\\n\"", one.Extension = "tools.say"`,
			one)
	}
	if a := n.request(t, http.MethodGet, "/metrics", n.token(t, "admin"), ""); !strings.Contains(a.body,
		`junctor_run_seconds_count{extension="tools.say",outcome="ok",runner="exec.echo",sandbox="T`) ||
		!strings.Contains(a.body, "junctor_runs_waiting 0") || !strings.Contains(a.body, "junctor_sandbox_tier ") {
		t.Error("the metrics do not tell of the run")
	}
	slow := start("/say wait").RunID
	poll(slow, func(r tasks.Run) bool { return r.Status == tasks.RunRunning && r.Stage == "EXECUTING" })
	if a := n.request(t, http.MethodPost, "/api/v1/invocations/"+slow+"/cancel", n.token(t, "agent"), ""); a.status != http.StatusNotFound {
		t.Errorf("an agent stopped it: %d; want a.status = http.StatusNotFound", a.status)
	}
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/invocations/"+slow+"/cancel", nil, nil); err != nil {
		t.Fatal(err)
	}
	if one := poll(slow, over); one.Status != tasks.RunCanceled {
		t.Errorf("%+v; want one.Status = tasks.RunCanceled", one)
	}
	var list struct{ Runs []tasks.Run }
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/invocations?status=canceled&extension_id=tools.say", nil, &list); err != nil ||
		len(list.Runs) != 1 || list.Runs[0].ID != slow {
		t.Errorf("%+v %v; want no error, len(list.Runs) = 1, list.Runs[0].ID = %v", list, err, slow)
	}
	for _, bad := range []string{"?status=odd", "?limit=x"} {
		if a := n.request(t, http.MethodGet, "/api/v1/invocations"+bad, n.token(t, "admin"), ""); a.code() != "invalid_input" {
			t.Errorf(`%s: %s; want a.code() = "invalid_input"`, bad, a.body)
		}
	}
	n.verify(t)
}
