package invoke_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// breakable are real segments on a disk that fails on demand.
type breakable struct {
	audit.Segments
	broken, failNextSync, lazy atomic.Bool
	lines                      atomic.Int64
	durable                    atomic.Int64 // lines on the disk
}

var errDisk = errors.New("disk full")

func (b *breakable) Append(lines []byte) error {
	if b.broken.Load() {
		return errDisk
	}
	err := b.Segments.Append(lines)
	if err == nil {
		b.lines.Add(int64(bytes.Count(lines, []byte("\n"))))
	}
	return err
}

func (b *breakable) Sync() error {
	if b.broken.Load() || b.failNextSync.Swap(false) {
		return errDisk
	}
	if b.lazy.Load() {
		return nil
	}
	n := b.lines.Load()
	err := b.Segments.Sync()
	if err == nil {
		b.durable.Store(n)
	}
	return err
}

func (b *breakable) Rotate(header []byte) (uint64, error) {
	if b.broken.Load() {
		return 0, errDisk
	}
	return b.Segments.Rotate(header)
}

// rig is an engine on the real store, the real log and the real policy.
type rig struct {
	testing.TB
	engine   *invoke.Engine
	catalog  *catalog.Catalog
	policy   *policy.Policy
	log      *audit.Log
	db       *store.DB
	segments *breakable
	counts   *counter
	dir      string
}

type counter struct {
	mu  sync.Mutex
	all []invoke.Ended
}

func (c *counter) Finished(e invoke.Ended) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, e)
}

func (c *counter) ended() []invoke.Ended {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

type options struct {
	mode  audit.Mode
	rules string
	now   func() time.Time
	tune  func(*invoke.Config)
}

func newRig(t testing.TB, o options) *rig {
	t.Helper()
	r := &rig{TB: t, dir: t.TempDir(), counts: new(counter)}
	var err error
	if r.db, err = store.Open(t.Context(), filepath.Join(r.dir, "junctor.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	files, err := segment.Open(filepath.Join(r.dir, "audit"), segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.segments = &breakable{Segments: files}
	if r.log, err = audit.Open(t.Context(), audit.Config{Segments: r.segments, Mode: o.mode, Key: make([]byte, 32)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.log.Close() })
	if o.rules == "" {
		o.rules = policy.DefaultRules()
	}
	r.policy, err = policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "rules.cedar", Text: []byte(o.rules)}}, Store: r.db, Log: r.log, Now: o.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.catalog = catalogtest.New(t)
	cfg := invoke.Config{Catalog: r.catalog, Policy: r.policy, Log: r.log, Outcomes: r.db, Observer: r.counts, Now: o.now}
	if o.tune != nil {
		o.tune(&cfg)
	}
	r.engine = invoke.New(cfg)
	return r
}

// fake is a provider that does what the test says; nil echoes the input.
type fake struct {
	key   capability.ProviderKey
	calls atomic.Int64
	do    func(context.Context, capability.Call) (capability.Result, error)
}

func (f *fake) Key() capability.ProviderKey { return f.key }

func (f *fake) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	f.calls.Add(1)
	if f.do == nil {
		return capability.Result{Value: slices.Clone(c.Input)}, nil
	}
	return f.do(ctx, c)
}

// offer publishes one contribution of its own module and provider.
func (r *rig) offer(name string, c capability.Contribution, do func(context.Context, capability.Call) (capability.Result, error)) *fake {
	r.Helper()
	f := &fake{key: capability.NewProviderKey("ext", "node", name), do: do}
	r.publish(name, c, f)
	return f
}

func (r *rig) publish(name string, c capability.Contribution, p capability.Provider) {
	r.Helper()
	c.ID, c.Kind, c.Provider = "work", "capability.agent-tool", p.Key()
	c.Member = capability.Member{Module: name, Kind: "action", Name: "work"}
	_, _, err := r.catalog.Replace(capability.Batch{
		Source: name, Providers: []capability.Provider{p},
		Modules: []capability.Module{{Extension: "test." + name, ID: name, Origin: "node", Contributions: []capability.Contribution{c}}},
	})
	if err != nil {
		r.Fatal(err)
	}
}

func admin() capability.Principal {
	return capability.Principal{ID: "admin:root", Role: capability.RoleAdmin}
}

func operator() capability.Principal {
	return capability.Principal{ID: "operator:olga", Role: capability.RoleOperator}
}

func agent() capability.Principal {
	return capability.Principal{ID: "agent:claude", Role: capability.RoleAgent}
}

// on is a call to the one contribution of a module.
func on(who capability.Principal, name, input string) capability.Invocation {
	return capability.Invocation{
		Surface: "http", Principal: who, Input: json.RawMessage(input),
		Target: capability.Target{Member: capability.Member{Module: name, Kind: "action", Name: "work"}},
	}
}

// events are the audit events of an invocation, oldest first.
func (r *rig) events(run string) (out []string) {
	r.Helper()
	for _, rec := range r.records(run) {
		out = append(out, rec["event"].(string))
	}
	return out
}

func (r *rig) records(run string) (out []map[string]any) {
	r.Helper()
	lines, err := r.log.Query(r.Context(), audit.Query{Run: run, Limit: 1000})
	if err != nil {
		r.Fatal(err)
	}
	for _, line := range lines {
		var v map[string]any
		if err := json.Unmarshal(line, &v); err != nil {
			r.Fatal(err)
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b map[string]any) int { return int(a["seq"].(float64) - b["seq"].(float64)) })
	return out
}

func fails(t testing.TB, err error, code capability.Code, reason string) *capability.Error {
	t.Helper()
	e, ok := errors.AsType[*capability.Error](err)
	if !ok || e.Code != code || e.Reason != reason {
		t.Fatalf("got %#v, want %s/%s", err, code, reason)
	}
	return e
}
