package cmpserve

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stack is the surface over a real engine with two nodes of the test's own.
type stack struct {
	testing.TB
	url, token string
	mu         sync.Mutex
	calls      []capability.Call
	nodes      []string // that took them
}

type provider struct {
	*stack
	key  capability.ProviderKey
	node string
}

func (p *provider) Key() capability.ProviderKey { return p.key }

func (p *provider) Invoke(_ context.Context, c capability.Call) (capability.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls, p.nodes = append(p.calls, c), append(p.nodes, p.node)
	switch c.Member.Name {
	case "text":
		return capability.Result{Value: json.RawMessage(`"said"`)}, nil
	case "nothing":
		return capability.Result{}, nil
	case "stream":
		return capability.Result{Value: json.RawMessage(`[1,2]`)}, nil
	case "huge":
		return capability.Result{Value: json.RawMessage(`"` + strings.Repeat("x", 300<<10) + `"`)}, nil
	case "fails":
		return capability.Result{}, capability.Errorf(capability.CodeFailed, "node", "it broke").With("execution_failed", "")
	case "secret":
		panic("of another user")
	}
	return capability.Result{Value: c.Input}, nil
}

func newStack(t testing.TB) *stack {
	t.Helper()
	ctx, dir := t.Context(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := store.Open(ctx, filepath.Join(dir, "state", "junctor.db"))
	must(err)
	segments, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	must(err)
	log, err := audit.Open(ctx, audit.Config{Segments: segments, Key: make([]byte, 32)})
	must(err)
	pol, err := policy.New(ctx, policy.Config{
		Documents: []policy.Document{{Name: "default.cedar", Text: []byte(policy.DefaultRules())}},
		Store:     db, Log: log,
	})
	must(err)
	_, value, err := pol.CreateToken(ctx, capability.Principal{ID: "admin:root", Role: capability.RoleAdmin},
		policy.TokenRequest{Role: capability.RoleAgent, Name: "claude"})
	must(err)
	s := &stack{TB: t, token: value.Reveal()}
	c := catalogtest.New(t)
	for node, users := range map[string][]string{"a": nil, "b": nil, "anns": {"ann"}} {
		p := &provider{stack: s, key: capability.NewProviderKey("fn", "node", node), node: node}
		d := &provider{stack: s, key: capability.NewProviderKey("device", "node", node), node: node}
		m := capability.Module{Extension: "node." + node, ID: "node." + node, Label: node, Origin: "node", Endpoint: "node:" + node, Users: users}
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: "~invoke", Kind: "capability.agent-tool", Action: "device.function.invoke", Provider: d.key,
			Member: capability.Member{Module: m.Extension, Kind: "door", Name: "device.function.invoke"},
		})
		names := []string{"echo"}
		switch node {
		case "a":
			names = append(names, "text", "nothing", "stream", "fails", "huge")
		case "anns":
			names = append(names, "secret")
		}
		for _, f := range names {
			m.Contributions = append(m.Contributions, capability.Contribution{
				ID: f, Kind: "capability.agent-tool", Action: capability.Action("fn." + f), Tool: f, Provider: p.key, Effect: capability.EffectRead,
				Tags:   []string{"t-" + node},
				Member: capability.Member{Module: m.Extension, Kind: "function", Name: f},
			})
		}
		_, _, err := c.Replace(capability.Batch{Source: "node/" + node, Modules: []capability.Module{m}, Providers: []capability.Provider{p, d}})
		must(err)
	}
	engine := invoke.New(invoke.Config{
		Catalog: c, Policy: pol, Log: log, Outcomes: db,
		Balance: func(b capability.Balance, among []*catalog.Entry) ([]*catalog.Entry, error) {
			out := slices.Clone(among)
			slices.SortFunc(out, func(x, y *catalog.Entry) int { return cmp.Compare(x.Key(), y.Key()) })
			if slices.Contains(b.Excluded, "a") {
				slices.Reverse(out)
			}
			return out, nil
		},
	})
	mux := http.NewServeMux()
	New(Config{Door: httpapi.New(pol, log, nil), Engine: engine, Version: "test", MaxBody: 1 << 20}).Routes(mux)
	web := httptest.NewServer(mux)
	t.Cleanup(func() { web.Close(); _ = log.Close(); _ = db.Close() })
	s.url = web.URL
	return s
}

func (s *stack) post(protocol, body string) (status int, answer string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+"/api/cmp/"+protocol, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(data))
}

func (s *stack) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// TestEnvelope checks the envelope of answers over HTTP.
func TestEnvelope(t *testing.T) {
	s := newStack(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, c := range []struct{ name, body, want string }{
		{"no JSON", `{`, `"code":-32700`},
		{"nothing", ` `, `"code":-32700`},
		{"a number", `1`, `"code":-32600`},
		{"no batch", `[]`, `"code":-32600`},
		{"a batch of nonsense", `[1]`, `[{"jsonrpc":"2.0","id":null,"error":{"code":-32600`},
		{"too large a batch", `[` + strings.Repeat(`1,`, 64) + `1]`, `1 to 64`},
		{"no version", `{"id":1,"method":"ping"}`, `"id":1,"error":{"code":-32600`},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `"code":-32600`},
		{"no method", `{"jsonrpc":"2.0","id":1}`, `"code":-32600`},
		{"a method of another type", `{"jsonrpc":"2.0","id":1,"method":5}`, `"code":-32600`},
		{"params of another type", `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, `"code":-32600`},
		{"an id that is none", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, `"id":null,"error":{"code":-32600`},
		{"an id that is true", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, `"id":null,"error":{"code":-32600`},
		{"unknown method", `{"jsonrpc":"2.0","id":"x","method":"tools/fly"}`, `"id":"x","error":{"code":-32601`},
		{"ping", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","id":null,"result":{"pong":true}}`},
		{"notification", `{"jsonrpc":"2.0","method":"ping"}`, ``},
		{"a batch of notifications", `[{"jsonrpc":"2.0","method":"ping"},{"jsonrpc":"2.0","method":"nonsense"}]`, ``},
		{
			"a mixed batch", `[{"jsonrpc":"2.0","method":"ping"},{"jsonrpc":"2.0","id":7,"method":"ping"}]`,
			`[{"jsonrpc":"2.0","id":7,"result":{"pong":true}}]`,
		},
	} {
		for _, protocol := range []string{"mcp", "a2a"} {
			status, got := s.post(protocol, c.body)
			if !strings.Contains(got, c.want) || (c.want == "") != (got == "") || status != http.StatusOK && status != http.StatusNoContent {
				t.Errorf(`%s, %s: %d %s; want got with %v, (c.want == "") = (got == ""), not (status != http.StatusOK && status `+
					"!= http.StatusNoContent)", protocol, c.name, status, got, c.want)
			}
		}
	}
}

func TestCalls(t *testing.T) {
	s := newStack(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, c := range []struct{ name, protocol, method, params, want, node string }{
		{
			"MCP, object", "mcp", "tools/call", `{"name":"echo","arguments":{"x":1},"node_id":"b"}`, `{"content":[{"json":{"x":1},"type":"json"}]}`,
			"b",
		},
		{
			"MCP, old name", "mcp", "mcp.tools/call", `{"tool":"echo","arguments":[1],"node_id":" b "}`, `{"content":[{"json":[1],"type":"json"}]}`,
			"b",
		},
		{"MCP, text", "mcp", "tools/call", `{"name":"text"}`, `{"content":[{"text":"said","type":"text"}]}`, "a"},
		{"MCP, no value", "mcp", "tools/call", `{"name":"nothing"}`, `{"content":[{"json":null,"type":"json"}]}`, "a"},
		{"MCP, stream", "mcp", "tools/call", `{"name":"stream","stream":true}`, `"json":{"chunkCount":2,"chunks":[1,2],"mode":"stream"}`, "a"},
		{"MCP, balanced", "mcp", "tools/call", `{"name":"echo","load_balancing":true}`, `"json":{}`, "a"},
		{"MCP, balanced elsewhere", "mcp", "tools/call", `{"name":"echo","load_balancing":{"excluded_node_ids":["a"]}}`, `"json":{}`, "b"},
		{"MCP, no name", "mcp", "tools/call", `{}`, `"code":-32602`, ""},
		{"MCP, blank name", "mcp", "tools/call", `{"name":"  "}`, `"code":-32602`, ""},
		{"MCP, bad balancing", "mcp", "tools/call", `{"name":"echo","load_balancing":[1]}`, `"code":-32602`, ""},
		{"MCP, bad stream", "mcp", "tools/call", `{"name":"echo","stream":"perhaps"}`, `"code":-32602`, ""},
		{"MCP, no such function", "mcp", "tools/call", `{"name":"fly"}`, `"error_type":"FunctionNotFoundError"`, ""},
		{"MCP, no such node", "mcp", "tools/call", `{"name":"echo","node_id":"z"}`, `"code":-32000`, ""},
		{"MCP, somebody else's", "mcp", "tools/call", `{"name":"secret"}`, `"error_type":"FunctionNotFoundError"`, ""},
		{"MCP, failure", "mcp", "tools/call", `{"name":"fails"}`, `"error_type":"RemoteExecutionError"`, "a"},
		{
			"A2A, task", "a2a", "task.execute", `{"task":{"id":"t1","function":"echo","input":{"x":1},"node_id":"b"}}`,
			`{"task":{"id":"t1","output":{"x":1},"status":"completed"}}`, "b",
		},
		{
			"A2A, flat", "a2a", "tasks/send", `{"name":"echo","arguments":5,"target_node":"b","task_id":9}`,
			`{"task":{"id":9,"output":5,"status":"completed"}}`, "b",
		},
		{"A2A, id of the request", "a2a", "task.send", `{"tool":"text"}`, `{"task":{"id":1,"output":"said","status":"completed"}}`, "a"},
		{"A2A, stream of the task", "a2a", "task.send", `{"stream":true,"task":{"function":"stream","stream":false}}`, `"output":[1,2]`, "a"},
		{"A2A, stream", "a2a", "task.send", `{"stream":true,"task":{"function":"stream"}}`, `"output":{"chunkCount":2`, "a"},
		{"A2A, bad task", "a2a", "task.send", `{"task":"echo"}`, `"code":-32602`, ""},
		{"A2A, failure", "a2a", "task.send", `{"function":"fails"}`, `"error":{"code":-32000`, "a"},
	} {
		before := s.called()
		_, got := s.post(c.protocol, `{"jsonrpc":"2.0","id":1,"method":"`+c.method+`","params":`+c.params+`}`)
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s; want got with %v", c.name, got, c.want)
		}
		if after := s.called(); (after > before) != (c.node != "") || c.node != "" && s.nodes[after-1] != c.node {
			t.Errorf(`%s: %d calls, %v; want (after > before) = (c.node != ""), not (c.node != "" && s.nodes[after-1] != c.node)`,
				c.name, after-before, s.nodes[before:])
		}
	}
	before := s.called()
	if _, got := s.post("mcp", `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"text"}}`); got != "" || s.called() != before+1 {
		t.Errorf(`a notification is carried out and not answered: %q, %d calls; want got = "", s.called() = before + 1`,
			got, s.called()-before)
	}
}

// TestLists shows what the caller may call, and nothing of others' nodes.
func TestLists(t *testing.T) {
	s := newStack(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	_, tools := s.post("mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	_, agent := s.post("a2a", `{"jsonrpc":"2.0","id":1,"method":"agent/capabilities"}`)
	for _, got := range []string{tools, agent} {
		if !strings.Contains(got, `"nodes":["a","b"]`) || !strings.Contains(got, `"tags":["t-a","t-b"]`) ||
			!strings.Contains(got, "EasyRemote distributed function") {
			t.Errorf("tools = %q, want nodes a and b, tags t-a and t-b, and the description", got)
		}
		if strings.Contains(got, "anns") || strings.Contains(got, "secret") {
			t.Errorf(`it tells of somebody else's node: %s; want got without "anns", got without "secret"`, got)
		}
	}
	if _, got := s.post("mcp", `{"jsonrpc":"2.0","id":1,"method":"mcp.initialize"}`); !strings.Contains(got,
		`"protocolVersion":"2024-11-05"`) {
		t.Errorf("s.post: got = %q, want it to contain \"\\\"protocolVersion\\\":\\\"2024-11-05\\\"\"", got)
	}
}

// TestBatchIsBounded: sixty-four large answers are not held in memory for one body.
func TestBatchIsBounded(t *testing.T) {
	s := newStack(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	var body []string
	for range 64 {
		body = append(body, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"huge"}}`)
	}
	_, got := s.post("mcp", `[`+strings.Join(body, ",")+`]`)
	if len(got) > maxAnswers+(1<<20) || !strings.Contains(got, "smaller batch") {
		t.Errorf(`%d bytes; want len(got) at most maxAnswers + (1 << 20), got with "smaller batch"`, len(got))
	}
	if n := s.called(); n >= 64 || n != strings.Count(got, `"result"`) {
		t.Errorf("%d calls were made, %d of them answered; want n less than 64, n = strings.Count(got, `\"result\"`)",
			n, strings.Count(got, `"result"`))
	}
}

// TestStranger is not let in.
func TestStranger(t *testing.T) {
	s := newStack(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s.token = "jct_a_nonsense"
	if status, got := s.post("mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); status != http.StatusUnauthorized {
		t.Errorf("s.post: status = %v, want http.StatusUnauthorized; got = %q", status, got)
	}
}

// FuzzRead: whatever comes, the envelope is read within its rules.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","method":"m","params":{"a":[1]}}`,
		`{"id":{}}`, `[]`, `null`, `{"jsonrpc":"2.0","id":null,"method":"x","params":null}`, `{"jsonrpc":"2.0","jsonrpc":"2.0"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, notified, fault := read(json.RawMessage(data))
		if fault == nil && (c == nil || c.method == "" || notified != (c.id == nil)) {
			t.Fatalf(`%+v %v; want not (fault == nil && (c == nil || c.method == "" || notified != (c.id == nil)))`, c, notified)
		}
		if fault != nil && (fault.Code != jsonrpc.CodeInvalidRequest || notified) {
			t.Fatalf("%+v; want not (fault != nil && (fault.Code != jsonrpc.CodeInvalidRequest || notified))", fault)
		}
		if c != nil && c.id != nil {
			if _, err := json.Marshal(&answer{ID: c.id}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
