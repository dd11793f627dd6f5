package interop

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestFirstListAfterARestartIsWhole restarts a server whose endpoint and MCP server need a moment, and
// requires that the first list that a client receives has their tools, as it has directly.
func TestFirstListAfterARestartIsWhole(t *testing.T) {
	w := newPlane(t, differentialConfig)
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "there.txt"), []byte("there"), 0o600))
	far, err := url.Parse(w.serve("endpoint", "serve", "--root", dir).URL)
	ok(t, err)
	var delay atomic.Int64 // of each request of the endpoint; negative: none is answered
	forward := httputil.NewSingleHostReverseProxy(far)
	forward.ErrorHandler = func(rw http.ResponseWriter, r *http.Request, err error) {
		if r.Context().Err() == nil { // otherwise the server was stopped
			t.Errorf("the proxy of the endpoint: %s %s: got error %v, want an answer", r.Method, r.URL.Path, err)
		}
		rw.WriteHeader(http.StatusBadGateway)
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		d := time.Duration(delay.Load())
		if d < 0 {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		select {
		case <-time.After(d):
			forward.ServeHTTP(rw, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(proxy.Close)
	t.Cleanup(proxy.CloseClientConnections)
	w.cli("connect", proxy.URL, "--id", "cloud")
	personal := newPersonal(t)
	w.cli("upstreams", "add", "personal", "--url", personal, "--local")
	direct := toolsOf(t, newWitness(t, personal, ""))
	before := toolsOf(t, newWitness(t, w.url, w.tok))
	for _, name := range slices.Concat(direct, []string{"fs_readText"}) {
		if !slices.ContainsFunc(before, func(has string) bool { return has == name || strings.HasSuffix(has, "_"+name) }) {
			t.Fatalf("the tools before the restart are %v, want with %s", before, name)
		}
	}
	restart := func(pause time.Duration) *mcp.ListToolsResult {
		t.Helper()
		w.stop()
		delay.Store(int64(pause))
		address := freeAddress(t)
		w.url = "http://" + address + "/mcp"
		w.start(address)
		return w.firstList(t)
	}
	var now []string
	for _, tool := range restart(150 * time.Millisecond).Tools {
		now = append(now, tool.Name)
	}
	if slices.Sort(now); !slices.Equal(now, before) {
		t.Errorf("the first list after the restart is %v, want %v", now, before)
	}
	list := restart(-1)
	if text, _ := list.Meta["junctor/missing"].(string); !strings.HasPrefix(text, "1 of this server's providers") {
		t.Errorf("the list without the endpoint has the _meta %v, want junctor/missing of 1 provider", list.Meta)
	}
	c := newWitness(t, w.url, w.tok)
	result, err := c.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "fs_readText", Arguments: map[string]any{"path": "there.txt"}})
	if err != nil || !result.IsError {
		t.Errorf("the call of a tool of the endpoint: got %v, %v, want a result with isError", result, err)
	}
	_, err = c.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "another_tool"})
	if code(err) != -32602 || !strings.Contains(err.Error(), "were not reached since it started") {
		t.Errorf("the call of an unknown tool: got %v, want the error -32602 that reports missing providers", err)
	}
}

// toolsOf returns the names of a client's tools in order.
func toolsOf(t *testing.T, w *witness) (names []string) {
	t.Helper()
	for tool, err := range w.session.Tools(t.Context(), nil) {
		ok(t, err)
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// firstList returns the first list of tools that a server answers which is just being started.
func (w *world) firstList(t *testing.T) *mcp.ListToolsResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "first", Version: "1"}, nil)
	for {
		link := &mcp.StreamableClientTransport{Endpoint: w.url, HTTPClient: &http.Client{Transport: bearer{w.tok}}, MaxRetries: -1}
		session, err := client.Connect(ctx, link, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		if err == nil {
			t.Cleanup(func() { _ = session.Close() })
			list, err := session.ListTools(ctx, nil)
			ok(t, err)
			return list
		}
		if !strings.Contains(err.Error(), "connection refused") {
			t.Fatalf("the first request of the started server: got %v, want no error", err)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the server did not listen: got %v, want a connection", err)
		}
	}
}

// stop ends the plane.
func (w *world) stop() {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.home, "run", "server.json"))
	ok(w.t, err)
	var line struct{ PID int }
	ok(w.t, json.Unmarshal(data, &line))
	process, err := os.FindProcess(line.PID)
	ok(w.t, err)
	ok(w.t, process.Signal(os.Interrupt))
	for end := time.Now().Add(waitTimeout); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(w.home, "run", "server.json")); err != nil {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("the server of %s is still there, want it ended", w.home)
		}
	}
}

// start starts the plane at an address, without waiting until it is ready.
func (w *world) start(address string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, w.binary, "--home", w.home, "serve", "--listen", address)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Env = environment()
	cmd.Stderr = logWriter{w.t, "plane"}
	ok(w.t, cmd.Start())
	w.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was interrupted
	})
}
