package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/endpoints/reference"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// TestAModelIsInvokedByItsType goes through /api/v1 of a running server: the type
// finds the module, whichever endpoint has it, and a module can be named.
func TestAModelIsInvokedByItsType(t *testing.T) {
	t.Parallel()
	device, err := reference.New(reference.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	far := httptest.NewServer(router.Handler(router.RequireToken(secret.Value{}, device), router.HandlerOptions{}))
	t.Cleanup(far.Close)
	n := serve(t, t.TempDir())
	n.connect(t, "far", far.URL, false)
	jsonBody := func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }
	invoke := func(role, target, input, selector string) answer {
		t.Helper()
		body := fmt.Sprintf(`{"target":%q,"input":%s%s}`, target, input, selector)
		return n.request(t, "POST", "/api/v1/invocations", n.token(t, role), body, jsonBody)
	}
	for _, tt := range []struct{ target, input, selector string }{
		{"model.invoke", `{"modelType":"TEXT_SMALL","params":{"prompt":"hello"}}`, ""},
		{"model.invoke", `{"modelType":"TEXT_SMALL","params":{"prompt":"hello"}}`, `,"select":{"endpoint":"far"}`},
		{"device-tools:model:TEXT_SMALL", `{"prompt":"hello"}`, ""},
	} {
		if a := invoke("admin", tt.target, tt.input, tt.selector); a.status != 200 || !strings.Contains(a.body, `"result"`) {
			t.Errorf(`%s%s: %d %s; want a.status = 200, a.body with "\"result\""`, tt.target, tt.selector, a.status, a.body)
		}
	}
	if a := invoke("admin", "model.invoke", `{"modelType":"NONE"}`, ""); a.status != http.StatusServiceUnavailable ||
		!strings.Contains(a.body, "no_provider") {
		t.Errorf(`%d %s; want a.status = http.StatusServiceUnavailable, a.body with "no_provider"`, a.status, a.body)
	}
	if a := invoke("agent", "model.invoke", `{"modelType":"TEXT_SMALL"}`, ""); a.status != http.StatusNotFound {
		t.Errorf("it is not an action of agents: %d %s; want a.status = http.StatusNotFound", a.status, a.body)
	}
	n.terminate(t)
}
