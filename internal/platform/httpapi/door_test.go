package httpapi_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/secret"
)

var update = flag.Bool("update", false, "write the golden files")

type rig struct {
	*httpapi.Door
	log                *audit.Log
	admin, agent, task string // tokens
}

func newRig(t *testing.T) rig {
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
	r := rig{Door: httpapi.New(p, log, nil), log: log}
	for role, to := range map[capability.Role]*string{
		capability.RoleAdmin: &r.admin, capability.RoleAgent: &r.agent,
		capability.RoleTask: &r.task,
	} {
		_, v, err := p.CreateToken(t.Context(), capability.Principal{ID: "admin:setup"}, policy.TokenRequest{Role: role, Name: string(role)})
		if err != nil {
			t.Fatal(err)
		}
		*to = v.Reveal()
	}
	return r
}

func get(h http.Handler, method, auth, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, "/api/v1/x", strings.NewReader(body))
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func TestEveryCodeHasOneAnswer(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, row := range capability.CodeTable() {
		e := capability.Errorf(row.Code, "op", "what happened").With("reason", "what to do").Detail("k", "v")
		if row.Code == capability.CodeOverloaded {
			e.RetryAfter = 1500 * time.Millisecond
		}
		w := httptest.NewRecorder()
		httpapi.WriteError(w, fmt.Errorf("wrapped: %w", e))
		fmt.Fprintf(&b, "%d %q %q %s\n", w.Code, w.Header().Get("WWW-Authenticate"), w.Header().Get("Retry-After"), w.Body)
	}
	for _, err := range []error{errors.New("inner text"), context.Canceled, context.DeadlineExceeded} {
		w := httptest.NewRecorder()
		httpapi.WriteError(w, err)
		fmt.Fprintf(&b, "%d %s\n", w.Code, w.Body)
	}
	w := httptest.NewRecorder()
	httpapi.WriteJSON(w, http.StatusOK, func() {}) // no JSON form
	fmt.Fprintf(&b, "%d %s\n", w.Code, w.Body)
	path := filepath.Join("testdata", "errors.golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("b.String() differs from want (-want +got):\n%s", d)
	}
}

func TestOnlyAGoodTokenOpensTheDoor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var got capability.Principal
	h := r.Guard(func(w http.ResponseWriter, _ *http.Request, who capability.Principal) error {
		got = who
		httpapi.WriteJSON(w, http.StatusCreated, map[string]int{"b": 1, "a": 2})
		return nil
	})
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER  "} {
		w := get(h, http.MethodGet, scheme+r.agent, "")
		if w.Code != http.StatusCreated || got.ID != "agent:agent" || w.Body.String() != `{"a":2,"b":1}` ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf(`%d %s %+v; want w.Code = http.StatusCreated, got.ID = "agent:agent", w.Body.String() = `+
				`"{\"a\":2,\"b\":1}", w.Header().Get("Content-Type") = "application/json"`, w.Code, w.Body, got)
		}
	}
	for _, auth := range []string{
		"", "Bearer", "Bearer ", "Basic " + r.agent, r.agent, "Bearer " + secret.NewToken('a'),
		"Bearer " + r.agent + "x", "Bearer x y",
	} {
		if w := get(h, http.MethodGet, auth, ""); w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf(`%q: %d %s; want w.Code = http.StatusUnauthorized, w.Header().Get("WWW-Authenticate") other than ""`,
				auth, w.Code, w.Body)
		}
	}
	if n := r.count(t, audit.LoginFailed); n != 7 {
		t.Errorf("%d failed logins on record; a request without credentials is none; want n = 7", n)
	}
	for range 500 {
		get(h, http.MethodGet, "Bearer guess", "")
	}
	if n := r.count(t, audit.LoginFailed); n > 60 {
		t.Errorf("%d records of one who guesses; want n at most 60", n)
	}
}

// TestTheTokenOfASession: a session token is accepted at /mcp and by the route that resolves
// a session's owner. No other Door accepts it, including one that accepts every role.
func TestTheTokenOfASession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	any := r.Guard(func(http.ResponseWriter, *http.Request, capability.Principal) error { return nil })
	for path, want := range map[string]int{
		"/mcp": 200, "/mcp/coder": 200, "/mcpx": 403, "/api/mcp": 403, "/v1/capabilities": 403, "/a2a": 403, "/api/v1/status": 403,
		"/api/cmp/mcp": 403, "//mcp": 403, "/": 403,
	} {
		req := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		req.Header.Set("Authorization", "Bearer "+r.task)
		w := httptest.NewRecorder()
		if any.ServeHTTP(w, req); w.Code != want || want == 403 && !strings.Contains(w.Body.String(), "task_token") {
			t.Errorf(`%s: %d %s; want w.Code = %v, not (want == 403 && !strings.Contains(w.Body.String(), "task_token"))`,
				path, w.Code, w.Body, want)
		}
		if session, err := r.Task(req); session != "task" || err != nil {
			t.Errorf(`%q %v; want session = "task", no error`, session, err)
		}
		req.Header.Set("Authorization", "Bearer "+r.admin)
		if _, err := r.Task(req); capability.CodeOf(err) != capability.CodeUnauthenticated {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnauthenticated", err)
		}
	}
}

func (r rig) count(t *testing.T, ev audit.Event) int {
	t.Helper()
	lines, err := r.log.Query(t.Context(), audit.Query{Event: ev, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if strings.Contains(string(l), "jct_") {
			t.Errorf(`a token was logged: %s; want string(l) without "jct_"`, l)
		}
	}
	return len(lines)
}

func TestRolesAreAskedForBeforeTheHandler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ran := 0
	h := r.Guard(func(http.ResponseWriter, *http.Request, capability.Principal) error { ran++; return nil }, capability.RoleAdmin,
		capability.RoleOperator)
	if w := get(h, http.MethodPost, "Bearer "+r.agent, ""); w.Code != http.StatusForbidden || ran != 0 ||
		r.count(t, audit.PermissionDenied) != 1 {
		t.Errorf("%d %s; want w.Code = http.StatusForbidden, ran = 0, r.count(t, audit.PermissionDenied) = 1", w.Code, w.Body)
	}
	if w := get(h, http.MethodPost, "Bearer "+r.admin, ""); w.Code != http.StatusOK || ran != 1 {
		t.Errorf("%d %s; want w.Code = http.StatusOK, ran = 1", w.Code, w.Body)
	}
}

func TestBodiesAreStrictAndBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.Guard(func(w http.ResponseWriter, req *http.Request, _ capability.Principal) error {
		var in struct {
			Name string `json:"name"`
			List []int  `json:"list"`
		}
		if err := httpapi.Decode(w, req, &in); err != nil {
			return err
		}
		httpapi.WriteJSON(w, http.StatusOK, in.Name)
		return nil
	})
	for body, want := range map[string]string{
		``:                 `200 ""`,
		`{"name":"x"}`:     `200 "x"`,
		`{"nam":1}`:        `400 {"error":{"code":"invalid_input","message":"/nam: is not a known field","details":{"field":"/nam"}}}`,
		`{"name":7}`:       `400 {"error":{"code":"invalid_input","message":"/name: is a JSON number where a string is needed","details":{"field":"/name"}}}`,
		`{"list":[1,"x"]}`: `400 {"error":{"code":"invalid_input","message":"/list/1: is a JSON string where a number is needed","details":{"field":"/list/1"}}}`,
		`{"name":"x"`:      `400 {"error":{"code":"invalid_input","message":"malformed JSON at byte 11: unexpected EOF","details":{"offset":11}}}`,
		`{"name":"` + strings.Repeat("x", httpapi.MaxBody) + `"}`: `413 {"error":{"code":"too_large","message":"the body is larger than 1048576 bytes"}}`,
	} {
		w := get(h, http.MethodPost, "Bearer "+r.agent, body)
		if got := fmt.Sprintf("%d %s", w.Code, w.Body); got != want {
			t.Errorf("%.40s: %s, want %s", body, got, want)
		}
	}
	req := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("{"), broken{}))
	if _, err := httpapi.ReadBody(httptest.NewRecorder(), req, 100); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("reset") }

func TestStreamsInBothForms(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"text/event-stream":    "id: 7\nevent: step\ndata: {\"a\":1}\n\ndata: {}\n\n: still here\n\n",
		"":                     "id: 7\nevent: step\ndata: {\"a\":1}\n\ndata: {}\n\n: still here\n\n",
		"application/x-ndjson": "{\"a\":1}\n{}\n\n",
	} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		s := httpapi.NewStream(w, req)
		backing := []byte(`{"a":1}!`)
		err := errors.Join(s.Send("7", "step", backing[:7]), s.Send("", "", []byte(`{}`)), s.Beat())
		if err != nil || w.Body.String() != want || !w.Flushed || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf(`%s: %q %v; want no error, w.Body.String() = %v, w.Flushed = true, w.Header().Get("Cache-Control") = "no-store"`,
				accept, w.Body, err, want)
		}
		if string(backing) != `{"a":1}!` {
			t.Errorf(`the caller's bytes became %s; want string(backing) = "{\"a\":1}!"`, backing)
		}
	}
}

// provider is an authorization server whose tokens may end.
type provider struct{ ended bool }

func (p *provider) Principal(context.Context, string) (capability.Principal, error) {
	if p.ended {
		return capability.Principal{}, errors.New("expired")
	}
	return capability.Principal{ID: "agent:x", Role: capability.RoleAgent}, nil
}

func (*provider) ScopesFor(capability.Effect) []string { return nil }

func TestAStreamEndsWithItsAccessToken(t *testing.T) {
	t.Parallel()
	d, p := httpapi.New(nil, nil, nil), &provider{}
	d.UseOAuth(p, "https://x")
	r := httptest.NewRequest(http.MethodGet, "/mcp", http.NoBody)
	r.Header.Set("Authorization", "Bearer eyJ.access.token")
	if _, err := d.Principal(r); err != nil {
		t.Fatalf("Principal: got %v, want no error", err)
	}
	w := httptest.NewRecorder()
	s := httpapi.NewStream(w, r)
	if err := s.Send("1", "message", []byte(`{}`)); err != nil {
		t.Errorf("while the token is valid: got %v, want no error", err)
	}
	p.ended = true
	if err := s.Send("2", "message", []byte(`{}`)); err == nil || strings.Contains(w.Body.String(), "id: 2") {
		t.Errorf("after its end: got %v and %q, want an error and no event", err, w.Body)
	}
}
