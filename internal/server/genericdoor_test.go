package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mcpClient is a session of the agent token over raw JSON-RPC.
type mcpClient struct {
	*testing.T
	n       *node
	session string
}

func (n *node) mcp(t *testing.T) *mcpClient {
	t.Helper()
	c := &mcpClient{T: t, n: n}
	a := c.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	if c.session = a.header.Get("Mcp-Session-Id"); c.session == "" {
		t.Fatalf(`initialize: %d %s; want c.session other than ""`, a.status, a.body)
	}
	c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *mcpClient) post(body string) answer {
	c.Helper()
	return c.n.request(c, "POST", "/mcp", c.n.token(c, "agent"), body, func(r *http.Request) {
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Content-Type", "application/json")
		if c.session != "" {
			r.Header.Set("Mcp-Session-Id", c.session)
		}
	})
}

// ask returns the result, or fails the test on a protocol error.
func (c *mcpClient) ask(method, params string) (result struct {
	Tools             []struct{ Name string }
	IsError           bool
	Content           []struct{ Text string }
	StructuredContent json.RawMessage
	Meta              struct {
		Error struct {
			Code, Reason string
		} `json:"junctor/error"`
	} `json:"_meta"`
},
) {
	c.Helper()
	a := c.post(`{"jsonrpc":"2.0","id":2,"method":"` + method + `","params":` + params + `}`)
	body := a.body
	if i := strings.Index(body, "data: "); strings.HasPrefix(body, "event:") && i >= 0 {
		body, _, _ = strings.Cut(body[i+len("data: "):], "\n")
	}
	var out struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil || out.Error != nil {
		c.Fatalf("%s: %s", method, a.body)
	}
	if err := json.Unmarshal(out.Result, &result); err != nil {
		c.Fatalf("%s: %v in %s", method, err, out.Result)
	}
	return result
}

// TestAGenericDoorIsNoWiderThanWhatGoesThroughIt: a client that is shown only the
// tools that find others reaches everything it may use, under the rules of what it
// uses, and the record names that.
func TestAGenericDoorIsNoWiderThanWhatGoesThroughIt(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	n := serve(t, home, "JUNCTOR_MCP_EXPOSURE=search", "JUNCTOR_APPROVALS_WAIT=0s")
	if err := os.WriteFile(filepath.Join(home, "files", "note.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := n.mcp(t)
	var names []string
	for _, tool := range c.ask("tools/list", "{}").Tools {
		names = append(names, tool.Name)
	}
	if want := []string{"catalog_call", "catalog_callRead", "catalog_describe", "catalog_search"}; !slices.Equal(names, want) {
		t.Fatalf("%v; want names = %v", names, want)
	}
	found := c.ask("tools/call", `{"name":"catalog_search","arguments":{"query":"read a text file","limit":5}}`)
	if !strings.Contains(string(found.StructuredContent), `"fs.readText"`) {
		t.Fatalf(`%s; want string(found.StructuredContent) with "\"fs.readText\""`, found.StructuredContent)
	}
	described := c.ask("tools/call", `{"name":"catalog_describe","arguments":{"name":"fs.readText"}}`)
	if !strings.Contains(string(described.StructuredContent), `"path"`) {
		t.Fatalf(`%s; want string(described.StructuredContent) with "\"path\""`, described.StructuredContent)
	}
	read := c.ask("tools/call", `{"name":"catalog_callRead","arguments":{"name":"fs.readText","arguments":{"path":"note.txt"}}}`)
	if read.IsError || !strings.Contains(string(read.StructuredContent), "hello") {
		t.Fatalf(`%+v; want read.IsError = false, string(read.StructuredContent) with "hello"`, read)
	}
	direct := c.ask("tools/call", `{"name":"fs_readText","arguments":{"path":"note.txt"}}`)
	if string(direct.StructuredContent) != string(read.StructuredContent) {
		t.Errorf("%s through the door, %s without; want string(direct.StructuredContent) = %v",
			read.StructuredContent, direct.StructuredContent, string(read.StructuredContent))
	}

	// A write does not become a read by the name of the door, and asks as itself.
	write := `{"name":"fs.writeText","arguments":{"path":"new.txt","text":"x"}}`
	if r := c.ask("tools/call", `{"name":"catalog_callRead","arguments":`+write+`}`); !r.IsError ||
		r.Meta.Error.Reason != "unsupported_action" {
		t.Errorf(`%+v; want r.IsError = true, r.Meta.Error.Reason = "unsupported_action"`, r)
	}
	asked := c.ask("tools/call", `{"name":"catalog_call","arguments":`+write+`}`)
	if !asked.IsError || asked.Meta.Error.Code != "approval_required" {
		t.Errorf(`%+v; want asked.IsError = true, asked.Meta.Error.Code = "approval_required"`, asked)
	}
	var open struct{ Confirmations []struct{ Summary string } }
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/confirmations", nil, &open); err != nil {
		t.Fatal(err)
	}
	if len(open.Confirmations) != 1 || !strings.Contains(open.Confirmations[0].Summary, "fs.writeText") {
		t.Errorf(`%+v; want len(open.Confirmations) = 1, open.Confirmations[0].Summary with "fs.writeText"`, open)
	}
	if exists(filepath.Join(home, "files", "new.txt")) {
		t.Error("written without an approval")
	}
	for _, body := range []string{
		`{"name":"catalog.call","arguments":` + write + `}`, `{"name":"no.such"}`,
		`{"name":"fs.list","arguments":7}`, `{"arguments":{}}`,
	} {
		if a := c.post(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"catalog_call","arguments":` + body +
			`}}`); !strings.Contains(a.body, "isError") && !strings.Contains(a.body, `"error"`) {
			t.Errorf("%s: %s; want not (!strings.Contains(a.body, \"isError\") && !strings.Contains(a.body, `\"error\"`))",
				body, a.body)
		}
	}
	var records struct {
		Records []struct {
			Action   string
			Metadata struct {
				Attrs map[string]string
			}
		}
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/audit?limit=100", nil, &records); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(records.Records, func(r struct {
		Action   string
		Metadata struct{ Attrs map[string]string }
	},
	) bool {
		return r.Action == "fs.readText"
	}) {
		t.Errorf("no record of the read: %+v", records)
	}
}
