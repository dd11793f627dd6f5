package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/capability"
)

// toolNames slug alike in part: their ids are the same wherever they are declared.
var toolNames = []string{"plain", "two words", "two-words", "two/words", ".hidden", "prompt.greet", strings.Repeat("long", 30)}

func farServer(t *testing.T) string {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	for _, name := range toolNames {
		// The SDK's own check of names only warns.
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
			})
	}
	s.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	s.AddResource(&mcp.Resource{URI: "test://a", Name: "a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{}, nil
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close)
	return web.URL
}

// TestTheListFollowsTheRules: a tool that a rule denies leaves the lists of open sessions, and comes back
// with the rule, although the catalog stays as it is.
func TestTheListFollowsTheRules(t *testing.T) {
	t.Parallel()
	url := farServer(t)
	n := serve(t, t.TempDir())
	admin := n.token(t, "admin")
	if a := n.request(t, "POST", "/api/v1/upstreams", admin, `{"name":"far","url":"`+url+`","private_network":true}`); a.status != http.StatusCreated {
		t.Fatalf("adding the upstream: got %d %s, want 201", a.status, a.body)
	}
	c := n.mcp(t)
	named := toolNames[0]
	listed := func() bool {
		return slices.ContainsFunc(c.ask("tools/list", "{}").Tools, func(tool struct{ Name string }) bool {
			return strings.Contains(tool.Name, named)
		})
	}
	for i, setting := range []string{"allow", "deny", "reset", "deny", "allow"} {
		change := `{"setting":"` + setting + `","target":"far/` + named + `"}`
		if a := n.request(t, "POST", "/api/v1/policy/changes", admin, change); a.status != http.StatusOK {
			t.Fatalf("step %d, %s: got %d %s, want 200", i, setting, a.status, a.body)
		}
		if got, want := listed(), setting != "deny"; got != want {
			t.Errorf("step %d, %s: the tool is listed: got %v, want %v", i, setting, got, want)
		}
	}
}

func TestUpstreamsOverTheAPI(t *testing.T) {
	t.Parallel()
	url := farServer(t) // first: it closes when no client is connected any more
	n := serve(t, t.TempDir())
	body := `{"name":"far","url":"` + url + `","private_network":true}`
	for _, role := range []string{"agent"} {
		for _, call := range [][2]string{
			{"GET", ""},
			{"POST", ""},
			{"GET", "/far"},
			{"DELETE", "/far"},
			{"POST", "/far/restart"},
			{"GET", "/far/diff"},
			{"POST", "/far/approve"},
		} {
			if a := n.request(t, call[0], "/api/v1/upstreams"+call[1], n.token(t, role), body); a.status != http.StatusForbidden {
				t.Errorf("%s %s as %s: %d; want a.status = http.StatusForbidden", call[0], call[1], role, a.status)
			}
		}
	}
	for body, want := range map[string]int{
		`{"name":"far","unknown":1}`:                     http.StatusBadRequest,
		`{"name":"far"`:                                  http.StatusBadRequest,
		`{"name":"far","url":"https://127.0.0.1:1/mcp"}`: http.StatusServiceUnavailable,
	} {
		if a := n.request(t, "POST", "/api/v1/upstreams", n.token(t, "admin"), body); a.status != want {
			t.Errorf("%s: %d %s; want a.status = %v", body, a.status, a.body, want)
		}
	}
	if a := n.request(t, "POST", "/api/v1/upstreams", n.token(t, "admin"), body); a.status != http.StatusCreated {
		t.Fatalf("%d %s; want a.status = http.StatusCreated", a.status, a.body)
	}
	for role, want := range map[string]int{"agent": http.StatusConflict, "admin": http.StatusConflict} {
		for _, verb := range []string{"/login", "/logout"} {
			if a := n.request(t, "POST", "/api/v1/upstreams/far"+verb, n.token(t, role), `{}`); a.status != want {
				t.Errorf("%s of an upstream without OAuth as %s: got %d %s, want %d", verb, role, a.status, a.body, want)
			}
		}
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
	want := []string{
		"mcp.far/longlonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglon-cc8458d7 capability.agent-tool external",
		"mcp.far/plain capability.agent-tool external",
		"mcp.far/prompt.greet capability.agent-tool external",
		"mcp.far/prompt.greet-22430711 capability.interaction read",
		"mcp.far/resource.a541ad0c550d1f1f capability.context-augmenter read",
		"mcp.far/resource.read capability.rpc read",
		"mcp.far/two-words capability.agent-tool external",
		"mcp.far/two-words-a03f1d61 capability.agent-tool external",
		"mcp.far/two-words-a9d168c9 capability.agent-tool external",
		"mcp.far/x.hidden capability.agent-tool external",
	}
	var ids []string
	for _, c := range module.Contributions {
		id, _, _ := strings.Cut(c.CapabilityID, "#")
		ids = append(ids, id+" "+c.Kind+" "+string(c.Policy.Effect))
	}
	slices.Sort(ids)
	slices.Sort(want)
	if diff := cmp.Diff(want, ids); module.Extension != "mcp.far" || diff != "" {
		t.Errorf("module %s, want mcp.far; contributions differ from those wanted:\n%s", module.Extension, diff)
	}

	var reply struct{ Result json.RawMessage }
	in := map[string]any{"target": "mcp.far:tool:two words", "input": json.RawMessage(`{"n":9007199254740993}`)}
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/invocations", in, &reply); err != nil ||
		!strings.Contains(string(reply.Result), "9007199254740993") {
		t.Errorf(`%v: %s; want no error, string(reply.Result) with "9007199254740993"`, err, reply.Result)
	}
	n.verify(t)
}
