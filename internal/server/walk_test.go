package server_test

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/secret"
)

// TestTheWalkOfACall looks at a call from the outside while it is out: between the
// socket that it came in by and the one that it left by stand three calls from package
// to package, and docs/ARCHITECTURE.md names them.
func TestTheWalkOfACall(t *testing.T) {
	page, err := os.ReadFile("../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	stacks := make(chan string, 1)
	endpoint := rogue(t, func(w http.ResponseWriter, _ *http.Request) {
		buf := make([]byte, 4<<20)
		stacks <- string(buf[:runtime.Stack(buf, true)])
		_, _ = io.WriteString(w, `{"ok":true,"result":{"text":"pong"}}`)
	})
	home := t.TempDir()
	cfg, err := config.Load(home, filepath.Join(home, "config.yaml"), false, nil, map[string]any{"listen": "127.0.0.1:0"},
		programs.Configurable())
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), cfg, server.Options{Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan server.ReadyLine, 1), make(chan error, 1)
	go func() {
		ended <- s.Run(t.Context(), func(line server.ReadyLine) error { ready <- line; return nil })
	}()
	t.Cleanup(func() { <-ended })
	var line server.ReadyLine
	select {
	case line = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	text, err := os.ReadFile(line.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(text))
	c, err := client.New(client.Config{URL: line.URL, Token: secret.New(token)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context(), http.MethodPost, "/api/capability-router/connect",
		map[string]any{"endpoint": map[string]any{"id": "far", "baseUrl": endpoint.URL}}, nil); err != nil {
		t.Fatal(err)
	}
	for surface, call := range map[string]struct{ path, body string }{
		"mcpserve":    {"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"PING","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`},
		"routerserve": {"/v1/capabilities/invoke", `{"method":"plugin.action.invoke","params":{"moduleId":"trial","action":"PING"}}`},
		"restserve":   {"/api/v1/invocations", `{"target":"trial:action:PING"}`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, line.URL+call.path, strings.NewReader(call.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", "tools/call")
		req.Header.Set("Mcp-Name", "PING")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s; want resp.StatusCode = http.StatusOK", surface, resp.StatusCode, body)
		}
		walk, wing := walkOf(<-stacks), "internal/serve"
		if surface == "routerserve" {
			wing = "internal/endpoints"
		}
		want := []string{
			wing + "/" + surface, "internal/core/invoke.(*Engine).Invoke", "internal/endpoints/endpoint.(*providerOf).Invoke",
			"protocol/router.(*Client).Invoke",
		}
		if len(walk) != len(want) || !strings.HasPrefix(walk[0], want[0]+".") || !slices.Equal(walk[1:], want[1:]) {
			t.Errorf("from %s the call goes\n\t%s\nwant len(walk) = %v, walk[0] beginning with want[0] + \".\", walk[1:] = want[1:]",
				surface, strings.Join(walk, "\n\t"), len(want))
		}
		for _, step := range want[1:] {
			if !strings.Contains(string(page), step) {
				t.Errorf("docs/ARCHITECTURE.md does not name %s; want string(page) with %v", step, step)
			}
		}
	}
}

// walkOf lists where a call goes from package to package of ours, from the socket that
// it came in by, each with the first function that it enters there. What wraps a door
// on its way in is the door's.
func walkOf(stacks string) []string {
	const ours = "github.com/junctor-run/junctor/"
	frame := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(ours) + `([\w/]+)\.(.+)\(`)
	var walk []string
	for one := range strings.SplitSeq(stacks, "\n\n") {
		if !strings.Contains(one, "net/http.(*Client).") && !strings.Contains(one, "net/http.(*Transport).") ||
			!strings.Contains(one, ours+"internal/core/invoke.") {
			continue
		}
		frames := frame.FindAllStringSubmatch(one, -1)
		slices.Reverse(frames)
		last := ""
		for _, f := range frames {
			pkg, door := f[1], strings.HasPrefix(f[1], "internal/serve/") || strings.HasPrefix(f[1], "internal/endpoints/routerserve") ||
				f[1] == "internal/server" || f[1] == "internal/platform/telemetry"
			if door {
				walk = walk[:0]
			}
			if pkg != last || door {
				walk = append(walk, pkg+"."+f[2])
			}
			last = pkg
		}
	}
	return walk
}
