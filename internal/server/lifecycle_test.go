package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
)

// drainOver is logged when requests still run at the end of the drain timeout.
const drainOver = "stop cancels requests that still run"

// TestShutdownLetsCallsFinish: SIGTERM does not cut off a call that ends in time.
func TestShutdownLetsCallsFinish(t *testing.T) {
	release := make(chan struct{})
	called := make(chan struct{})
	n := serve(t, t.TempDir())
	n.connect(t, "slow", rogue(t, func(w http.ResponseWriter, _ *http.Request) {
		close(called)
		<-release
		fmt.Fprint(w, `{"ok":true,"result":{"text":"late"}}`)
	}).URL, false)
	done := make(chan error, 1)
	go func() { done <- n.ping(t, "30s") }()
	<-called
	stopped := make(chan struct{})
	go func() {
		n.terminate(t)
		close(stopped)
	}()
	eventually(t, "new connections are refused", func() bool {
		resp, err := http.Get(n.url + "/healthz") //nolint:gosec,noctx // our own server
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	})
	close(release)
	if err := <-done; err != nil {
		t.Errorf("the running call: %v", err)
	}
	<-stopped
	checkLog(t, n.home, nil)
}

// TestShutdownCancelsWhatHangs: after ten seconds a running call is cancelled,
// and its end is on record.
func TestShutdownCancelsWhatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the drain to pass")
	}
	n := serve(t, t.TempDir())
	ep := spawn(t, "endpoint", nil, "127.0.0.1:0", "trial")
	n.connect(t, "far", ep.first, false)
	mark := filepath.Join(t.TempDir(), "called")
	done := make(chan error, 1)
	go func() {
		var out client.Invoked
		done <- n.admin.Invoke(t.Context(), client.Invocation{
			Target: "trial:action:HANG",
			Input:  json.RawMessage(fmt.Sprintf(`{"file":%q}`, mark)),
		}, &out)
	}()
	eventually(t, "the call runs", func() bool { return exists(mark) })
	began := time.Now()
	n.terminate(t)
	if took := time.Since(began); took < 8*time.Second || !strings.Contains(n.stderr.String(), drainOver) {
		t.Errorf("the server gave up on the call after %s; want at least 8 s and the log line %q in: %s", took, drainOver, n.stderr)
	}
	if err := <-done; capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("the hanging call: %v; want capability.CodeOf(err) = capability.CodeCancelled", err)
	}
	checkLog(t, n.home, nil)
}

// feed opens the live feed.
func (n *node) feed(t *testing.T, lastID string) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.token(t, "admin"))
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf(`%d %s; want resp.StatusCode = http.StatusOK, resp.Header.Get("Content-Type") = "text/event-stream"`,
			resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return bufio.NewScanner(resp.Body)
}

// next reads one event of the feed, "" at its end.
func next(s *bufio.Scanner) (id, event, data string) {
	for s.Scan() {
		key, value, _ := strings.Cut(s.Text(), ": ")
		switch {
		case key == "id":
			id = value
		case key == "event":
			event = value
		case key == "data":
			data = value
		case s.Text() == "" && data != "":
			return id, event, data
		}
	}
	return "", "", ""
}

// TestEventsResume: a client that reconnects with the last id it saw gets what
// it missed, once and in order.
func TestEventsResume(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	live := n.feed(t, "")
	ep := spawn(t, "endpoint", nil, "127.0.0.1:0", "trial")
	n.connect(t, "far", ep.first, false)
	var first string
	for {
		id, event, data := next(live)
		if id == "" {
			t.Fatalf(`the feed ended; got id = %q; want id other than ""`, id)
		}
		if !json.Valid([]byte(data)) {
			t.Errorf("%s: %s; want json.Valid([]byte(data))", event, data)
		}
		if event == "catalog.changed" && strings.Contains(data, "etag") {
			first = id
			break
		}
	}
	if err := n.admin.Do(t.Context(), http.MethodDelete, "/api/capability-router/endpoints/far", nil, nil); err != nil {
		t.Fatal(err)
	}
	missed, _, _ := next(live)
	if missed == "" {
		t.Fatalf(`no event of the disconnect; got missed = %q; want missed other than ""`, missed)
	}
	again := n.feed(t, first)
	id, _, _ := next(again)
	if id != missed {
		t.Errorf("after %s comes %s, want %s", first, id, missed)
	}
	if a := n.request(t, "GET", "/api/v1/events", n.token(t, "admin"), "",
		func(r *http.Request) { r.Header.Set("Last-Event-ID", "x") }); a.status != http.StatusBadRequest {
		t.Errorf("a bad Last-Event-ID: %d; want a.status = http.StatusBadRequest", a.status)
	}
	// An id of an earlier life of the server is too high: the client is told.
	id, event, _ := next(n.feed(t, "999999"))
	if event != "resync" {
		t.Errorf("an id that never was is answered with %s %q, want resync", id, event)
	}

	// A stop ends the streams at once, and does not wait for any client.
	ended := make(chan struct{})
	go func() {
		for {
			if id, _, _ := next(live); id == "" {
				close(ended)
				return
			}
		}
	}()
	n.terminate(t)
	<-ended
	if strings.Contains(n.stderr.String(), drainOver) {
		t.Errorf("open streams held the stop up; got the log line %q, want a stop without it", drainOver)
	}
}

// TestTailEndsWithTheServer: following the log does not hold up a stop either.
func TestTailEndsWithTheServer(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	saw := make(chan struct{})
	ended := make(chan int, 1)
	go func() {
		lines := 0
		for _, err := range n.admin.Lines(t.Context(), http.MethodGet, "/api/v1/audit/tail?from=1", nil) {
			if err != nil {
				break
			}
			if lines++; lines == 1 {
				close(saw)
			}
		}
		ended <- lines
	}()
	<-saw
	n.terminate(t)
	if strings.Contains(n.stderr.String(), drainOver) {
		t.Errorf("following the log held the stop up; got the log line %q, want a stop without it", drainOver)
	}
	<-ended
}

// TestProbes: what a supervisor and a scraper on this machine ask needs no token.
func TestProbes(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	n := serve(t, home)
	if a := n.request(t, "GET", "/healthz", "", ""); a.status != 200 || a.header.Get("X-Content-Type-Options") != "nosniff" ||
		a.body != `{"ok":true}` {
		t.Errorf(`/healthz: %d %s; want a.status = 200, a.header.Get("X-Content-Type-Options") = "nosniff", a.body = "{\"ok\":true}"`,
			a.status, a.body)
	}
	if a := n.request(t, "GET", "/readyz", "", ""); a.status != 200 || a.body != `{"ready":true,"reasons":[]}` {
		t.Errorf(`/readyz: %d %s; want a.status = 200, a.body = "{\"ready\":true,\"reasons\":[]}"`, a.status, a.body)
	}
	var out client.Invoked
	if err := n.admin.Invoke(t.Context(), client.Invocation{Target: "fs.list"}, &out); err != nil {
		t.Fatal(err)
	}
	a := n.request(t, "GET", "/metrics", "", "")
	if a.status != 200 {
		t.Fatalf("/metrics: %d; want a.status = 200", a.status)
	}
	for _, want := range []string{
		`junctor_invocations_total{code="ok",effect="read",provider="node",state="completed",surface="http"} 1`,
		"junctor_catalog_entries ", "junctor_audit_records ", "junctor_audit_broken 0", "go_goroutines ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(a.body, want) {
			t.Errorf("/metrics lacks %s in\n%s\nwant a.body with %v", want, a.body, want)
		}
	}
	if strings.Contains(a.body, "local-admin") || strings.Contains(a.body, home) {
		t.Errorf(`/metrics tells of a principal or a path; want a.body without "local-admin", a.body without %v`, home)
	}
	n.terminate(t)
}

// TestMCPStreamEndsWithTheServer: an agent that listens does not hold up a stop.
func TestMCPStreamEndsWithTheServer(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	accept := func(r *http.Request) {
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Content-Type", "application/json")
	}
	a := n.request(t, "POST", "/mcp", n.token(t, "agent"), hello, accept)
	session := a.header.Get("Mcp-Session-Id")
	if a.status != http.StatusOK || session == "" {
		t.Fatalf(`initialize: %d %s; want a.status = http.StatusOK, session other than ""`, a.status, a.body)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	accept(req)
	req.Header.Set("Authorization", "Bearer "+n.token(t, "agent"))
	req.Header.Set("Mcp-Session-Id", session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the stream: %d; want resp.StatusCode = http.StatusOK", resp.StatusCode)
	}
	n.terminate(t)
	if strings.Contains(n.stderr.String(), drainOver) {
		t.Errorf("an open MCP stream held the stop up; got the log line %q, want a stop without it", drainOver)
	}
}
