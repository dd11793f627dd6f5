package scenario_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// pack is a payload whose capabilities are bound to actions of the same names.
func pack(name string, aliases ...string) map[string]any {
	var caps []any
	for _, a := range aliases {
		caps = append(caps, map[string]any{"alias": a, "function_name": "user." + a, "metadata": map[string]any{}})
	}
	return map[string]any{"schema": payload.Schema, "version": "1.0", "skill_name": name, "capabilities": caps}
}

// post sends a body as a given principal, and returns the status and what came back.
func (p *plane) post(t testing.TB, path, token, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// auditRow is what the rows of one call have in common, whichever way it came in.
type auditRow struct {
	Event    string
	Action   string
	User     string `json:"user_id"`
	Metadata struct {
		Surface, Node, Function, Skill string
		PayloadDigest                  string `json:"payload_digest"`
		Effect                         string
		CanonicalAction                string `json:"canonical_action"`
	}
}

func (p *plane) audit(t testing.TB, query string) []auditRow {
	t.Helper()
	var out struct{ Records []auditRow }
	if err := p.admin.Do(t.Context(), http.MethodGet, "/api/v1/audit?"+query, nil, &out); err != nil {
		t.Fatal(err)
	}
	return out.Records
}

func TestScenario53InstallThroughEverySurface(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	admin := p.file(t, "admin.token")
	skillOf := func(name string) string {
		raw, err := json.Marshal(pack(name, "cam"))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	install := map[string]func(node string) string{
		"router": func(node string) string {
			eventually(t, "it is a module", func() bool {
				_, list := p.post(t, "/v1/capabilities/invoke", admin, `{"method":"plugin.modules.list","params":{}}`)
				return strings.Contains(list, `"id":"node.`+node+`"`)
			})
			_, body := p.post(t, "/v1/capabilities/invoke", admin, `{"method":"plugin.action.invoke","params":{"moduleId":"node.`+node+
				`","action":"device.install_remote_skill","content":{"skill_payload":`+skillOf("s")+`}}}`)
			return body
		},
		"mcp": func(node string) string {
			_, body := p.post(t, "/mcp", admin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
			if !strings.Contains(body, "serverInfo") {
				t.Fatalf(`body = %q, want it to contain "serverInfo"`, body)
			}
			return p.tool(t, admin, "device.skill.install", `{"skill_payload":`+skillOf("s")+`,"selector":{"node":"`+node+`"}}`)
		},
		"a2a": func(node string) string {
			_, body := p.post(t, "/a2a?A2A-Version=1.0", admin, `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"capability":"device.skill.install","arguments":{"skill_payload":`+skillOf("s")+`,"selector":{"node":"`+node+`"}}}}]}}}`)
			return body
		},
		"cmp": func(node string) string {
			_, body := p.post(t, "/api/cmp/mcp", admin, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"device.install_remote_skill","node_id":"`+node+`","arguments":{"skill_payload":`+skillOf("s")+`}}}`)
			return body
		},
		"cli": func(node string) string {
			out, stderr, code := p.cli(t, "invoke", "device.skill.install", `{"skill_payload":`+skillOf("s")+`}`, "--select", "node="+node, "--json")
			if code != 0 {
				t.Errorf("code = %v, want 0; stderr = %q", code, stderr)
			}
			return out
		},
	}
	var records []string
	for surface, do := range install {
		node := "n-" + surface
		d := p.join(t, options{id: node, before: func(d *device) { d.acts("cam", "photo") }})
		body := do(node)
		rec, ok := d.host.Installed()["s"]
		if !ok {
			t.Errorf("%s: not installed: %s; want ok = true", surface, body)
			continue
		}
		rec.InstalledAt, rec.UpdatedAt = "", ""
		raw, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, string(raw))
		if out, err := p.call(t, node, "user.cam", nil); err != nil || string(out) != `"photo"` {
			t.Errorf(`%s: %s %v; want no error, string(out) = "\"photo\""`, surface, out, err)
		}
	}
	slices.Sort(records)
	if len(slices.Compact(records)) != 1 {
		t.Errorf("the records differ: %s; want len(slices.Compact(records)) = 1", records)
	}
	var rows []auditRow
	for _, r := range p.audit(t, "limit=500") {
		if r.Event == "capability_executed" && r.Metadata.Function == cmp.InstallSkill {
			if r.Metadata.Node == "" || r.Metadata.Skill != "s" || r.Metadata.PayloadDigest == "" || r.Metadata.Effect != "admin" {
				t.Errorf(`%+v; want r.Metadata.Node other than "", r.Metadata.Skill = "s", r.Metadata.PayloadDigest other than `+
					`"", r.Metadata.Effect = "admin"`, r)
			}
			r.Metadata.Surface, r.Metadata.Node = "", ""
			rows = append(rows, r)
		}
	}
	if len(rows) != len(install) || slices.ContainsFunc(rows, func(r auditRow) bool { return r != rows[0] }) {
		t.Errorf("%+v", rows)
	}
}

// tool calls a tool of the MCP surface in its newest, stateless form.
func (p *plane) tool(t testing.TB, token, name, arguments string) string {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/mcp", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name,
	} {
		r.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestScenario55OldJSONRPC(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	p.join(t, options{id: "a", before: func(d *device) {
		d.says("hello", "hi")
		d.does(functions.Function{
			Name: "add", Effect: cmp.EffectRead,
			Handle: func(_ context.Context, c functions.Call) (json.RawMessage, error) {
				return json.Marshal(map[string]any{"args": c.Args.Args, "kwargs": c.Args.Kwargs})
			},
		})
		d.does(functions.Function{
			Name: "count", Effect: cmp.EffectRead, Stream: true,
			Handle: func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
				for _, v := range []string{"1", "2"} {
					if err := c.Emit(ctx, json.RawMessage(v)); err != nil {
						return nil, err
					}
				}
				return nil, nil
			},
		})
	}})
	admin := p.file(t, "admin.token")
	for _, tt := range []struct {
		path, body, want string
		status           int
	}{
		{"mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{"pong":true}}`, 200},
		{
			"mcp", `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"hello","node_id":"a"}}`,
			`{"jsonrpc":"2.0","id":"x","result":{"content":[{"text":"hi","type":"text"}]}}`, 200,
		},
		{"mcp", `{"jsonrpc":"2.0","id":1,"method":"mcp.tools/call","params":{"tool":"add","load_balancing":true,"arguments":{"args":[1],"kwargs":{"b":2}}}}`, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"json":{"args":[1],"kwargs":{"b":2}},"type":"json"}]}}`, 200},
		{
			"mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","node_id":"a","stream":true}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"content":[{"json":{"chunkCount":2,"chunks":[1,2],"mode":"stream"},"type":"json"}]}}`, 200,
		},
		{
			"mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","node_id":"a"}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"content":[{"json":[1,2],"type":"json"}]}}`, 200,
		},
		{
			"a2a", `{"jsonrpc":"2.0","id":7,"method":"tasks/send","params":{"task":{"id":"t1","function":"hello","target_node":"a"}}}`,
			`{"jsonrpc":"2.0","id":7,"result":{"task":{"id":"t1","output":"hi","status":"completed"}}}`, 200,
		},
		{
			"a2a", `{"jsonrpc":"2.0","id":7,"method":"task.execute","params":{"name":"count","node_id":"a","stream":true}}`,
			`{"jsonrpc":"2.0","id":7,"result":{"task":{"id":7,"output":{"chunkCount":2,"chunks":[1,2],"mode":"stream"},"status":"completed"}}}`,
			200,
		},
		{"mcp", `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"hello","node_id":"a"}}`, ``, 204},
		{
			"mcp", `[{"jsonrpc":"2.0","method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
			`[{"jsonrpc":"2.0","id":1,"result":{"pong":true}}]`, 200,
		},
		{"mcp", `[{"jsonrpc":"2.0","method":"ping"}]`, ``, 204},
	} {
		status, body := p.post(t, "/api/cmp/"+tt.path, admin, tt.body)
		if status != tt.status || body != tt.want {
			t.Errorf("%s\n got %d %s\nwant %d %s", tt.body, status, body, tt.status, tt.want)
		}
	}
	for _, tt := range []struct {
		path, body string
		code       string
	}{
		{"mcp", `[]`, `"code":-32600`},
		{"mcp", `{`, `"code":-32700`},
		{"mcp", `[3]`, `"code":-32600`},
		{"mcp", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `"code":-32600`},
		{"mcp", `{"jsonrpc":"2.0","id":1,"method":""}`, `"code":-32600`},
		{"mcp", `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, `"code":-32600`},
		{"mcp", `{"jsonrpc":"2.0","id":1,"method":"nothing"}`, `"code":-32601`},
		{"mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, `"code":-32602`},
		{
			"mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","node_id":"a","arguments":{"__args__":3}}}`,
			`"code":-32602`,
		},
		{
			"mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nothing","node_id":"a"}}`,
			`"error_type":"FunctionNotFoundError"`,
		},
		{"a2a", `{"jsonrpc":"2.0","id":1,"method":"task.execute","params":{"task":4}}`, `"code":-32602`},
		{"a2a", `{"jsonrpc":"2.0","id":1,"method":"task.execute","params":{"name":"nothing"}}`, `"code":-32000`},
	} {
		if status, body := p.post(t, "/api/cmp/"+tt.path, admin, tt.body); status != 200 || !strings.Contains(body, tt.code) ||
			!strings.Contains(body, `"protocol":"`+tt.path+`"`) {
			t.Errorf("%s: %d %s; want status = 200, body with %v, body with `\"protocol\":\"` + tt.path + `\"`",
				tt.body, status, body, tt.code)
		}
	}
	if _, body := p.post(t, "/api/cmp/mcp", admin, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); !strings.Contains(body,
		`{"annotations":{"nodes":["a"],"tags":[]},"description":"EasyRemote distributed function","inputSchema":`) ||
		!strings.Contains(body, cmp.InstallSkill) {
		t.Errorf("tools = %q, want the function of node a and the tool that installs skills", body)
	}
	if _, body := p.post(t, "/api/cmp/a2a", p.file(t, "agent.token"),
		`{"jsonrpc":"2.0","id":1,"method":"agent/capabilities"}`); !strings.Contains(body, `"protocol":"a2a"`) ||
		strings.Contains(body, cmp.InstallSkill) {
		t.Errorf("p.post: body = %q, want it to contain \"\\\"protocol\\\":\\\"a2a\\\"\" and it not to contain cmp.InstallSkill", body)
	}
}

func TestScenario56AnAgentReadsAndCannotInstall(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	d := p.join(t, options{id: "a", before: func(d *device) { d.acts("cam", "photo") }})
	if out, err := ask(t.Context(), p.agent, "device.status.get", map[string]any{}, "a"); err != nil ||
		!strings.Contains(string(out), `"allow_transferred_code":false`) {
		t.Errorf(`%s %v; want no error, string(out) with "\"allow_transferred_code\":false"`, out, err)
	}
	install := func() error {
		_, err := ask(t.Context(), p.agent, "device.skill.install", map[string]any{"skill_payload": pack("s", "cam")}, "a")
		return err
	}
	for what, err := range map[string]error{"install": install(), "by the generic door": func() error {
		_, err := ask(t.Context(), p.agent, "device.function.invoke",
			map[string]any{"function": cmp.InstallSkill, "args": map[string]any{"skill_payload": pack("s", "cam")}}, "a")
		return err
	}()} {
		if err == nil || len(d.host.Installed()) != 0 {
			t.Errorf("%s: %v; want an error, len(d.host.Installed()) = 0", what, err)
		}
	}
	// A grant that names it lets it through.
	if err := p.admin.Do(t.Context(), http.MethodPost, "/api/v1/grants", map[string]any{
		"principal": "agent:local-agent", "module": "node.a", "action": "device.skill.install", "effect": "admin", "scope": "global",
	}, nil); err != nil {
		t.Fatal(err)
	}
	if err := install(); err != nil || len(d.host.Installed()) != 1 {
		t.Errorf("%v; want no error, len(d.host.Installed()) = 1", err)
	}
}

func TestScenario18And54TheListOfToolsFollowsInstallAndUninstall(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	d := p.join(t, options{id: "a", before: func(d *device) { d.acts("cam", "photo") }})
	told := make(chan struct{}, 16)
	official := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} },
	})
	session, err := official.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: p.url + "/mcp", HTTPClient: &http.Client{Transport: bearer(p.file(t, "agent.token"))},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	has := func() bool {
		for tool, err := range session.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(tool.Name, "cam") {
				return true
			}
		}
		return false
	}
	await := func(what string) {
		t.Helper()
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Fatal(what + ": nobody told the client")
		}
	}
	if has() {
		t.Fatal("it is there before it is installed")
	}
	for len(told) > 0 {
		<-told
	}
	if _, err := ask(t.Context(), p.admin, "device.skill.install", map[string]any{"skill_payload": pack("s", "cam")}, "a"); err != nil {
		t.Fatal(err)
	}
	// A new request finds it at once; a client that keeps its list is told to.
	if _, body := p.post(t, "/api/cmp/mcp", p.file(t, "agent.token"),
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); !strings.Contains(body, `"user.cam"`) {
		t.Errorf("p.post: body = %q, want it to contain \"\\\"user.cam\\\"\"", body)
	}
	await("install")
	if !has() {
		t.Error("the next list has it not")
	}
	if _, err := ask(t.Context(), p.admin, "device.skill.uninstall", map[string]any{"skill_name": "s"}, "a"); err != nil {
		t.Fatal(err)
	}
	if _, there := d.functions.Get("user.cam"); there {
		t.Error("the device has it still")
	}
	if slices.Contains(p.nodes(t, p.admin, "")["a"].Functions, "user.cam") {
		t.Error("it is listed still")
	}
	await("uninstall")
	if has() {
		t.Error("it is a tool still")
	}
}

// bearer shows a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func TestANodeCallsUpward(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, "policy"), 0o700); err != nil {
		t.Fatal(err)
	}
	rules := `@id("all") permit (principal in Role::"admin", action, resource);
@id("nodes-greet") permit (principal in Role::"node", action == Action::"fn.greet", resource);`
	if err := os.WriteFile(filepath.Join(home, "policy", "rules.cedar"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, home, "")
	caller := p.join(t, options{id: "caller"})
	p.join(t, options{id: "greeter", before: func(d *device) {
		d.says("greet", "hello")
		d.says("secret", "no")
	}})
	reply, err := caller.Call(t.Context(), wire.Upward{Action: "fn.greet", Select: "node=greeter"})
	if err != nil || string(reply.Result) != `"hello"` || reply.Invocation == "" {
		t.Errorf(`%+v %v; want no error, string(reply.Result) = "\"hello\"", reply.Invocation other than ""`, reply, err)
	}
	if reply, err := caller.Call(t.Context(), wire.Upward{Action: "fn.secret"}); capability.CodeOf(err) != capability.CodeUnknownCapability {
		t.Errorf("what it may not know of: %+v %v; want capability.CodeOf(err) = capability.CodeUnknownCapability", reply, err)
	}
	if reply, err := caller.Call(t.Context(), wire.Upward{
		Action: "device.skill.install", Select: "node=greeter",
		Input: json.RawMessage(`{"skill_payload":{}}`),
	}); err == nil {
		t.Errorf("%+v; want an error", reply)
	}
	for _, r := range p.audit(t, "limit=50") {
		if r.Event == "capability_executed" && r.Metadata.Function == "greet" &&
			(r.Metadata.Surface != "node" || !strings.HasPrefix(r.User, "node:")) {
			t.Errorf("%+v", r)
		}
	}
}
