package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// roleVariable makes the test program an upstream of its own tests.
const roleVariable = "UPSTREAM_TEST_ROLE"

// play is the program on the other side of a pipe.
func play(role string) {
	if file := os.Getenv("UPSTREAM_TEST_PID"); file != "" {
		_ = os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o600)
	}
	if role == "hostile" {
		playHostile()
		return
	}
	_ = sdkServer().Run(context.Background(), &mcp.StdioTransport{})
}

func sdkServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "peer", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	say := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	tool := func(name string, h func(json.RawMessage) *mcp.CallToolResult) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: object}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return h(r.Params.Arguments), nil
		})
	}
	tool("echo", func(args json.RawMessage) *mcp.CallToolResult { return say(string(args)) })
	tool("fail", func(json.RawMessage) *mcp.CallToolResult {
		r := say("it is broken")
		r.IsError = true
		return r
	})
	tool("env", func(json.RawMessage) *mcp.CallToolResult { return say(strings.Join(os.Environ(), "\n")) })
	tool("grow", func(json.RawMessage) *mcp.CallToolResult {
		tool("grown", func(json.RawMessage) *mcp.CallToolResult { return say("new") })
		return say("it grows")
	})
	s.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello"}}}}, nil
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "text of " + r.Params.URI}}}, nil
	}
	s.AddResource(&mcp.Resource{URI: "test://a", Name: "a"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "test://item/{id}", Name: "item"}, read)
	return s
}

// realRig is a rig whose upstreams are reached over the wire.
func realRig(t testing.TB) *rig {
	t.Helper()
	r := newRig(t, func(c *upstream.Config) {
		c.Dial = upstream.DialMCP
		c.FirstPause = 0 // the real one
		c.Environment = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	})
	t.Setenv("UPSTREAM_TEST_LEAK", "must not be seen")
	return r
}

func program(role string, env map[string]string) func(*record.Record) {
	return func(rec *record.Record) {
		rec.Command = []string{os.Args[0]}
		rec.Env = map[string]string{roleVariable: role}
		for k, v := range env {
			rec.Env[k] = v
		}
	}
}

// story is what every transport and era must do.
func story(t *testing.T, r *rig) {
	t.Helper()
	r.listed("prompt greet", "resource test://a", "resource-read read", "resource-template test://item/{id}",
		"tool echo", "tool env", "tool fail", "tool grow")
	if out, err := r.tool("echo", `{"n":9007199254740993,"f":1.10}`); err != nil ||
		!strings.Contains(out, `{\"n\":9007199254740993,\"f\":1.10}`) {
		t.Errorf(`%v: %s; want no error, out with "{\\\"n\\\":9007199254740993,\\\"f\\\":1.10}"`, err, out)
	}
	_, err := r.tool("fail", `{}`)
	if e := fails(t, err, capability.CodeFailed, "tool_error"); e.Message != "it is broken" {
		t.Errorf(`e.Message = %q, want "it is broken"`, e.Message)
	}
	if _, out, err := r.call("admin:root", "", "prompt", "greet", `{}`); err != nil || !strings.Contains(out, `"hello"`) {
		t.Errorf(`%v: %s; want no error, out with "\"hello\""`, err, out)
	}
	if _, out, err := r.call("admin:root", "", "resource-template", "test://item/{id}", `{"uri":"test://item/7"}`); err != nil ||
		!strings.Contains(out, "text of test://item/7") {
		t.Errorf(`%v: %s; want no error, out with "text of test://item/7"`, err, out)
	}
	began := time.Now()
	if _, err := r.tool("grow", `{}`); err != nil {
		t.Fatal(err)
	}
	r.eventually("the new tool can be called", func() bool { _, err := r.tool("grown", `{}`); return err == nil })
	t.Logf("the new tool was there after %s", time.Since(began))
}

func TestRealProgram(t *testing.T) {
	r := realRig(t)
	pids := filepath.Join(t.TempDir(), "pid")
	r.add("far", program("sdk", map[string]string{"UPSTREAM_TEST_PID": pids}))
	story(t, r)
	if out, err := r.tool("env", `{}`); err != nil || strings.Contains(out, "UPSTREAM_TEST_LEAK") || !strings.Contains(out, "PATH=") {
		t.Errorf(`%v: its environment is %s; want no error, out without "UPSTREAM_TEST_LEAK", out with "PATH="`, err, out)
	}
	data, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(string(data))
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is back", func() bool { _, err := r.tool("echo", `{}`); return err == nil })
	t.Logf("it was back after %s", time.Since(began))
}

func TestRealHTTP(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		t.Run(fmt.Sprint("stateless ", stateless), func(t *testing.T) {
			s := sdkServer()
			var token atomic.Value
			inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless})
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				token.Store(r.Header.Get("Authorization"))
				inner.ServeHTTP(w, r)
			}))
			t.Cleanup(web.Close)
			r := realRig(t)
			_, err := r.Add(t.Context(), admin(), record.Record{Name: "far", URL: strings.Replace(web.URL, "http:", "https:", 1)})
			if e := capability.AsError(err); e.Code != capability.CodeUnavailable || !strings.Contains(e.Error()+fmt.Sprint(e.Err), "loopback") {
				t.Errorf("a local address was dialled: %v, %v; want e.Code = capability.CodeUnavailable, e.Error() + "+
					`fmt.Sprint(e.Err) with "loopback"`, err, e.Err)
			}
			r.add("far", func(rec *record.Record) {
				rec.Command, rec.URL, rec.PrivateNetwork, rec.BearerSecret = nil, web.URL, true, "key"
			})
			story(t, r)
			if token.Load() != "Bearer s3cret" {
				t.Errorf(`the token is %v; want token.Load() = "Bearer s3cret"`, token.Load())
			}
			r.halt()
		})
	}
}

func TestCredentialsStayWithTheirOrigin(t *testing.T) {
	var stolen atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen.Store(true) }))
	t.Cleanup(thief.Close)
	web := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	t.Cleanup(web.Close)
	r := realRig(t)
	_, err := r.Add(t.Context(), admin(), record.Record{Name: "far", URL: web.URL, PrivateNetwork: true, BearerSecret: "key"})
	if err == nil || stolen.Load() {
		t.Errorf("the redirect was followed: %v; want an error, not stolen.Load()", err)
	}
}
