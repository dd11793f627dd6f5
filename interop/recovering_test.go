package interop

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// slow is the tool of server-everything that takes its time.
const slow = "trigger-long-running-operation"

const recoveryConfig = `
mcp:
  task_after: 100ms
  views:
    - {name: all, modules: ["mcp.*"], own_names: true, exposure: full}
`

// recovering is a plane whose process the test ends and starts again at its address.
type recovering struct {
	*world
	address string
	cmd     *exec.Cmd
	cancel  context.CancelFunc
}

func newRecovering(t *testing.T) *recovering {
	t.Helper()
	w := newWorld(t)
	r := &recovering{world: &world{t: t, node: w.node, binary: w.binary, home: filepath.Join(t.TempDir(), "plane")}, address: freeAddress(t)}
	ok(t, os.MkdirAll(filepath.Join(r.home, "policy"), 0o700))
	ok(t, os.WriteFile(filepath.Join(r.home, "policy", "default.cedar"), []byte(`@id("all") permit (principal, action, resource);`), 0o600))
	ok(t, os.WriteFile(filepath.Join(r.home, "config.yaml"), []byte(recoveryConfig), 0o600))
	r.url = "http://" + r.address + "/mcp"
	r.up()
	t.Cleanup(r.down)
	token, err := os.ReadFile(filepath.Join(r.home, "run", "agent.token"))
	ok(t, err)
	r.tok = strings.TrimSpace(string(token))
	return r
}

func (r *recovering) up() {
	r.t.Helper()
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.cmd = exec.CommandContext(ctx, r.binary, "--home", r.home, "serve", "--listen", r.address)
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(os.Interrupt) }
	r.cmd.WaitDelay = 20 * time.Second
	r.cmd.Env = environment()
	r.cmd.Stderr = logWriter{r.t, "plane"}
	out, err := r.cmd.StdoutPipe()
	ok(r.t, err)
	ok(r.t, r.cmd.Start())
	var ready readyLine
	ok(r.t, json.NewDecoder(out).Decode(&ready))
}

func (r *recovering) down() {
	if r.cmd != nil {
		r.cancel()
		_ = r.cmd.Wait() // interrupted: its status says so
		r.cmd = nil
	}
}

// kill ends the plane as the system does when memory is short.
func (r *recovering) kill() {
	_ = r.cmd.Process.Kill() // it runs
	r.down()
}

// output is what a command of the operator prints.
func (w *world) output(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), w.binary, append([]string{"--home", w.home}, args...)...)
	cmd.Env = environment()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("junctor %v: %v", args, err)
	}
	return string(out)
}

// until polls a condition for what a test waits for from another process.
func until(t *testing.T, what string, holds func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > waitTimeout {
			t.Fatalf("not within %s: %s; want time.Since(began) at most %v", waitTimeout, what, waitTimeout)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// goClient is a client of the Go SDK in the view of all upstreams.
func (w *world) goClient(t *testing.T, version string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "interop-go", Version: "1.0.0"}, options)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint:   w.url + "/all",
		HTTPClient: &http.Client{Transport: bearer{w.tok}},
	},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	ok(t, err)
	t.Cleanup(func() { _ = session.Close() }) // the server may be gone
	return session
}

func (w *world) echo(ctx context.Context, s *mcp.ClientSession) error {
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hello"}})
	switch {
	case err != nil:
		return err
	case r.IsError || len(r.Content) == 0:
		text, _ := json.Marshal(r.Content)
		return errors.New(string(text))
	}
	return nil
}

// modern sends a request of 2026-07-28 by hand; only slow ones take tasks.
func (w *world) modern(t *testing.T, method, name, rest string) (status int, body string) {
	t.Helper()
	able := ""
	if strings.HasPrefix(method, "tasks/") || name == slow {
		able = `"extensions":{"io.modelcontextprotocol/tasks":{}}`
	}
	text := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + rest +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{` + able + `}}}}`
	return w.post(t, text, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
}

func (w *world) post(t *testing.T, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/all", strings.NewReader(body))
	ok(t, err)
	req.Header.Set("Authorization", "Bearer "+w.tok)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(req)
	ok(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	ok(t, err)
	return resp.StatusCode, string(data)
}

// far is an MCP server of the test's own, at a URL.
type far struct {
	server  atomic.Pointer[mcp.Server]
	handler atomic.Pointer[http.Handler]
	url     string
}

func newFar(t *testing.T, stateless bool) *far {
	t.Helper()
	f := &far{}
	f.begin(stateless)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*f.handler.Load()).ServeHTTP(w, r) }))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	f.url = web.URL + "/mcp"
	return f
}

// begin is a server that has just started: of earlier sessions it knows nothing.
func (f *far) begin(stateless bool) {
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"},
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}}})
	f.server.Store(s)
	f.add("echo", "says it again")
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: stateless})
	f.handler.Store(&h)
}

func (f *far) add(name, description string) {
	f.server.Load().AddTool(&mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
}
