package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/intake"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/upstreamsql"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		play(role)
		syscall.Exit(0) // os.Exit waits a second with the race detector
	}
	goleak.VerifyTestMain(m)
}

func recordOf(name string) record.Record {
	return record.Record{Name: name, Command: []string{"server"}, Confinement: record.Unconfined}
}

// far is an MCP server of a test, behind clients that speak to it in memory.
type far struct {
	mu       sync.Mutex
	features []string
	lists    map[ingest.Kind][]string
	refuse   error                 // connections
	listing  map[ingest.Kind]error // a list breaks off with it
	silent   bool                  // connections hang
	says     string                // instructions
	hangs    ingest.Kind           // a list that hangs
	answer   func(context.Context, upstream.Request) (json.RawMessage, error)
	clients  map[*near]bool
	made     int
	calls    []upstream.Request
}

func newFar() *far {
	return &far{
		features: []string{"tools"}, lists: make(map[ingest.Kind][]string), listing: make(map[ingest.Kind]error), clients: make(map[*near]bool),
		answer: func(_ context.Context, r upstream.Request) (json.RawMessage, error) {
			return json.RawMessage(`{"content":[{"type":"text","text":"ok"}],"params":` + string(r.Params) + `}`), nil
		},
	}
}

// offer replaces a list and tells of it.
func (f *far) offer(kind ingest.Kind, definitions ...string) {
	f.mu.Lock()
	f.lists[kind] = definitions
	clients := f.live()
	f.mu.Unlock()
	for _, c := range clients {
		if c.cfg.Changed != nil {
			c.cfg.Changed(kind)
		}
	}
}

func (f *far) live() (list []*near) {
	for c := range f.clients {
		list = append(list, c)
	}
	return list
}

// crash ends all connections, and refuses new ones with err unless it is nil.
func (f *far) crash(refuse error) {
	f.mu.Lock()
	f.refuse = refuse
	clients := f.live()
	f.mu.Unlock()
	for _, c := range clients {
		c.end(errors.New("it crashed"))
	}
}

func (f *far) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *far) counts() (made, live int, calls []upstream.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made, len(f.clients), slices.Clone(f.calls)
}

// near is a client of far.
type near struct {
	far  *far
	cfg  upstream.ClientConfig
	ctx  context.Context
	stop context.CancelFunc
}

func (f *far) dial(cfg upstream.ClientConfig) (upstream.Client, error) {
	c := &near{far: f, cfg: cfg}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

func (c *near) end(err error) {
	c.far.mu.Lock()
	was := c.far.clients[c]
	delete(c.far.clients, c)
	c.far.mu.Unlock()
	c.stop()
	if was && err != nil {
		c.cfg.Down(err)
	}
}

func (c *near) Connect(ctx context.Context) (upstream.Server, error) {
	c.far.mu.Lock()
	defer c.far.mu.Unlock()
	c.far.made++
	if c.far.silent {
		c.far.mu.Unlock()
		<-ctx.Done()
		c.far.mu.Lock()
		return upstream.Server{}, ctx.Err()
	}
	if c.far.refuse != nil {
		return upstream.Server{}, c.far.refuse
	}
	c.far.clients[c] = true
	return upstream.Server{Version: "2025-11-25", Name: "far", Release: "1.0", Instructions: c.far.says}, nil
}

func (c *near) Has(feature string) bool {
	c.far.mu.Lock()
	defer c.far.mu.Unlock()
	return slices.Contains(c.far.features, feature)
}

func (c *near) List(ctx context.Context, kind ingest.Kind, each func(json.RawMessage) error) (upstream.Page, error) {
	c.far.mu.Lock()
	list, err := slices.Clone(c.far.lists[kind]), c.far.listing[kind]
	hangs := c.far.hangs == kind
	c.far.mu.Unlock()
	if hangs {
		select {
		case <-ctx.Done():
		case <-c.ctx.Done():
		}
		return upstream.Page{}, errors.New("it hung")
	}
	for i, d := range list {
		if err != nil && i == len(list)/2 {
			break
		}
		if err := each(json.RawMessage(d)); err != nil {
			return upstream.Page{}, err
		}
	}
	return upstream.Page{}, err
}

func (c *near) Call(ctx context.Context, r upstream.Request) (json.RawMessage, error) {
	c.far.mu.Lock()
	c.far.calls = append(c.far.calls, r)
	answer := c.far.answer
	live := c.far.clients[c]
	c.far.mu.Unlock()
	lost := capability.Errorf(capability.CodeFailed, "call", "the connection was lost").With("connection_failed", "")
	if !live {
		return nil, lost
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	raw, err := answer(ctx, r)
	if c.ctx.Err() != nil {
		return nil, lost
	}
	return raw, err
}

func (c *near) Close() error {
	c.end(nil)
	return nil
}

func (c *near) Stderr() string {
	for _, pair := range c.cfg.Env {
		if strings.HasPrefix(pair, "PRINTED=") {
			return "panic: " + pair + "\n"
		}
	}
	return "a line of errors\n"
}

// vault is a secret store in memory.
type vault map[string]string

func (v vault) Get(name string) (secret.Value, error) {
	if s, ok := v[name]; ok {
		return secret.New(s), nil
	}
	return secret.Value{}, errors.New("no such secret")
}

// rig is a registry with everything that stands around it in a server.
type rig struct {
	testing.TB
	*upstream.Registry
	far     *far
	catalog *catalog.Catalog
	engine  *invoke.Engine
	log     *audit.Log
	db      *store.DB
	halt    func()
	rules   *policy.Policy
}

func newRig(t testing.TB, tune func(*upstream.Config)) *rig {
	t.Helper()
	return newRigOn(t, database(t), newFar(), tune)
}

func database(t testing.TB) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := upstreamsql.Tables().Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

func newRigOn(t testing.TB, db *store.DB, f *far, tune func(*upstream.Config)) *rig {
	t.Helper()
	r := &rig{TB: t, catalog: catalogtest.New(t), db: db, far: f}
	segments, err := segment.Open(t.TempDir(), segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if r.log, err = audit.Open(t.Context(), audit.Config{Segments: segments}); err != nil {
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
	cfg := upstream.Config{
		Store: upstreamsql.New(db), Secrets: vault{"key": "s3cret"}, Log: r.log, Dial: f.dial, Dir: filepath.Join(t.TempDir(), "upstreams"),
		FirstPause: time.Millisecond, People: rules,
	}
	r.rules = rules
	if tune != nil {
		tune(&cfg)
	}
	r.Registry = upstream.NewRegistry(cfg)
	pipeline := intake.New(intake.Config{Catalog: r.catalog, Log: r.log})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pipeline.Run(ctx, r.Registry) }()
	r.halt = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.halt)
	r.eventually("the registry runs", r.Running)
	return r
}

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

func (r *rig) add(name string, change func(*record.Record)) upstream.Status {
	r.Helper()
	rec := recordOf(name)
	if change != nil {
		change(&rec)
	}
	if rec.URL != "" {
		rec.Confinement = ""
	}
	s, err := r.Add(r.Context(), admin(), rec)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func (r *rig) call(who, session, kind, name, input string) (capability.Invocation, string, error) {
	r.Helper()
	inv := capability.Invocation{
		Surface: "test", Principal: capability.Principal{ID: who, Role: capability.RoleAdmin}, Session: session,
		Audience: capability.AudienceInternal,
		Target:   capability.Target{Member: capability.Member{Module: "mcp.far", Kind: kind, Name: name}}, Input: json.RawMessage(input),
	}
	reply, err := r.engine.Invoke(r.Context(), inv)
	return inv, string(reply.Result), err
}

func (r *rig) tool(name, input string) (string, error) {
	r.Helper()
	_, out, err := r.call("admin:root", "", "tool", name, input)
	return out, err
}

// entry is the published entry of a definition, nil if it is not published.
func (r *rig) entry(kind, name string) *catalog.Entry {
	list := r.catalog.Snapshot().Member(capability.Member{Module: "mcp.far", Kind: kind, Name: name})
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

func (r *rig) listed(names ...string) {
	r.Helper()
	r.eventually("these are listed: "+join(names), func() bool {
		var now []string
		for m := range r.catalog.Snapshot().Modules() {
			if m.Extension == "mcp.far" {
				for _, c := range m.Contributions {
					if c.Availability.Eligible() {
						now = append(now, c.Member.Kind+" "+c.Member.Name)
					}
				}
			}
		}
		slices.Sort(now)
		return slices.Equal(now, names)
	})
}

func join(names []string) string {
	data, _ := json.Marshal(names)
	return string(data)
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
		if ok {
			t.Fatalf("got %s/%s (%s), want %s/%s", e.Code, e.Reason, e.Message, code, reason)
		}
		t.Fatalf("got %v, want %s/%s", err, code, reason)
	}
	return e
}

func def(name, members string) string {
	doc := `{"name":"` + name + `","inputSchema":{"type":"object"}`
	if members != "" {
		doc += "," + members
	}
	return doc + "}"
}
