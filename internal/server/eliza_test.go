package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestElizaVariablesConnectAtTheStart: an elizaOS agent's variables are enough,
// through the real program; the primary takes low-level calls, the rest does not.
func TestElizaVariablesConnectAtTheStart(t *testing.T) {
	t.Parallel()
	first, second := spawn(t, "endpoint", nil, "127.0.0.1:0", "trial"), spawn(t, "endpoint", nil, "127.0.0.1:0", "other")
	const p = "ELIZA_CAPABILITY_ROUTER_"
	n := serve(t, t.TempDir(), p+"URL="+first.first, p+`URLS=[{"id":"more","baseUrl":"`+second.first+`"}]`,
		p+`ALLOWED_MODULES={"more":["nothing"]}`)
	if err := n.ping(t, "10s"); err != nil {
		t.Error(err)
	}
	a := n.request(t, http.MethodGet, "/api/capability-router/endpoints", n.token(t, "admin"), "")
	for _, want := range []string{`"id":"primary"`, `"primary":true`, `"id":"more"`, `"reason":"module-not-allowed"`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("%s is not in %s; want a.body with %v", want, a.body, want)
		}
	}
	if a := n.request(t, http.MethodPost, "/api/v1/invocations", n.token(t, "admin"),
		`{"target":"other:action:PING"}`); a.code() != "unknown_capability" {
		t.Errorf(`%d %s; want a.code() = "unknown_capability"`, a.status, a.body)
	}
}
