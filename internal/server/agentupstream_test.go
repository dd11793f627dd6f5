package server_test

import (
	"context"
	"encoding/json"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// farAgent is an A2A agent of the official SDK.
type farAgent struct {
	url       string
	stop      func()
	start     func()
	card      atomic.Pointer[a2a.AgentCard]
	cancelled chan struct{}
	finish    chan struct{}
	begun     atomic.Int64
}

func (e *farAgent) Execute(ctx context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		say := func(state a2a.TaskState, text string) {
			yield(a2a.NewStatusUpdateEvent(x, state, a2a.NewMessageForTask(a2a.MessageRoleAgent, x, a2a.NewTextPart(text))), nil)
		}
		text := x.Message.Parts[0].Text()
		if x.StoredTask == nil {
			e.begun.Add(1)
			if !yield(a2a.NewSubmittedTask(x, x.Message), nil) {
				return
			}
		}
		switch {
		case x.StoredTask != nil:
			yield(a2a.NewArtifactEvent(x, a2a.NewTextPart("you said "+text)), nil)
			yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateCompleted, nil), nil)
		case text == "ask":
			say(a2a.TaskStateInputRequired, "which one?")
		case text == "ask late":
			say(a2a.TaskStateWorking, "on it")
			select {
			case <-ctx.Done():
			case <-e.finish:
				say(a2a.TaskStateInputRequired, "which one?")
			}
		case text == "wait for ever":
			say(a2a.TaskStateWorking, "on it")
			select {
			case <-ctx.Done():
			case <-e.cancelled:
			}
		case text == "wait":
			say(a2a.TaskStateWorking, "on it")
			select {
			case <-ctx.Done():
			case <-e.cancelled:
			case <-e.finish:
				say(a2a.TaskStateCompleted, "finished")
			}
		default:
			yield(a2a.NewArtifactEvent(x, a2a.NewDataPart(map[string]any{"big": int64(9007199254740993)})), nil)
			yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateCompleted, nil), nil)
		}
	}
}

func (e *farAgent) Cancel(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		close(e.cancelled)
		yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateCanceled, nil), nil)
	}
}

// describe changes the card.
func (e *farAgent) describe(text string) {
	e.card.Store(&a2a.AgentCard{
		Name: "remote", Version: "1", Description: "an agent", Capabilities: a2a.AgentCapabilities{Streaming: true},
		SupportedInterfaces: []*a2a.AgentInterface{{URL: e.url + "/rpc", ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: "1.0"}},
		Skills:              []a2a.AgentSkill{{ID: "do it", Name: "Do it", Description: text, Tags: []string{"x"}}},
	})
}

func newFarAgent(t *testing.T) *farAgent {
	t.Helper()
	e := &farAgent{cancelled: make(chan struct{}), finish: make(chan struct{})}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	e.url = server.URL
	e.stop = func() {
		server.CloseClientConnections()
		server.Close()
	}
	e.start = func() {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		server = &httptest.Server{Listener: l, Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}}
		server.Start()
	}
	t.Cleanup(func() { e.stop() })
	e.describe("does it")
	mux.HandleFunc("/.well-known/agent-card.json", func(w http.ResponseWriter,
		_ *http.Request,
	) {
		_ = json.NewEncoder(w).Encode(e.card.Load())
	})
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(e)))
	return e
}

// openHome is a home whose rules permit everything to everybody.
func openHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "policy"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "policy", "all.cedar"), []byte(`@id("all") permit (principal, action, resource);`),
		0o600); err != nil {
		t.Fatal(err)
	}
	return home
}

// session is a client of MCP by the official SDK.
func (n *node) session(t *testing.T, answer string, heard func(string)) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if !strings.Contains(r.Params.Message, "[far] which one?") {
				t.Errorf(`asked: %s; want r.Params.Message with "[far] which one?"`, r.Params.Message)
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": answer}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { heard(r.Params.Message) },
	})
	token := n.token(t, "agent")
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint:   n.url + "/mcp",
		HTTPClient: &http.Client{Transport: bearer(token)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

const agentTool = "agent_far_do_it"

func TestAnA2AAgentIsATool(t *testing.T) {
	t.Parallel()
	far := newFarAgent(t)
	n := serve(t, openHome(t))
	add := `{"name":"far","kind":"a2a","url":"` + far.url + `","private_network":true}`
	if a := n.request(t, "POST", "/api/v1/upstreams", n.token(t, "admin"), add); a.status != http.StatusCreated {
		t.Fatalf("%d %s; want a.status = http.StatusCreated", a.status, a.body)
	}
	var module struct {
		Origin        string
		Contributions []struct{ CapabilityID string }
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/modules/a2a.far", nil, &module); err != nil || len(module.Contributions) != 1 {
		t.Fatalf("%+v %v; want no error, len(module.Contributions) = 1", module, err)
	}
	var mu sync.Mutex
	var progress []string
	began := make(chan struct{}, 8)
	s := n.session(t, "that one", func(text string) {
		mu.Lock()
		defer mu.Unlock()
		progress = append(progress, text)
		began <- struct{}{}
	})
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var tool *mcp.Tool
	for _, one := range list.Tools {
		if one.Name == agentTool {
			tool = one
		}
	}
	if tool == nil || tool.Title != "Do it" || tool.Meta["junctor/a2a"] != nil {
		t.Fatalf(`%+v; want tool not nil, tool.Title = "Do it", tool.Meta["junctor/a2a"] = nil`, tool)
	}
	call := func(ctx context.Context, text string) (string, bool, error) {
		params := &mcp.CallToolParams{Name: agentTool, Arguments: map[string]any{"message": text}}
		params.SetProgressToken("p")
		r, err := s.CallTool(ctx, params)
		if err != nil {
			return "", false, err
		}
		doc, _ := json.Marshal(r.Content)
		return string(doc), r.IsError, nil
	}
	if text, failed, err := call(t.Context(), "go"); err != nil || failed || !strings.Contains(text, "9007199254740993") {
		t.Errorf(`%s %v %v; want no error, failed = false, text with "9007199254740993"`, text, failed, err)
	}
	if text, failed, err := call(t.Context(), "ask"); err != nil || failed || !strings.Contains(text, "you said that one") {
		t.Errorf(`%s %v %v; want no error, failed = false, text with "you said that one"`, text, failed, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, _, err := call(ctx, "wait"); err == nil {
		t.Error("it came to an end; want an error")
	}
	<-far.cancelled
	mu.Lock()
	if strings.Join(progress, " ") != "on it" {
		t.Errorf("progress = %q, want only \"on it\"", progress)
	}
	mu.Unlock()

	// A changed card is held until an operator has reviewed it.
	far.describe("does something else")
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/upstreams/far/restart", nil, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change is held", func() bool {
		a := n.request(t, "GET", "/api/v1/upstreams/far/diff", n.token(t, "admin"), "")
		return strings.Contains(a.body, "does something else")
	})
	if text, failed, err := call(t.Context(), "go"); err != nil || !failed || !strings.Contains(text, "changed its definition") {
		t.Errorf(`%s %v %v; want no error, failed = true, text with "changed its definition"`, text, failed, err)
	}
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/upstreams/far/approve", map[string]string{}, nil); err != nil {
		t.Fatal(err)
	}
	if text, failed, err := call(t.Context(), "go"); err != nil || failed {
		t.Errorf("%s %v %v; want no error, failed = false", text, failed, err)
	}

	// Without the agent nothing is called, and it comes back by itself.
	far.stop()
	eventually(t, "the loss is seen", func() bool {
		text, failed, err := call(t.Context(), "go")
		if err != nil || !failed {
			t.Errorf("%s %v %v; want no error, failed = true", text, failed, err)
		}
		return strings.Contains(n.request(t, "GET", "/api/v1/upstreams/far", n.token(t, "admin"), "").body, `"state":"degraded"`)
	})
	far.start()
	eventually(t, "it is called again", func() bool {
		_, failed, err := call(t.Context(), "go")
		return err == nil && !failed
	})
	n.verify(t)
}

// TestAnAgentsWorkOutlivesARestart: a call that takes its time becomes a task, the
// server ends, and the next process brings what the agent made in the meantime.
func TestAnAgentsWorkOutlivesARestart(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"kill", "terminate"} {
		t.Run(how, func(t *testing.T) {
			far := newFarAgent(t)
			home := openHome(t)
			n := serve(t, home, "JUNCTOR_MCP_TASK_AFTER=100ms")
			add := `{"name":"far","kind":"a2a","url":"` + far.url + `","private_network":true}`
			if a := n.request(t, "POST", "/api/v1/upstreams", n.token(t, "admin"), add); a.status != http.StatusCreated {
				t.Fatalf("%d %s; want a.status = http.StatusCreated", a.status, a.body)
			}
			made := n.modern(t, "tools/call", agentTool, `"name":"`+agentTool+`","arguments":{"message":"wait"}`)
			if made.ResultType != "task" || made.TaskID == "" {
				t.Fatalf(`%+v; want made.ResultType = "task", made.TaskID other than ""`, made)
			}
			if how == "kill" {
				n.kill()
			} else {
				n.terminate(t)
			}
			n = serve(t, home, "JUNCTOR_MCP_TASK_AFTER=100ms")
			get := func() string {
				out := n.modern(t, "tasks/get", made.TaskID, `"taskId":"`+made.TaskID+`"`)
				return out.Status + " " + string(out.Result)
			}
			if now := get(); !strings.HasPrefix(now, "working") {
				t.Errorf(`after the restart: %s; want now beginning with "working"`, now)
			}
			close(far.finish)
			eventually(t, "the task ended", func() bool { return strings.HasPrefix(get(), "completed") })
			if end := get(); !strings.Contains(end, "finished") {
				t.Errorf("end of the task = %q, want it to contain \"finished\"", end)
			}
			if far.begun.Load() != 1 {
				t.Errorf("the agent was asked %d times; want far.begun.Load() = 1", far.begun.Load())
			}
		})
	}
}

// modernReply is what the newest MCP answers, as far as these tests look.
type modernReply struct {
	ResultType, TaskID, Status string
	Result                     json.RawMessage
	InputRequests              map[string]json.RawMessage
}

// modern is a request of a client that takes tasks and answers forms.
func (n *node) modern(t *testing.T, method, name, params string) (out modernReply) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`
	a := n.request(t, "POST", "/mcp", n.token(t, "agent"), body, func(r *http.Request) {
		for k, v := range map[string]string{
			"Accept": "application/json, text/event-stream", "Content-Type": "application/json",
			"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
		} {
			r.Header.Set(k, v)
		}
	})
	text := a.body
	if _, data, ok := strings.Cut(text, "data: "); ok {
		text, _, _ = strings.Cut(data, "\n")
	}
	var reply struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal([]byte(text), &reply); err != nil || reply.Error != nil {
		t.Fatalf("%s: %d %s; want no error, reply.Error = nil", method, a.status, a.body)
	}
	if err := json.Unmarshal(reply.Result, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAnAgentBehindATask: its question is the task's, and cancelling the task cancels
// the agent's.
func TestAnAgentBehindATask(t *testing.T) {
	t.Parallel()
	far := newFarAgent(t)
	n := serve(t, openHome(t), "JUNCTOR_MCP_TASK_AFTER=100ms")
	add := `{"name":"far","kind":"a2a","url":"` + far.url + `","private_network":true}`
	if a := n.request(t, "POST", "/api/v1/upstreams", n.token(t, "admin"), add); a.status != http.StatusCreated {
		t.Fatalf("%d %s; want a.status = http.StatusCreated", a.status, a.body)
	}
	begin := func(message string) modernReply {
		t.Helper()
		made := n.modern(t, "tools/call", agentTool, `"name":"`+agentTool+`","arguments":{"message":"`+message+`"}`)
		if made.ResultType != "task" {
			t.Fatalf(`%+v; want made.ResultType = "task"`, made)
		}
		return made
	}
	get := func(id string) modernReply { return n.modern(t, "tasks/get", id, `"taskId":"`+id+`"`) }
	asks := begin("ask late").TaskID
	close(far.finish)
	var asked modernReply
	eventually(t, "it asks", func() bool { asked = get(asks); return asked.Status == "input_required" })
	for key, q := range asked.InputRequests {
		if !strings.Contains(string(q), "[far] which one?") {
			t.Errorf(`%s; want string(q) with "[far] which one?"`, q)
		}
		n.modern(t, "tasks/update", asks, `"taskId":"`+asks+`","inputResponses":{"`+key+`":{"action":"accept","content":{"answer":"this"}}}`)
	}
	eventually(t, "it is answered", func() bool { return strings.Contains(string(get(asks).Result), "you said this") })
	waits := begin("wait for ever").TaskID
	n.modern(t, "tasks/cancel", waits, `"taskId":"`+waits+`"`)
	select {
	case <-far.cancelled:
	case <-time.After(time.Minute):
		t.Error("the agent was not told")
	}
	eventually(t, "it is cancelled", func() bool { return get(waits).Status == "cancelled" })
	n.verify(t)
}
