package routerserve_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/intake"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/endpoints/routerserve"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// remote is an endpoint that keeps what it was asked and answers what it is told.
type remote struct {
	manifest string

	mu     sync.Mutex
	asked  []string // "method params"
	answer map[string]string
}

func (e *remote) Availability(context.Context) (router.Availability, error) {
	return router.Availability{Environment: "server", Available: true, Capabilities: router.Capabilities{Plugin: true}}, nil
}

func (e *remote) Invoke(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if method == "plugin.modules.list" {
		return json.RawMessage(`{"modules":[` + e.manifest + `]}`), nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, method+" "+string(params))
	if out, ok := e.answer[method]; ok {
		return json.RawMessage(out), nil
	}
	return nil, capability.Errorf(capability.CodeFailed, "remote", "nothing is prepared for %s", method)
}

func (e *remote) say(method, result string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer[method] = result
}

// last is the latest call's parameters.
func (e *remote) last() (method string, params map[string]any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asked) == 0 {
		return "", nil
	}
	method, raw, _ := strings.Cut(e.asked[len(e.asked)-1], " ")
	_ = json.Unmarshal([]byte(raw), &params)
	return method, params
}

func (e *remote) calls() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asked)
}

// stack is the surface with everything behind it, down to an endpoint over HTTP.
type stack struct {
	*testing.T
	*remote
	url                string
	log                *audit.Log
	admin, agent, node string // tokens; a node may call nothing
}

// none is a registry of which the tests need nothing.
type none struct{ routerserve.Registry }

func (none) Down() []routerserve.EndpointError { return nil }

// publicRule lets strangers call what writes in one module, where it is opened.
const publicRule = `
@id("strangers-order")
permit (principal == Principal::"public", action, resource in Module::"remote.shop");`

const manifestHead = `{"id":"shop","name":"@acme/shop","version":"1","description":"d",`

func newStack(t *testing.T, members string, options ...func(*routerserve.Config)) *stack {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "junctor.db"))
	ok(t, err)
	files, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	ok(t, err)
	log, err := audit.Open(t.Context(), audit.Config{Segments: files, Key: make([]byte, 32)})
	ok(t, err)
	pol, err := policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "default.cedar", Text: []byte(policy.DefaultRules() + publicRule)}}, Store: db, Log: log,
	})
	ok(t, err)
	rg := &stack{T: t, log: log, remote: &remote{manifest: manifestHead + members + "}", answer: map[string]string{"plugin.lifecycle.call": `{"ok":true}`}}}
	root := capability.Principal{ID: "admin:root", Role: capability.RoleAdmin}
	for role, to := range map[capability.Role]*string{
		capability.RoleAdmin: &rg.admin, capability.RoleAgent: &rg.agent,
		capability.RoleNode: &rg.node,
	} {
		_, value, err := pol.CreateToken(t.Context(), root, policy.TokenRequest{Role: role, Name: string(role)})
		ok(t, err)
		*to = value.Reveal()
	}
	cat := catalogtest.New(t)
	engine := invoke.New(invoke.Config{Catalog: cat, Policy: pol, Log: log, Outcomes: db})
	registry := endpoint.NewRegistry(endpoint.Config{Log: log, SyncInterval: time.Hour})
	pipeline := intake.New(intake.Config{Catalog: cat, Log: log, Changed: func(catalog.Change) { pol.CatalogChanged() }})
	runCtx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pipeline.Run(runCtx, registry) }()

	far := httptest.NewServer(router.Handler(router.RequireToken(secret.New("far"), rg.remote), router.HandlerOptions{}))
	cfg := routerserve.Config{Door: httpapi.New(pol, log, nil), Engine: engine, Catalog: cat, Registry: none{}, MaxBody: 1 << 20}
	for _, option := range options {
		option(&cfg)
	}
	surface := routerserve.New(cfg)
	mux := http.NewServeMux()
	surface.Routes(mux)
	near := httptest.NewServer(surface.Uncleaned(mux))
	rg.url = near.URL
	t.Cleanup(func() {
		stop()
		ok(t, <-ended)
		near.Close()
		far.Close()
		_ = log.Close()
		ok(t, db.Close())
		http.DefaultClient.CloseIdleConnections()
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // until the registry runs
		_, _, err = registry.Connect(t.Context(), endpoint.Request{ID: "far", BaseURL: far.URL, Token: secret.New("far"), By: root})
		if err == nil {
			return rg
		}
		if time.Now().After(end) {
			t.Fatalf("%v; want not time.Now().After(end)", err)
		}
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reply is an HTTP answer, read.
type reply struct {
	status int
	header http.Header
	body   string
}

// do sends a request whose path goes out as it is written.
func (rg *stack) do(method, path, token, body string, headers ...string) reply {
	rg.Helper()
	req, err := http.NewRequestWithContext(rg.Context(), method, rg.url+path, strings.NewReader(body))
	ok(rg, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	ok(rg, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	ok(rg, err)
	return reply{resp.StatusCode, resp.Header, string(data)}
}

func (r reply) want(t testing.TB, what string, status int, parts ...string) {
	t.Helper()
	if r.status != status {
		t.Errorf("%s: status %d, want %d: %s", what, r.status, status, r.body)
	}
	for _, part := range parts {
		if !strings.Contains(r.body, part) {
			t.Errorf("%s: %q is not in %s; want r.body with %v", what, part, r.body, part)
		}
	}
}

func assetResult(path, contentType, body, integrity string) string {
	out, _ := router.EncodeAsset(router.Asset{Path: path, ContentType: contentType, Body: []byte(body), Integrity: integrity})
	return string(out)
}
