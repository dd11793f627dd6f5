package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/client"
)

// wireModules is the answer of plugin.modules.list.
type wireModules struct {
	OK     bool
	Result moduleList
}

type moduleList struct {
	Modules []struct {
		ID                   string
		CapabilityEndpointID string `json:"capabilityEndpointId"`
	}
	EndpointErrors []struct{ EndpointID, Code, Message string }
}

// String returns the modules as endpoint/id, in their order.
func (l moduleList) String() string {
	var out []string
	for _, m := range l.Modules {
		out = append(out, m.CapabilityEndpointID+"/"+m.ID)
	}
	return strings.Join(out, " ")
}

func (n *node) modules(t *testing.T, role, params string) wireModules {
	t.Helper()
	a := n.request(t, "POST", "/v1/capabilities/invoke", n.token(t, role), `{"method":"plugin.modules.list","params":`+params+`}`)
	var out wireModules
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || !out.OK {
		t.Fatalf("%d %s (%v); want no error, out.OK = true", a.status, a.body, err)
	}
	return out
}

// TestModulesOfManyEndpoints: the list states where each module came from, and
// which endpoints are down.
func TestModulesOfManyEndpoints(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	one, two := spawn(t, "endpoint", nil, "127.0.0.1:0", "zebra"), spawn(t, "endpoint", nil, "127.0.0.1:0", "ant")
	n.connect(t, "one", one.first, false)
	n.connect(t, "two", two.first, false)
	const own = " local/junctor.builtin.default local/junctor.core.default local/junctor.node.local"
	for role, want := range map[string]string{"admin": "one/zebra two/ant", "agent": "one/zebra two/ant" + own} {
		for _, params := range []string{`{}`, `{"endpointId":"key-of-another-router"}`} {
			list := n.modules(t, role, params).Result
			if got := list.String(); got != want || len(list.EndpointErrors) != 0 {
				t.Errorf("%s, %s: got %s and %v, want %s and no errors", role, params, got, list.EndpointErrors, want)
			}
		}
		if got := n.modules(t, role, `{"endpointId":"two"}`).Result.String(); got != "two/ant" {
			t.Errorf("%s, of one endpoint: got %s, want two/ant", role, got)
		}
	}
	two.kill()
	_ = n.admin.Do(t.Context(), http.MethodPost, "/api/capability-router/sync", nil, nil) // asks, and so finds out
	got := n.modules(t, "agent", `{}`).Result
	if len(got.EndpointErrors) != 1 || got.EndpointErrors[0].EndpointID != "two" || got.EndpointErrors[0].Code != "unavailable" ||
		got.EndpointErrors[0].Message == "" {
		t.Errorf(`with one down: %+v; want len(got.EndpointErrors) = 1, got.EndpointErrors[0].EndpointID = "two", `+
			`got.EndpointErrors[0].Code = "unavailable", got.EndpointErrors[0].Message other than ""`, got)
	}
}

// TestServersChain: a server is an endpoint. What it reaches is re-exported, and
// a call through two servers is on the record of both.
func TestServersChain(t *testing.T) {
	t.Parallel()
	far, near := serve(t, t.TempDir()), serve(t, t.TempDir())
	far.connect(t, "tools", spawn(t, "endpoint", nil, "127.0.0.1:0", "trial").first, false)
	if err := os.WriteFile(filepath.Join(far.home, "files", "far.txt"), []byte("far away"), 0o600); err != nil {
		t.Fatal(err)
	}
	body := map[string]any{"endpoint": map[string]any{"id": "far", "baseUrl": far.url, "token": far.token(t, "admin")}}
	if err := near.admin.Do(t.Context(), http.MethodPost, "/api/capability-router/connect", body, nil); err != nil {
		t.Fatal(err)
	}
	if err := near.ping(t, "10s"); err != nil {
		t.Errorf("through two servers: %v", err)
	}
	var out client.Invoked
	read := client.Invocation{
		Target: "fs.readText", Input: json.RawMessage(`{"path":"far.txt"}`),
		Select: map[string]string{"endpoint": "far"},
	}
	if err := near.admin.Invoke(t.Context(), read, &out); err != nil || !strings.Contains(string(out.Result), "far away") {
		t.Errorf(`a file of the far one: %s (%v); want no error, string(out.Result) with "far away"`, out.Result, err)
	}
	for name, n := range map[string]*node{"far": far, "near": near} {
		if got := n.records(t, "event=capability_executed&success=true"); len(got) != 2 {
			t.Errorf("%s has %d records of the two calls; want len(got) = 2", name, len(got))
		}
	}
	// The far one goes, and with it what came through it; the near one lives.
	far.terminate(t)
	if err := near.ping(t, "10s"); err == nil {
		t.Error("a call reached a server that is gone; want an error")
	}
	if err := near.admin.Invoke(t.Context(), client.Invocation{Target: "fs.list"}, &out); err != nil {
		t.Errorf("the near files: %v", err)
	}
}
