package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

const shopDocument = `openapi: 3.1.0
info: {title: Shop, version: "1.2"}
components:
  securitySchemes: {key: {type: apiKey, in: query, name: api_key}}
  schemas: {Item: {type: object, required: [name], properties: {name: {type: string}, part: {$ref: '#/components/schemas/Item'}}}}
security: [{key: []}]
paths:
  /items/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
    get: {operationId: getItem, responses: {'200': {description: ok}}}
    put:
      operationId: putItem
      requestBody: {required: true, content: {application/json: {schema: {$ref: '#/components/schemas/Item'}}}}
      responses: {'200': {description: ok}}
`

func TestAnAPIIsAddedByItsDocumentAndGoverned(t *testing.T) {
	var last atomic.Value
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		last.Store(r.Method + " " + r.RequestURI + " " + string(body))
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"name":"lamp"}`)
	}))
	t.Cleanup(api.Close)
	dir := t.TempDir()
	document := filepath.Join(dir, "shop.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
			t.Fatalf("write: got %v, want no error", err)
		}
	}
	write(shopDocument)
	h := &patient{home: filepath.Join(t.TempDir(), "home")}
	s := h.serve(t)
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	secret := h.command(t, "secrets", "set", "shop-key")
	secret.Stdin = strings.NewReader("k3y")
	if out, err := secret.CombinedOutput(); err != nil {
		t.Fatalf("secrets set: got %v: %s, want no error", err, out)
	}
	shown := h.run(t, "mcp", "add", "shop", "--openapi", document, "--url", api.URL+"/v2", "--local", "--secret", "shop-key",
		"--trust-hints=yes")
	shown += h.run(t, "mcp", "show", "shop", "--json") + h.run(t, "mcp", "list")
	if !strings.Contains(shown, "shop/getItem") || strings.Contains(shown, "k3y") {
		t.Errorf("add, show and list: got %s, want the tools, and the secret not", shown)
	}
	token, err := os.ReadFile(filepath.Join(h.home, "run", "agent.token"))
	if err != nil {
		t.Fatalf("the agent's token: got %v, want no error", err)
	}
	agent := []string{"--token", strings.TrimSpace(string(token))}
	call := func(tool, input string) (string, error) {
		t.Helper()
		out, err := h.command(t, append(agent, "invoke", "ext.mcp.shop."+tool, input)...).CombinedOutput()
		return string(out), err
	}
	if out, err := call("getItem", `{"id":7}`); err != nil || !strings.Contains(out, "lamp") || last.Load() != "GET /v2/items/7?api_key=k3y " {
		t.Errorf("a read: got %s, %v and the request %v; want the item, no error, GET /v2/items/7 with the secret", out, err, last.Load())
	}
	// An MCP client receives the API's answer, not a result within a result.
	const params = `{"name":"shop__getItem","arguments":{"id":7},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`))
	if err != nil {
		t.Fatalf("the request: got %v, want no error", err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + strings.TrimSpace(string(token)), "Content-Type": "application/json", "Mcp-Method": "tools/call",
		"Mcp-Name": "shop__getItem", "Mcp-Protocol-Version": "2026-07-28", "Accept": "application/json, text/event-stream",
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("tools/call: got %v, want no error", err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	answer := string(body)
	if want := `"structuredContent":{"name":"lamp"}`; !strings.Contains(answer, want) || strings.Count(answer, "structuredContent") != 1 {
		t.Errorf("tools/call: got %s, want it with %s, once", answer, want)
	}
	const input = `{"id":7,"body":{"name":"desk"}}`
	out, err := call("putItem", input)
	if err == nil || !strings.Contains(out, "apr_") || strings.HasPrefix(last.Load().(string), "PUT") {
		t.Fatalf("a write: got %s, %v and the request %v; want an approval and no request", out, err, last.Load())
	}
	h.run(t, "approvals", "approve", regexp.MustCompile(`apr_[0-9a-f]+`).FindString(out))
	if out, err = call("putItem", input); err != nil || last.Load() != `PUT /v2/items/7?api_key=k3y {"name":"desk"}` {
		t.Errorf("an approved write: got %s, %v and the request %v; want PUT /v2/items/7 with the body", out, err, last.Load())
	}
	if out, err = call("getItem", `{"id":"seven"}`); err == nil || !strings.Contains(out, "id") {
		t.Errorf("an input that does not fit: got %s, %v; want an error that names id", out, err)
	}
	if records := h.run(t, "audit", "query", "--json"); strings.Contains(records, "k3y") || !strings.Contains(records, "getItem") {
		t.Errorf("the audit: got %s, want the calls without the secret", records)
	}
	write(strings.Replace(shopDocument, "/items/{id}", "/others/{id}", 1)) // the same tools on another path
	h.run(t, "mcp", "restart", "shop")
	if out, err = call("getItem", `{"id":7}`); err == nil || !strings.Contains(out, "not approved yet") {
		t.Errorf("a changed operation: got %s, %v; want it held", out, err)
	}
	h.run(t, "mcp", "approve", "shop")
	if out, err = call("getItem", `{"id":7}`); err != nil || last.Load() != "GET /v2/others/7?api_key=k3y " {
		t.Errorf("an approved change: got %s, %v and the request %v; want GET /v2/others/7", out, err, last.Load())
	}
	write("openapi: 2")
	for want, args := range map[string][]string{
		"OpenAPI document cannot be used": {"restart", "shop"}, "--url": {"add", "other", "--openapi", document},
	} {
		if out, err := h.command(t, append([]string{"mcp"}, args...)...).CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("mcp %v with a broken document: got %s, %v; want an error with %q", args, out, err, want)
		}
	}
}
