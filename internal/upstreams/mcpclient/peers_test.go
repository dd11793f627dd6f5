package mcpclient_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
)

// roleVariable makes the test program one of the servers that it tests against.
const roleVariable = "MCPCLIENT_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		play(role)
		syscall.Exit(0) // os.Exit waits a second with the race detector
	}
	goleak.VerifyTestMain(m)
}

// play is the program on the other side of a pipe.
func play(role string) {
	switch role {
	case "modern", "legacy", "late":
		opts := &mcp.ServerOptions{}
		if role == "legacy" {
			opts.SupportedProtocolVersions = []string{"2025-06-18"}
		}
		s := newPeer(opts, nil)
		fmt.Fprintln(os.Stderr, "peer is up, with", len(os.Environ()), "variables")
		if role == "late" { // it starts slowly: it reads nothing before two requests wait
			in := bufio.NewReader(os.Stdin)
			first, _ := in.ReadBytes('\n')
			second, _ := in.ReadBytes('\n')
			answered := make(chan struct{})
			rest := afterwards{answered, io.MultiReader(bytes.NewReader(second), in)}
			_ = s.Run(context.Background(), &mcp.IOTransport{
				Reader: io.NopCloser(io.MultiReader(bytes.NewReader(first), rest)),
				Writer: &firstWrite{WriteCloser: os.Stdout, written: answered},
			})
			return
		}
		_ = s.Run(context.Background(), &mcp.StdioTransport{})
	default:
		playRaw(role)
	}
}

// afterwards reads nothing before a channel is closed. The server handles requests at the same time,
// so otherwise the second could come before the first one has had its effect.
type afterwards struct {
	begun <-chan struct{}
	io.Reader
}

func (a afterwards) Read(p []byte) (int, error) {
	<-a.begun
	return a.Reader.Read(p)
}

// firstWrite closes a channel after the first write.
type firstWrite struct {
	io.WriteCloser
	written chan struct{}
	once    sync.Once
}

func (w *firstWrite) Write(p []byte) (int, error) {
	n, err := w.WriteCloser.Write(p)
	w.once.Do(func() { close(w.written) })
	return n, err
}

// marks is what a peer's tools note of their calls.
type marks struct {
	started   chan string
	cancelled chan string
	release   chan struct{} // closed at the end of a test: no handler waits on
}

func newMarks() *marks {
	return &marks{started: make(chan string, 64), cancelled: make(chan string, 64), release: make(chan struct{})}
}

// newPeer is the official SDK's server with tools that do what the tests need.
func newPeer(opts *mcp.ServerOptions, m *marks) *mcp.Server {
	if opts == nil {
		opts = &mcp.ServerOptions{}
	}
	opts.Instructions = "be kind"
	opts.SubscribeHandler = func(context.Context, *mcp.SubscribeRequest) error { return nil }
	opts.UnsubscribeHandler = func(context.Context, *mcp.UnsubscribeRequest) error { return nil }
	s := mcp.NewServer(&mcp.Implementation{Name: "peer", Title: "The Peer", Version: "v9"}, opts)
	object := json.RawMessage(`{"type":"object"}`)
	tool := func(name string, h mcp.ToolHandler) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: object}, h)
	}
	say := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	tool("echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return say(string(r.Params.Arguments)), nil
	})
	tool("fail", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := say("it is broken")
		r.IsError = true
		return r, nil
	})
	tool("steps", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 5 {
			err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1), Total: 5, Message: fmt.Sprint("step ", i+1),
			})
			if err != nil {
				return nil, err
			}
		}
		return say("done"), nil
	})
	tool("wait", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if token := r.Params.GetProgressToken(); token != nil {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1})
		}
		file := os.Getenv("MCPCLIENT_TEST_MARK")
		if m != nil {
			m.started <- "wait"
		}
		if file != "" {
			_ = os.WriteFile(file+".begun", nil, 0o600)
		}
		var release chan struct{}
		if m != nil {
			release = m.release
		}
		select {
		case <-ctx.Done():
		case <-release:
			return say("released"), nil
		}
		if m != nil {
			m.cancelled <- "wait"
		}
		if file != "" {
			_ = os.WriteFile(file, []byte("cancelled"), 0o600)
		}
		return nil, ctx.Err()
	})
	tool("ask", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, ok := r.Params.InputResponses["name"].(*mcp.ElicitResult)
		if !ok {
			return &mcp.CallToolResult{RequestState: "state-1", InputRequests: mcp.InputRequestMap{
				"name": &mcp.ElicitParams{
					Mode: "form", Message: "your name?",
					RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
				},
			}}, nil
		}
		return say(fmt.Sprintf("%s %v", answer.Action, answer.Content["name"])), nil
	})
	tool("grow", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		tool("grown", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say("new"), nil })
		return say("grown"), nil
	})
	tool("exit", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	s.AddResource(&mcp.Resource{URI: "test://a", Name: "a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "test://a", Text: "A"}}}, nil
	})
	tool("touch", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return say("touched"), s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "test://a"})
	})
	return s
}

// rig is one client and what it told.
type rig struct {
	*mcpclient.Client
	server  mcpclient.Server
	marks   *marks
	changed chan mcpclient.List
	updated chan string
	down    chan error
	forget  func() // makes an HTTP server forget its sessions
	cut     func() // breaks all connections to it
	mark    string // the file in which a process notes that it was cancelled
}

func (g *rig) configure(cfg mcpclient.Config) mcpclient.Config {
	g.changed, g.updated, g.down = make(chan mcpclient.List, 256), make(chan string, 64), make(chan error, 8)
	if cfg.Name == "" {
		cfg.Name = "peer"
	}
	cfg.Changed = func(l mcpclient.List) {
		select {
		case g.changed <- l:
		default:
		}
	}
	cfg.Updated = func(uri string) { g.updated <- uri }
	cfg.Down = func(err error) { g.down <- err }
	return cfg
}

func newClient(t *testing.T, g *rig, cfg mcpclient.Config) *mcpclient.Client {
	t.Helper()
	c, err := mcpclient.New(g.configure(cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g.Client = c
	return c
}

func (g *rig) connect(t *testing.T) *rig {
	t.Helper()
	s, err := g.Connect(t.Context())
	if err != nil {
		t.Fatalf("connect: %v (%v) %s", err, errors.Unwrap(err), g.Stderr())
	}
	g.server = s
	return g
}

// httpClient is one whose connections end with the test.
func httpClient(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func program(t *testing.T, role string, env ...string) mcpclient.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return mcpclient.Config{Command: []string{self}, Dir: t.TempDir(), Env: append([]string{roleVariable + "=" + role}, env...)}
}

// peers are the official server over each transport and in each era.
func peers() map[string]func(t *testing.T) *rig {
	over := func(era string, handler func(*mcp.Server) http.Handler, sse bool) func(t *testing.T) *rig {
		return func(t *testing.T) *rig {
			g := &rig{marks: newMarks()}
			var mu sync.Mutex
			opts := func() *mcp.ServerOptions {
				if era == "" {
					return nil
				}
				return &mcp.ServerOptions{SupportedProtocolVersions: []string{era}}
			}
			peer := newPeer(opts(), g.marks)
			h := handler(peer)
			hangUp := func() {
				for session := range peer.Sessions() {
					session.Close()
				}
			}
			g.forget = func() {
				mu.Lock()
				defer mu.Unlock()
				hangUp()
				peer = newPeer(opts(), g.marks)
				h = handler(peer)
			}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				now := h
				mu.Unlock()
				now.ServeHTTP(w, r)
			}))
			t.Cleanup(srv.Close)
			t.Cleanup(srv.CloseClientConnections)
			g.cut = srv.CloseClientConnections
			t.Cleanup(hangUp)
			t.Cleanup(func() { close(g.marks.release) })
			newClient(t, g, mcpclient.Config{URL: srv.URL, HTTP: httpClient(t), SSE: sse})
			return g.connect(t)
		}
	}
	streamable := func(opts mcp.StreamableHTTPOptions) func(*mcp.Server) http.Handler {
		return func(s *mcp.Server) http.Handler {
			return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &opts)
		}
	}
	stdio := func(role string) func(t *testing.T) *rig {
		return func(t *testing.T) *rig {
			g := &rig{mark: t.TempDir() + "/mark"}
			newClient(t, g, program(t, role, "MCPCLIENT_TEST_MARK="+g.mark))
			return g.connect(t)
		}
	}
	return map[string]func(t *testing.T) *rig{
		"stateful":            over("", streamable(mcp.StreamableHTTPOptions{}), false),
		"stateful 2025-03-26": over("2025-03-26", streamable(mcp.StreamableHTTPOptions{}), false),
		"stateful JSON":       over("2025-06-18", streamable(mcp.StreamableHTTPOptions{JSONResponse: true}), false),
		"modern":              over("", streamable(mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}), false),
		"modern JSON": over("", streamable(mcp.StreamableHTTPOptions{
			Stateless: true, JSONResponse: true,
			PropagateRequestCancellation: true,
		}), false),
		"SSE": over("", func(s *mcp.Server) http.Handler {
			return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil)
		}, true),
		"stdio modern": stdio("modern"),
		"stdio legacy": stdio("legacy"),
	}
}

// onAll runs f against every peer but those named.
func onAll(t *testing.T, f func(t *testing.T, g *rig), except ...string) {
	for name, start := range peers() {
		t.Run(name, func(t *testing.T) {
			for _, e := range except {
				if e == name {
					t.SkipNow()
				}
			}
			f(t, start(t))
		})
	}
}

func tool(name, arguments string) mcpclient.Request {
	return mcpclient.Request{Method: "tools/call", Name: name, Params: json.RawMessage(`{"name":"` + name + `","arguments":` + arguments +
		`}`)}
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// until polls for a condition, with a bound against hanging.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s; want not time.Now().After(end)", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func wantCode(t *testing.T, err error, code capability.Code, reason string) {
	t.Helper()
	e := capability.AsError(err)
	if e == nil || e.Code != code || e.Reason != reason {
		t.Errorf("error %v: %+v, want %s %s", err, e, code, reason)
	}
}

func mustContain(t *testing.T, got []byte, want string) {
	t.Helper()
	if !strings.Contains(string(got), want) {
		t.Errorf("%s has no %s; want string(got) with %v", got, want, want)
	}
}
