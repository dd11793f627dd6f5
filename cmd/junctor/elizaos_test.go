package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

const searchOperation = `  /search:
    get:
      operationId: findItem
      parameters:
        - {name: limit, in: query, schema: {type: integer}}
        - {name: q, in: query, required: true, description: What to find, schema: {type: string}}
      responses: {'200': {description: ok}}
`

// An elizaOS agent reads modules from endpoints, and passes messages to actions. The gateway's whole
// catalog reaches it that way, under the rules for its token.
func TestAnElizaAgentReachesTheCatalogAsModules(t *testing.T) {
	var last atomic.Value
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last.Store(r.Method + " " + r.RequestURI)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"name":"lamp"}`)
	}))
	t.Cleanup(api.Close)
	document := filepath.Join(t.TempDir(), "shop.yaml")
	text := strings.NewReplacer("security: [{key: []}]\n", "").Replace(shopDocument) + searchOperation
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatalf("the document: got %v, want no error", err)
	}
	h := &patient{home: filepath.Join(t.TempDir(), "home")}
	if err := os.MkdirAll(h.home, 0o700); err != nil {
		t.Fatalf("the home: got %v, want no error", err)
	}
	const settings = "mcp:\n  views:\n    - {name: own, modules: [core]}\n"
	if err := os.WriteFile(filepath.Join(h.home, "config.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatalf("the configuration: got %v, want no error", err)
	}
	s := h.serve(t)
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	h.run(t, "mcp", "add", "shop", "--openapi", document, "--url", api.URL, "--local", "--trust-hints=yes")
	connect := func(token string) *router.Client {
		t.Helper()
		c, err := router.NewClient(router.ClientConfig{ID: "gateway", BaseURL: h.url, Token: secret.New(strings.TrimSpace(token))})
		if err != nil {
			t.Fatalf("the client: got %v, want no error", err)
		}
		t.Cleanup(c.CloseIdle)
		return c
	}
	token, err := os.ReadFile(filepath.Join(h.home, "run", "agent.token"))
	if err != nil {
		t.Fatalf("the agent's token: got %v, want no error", err)
	}
	agent := connect(string(token))
	modules, err := agent.Modules(t.Context())
	if err != nil {
		t.Fatalf("plugin.modules.list: got %v, want no error", err)
	}
	var shop string
	for _, m := range modules {
		if m.ID == "junctor.mcp.shop" {
			shop = string(m.Raw)
		}
	}
	const parameter = `{"name":"q","description":"What to find","required":true,"schema":{`
	if !strings.Contains(shop, `"name":"shop__findItem"`) || !strings.Contains(shop, parameter) {
		t.Fatalf("the module of the API: got %s, want shop__findItem with the parameter %s", shop, parameter)
	}
	call := func(c *router.Client, action, rest string) (string, *capability.Error) {
		t.Helper()
		out, err := c.Invoke(t.Context(), "plugin.action.invoke",
			json.RawMessage(`{"moduleId":"junctor.mcp.shop","endpointId":"local","action":"`+action+`",`+rest+`}`))
		if failure, ok := errors.AsType[*router.Error](err); ok {
			return string(out), failure.ToCapability("")
		}
		return string(out), capability.AsError(err)
	}
	for _, tc := range []struct{ what, action, rest, request string }{
		{"what the model filled in", "findItem", `"content":{"text":"find it"},"options":{"parameters":{"q":"a lamp"}}`, "GET /search?q=a+lamp"},
		{"the text as the missing parameter", "findItem", `"content":{"text":"lamp","source":"chat"}`, "GET /search?q=lamp"},
		{"the text as an object", "getItem", `"content":{"text":"{\"id\":7}"}`, "GET /items/7"},
		{"members of the content", "findItem", `"content":{"q":"x","limit":2,"text":"y"}`, "GET /search?limit=2&q=x"},
	} {
		out, err := call(agent, "shop__"+tc.action, tc.rest)
		if err != nil || last.Load() != tc.request || !strings.Contains(out, `"text":"{\"name\":\"lamp\"}"`) {
			t.Errorf("%s: got %s, %v and the request %v; want the item as text, no error and %s", tc.what, out, err, last.Load(), tc.request)
		}
	}
	last.Store("")
	for _, tc := range []struct {
		what, action, rest string
		code               capability.Code
		text               string
	}{
		{"a message without the arguments", "getItem", `"content":{"text":"the lamp"}`, capability.CodeInvalidInput, "id"},
		{"a write", "putItem", `"content":{},"options":{"parameters":{"id":1,"body":{"name":"x"}}}`, capability.CodeApprovalRequired, "apr_"},
		{"an unknown action", "dropItem", `"content":{"text":"x"}`, capability.CodeUnknownCapability, "dropItem"},
	} {
		out, err := call(agent, "shop__"+tc.action, tc.rest)
		if err == nil || err.Code != tc.code || !strings.Contains(err.Message, tc.text) || last.Load() != "" {
			t.Errorf("%s: got %s, %v and the request %v; want %s with %q and no request", tc.what, out, err, last.Load(), tc.code, tc.text)
		}
	}
	if out, err := agent.Invoke(t.Context(), "plugin.action.invoke",
		json.RawMessage(`{"moduleId":"junctor.core.default","action":"shop__findItem","content":{"text":"lamp"}}`)); err == nil || last.Load() != "" {
		t.Errorf("an action of another module: got %s, no error and the request %v; want an error and no request", out, last.Load())
	}
	var made struct{ Token string }
	created := h.run(t, "tokens", "create", "--role", "agent", "--view", "own", "--name", "narrow", "--json")
	if err := json.Unmarshal([]byte(created), &made); err != nil {
		t.Fatalf("tokens create: got %v, want JSON", err)
	}
	narrow := connect(made.Token)
	if modules, err = narrow.Modules(t.Context()); err != nil || len(modules) == 0 {
		t.Fatalf("plugin.modules.list with a view: got %v, %v; want modules", modules, err)
	}
	for _, m := range modules {
		if m.ID == "junctor.mcp.shop" {
			t.Errorf("plugin.modules.list with a view: got %s, want it without modules outside the view", m.ID)
		}
	}
	if out, err := call(narrow, "shop__findItem", `"content":{"text":"lamp"}`); err == nil || err.Code != capability.CodeUnknownCapability {
		t.Errorf("a call outside the view: got %s, %v; want unknown_capability", out, err)
	}
	if records := h.run(t, "audit", "query", "--json"); !strings.Contains(records, "findItem") || !strings.Contains(records, `"router"`) {
		t.Errorf("the audit: got %s, want the calls with their surface", records)
	}
}
