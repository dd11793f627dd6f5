package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/sources"
)

// toolNames slug alike in part: their ids are the same wherever they are declared.
var toolNames = []string{"plain", "two words", "two-words", "two/words", ".hidden", "prompt.greet", strings.Repeat("long", 30)}

func farServer(t *testing.T) string {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	for _, name := range toolNames {
		// The SDK's own check of names only warns.
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	}
	s.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	s.AddResource(&mcp.Resource{URI: "test://a", Name: "a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{}, nil
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close)
	return web.URL
}

func TestUpstreamsOverTheAPI(t *testing.T) {
	url := farServer(t) // first: it closes when nobody is connected any more
	n := serve(t, t.TempDir())
	body := `{"name":"far","url":"` + url + `","private_network":true}`
	for _, role := range []string{"agent"} {
		for _, call := range [][2]string{{"GET", ""}, {"POST", ""}, {"GET", "/far"}, {"DELETE", "/far"}, {"POST", "/far/restart"}, {"POST", "/far/login"}, {"GET", "/far/diff"}, {"POST", "/far/approve"}} {
			if a := n.request(t, call[0], "/api/v1/upstreams"+call[1], n.token(t, role), body); a.status != http.StatusForbidden {
				t.Errorf("%s %s as %s: %d", call[0], call[1], role, a.status)
			}
		}
	}
	for body, want := range map[string]int{
		`{"name":"far","unknown":1}`:                     http.StatusBadRequest,
		`{"name":"far"`:                                  http.StatusBadRequest,
		`{"name":"far","url":"https://127.0.0.1:1/mcp"}`: http.StatusServiceUnavailable,
	} {
		if a := n.request(t, "POST", "/api/v1/upstreams", n.token(t, "admin"), body); a.status != want {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := n.request(t, "POST", "/api/v1/upstreams", n.token(t, "admin"), body); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}

	// The ids are those of the static catalog for the same declarations.
	server := sources.MCPServer{ID: "far", Prompts: []sources.MCPPrompt{{Name: "greet"}}, Resources: []sources.MCPResource{{URI: "test://a"}}}
	for _, name := range toolNames {
		server.Tools = append(server.Tools, sources.MCPTool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)})
	}
	x, dropped, err := sources.MCP(server)
	if err != nil || len(dropped) > 0 {
		t.Fatal(err, dropped)
	}
	var module struct {
		Extension     string
		Contributions []struct {
			CapabilityID, Kind string
			Policy             struct{ Effect capability.Effect }
		}
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/modules/mcp.far", nil, &module); err != nil {
		t.Fatal(err)
	}
	want := x.Module()
	ids := make(map[string]bool)
	for _, c := range module.Contributions {
		id, _, _ := strings.Cut(c.CapabilityID, "#")
		ids[id+" "+c.Kind+" "+string(c.Policy.Effect)] = true
	}
	if module.Extension != want.Extension || len(module.Contributions) != len(want.Contributions) {
		t.Errorf("%s with %d contributions, not %s with %d", module.Extension, len(module.Contributions), want.Extension, len(want.Contributions))
	}
	for _, c := range want.Contributions {
		effect := c.Effect
		if effect == "" {
			effect = capability.EffectRead
		}
		if !ids[want.Extension+"/"+c.ID+" "+c.Kind+" "+string(effect)] {
			t.Errorf("no contribution %s %s %s among %v", c.ID, c.Kind, effect, ids)
		}
	}

	var reply struct{ Result json.RawMessage }
	in := map[string]any{"target": "mcp.far:tool:two words", "input": json.RawMessage(`{"n":9007199254740993}`)}
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/invocations", in, &reply); err != nil || !strings.Contains(string(reply.Result), "9007199254740993") {
		t.Errorf("%v: %s", err, reply.Result)
	}
	n.verify(t)
}
