package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/endpoints/reference"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// TestWhatModulesShowIsReachable goes the way of a front end: from the list of
// views to the file, to a route, to the app bridge, and to an event.
func TestWhatModulesShowIsReachable(t *testing.T) {
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
	admin, agent := n.token(t, "admin"), n.token(t, "agent")

	var views struct {
		Views []struct{ ID, Module, Endpoint, BundleURL string }
	}
	if err := n.agent.Do(t.Context(), http.MethodGet, "/api/v1/views", nil, &views); err != nil || len(views.Views) != 1 {
		t.Fatalf("%v %+v; want no error, len(views.Views) = 1", err, views)
	}
	if v := views.Views[0]; v.Module != "field-notes" || v.Endpoint != "far" || v.BundleURL == "" {
		t.Errorf(`%+v; want v.Module = "field-notes", v.Endpoint = "far", v.BundleURL other than ""`, v)
	}
	file := n.request(t, "GET", views.Views[0].BundleURL, agent, "")
	if file.status != 200 || !strings.HasPrefix(file.header.Get("Content-Type"), "text/javascript") ||
		!router.MatchesIntegrity([]byte(file.body), file.header.Get(router.HeaderIntegrity)) {
		t.Errorf(`the bundle: %d %v; want file.status = 200, file.header.Get("Content-Type") beginning with "text/javascript", `+
			"router.MatchesIntegrity([]byte(file.body), file.header.Get(router.HeaderIntegrity))", file.status, file.header)
	}
	for _, path := range []string{"far/field-notes//x.js", "far/field-notes/../x.js", "far/field-notes/%2e%2e/x.js"} {
		if a := n.request(t, "GET", "/api/capability-router/assets/"+path, agent, ""); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s; want a.status = http.StatusBadRequest", path, a.status, a.body)
		}
	}
	for path, want := range map[string]int{"widgets": 2, "nav": 1, "apps": 1} {
		var out map[string][]json.RawMessage
		if err := n.agent.Do(t.Context(), http.MethodGet, "/api/v1/"+path, nil, &out); err != nil || len(out[path]) != want {
			t.Errorf("%s: %v, %d of %d; want no error, len(out[path]) = %v", path, err, len(out[path]), want, want)
		}
	}

	jsonBody := func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }
	if a := n.request(t, "POST", "/api/modules/field-notes/notes", admin, `{"text":"buy rope"}`, jsonBody); a.status != http.StatusCreated {
		t.Errorf("adding a note: %d %s; want a.status = http.StatusCreated", a.status, a.body)
	}
	if a := n.request(t, "GET", "/api/modules/field-notes/notes?q=rope", agent, ""); a.status != 200 ||
		!strings.Contains(a.body, `"total":1`) || a.header.Get("Content-Security-Policy") != "sandbox" {
		t.Errorf(`finding it: %d %s %v; want a.status = 200, a.body with "\"total\":1", a.header.Get("Content-Security-Policy") `+
			`= "sandbox"`, a.status, a.body, a.header)
	}
	if a := n.request(t, "POST", "/api/modules/device-tools/echo", admin, `{"a":[1]}`, jsonBody); a.status != 200 || a.body != `{"a":[1]}` {
		t.Errorf(`the bridge: %d %s; want a.status = 200, a.body = "{\"a\":[1]}"`, a.status, a.body)
	}
	if a := n.request(t, "GET", "/api/modules/device-tools/nothing", admin, ""); a.status != http.StatusNotFound {
		t.Errorf("what the bridge does not serve: %d %s; want a.status = http.StatusNotFound", a.status, a.body)
	}
	if a := n.request(t, "GET", "/api/modules/field-notes/notes", "", ""); a.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d; want a.status = http.StatusUnauthorized", a.status)
	}
	if a := n.request(t, "POST", "/api/v1/events/publish", admin,
		`{"event":"DEVICE_NOTICE","payload":{"text":"low battery"}}`); a.status != 200 || !strings.Contains(a.body, `"delivered":1`) {
		t.Errorf(`an event: %d %s; want a.status = 200, a.body with "\"delivered\":1"`, a.status, a.body)
	}
	n.terminate(t)
}

// publicShop is an endpoint whose one route wants to be public.
type publicShop struct{}

func (publicShop) Availability(context.Context) (router.Availability, error) {
	return router.Availability{Environment: "server", Available: true, Capabilities: router.Capabilities{Plugin: true}}, nil
}

func (publicShop) Invoke(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if method == "plugin.modules.list" {
		return json.RawMessage(`{"modules":[{"id":"shop","name":"shop","routes":[
			{"method":"GET","path":"/menu","public":true,"publicReason":"to be read"},
			{"method":"POST","path":"/orders","public":true,"publicReason":"a form","publicWrite":"anybody may order"}]}]}`), nil
	}
	var p struct{ Headers map[string]string }
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	seen, err := json.Marshal(p.Headers)
	return json.RawMessage(`{"status":200,"headers":{"x-inside":"1"},"body":` + string(seen) + `}`), err
}

// TestTheConfigurationOpensRoutesAndWithholdsHeaders goes from the variables
// through the real program: what is opened is a read for strangers and recorded
// as theirs, and without a rule nothing else is.
func TestTheConfigurationOpensRoutesAndWithholdsHeaders(t *testing.T) {
	t.Parallel()
	far := httptest.NewServer(router.Handler(router.RequireToken(secret.Value{}, publicShop{}), router.HandlerOptions{}))
	t.Cleanup(far.Close)
	const p = "JUNCTOR_ROUTER_"
	n := serve(t, t.TempDir(), p+"PUBLIC_ROUTES=far/shop:GET:/menu,far/shop:POST:/orders",
		p+"WITHHELD_REQUEST_HEADERS=x-tenant", p+"WITHHELD_ANSWER_HEADERS=X-Inside*")
	n.connect(t, "far", far.URL, true)
	header := func(r *http.Request) {
		r.Header.Set("X-Tenant", "t")
		r.Header.Set("X-Mine", "m")
	}
	a := n.request(t, "GET", "/api/modules/shop/menu", "", "", header)
	if a.status != 200 || strings.Contains(a.body, "x-tenant") || !strings.Contains(a.body, `"x-mine":"m"`) || a.header.Get("X-Inside") != "" {
		t.Errorf(`a stranger: %d %s %v; want a.status = 200, a.body without "x-tenant", a.body with "\"x-mine\":\"m\"", `+
			`a.header.Get("X-Inside") = ""`, a.status, a.body, a.header)
	}
	if a := n.request(t, "POST", "/api/modules/shop/orders", "", "{}"); a.status != http.StatusUnauthorized {
		t.Errorf("a stranger's write: %d %s; want a.status = http.StatusUnauthorized", a.status, a.body)
	}
	if a := n.request(t, "GET", "/api/v1/confirmations", n.token(t, "admin"), ""); strings.Contains(a.body, "apr_") {
		t.Errorf(`a stranger asked for an approval: %s; want a.body without "apr_"`, a.body)
	}
	admin := n.token(t, "admin")
	if a := n.request(t, "GET", "/api/v1/audit?event=capability_executed", admin, ""); !strings.Contains(a.body, `"public"`) {
		t.Errorf(`the record does not say who: %s; want a.body with "\"public\""`, a.body)
	}
	for path, want := range map[string]string{
		"saved": `"id":"far"`, "decisions": `"trustDecisions":[{"moduleId":"shop"`,
	} {
		if a := n.request(t, "GET", "/api/capability-router/"+path, admin, ""); a.status != 200 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s; want a.status = 200, a.body with %v", path, a.status, a.body, want)
		}
		if a := n.request(t, "GET", "/api/capability-router/"+path, n.token(t, "agent"), ""); a.status != http.StatusForbidden {
			t.Errorf("%s for an agent: %d %s; want a.status = http.StatusForbidden", path, a.status, a.body)
		}
	}
	n.terminate(t)
}
