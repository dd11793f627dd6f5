package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpMain is an upstream over stdio that answers at once, or after a while.
func mcpMain() error {
	s := mcp.NewServer(&mcp.Implementation{Name: "stdio", Version: "1"}, nil)
	for name, wait := range map[string]time.Duration{"quick": 0, "slow": 300 * time.Millisecond} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
			})
	}
	return s.Run(context.Background(), &mcp.StdioTransport{})
}

// visitor is a client that comes once, over connections of its own.
type visitor struct {
	t       *testing.T
	url     string
	token   string
	client  *http.Client
	session string
}

func (v *visitor) send(ctx context.Context, method, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, v.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+v.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if v.session != "" {
		req.Header.Set("Mcp-Session-Id", v.session)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return v.client.Do(req)
}

// does sends a request and reads its answer, which holds want.
func (v *visitor) does(method, body, want string, headers ...string) {
	resp, err := v.send(v.t.Context(), method, body, headers...)
	if err != nil {
		v.t.Error(err)
		return
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(data), want) {
		v.t.Errorf("%d, %v: %s; want no error, string(data) with %v", resp.StatusCode, err, data, want)
	}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		v.session = id
	}
}

// leaves sends a request and goes away while it is answered: after its first line, or
// before that.
func (v *visitor) leaves(method, body string, lines bool, headers ...string) {
	ctx, cancel := context.WithTimeout(v.t.Context(), 50*time.Millisecond)
	if lines {
		ctx, cancel = context.WithCancel(v.t.Context())
	}
	defer cancel()
	resp, err := v.send(ctx, method, body, headers...)
	if err != nil {
		return // left before the answer began
	}
	defer resp.Body.Close()
	if lines && method == http.MethodPost {
		_, _ = bufio.NewReader(resp.Body).ReadString('\n')
	}
}

func visitorModern(method, name, params string) (body string, headers []string) {
	body = `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	headers = []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		headers = append(headers, "Mcp-Name", name)
	}
	return body, headers
}

// visit is one of eight ways to come and go; five of them do not end the session properly.
func (v *visitor) visit(how int) {
	defer v.client.CloseIdleConnections()
	if how >= 5 { // modern
		switch how {
		case 5:
			body, headers := visitorModern("tools/call", "stdio__quick", `"name":"stdio__quick","arguments":{},`)
			v.does(http.MethodPost, body, "done", headers...)
		case 6:
			body, headers := visitorModern("tools/call", "stdio__slow", `"name":"stdio__slow","arguments":{},`)
			v.leaves(http.MethodPost, body, false, headers...)
		case 7:
			body, headers := visitorModern("subscriptions/listen", "", `"notifications":{"toolsListChanged":true},`)
			v.leaves(http.MethodPost, body, true, headers...)
		}
		return
	}
	v.does(http.MethodPost, `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"visitor","version":"1"}}}`, "2025-11-25")
	v.does(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "")
	v.does(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"stdio__quick"`)
	switch how {
	case 0:
		v.does(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"stdio__quick","arguments":{}}}`, "done")
		v.does(http.MethodDelete, "", "")
	case 1: // without a word
	case 2: // in mid-call
		v.leaves(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"stdio__slow","arguments":{}}}`, false)
	case 3: // in mid-stream
		v.leaves(http.MethodGet, "", true)
	case 4:
		v.does(http.MethodDelete, "", "")
	}
}

// metric is one number of /metrics.
func (n *node) metric(t *testing.T, name string) int {
	t.Helper()
	for line := range strings.Lines(n.request(t, http.MethodGet, "/metrics", n.token(t, "admin"), "").body) {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(value)
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// programs is how many processes the server has started that still run.
func (n *node) programs(t *testing.T) int {
	t.Helper()
	count := 0
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tasks {
		list, _ := os.ReadFile(name) // a task may have ended
		count += len(strings.Fields(string(list)))
	}
	return count
}

// serveStdio is a server that permits everything, with the upstream of [mcpMain].
func serveStdio(t *testing.T, env ...string) *node {
	t.Helper()
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "policy"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "policy", "all.cedar"), []byte(`@id("all") permit (principal, action, resource);`),
		0o600); err != nil {
		t.Fatal(err)
	}
	n := serve(t, home, env...)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	add := fmt.Sprintf(`{"name":"stdio","command":[%q],"env":{%q:"mcp"}}`, self, roleVariable)
	if a := n.request(t, http.MethodPost, "/api/v1/upstreams", n.token(t, "admin"), add); a.status != http.StatusCreated {
		t.Fatalf("%d %s; want a.status = http.StatusCreated", a.status, a.body)
	}
	return n
}

// TestClientsThatComeAndGo requires that a thousand clients, half of which disconnect without
// closing, leave nothing behind after the idle timeout.
func TestClientsThatComeAndGo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: a thousand clients")
	}
	n := serveStdio(t, "JUNCTOR_MCP_SESSION_IDLE=1s")
	token := n.token(t, "agent")
	come := func(count int) {
		var clients sync.WaitGroup
		slots := make(chan struct{}, 16)
		for i := range count {
			slots <- struct{}{}
			clients.Go(func() {
				defer func() { <-slots }()
				v := &visitor{t: t, url: n.url + "/mcp", token: token, client: &http.Client{Transport: &http.Transport{}}}
				v.visit(i % 8)
			})
		}
		clients.Wait()
	}
	come(8) // whatever is made once is made now
	last := 0
	eventually(t, "the first have gone", func() bool { // what is counted falls with them, and then no more
		before := last
		last = n.metric(t, "go_goroutines")
		time.Sleep(400 * time.Millisecond)
		return before == last
	})
	threads, files, programs := n.metric(t, "go_goroutines"), n.metric(t, "process_open_fds"), n.programs(t)
	began := time.Now()
	come(1000)
	t.Logf("1000 clients in %s; before: %d goroutines, %d descriptors, %d programs", time.Since(began).Round(time.Millisecond), threads,
		files, programs)
	const slack = 8 // connections of this test's own, work in the background
	eventually(t, "all is as it was before", func() bool {
		return n.metric(t, "go_goroutines") <= threads+slack && n.metric(t, "process_open_fds") <= files+slack && n.programs(t) <= programs
	})
	t.Logf("after: %d goroutines, %d descriptors, %d programs", n.metric(t, "go_goroutines"), n.metric(t, "process_open_fds"), n.programs(t))
	n.verify(t)
}

// TestTasksAreTheirOwners requires that another principal's task is reported as not found.
func TestTasksAreTheirOwners(t *testing.T) {
	t.Parallel()
	n := serveStdio(t, "JUNCTOR_MCP_TASK_AFTER=20ms")
	made := n.request(t, http.MethodPost, "/api/v1/tokens", n.token(t, "admin"), `{"role":"agent","name":"other"}`)
	var other struct{ Token string }
	if err := json.Unmarshal([]byte(made.body), &other); err != nil || other.Token == "" {
		t.Fatalf(`%v: %d %s; want no error, other.Token other than ""`, err, made.status, made.body)
	}
	ask := func(token, method, name, params string) string {
		t.Helper()
		v := &visitor{t: t, url: n.url + "/mcp", token: token, client: http.DefaultClient}
		body, headers := visitorModern(method, name, params)
		body = strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1)
		resp, err := v.send(t.Context(), http.MethodPost, body, headers...)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.Itoa(resp.StatusCode) + " " + string(data)
	}
	own := n.token(t, "agent")
	_, answer, _ := strings.Cut(ask(own, "tools/call", "stdio__slow", `"name":"stdio__slow","arguments":{},`), " ")
	var task struct{ Result struct{ TaskID string } }
	if err := json.Unmarshal([]byte(answer), &task); err != nil || task.Result.TaskID == "" {
		t.Fatalf(`%v: %s; want no error, task.Result.TaskID other than ""`, err, answer)
	}
	id, none := task.Result.TaskID, "tsk_00000000000000000000000000000000"
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		params := `"taskId":"%s",`
		if method == "tasks/update" {
			params += `"inputResponses":{},`
		}
		foreign, unknown := ask(other.Token, method, id, fmt.Sprintf(params, id)), ask(other.Token, method, none, fmt.Sprintf(params, none))
		if strings.ReplaceAll(foreign, id, none) != unknown || !strings.Contains(foreign, "error") {
			t.Errorf("%s of somebody else's task: %s\nand of none: %s\nwant strings.ReplaceAll(foreign, id, none) = %v, foreign "+
				`with "error"`, method, foreign, unknown, unknown)
		}
	}
	eventually(t, "the task is done, and was not cancelled", func() bool {
		return strings.Contains(ask(own, "tasks/get", id, `"taskId":"`+id+`",`), `"status":"completed"`)
	})
}
