package routerserve_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/endpoints/routerserve"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
)

// registry notes what it is asked and answers what the test says.
type registry struct {
	routerserve.Registry
	got  routerserve.ConnectRequest
	done routerserve.Connected
	err  error
}

func (r *registry) Connect(_ context.Context, _ capability.Principal, req routerserve.ConnectRequest) (routerserve.Connected, error) {
	r.got = req
	return r.done, r.err
}

func (r *registry) Show(id string) (endpoint.Status, error) {
	return endpoint.Status{}, capability.Errorf(capability.CodeNotFound, "endpoints", "no endpoint %q", id).With("endpoint_not_found",
		"list them")
}

// TestUnloadMissingIsPassedOn: only what is literally false keeps modules that an
// endpoint no longer lists.
func TestUnloadMissingIsPassedOn(t *testing.T) {
	r := newRig(t)
	for text, keep := range map[string]bool{`false`: true, `true`: false, `"false"`: false, `null`: false} {
		status, out := r.ask("POST", "/api/capability-router/connect", r.admin, `{"endpoint":{"baseUrl":"http://h"},"unloadMissing":`+text+`}`)
		if status != 200 || r.got.KeepMissing != keep || out["warnings"] != nil {
			t.Errorf(`%s: %d %v, keeps: %t; want status = 200, r.got.KeepMissing = %v, out["warnings"] = nil`,
				text, status, out, r.got.KeepMissing, keep)
		}
	}
}

func (r *registry) List() []endpoint.Status { return nil }

type rig struct {
	*registry
	mux          *http.ServeMux
	admin, agent string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	segments, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), audit.Config{Segments: segments})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	p, err := policy.New(t.Context(), policy.Config{Store: db, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{registry: new(registry), mux: http.NewServeMux()}
	for role, to := range map[capability.Role]*string{capability.RoleAdmin: &r.admin, capability.RoleAgent: &r.agent} {
		_, v, err := p.CreateToken(t.Context(), capability.Principal{ID: "admin:setup"}, policy.TokenRequest{Role: role, Name: string(role)})
		if err != nil {
			t.Fatal(err)
		}
		*to = v.Reveal()
	}
	routerserve.New(routerserve.Config{Door: httpapi.New(p, log, nil), Registry: r.registry, MaxBody: 1 << 20}).Routes(r.mux)
	return r
}

func (r *rig) ask(method, path, token, body string) (int, map[string]any) {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, req)
	var out map[string]any
	_ = json.Unmarshal(w.Body.Bytes(), &out)
	return w.Code, out
}

const connectPath = "/api/capability-router/connect"

func TestConnectAnswersInTheOriginalsForm(t *testing.T) {
	t.Parallel()
	sync := map[string]any{"registered": []any{"p"}, "reloaded": []any{}, "unloaded": []any{}, "skipped": []any{}, "trustDecisions": []any{}}
	at := map[string]any{"id": "e", "baseUrl": "http://h", "hasToken": true}
	const cloud = `"cloud":{"cloudApiBase":"https://c","authToken":"k","name":"n"`
	for body, want := range map[string]map[string]any{
		`{"endpoint":{"baseUrl":"http://h"}}`:                                     {"mode": "endpoint", "persisted": true},
		`{"endpoint":{"baseUrl":"http://h"},"provider":"direct","persist":false}`: {"mode": "endpoint", "persisted": false},
		`{"endpoint":{"baseUrl":"http://h"},"provider":null,"persist":"no"}`:      {"mode": "endpoint", "persisted": true},
		`{"endpoint":{"baseUrl":"http://h"},"provider":"e2b"}`:                    {"mode": "e2b", "provider": "e2b", "persisted": true},
		`{"endpoint":{"baseUrl":"http://h"},"provider":"home-machine"}`: {
			"mode": "home-machine", "provider": "home-machine",
			"persisted": true,
		},
		`{` + cloud + `}}`: {"mode": "cloud", "agentId": "a1", "jobId": "j1", "persisted": true},
		`{"endpoint":{"baseUrl":"http://h","colour":1}}`: {
			"mode": "endpoint", "persisted": true,
			"warnings": []any{"ignored: /endpoint/colour: is not a known field"},
		},
	} {
		r := newRig(t)
		r.done = routerserve.Connected{
			ID: "e", BaseURL: "http://h", HasToken: true, AgentID: "a1", JobID: "j1",
			Sync: endpoint.Synced{Registered: []string{"p"}},
		}
		want["success"], want["endpoint"], want["sync"] = true, at, sync
		status, got := r.ask(http.MethodPost, connectPath, r.admin, body)
		if d := cmp.Diff(want, got); status != http.StatusOK || d != "" {
			t.Errorf(`%s: %d %s; want status = http.StatusOK, d = ""`, body, status, d)
		}
	}
}

func TestConnectPassesOnWhatWasAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ask(http.MethodPost, connectPath, r.admin, `{"endpoint":{"id":" e ","baseUrl":"http://h","token":" t "},"requestTimeoutMs":1500,"allowedModuleIds":["m"],"trustPolicy":{"strictNames":true}}`)
	got := r.got
	if got.ID != "e" || got.BaseURL != "http://h" || got.Token.Reveal() != "t" || got.Timeout != 1500*time.Millisecond ||
		string(got.AllowedModuleIDs) != `["m"]` || string(got.TrustPolicy) != `{"strictNames":true}` {
		t.Errorf(`%+v; want got.ID = "e", got.BaseURL = "http://h", got.Token.Reveal() = "t", got.Timeout = 1500 * `+
			`time.Millisecond, string(got.AllowedModuleIDs) = "[\"m\"]", string(got.TrustPolicy) = "{\"strictNames\":true}"`, got)
	}
	r.ask(http.MethodPost, connectPath, r.admin, `{"cloud":{"cloudApiBase":"https://c","authToken":"k","name":"n","bio":["b"],"endpointId":"i","token":"t","timeoutMs":5,"pollIntervalMs":6,"allowedModuleIds":["m"],"trustPolicy":{}}}`)
	got = r.got
	if c := got.Cloud; c == nil || c.APIBase != "https://c" || c.AuthToken.Reveal() != "k" || c.Name != "n" || len(c.Bio) != 1 ||
		c.Timeout != 5*time.Millisecond || c.PollInterval != 6*time.Millisecond ||
		got.ID != "i" || got.Token.Reveal() != "t" || string(got.AllowedModuleIDs) != `["m"]` || string(got.TrustPolicy) != `{}` {
		t.Errorf("%+v", got)
	}
}

func TestConnectRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const at = `"endpoint":{"baseUrl":"http://h"}`
	const cloud = `"cloud":{"cloudApiBase":"https://c","authToken":"k","name":"n"`
	for body, says := range map[string]string{
		``: "", `[]`: "", `null`: "object", `{`: "", `{}`: "endpoint", `{"provider":"direct"}`: "endpoint",
		`{` + at + `,` + cloud + `}}`: "not both", `{"endpoint":null}`: "objects", `{"cloud":null}`: "objects",
		`{"endpoint":null,"cloud":null}`:                                     "not both",
		`{"endpoint":"http://h"}`:                                            "/endpoint",
		`{"endpoint":{}}`:                                                    "baseUrl",
		`{"endpoint":{"baseUrl":7}}`:                                         "/endpoint/baseUrl",
		`{"endpoint":{"baseUrl":"http://h","id":" "}}`:                       "endpoint.id",
		`{"endpoint":{"baseUrl":"http://h","token":""}}`:                     "endpoint.token",
		`{` + at + `,"provider":7}`:                                          "/provider",
		`{` + at + `,"requestTimeoutMs":0}`:                                  "requestTimeoutMs",
		`{` + at + `,"requestTimeoutMs":-5}`:                                 "requestTimeoutMs",
		`{` + at + `,"requestTimeoutMs":1.5}`:                                "requestTimeoutMs",
		`{` + at + `,"requestTimeoutMs":"5"}`:                                "requestTimeoutMs",
		`{` + at + `,"requestTimeoutMs":null}`:                               "requestTimeoutMs",
		`{` + at + `,"requestTimeoutMs":3600001}`:                            "requestTimeoutMs",
		`{"cloud":{}}`:                                                       "cloudApiBase",
		`{"cloud":{"cloudApiBase":"https://c","authToken":" ","name":"n"}}`:  "authToken",
		`{"cloud":{"cloudApiBase":"https://c","authToken":"k"}}`:             "name",
		`{` + cloud + `,"timeoutMs":0}}`:                                     "cloud.timeoutMs",
		`{` + cloud + `,"pollIntervalMs":-1}}`:                               "cloud.pollIntervalMs",
		`{` + cloud + `,"bio":"x"}}`:                                         "/cloud/bio",
		`{` + cloud + `,"endpointId":""}}`:                                   "cloud.endpointId",
		`{` + cloud + `,"token":" "}}`:                                       "cloud.token",
		`{` + cloud + `,"allowedModuleIds":["a"]},"allowedModuleIds":["a"]}`: "allowedModuleIds is given twice",
		`{` + cloud + `,"trustPolicy":{}},"trustPolicy":{}}`:                 "trustPolicy is given twice",
	} {
		status, got := r.ask(http.MethodPost, connectPath, r.admin, body)
		message, ok := got["error"].(string)
		if status != http.StatusBadRequest || !ok || got["code"] != "invalid_input" || !strings.Contains(message, says) {
			t.Errorf("%s: %d %v, want %q", body, status, got, says)
		}
	}
	if r.got.BaseURL != "" || r.got.Cloud != nil {
		t.Errorf(`one of them got through: %+v; want r.got.BaseURL = "", r.got.Cloud = nil`, r.got)
	}
	if status, got := r.ask(http.MethodPost, connectPath, r.admin, `{"x":"`+strings.Repeat("x", 1<<20)+
		`"}`); status != http.StatusRequestEntityTooLarge || got["code"] != "too_large" {
		t.Errorf(`%d %v; want status = http.StatusRequestEntityTooLarge, got["code"] = "too_large"`, status, got)
	}
}

func TestFailuresAreAMessageWithTheRestBeside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const good = `{"endpoint":{"baseUrl":"http://h"}}`
	for _, c := range []struct {
		err    *capability.Error
		status int
	}{
		{capability.Errorf(capability.CodeDenied, "x", "not trusted").With("module_not_trusted", "hint").Detail("trustDecision", "d"), 400},
		{capability.Errorf(capability.CodeUnavailable, "x", "nobody listens").With("connection_failed", "hint"), 400},
		{capability.Errorf(capability.CodeConflict, "x", "taken"), 400},
		{capability.Errorf(capability.CodeTooLarge, "endpoints.ask", "its answer is too large"), 400},
		{capability.Errorf(capability.CodeUnavailable, "x", "stopping").With("service_unavailable", "again"), 503},
		{capability.Errorf(capability.CodeInternal, "x", "broken"), 500},
	} {
		r.err = c.err
		status, got := r.ask(http.MethodPost, connectPath, r.admin, good)
		want := map[string]any{"error": c.err.Message, "code": string(c.err.Code)}
		if c.err.Reason != "" {
			want["reason"], want["hint"] = c.err.Reason, c.err.Hint
		}
		if c.err.Details != nil {
			want["details"] = c.err.Details
		}
		if d := cmp.Diff(want, got); status != c.status || d != "" {
			t.Errorf(`%d %s; want status = %v, d = ""`, status, d, c.status)
		}
	}
	for _, c := range []struct {
		method, path, token string
		status              int
		code                string
	}{
		{"POST", connectPath, "", 401, "unauthenticated"},
		{"POST", connectPath, r.agent, 403, "denied"},
		{"GET", "/api/capability-router/endpoints", "wrong", 401, "unauthenticated"},
		{"GET", "/api/capability-router/endpoints/x", r.admin, 404, "not_found"},
	} {
		status, got := r.ask(c.method, c.path, c.token, good)
		if _, ok := got["error"].(string); status != c.status || got["code"] != c.code || !ok {
			t.Errorf(`%s %s: %d %v; want status = %v, got["code"] = %v, ok = true`, c.method, c.path, status, got, c.status, c.code)
		}
	}
}
