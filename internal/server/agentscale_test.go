//go:build !race

package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// toolServer is an MCP server of a test.
type toolServer struct{ name, url string }

// manyTools starts MCP servers with the published tools, by their own servers, among n, and returns them.
// Each tool answers with its name.
func manyTools(t *testing.T, n int) (servers []toolServer) {
	t.Helper()
	const each = 4000 // generated tools of one server
	tools, known := catalogtest.Neighbours(n), len(catalogtest.Published())
	for at := 0; len(tools) > 0; {
		name, size := fmt.Sprint("many", len(servers)), min(each, len(tools))
		if at < known {
			name, size = tools[0].Server, 1
			for at+size < known && tools[size].Server == name {
				size++
			}
		}
		at += size
		s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
		for _, tl := range tools[:size] {
			properties := map[string]any{}
			for _, a := range tl.Arguments {
				properties[a] = map[string]string{"type": "string"}
			}
			s.AddTool(&mcp.Tool{
				Name: tl.Name, Description: tl.Description, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
				InputSchema: map[string]any{"type": "object", "properties": properties},
			}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "made by " + r.Params.Name}}}, nil
			})
		}
		web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
			&mcp.StreamableHTTPOptions{Stateless: true}))
		t.Cleanup(web.Close)
		servers, tools = append(servers, toolServer{name, web.URL}), tools[size:]
	}
	return servers
}

// searcher is a model that searches with the words of a request, describes the tool that is meant if
// it is found, and calls it. It does this for each request of its message, one after the other.
type searcher struct{ tools map[string]string } // request → tool

func (s searcher) answer(_ int, r modelRequest) modelAnswer {
	text := ""
	for _, m := range r.Messages {
		if c, ok := m.Content.(string); ok && m.Role == "user" {
			text = c
		}
	}
	results := make([]string, 0, len(r.Messages))
	for _, m := range r.Messages {
		if m.Role == "tool" {
			c, _ := m.Content.(string)
			results = append(results, c)
		}
	}
	var out []string
	for request := range strings.Lines(text) {
		request = strings.TrimSpace(request)
		meant := catalogtest.Request{Tool: s.tools[request], Text: request}
		name := ""
		for _, query := range meant.Searches() {
			if len(results) == 0 {
				data, _ := json.Marshal(map[string]string{"query": query})
				return modelAnswer{calls: []toolCall{{"catalog_search", string(data)}}}
			}
			name, results = toolIn(results[0], meant.Tool), results[1:]
			if name != "" {
				break
			}
		}
		if name == "" {
			out = append(out, "not found")
			continue
		}
		if len(results) == 0 {
			return modelAnswer{calls: []toolCall{{"catalog_describe", fmt.Sprintf(`{"name":%q}`, name)}}}
		}
		if results = results[1:]; len(results) == 0 {
			return modelAnswer{calls: []toolCall{{name, `{}`}}}
		}
		out, results = append(out, results[0]), results[1:]
	}
	return modelAnswer{text: strings.Join(out, "\n")}
}

// toolIn returns the name of a tool as the result of a search has it, or "".
func toolIn(found, tool string) string {
	var doc struct{ Actions []struct{ Name string } }
	if json.Unmarshal([]byte(found), &doc) != nil {
		return ""
	}
	for _, a := range doc.Actions {
		if a.Name == tool || strings.HasSuffix(a.Name, "__"+tool) {
			return a.Name
		}
	}
	return ""
}

// TestTheAgentFindsToolsAtScale: with 10,000 tools of MCP servers, runs find, describe and
// call the tool that a request means, with its words alone. What is sent to the model begins with
// what was sent before, and its tools stay within their bound.
func TestTheAgentFindsToolsAtScale(t *testing.T) { agentFinds(t, 10_000, 0.9) }

func agentFinds(t *testing.T, n int, want float64) {
	t.Helper()
	servers := manyTools(t, n)
	s := searcher{tools: make(map[string]string)}
	all := catalogtest.Requests()
	for _, r := range all {
		s.tools[r.Text] = r.Tool
	}
	model := newScriptedModel(t, s.answer)
	node := serve(t, openHome(t), append(model.env(), "JUNCTOR_AGENT_BUDGET_TOOL_CALLS=64", "JUNCTOR_AGENT_BUDGET_MODEL_CALLS=64",
		"JUNCTOR_AGENT_MEMORY=off")...)
	for _, one := range servers {
		if a := node.request(t, http.MethodPost, "/api/v1/upstreams", node.token(t, "admin"),
			fmt.Sprintf(`{"name":%q,"url":%q,"private_network":true,"hints_trusted":true}`, one.name, one.url)); a.status != http.StatusCreated {
			t.Fatalf("upstream %s: got %d %s, want it added", one.name, a.status, a.body)
		}
	}
	found := 0
	for i, r := range all {
		before := len(model.asked())
		if got := node.tell(t, fmt.Sprint("s", i), r.Text).Message.Text; got == "made by "+r.Tool {
			found++
		} else {
			t.Logf("%q: got %q, want %s called", r.Text, got, r.Tool)
		}
		growing(t, model.asked()[before:])
	}
	t.Logf("FIGURES of %d tools: %d of %d requests call their tool", n, found, len(all))
	if rate := float64(found) / float64(len(all)); rate < want {
		t.Errorf("requests that call their tool: got %.2f of them, want %.2f", rate, want)
	}

	// One run of more than 20 steps.
	var several []string
	for _, r := range all[:8] {
		several = append(several, r.Text)
	}
	before := len(model.asked())
	run := node.tell(t, "long", strings.Join(several, "\n"))
	if steps := len(model.asked()) - before; steps < 20 || run.Type != "text" {
		t.Errorf("the long run: got %d steps and %+v, want 20 at least and its reply", steps, run)
	}
	growing(t, model.asked()[before:])
}

// growing requires that each request to the model begins with the one before, in its system text,
// its tools and its messages, and that its tools have at most 64 KiB but for those described.
func growing(t *testing.T, bodies []string) {
	t.Helper()
	const maxTools = 64 << 10
	var last, now struct{ Tools, Messages []json.RawMessage }
	for i, body := range bodies {
		now.Tools, now.Messages = nil, nil
		if err := json.Unmarshal([]byte(body), &now); err != nil {
			t.Fatalf("request %d: got %v, want JSON", i+1, err)
		}
		size := 2
		for _, one := range now.Tools {
			size += len(one) + 1
		}
		if i == 0 && size > maxTools {
			t.Errorf("the tools of the first request: got %d bytes, want %d at most", size, maxTools)
		}
		if !begins(now.Tools, last.Tools) || len(now.Tools) > len(last.Tools)+1 && i > 0 {
			t.Errorf("the tools of request %d: got %d that do not begin with the %d before, want those and one more at most", i+1,
				len(now.Tools), len(last.Tools))
		}
		if !begins(now.Messages, last.Messages) {
			t.Errorf("the messages of request %d do not begin with those before; want the same beginning", i+1)
		}
		last = now
	}
}

func begins(list, with []json.RawMessage) bool {
	if len(list) < len(with) {
		return false
	}
	for i, one := range with {
		if !bytes.Equal(one, list[i]) {
			return false
		}
	}
	return true
}
