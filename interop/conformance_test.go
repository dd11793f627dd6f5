package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestServerConformance runs the official suite against the plane, in front of the
// SDK's reference server, in all four combinations of eras. What one cannot pass is in
// a file under conformance/, line by line with the reason; a line that passes fails
// the run.
func TestServerConformance(t *testing.T) {
	w := newWorld(t)
	everything := filepath.Join(t.TempDir(), "everything")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", everything,
		"github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	plane := newConformancePlane(t, w)
	for _, era := range []string{"legacy", "modern"} {
		address := freeAddress(t)
		start(t, everything, "-http", address, fmt.Sprintf("-stateless=%v", era == "modern"))
		awaitListener(t, address)
		// A legacy session declares once what may be asked of it: a suite that looks at
		// what is declared gets a server that may ask for less.
		plane.cli("upstreams", "add", era, "--url", "http://"+address+"/mcp", "--local", "--sampling", "forward")
		plane.cli("upstreams", "add", era+"-plain", "--url", "http://"+address+"/mcp", "--local")
	}
	for _, suite := range []struct{ revision, upstream, expected string }{
		{"2025-11-25", "legacy", ""}, {"2026-07-28", "modern", ""}, // all of it
		{"2025-11-25", "modern", "legacy-to-modern"}, {"2026-07-28", "legacy-plain", "modern-to-legacy"},
	} {
		t.Run(suite.revision+" to "+suite.upstream, func(t *testing.T) {
			front := plane.front(t, suite.upstream)
			plane.run(t, front, suite.revision, suite.expected)
		})
	}
}

// TestTasksConformance runs the scenarios of the tasks extension, all of which pass,
// in front of a server that knows nothing of tasks.
func TestTasksConformance(t *testing.T) {
	w := newWorld(t)
	fixture := filepath.Join(t.TempDir(), "fixture")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", fixture, "../internal/testkit/taskfixture")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	plane := newConformancePlane(t, w)
	address := freeAddress(t)
	start(t, fixture, address)
	awaitListener(t, address)
	plane.cli("upstreams", "add", "tasks", "--url", "http://"+address, "--local")
	front := plane.front(t, "tasks")
	for _, scenario := range []string{
		"lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input",
		"request-headers", "dispatch-and-envelope", "status-notifications", "required-task-error", "mrtr-composition",
	} {
		t.Run(scenario, func(t *testing.T) {
			plane.run(t, front, "", "", "--scenario", "tasks-"+scenario)
		})
	}
}

// plane is a server of ours that permits its agents everything, with a view for
// each upstream.
type plane struct {
	*world
	agent string
}

func newConformancePlane(t *testing.T, w *world) *plane {
	t.Helper()
	p := &plane{world: &world{t: t, node: w.node, binary: w.binary, home: filepath.Join(t.TempDir(), "plane")}}
	ok(t, os.MkdirAll(filepath.Join(p.home, "policy"), 0o700))
	ok(t, os.WriteFile(filepath.Join(p.home, "policy", "all.cedar"), []byte(`@id("all") permit (principal, action, resource);`), 0o600))
	var views strings.Builder
	views.WriteString("mcp:\n  task_after: 100ms\n  views:\n")
	for _, name := range []string{"legacy", "legacy-plain", "modern", "modern-plain", "tasks"} {
		fmt.Fprintf(&views, "    - {name: %s, modules: [mcp.%s], own_names: true, exposure: full}\n", name, name)
	}
	ok(t, os.WriteFile(filepath.Join(p.home, "config.yaml"), []byte(views.String()), 0o600))
	p.url = p.serve("--home", p.home, "serve", "--listen", "127.0.0.1:0").URL
	token, err := os.ReadFile(filepath.Join(p.home, "run", "agent.token"))
	ok(t, err)
	p.agent = strings.TrimSpace(string(token))
	return p
}

// front forwards to a view with the credential that the suite cannot send. The Host
// stays the suite's, and bodies are read before they are sent on.
func (p *plane) front(t *testing.T, view string) string {
	t.Helper()
	target, err := url.Parse(p.url + "/mcp/" + view)
	ok(t, err)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = target.Scheme, target.Host, target.Path
		r.Out.Host = r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+p.agent)
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + "/mcp"
}

// total is the last word of a run of several scenarios, or of one.
var total = regexp.MustCompile(`Total: (\d+) passed, (\d+) failed|Passed: (\d+)/\d+, 0 failed, 0 warnings`)

// run runs the scenarios that a revision requires, or those that more names.
func (p *plane) run(t *testing.T, url, revision, expected string, more ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitTimeout)
	defer cancel()
	args := []string{
		filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js"), "server", "--url", url, "-o",
		t.TempDir(),
	}
	if revision != "" {
		args = append(args, "--requirements", revision)
	}
	if expected != "" {
		args = append(args, "--expected-failures", filepath.Join("conformance", expected+".yml"))
	}
	conclude(t, exec.CommandContext(ctx, p.node, append(args, more...)...))
}

// conclude runs the suite, which fails where something did that was not expected to.
func conclude(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Env = environment()
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	found := total.FindSubmatch(out)
	if err != nil || found == nil || string(found[1]) == "0" || string(found[3]) == "0" && !strings.Contains(string(out), "SKIPPED") {
		_, summary, _ := strings.Cut(string(out), "=== SUMMARY ===")
		t.Errorf("%v\n%s", err, summary)
		if summary == "" {
			t.Errorf(`%s; want summary other than ""`, out)
		}
		return
	}
	t.Logf("%s", found[0])
}

// start runs a program until the test ends.
func start(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 5 * time.Second
	ok(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed: its status says so
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	return l.Addr().String()
}

func awaitListener(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(waitTimeout); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v; want not time.Now().After(end)", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
