package endpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/junctor-run/junctor/internal/endpoints/reference"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is an HTTP server that can go and come back on the same port.
type host struct {
	t       testing.TB
	addr    string
	handler http.Handler
	srv     *http.Server
	done    chan struct{}
}

func serve(t testing.TB, h http.Handler) *host {
	t.Helper()
	s := &host{t: t, addr: "127.0.0.1:0", handler: h}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *host) start() {
	s.t.Helper()
	ln, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	s.srv = &http.Server{Handler: s.handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	s.done = make(chan struct{})
	go func(srv *http.Server, done chan struct{}) {
		defer close(done)
		_ = srv.Serve(ln)
	}(s.srv, s.done)
}

func (s *host) stop() {
	_ = s.srv.Close()
	<-s.done
}

func (s *host) url() string { return "http://" + s.addr }

const token = "t0ken"

// device is the reference endpoint behind HTTP.
func device(t testing.TB) *host {
	t.Helper()
	e, err := reference.New(reference.Config{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return serve(t, router.Handler(router.RequireToken(secret.New(token), e), router.HandlerOptions{}))
}

// answers is an endpoint that states what the test says.
type answers struct {
	mu      sync.Mutex
	modules string // manifests
	invoke  func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
}

func (a *answers) Availability(context.Context) (router.Availability, error) {
	return router.Availability{Environment: "server", Capabilities: router.Capabilities{Plugin: true}}, nil
}

func (a *answers) Invoke(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if method == "plugin.modules.list" {
		a.mu.Lock()
		defer a.mu.Unlock()
		return json.RawMessage(`{"modules":[` + a.modules + `]}`), nil
	}
	return a.invoke(ctx, method, params)
}

func (a *answers) offer(modules ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.modules = strings.Join(modules, ",")
}

func manifest(id, members string) string {
	doc := `{"id":"` + id + `","name":"` + id + `","version":"1","description":"d"`
	if members != "" {
		doc += "," + members
	}
	return doc + "}"
}

const oneAction = `"actions":[{"name":"GO","description":"goes"}]`

func scripted(t testing.TB, modules ...string) (*host, *answers) {
	t.Helper()
	a := new(answers)
	a.offer(modules...)
	a.invoke = func(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"data":{"params":` + string(params) + `}}`), nil
	}
	return serve(t, router.Handler(func(*http.Request) (router.Backend, error) { return a, nil }, router.HandlerOptions{})), a
}

// vault is a secret store in memory.
type vault struct {
	mu sync.Mutex
	m  map[string]string
	// full keeps it from taking anything; refuse has the catalog of a rig on it
	// refuse everything from the start.
	full, refuse atomic.Bool
}

func (v *vault) Set(name string, value []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.full.Load() {
		return errors.New("no space for secrets")
	}
	v.m[name] = string(value)
	return nil
}

func (v *vault) Get(name string) (secret.Value, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, ok := v.m[name]; ok {
		return secret.New(s), nil
	}
	return secret.Value{}, errors.New("no such secret")
}

func (v *vault) Remove(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.m, name)
	return nil
}

func (v *vault) len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.m)
}

// rig is a registry with everything that stands around it in a server.
type rig struct {
	testing.TB
	*endpoint.Registry
	catalog *catalog.Catalog
	engine  *invoke.Engine
	log     *audit.Log
	db      *store.DB
	vault   *vault
	halt    func()
	broken  atomic.Bool // the catalog refuses what is published
}

func newRig(t testing.TB, tune func(*endpoint.Config)) *rig {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return newRigOn(t, db, &vault{m: make(map[string]string)}, tune)
}

func newRigOn(t testing.TB, db *store.DB, v *vault, tune func(*endpoint.Config)) *rig {
	t.Helper()
	r := &rig{TB: t, catalog: catalogtest.New(t), db: db, vault: v}
	r.broken.Store(v.refuse.Load())
	files, err := segment.Open(t.TempDir(), segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if r.log, err = audit.Open(t.Context(), audit.Config{Segments: files}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.log.Close() })
	rules, err := policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "all.cedar", Text: []byte(`permit (principal, action, resource);`)}}, Store: db, Log: r.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.engine = invoke.New(invoke.Config{Catalog: r.catalog, Policy: rules, Log: r.log})
	cfg := endpoint.Config{
		Store: endpoint.NewSQLStore(db.SQL()), Secrets: v, Log: r.log, SyncInterval: time.Hour,
		Call: func(ctx context.Context, inv capability.Invocation) (capability.Result, error) {
			reply, err := r.engine.Invoke(ctx, inv)
			return capability.Result{Value: reply.Result}, err
		},
	}
	if tune != nil {
		tune(&cfg)
	}
	r.Registry = endpoint.NewRegistry(cfg)
	pipeline := intake.New(intake.Config{Catalog: r.catalog, Log: r.log})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pipeline.Run(ctx, refusing{r}) }()
	r.halt = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.halt)
	r.eventually("the registry runs", func() bool {
		_, err := r.Sync(t.Context(), admin(), "")
		return err == nil
	})
	return r
}

// refusing is the registry before a catalog that takes nothing while it is broken.
type refusing struct{ *rig }

func (s refusing) Run(ctx context.Context, publish func(capability.Batch) error) error {
	return s.Registry.Run(ctx, func(b capability.Batch) error {
		if s.broken.Load() {
			return errors.New("the catalog takes nothing")
		}
		return publish(b)
	})
}

// eventually waits for what another goroutine does.
func (r *rig) eventually(what string, ok func() bool) {
	r.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("never: %s", what)
		}
	}
}

func admin() capability.Principal {
	return capability.Principal{ID: "admin:root", Role: capability.RoleAdmin}
}

func (r *rig) connect(id string, h *host) endpoint.Synced {
	r.Helper()
	_, synced, err := r.Connect(r.Context(), endpoint.Request{ID: id, BaseURL: h.url(), Token: secret.New(token), By: admin()})
	if err != nil {
		r.Fatal(err)
	}
	return synced
}

func (r *rig) call(target, input string) (string, error) {
	r.Helper()
	t, err := capability.ParseTarget(target)
	if err != nil {
		r.Fatal(err)
	}
	reply, err := r.engine.Invoke(r.Context(), capability.Invocation{
		Surface: "test", Principal: admin(), Audience: capability.AudienceInternal, Target: t, Input: json.RawMessage(input),
	})
	return string(reply.Result), err
}

func (r *rig) must(target, input string) string {
	r.Helper()
	out, err := r.call(target, input)
	if err != nil {
		r.Fatalf("%s: %v", target, err)
	}
	return out
}

func (r *rig) state(id string) capability.State {
	r.Helper()
	s, err := r.Show(id)
	if err != nil {
		r.Fatal(err)
	}
	return s.State
}

func (r *rig) events(kind audit.Event) int {
	r.Helper()
	lines, err := r.log.Query(r.Context(), audit.Query{Event: kind, Limit: 1000})
	if err != nil {
		r.Fatal(err)
	}
	return len(lines)
}

func fails(t testing.TB, err error, code capability.Code, reason string) *capability.Error {
	t.Helper()
	e, ok := errors.AsType[*capability.Error](err)
	if !ok || e.Code != code || e.Reason != reason {
		t.Fatalf("got %#v, want %s/%s", err, code, reason)
	}
	return e
}

// endless is a body without an end.
type endless struct{ sent *int64 }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	*e.sent += int64(len(p))
	return len(p), nil
}

func readAll(req *http.Request) ([]byte, error) { return io.ReadAll(req.Body) }

type readCloser struct{ io.Reader }

func (readCloser) Close() error { return nil }

// ptyEndpoint offers pty.command.run and nothing else.
func ptyEndpoint(a *answers) http.Handler {
	return router.Handler(func(*http.Request) (router.Backend, error) { return ptyOnly{a}, nil }, router.HandlerOptions{})
}

type ptyOnly struct{ *answers }

func (ptyOnly) Availability(context.Context) (router.Availability, error) {
	return router.Availability{Environment: "server", Capabilities: router.Capabilities{PTY: true}}, nil
}
