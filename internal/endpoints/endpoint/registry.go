// Package endpoint is the client side of the capability-router protocol: it manages the
// remote endpoints of this server, turns their manifests into modules of the catalog,
// sends calls to them, and watches them. Connecting is all or nothing. The entries of an
// endpoint that is down stay in the catalog, marked unavailable; it is tried again with
// growing pauses, and at once when a client calls it.
package endpoint

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/protocol/router"
)

// Config is what a Registry needs. Transport, limits and intervals have defaults.
type Config struct {
	Store        Store   // nil: nothing survives a restart
	Secrets      Secrets // required with Store
	Log          *audit.Log
	Logger       *slog.Logger
	Transport    http.RoundTripper // nil: router.DefaultTransport()
	MaxAnswer    int64             // bytes; 0: 32 MiB
	Timeout      time.Duration     // of one call, by default; 0: 60 s
	SyncInterval time.Duration     // 0: 5 min
	Primary      string            // id of the primary endpoint
	// Local lists this machine's own modules, whose names no endpoint may claim. It may be nil.
	Local func() []capability.Module
	// Configured lists the endpoints of the configuration.
	Configured []Configured
	// TrustAudit is the history of trust decisions that an elizaOS agent kept in
	// ELIZA_CAPABILITY_ROUTER_TRUST_AUDIT, a JSON list; empty: none. It becomes the start of
	// [Registry.TrustAudit]. It restricts nothing, unlike a policy, so unreadable records
	// are logged and skipped.
	TrustAudit []byte
	// Call runs an invocation on the engine, so that model.invoke is authorized as a call of
	// the model that it chose. If nil, model.invoke is not offered.
	Call func(context.Context, capability.Invocation) (capability.Result, error)
	Now  func() time.Time
}

// Registry holds the endpoints. It is a capability.Source: endpoints are in the catalog
// only while Run runs.
type Registry struct {
	cfg Config

	// gates are taken before changing, and held while modules are started.
	gates gates
	trust trustAudit
	stack modelStack

	// changing makes a change of the endpoints and its publication one step. It is taken
	// before mu, and never held during a request to an endpoint.
	changing sync.Mutex

	mu        sync.Mutex
	endpoints map[string]*Endpoint
	publish   func(capability.Batch) error // nil unless Run runs
	ctx       context.Context
	group     *errgroup.Group
}

// NewRegistry returns an empty registry.
func NewRegistry(cfg Config) *Registry {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Transport == nil {
		cfg.Transport = router.DefaultTransport()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 60*time.Second)
	cfg.SyncInterval = cmp.Or(cfg.SyncInterval, 5*time.Minute)
	r := &Registry{cfg: cfg, endpoints: make(map[string]*Endpoint)}
	r.trust.seed(cfg.TrustAudit, cfg.Logger)
	return r
}

// Run restores the saved and configured endpoints without waiting for their answers, and
// watches all endpoints until ctx ends.
func (r *Registry) Run(ctx context.Context, publish func(capability.Batch) error) error {
	saved, err := r.restore(ctx)
	if err != nil {
		r.cfg.Logger.Error("saved endpoints could not be read", "err", err)
	}
	saved = append(saved, r.fromConfig(saved)...)
	group, ctx := errgroup.WithContext(ctx)
	r.changing.Lock() // the saved offers are published before any answer is processed
	r.mu.Lock()
	r.publish, r.ctx, r.group = publish, ctx, group
	for _, ep := range saved { // at once, so that no caller connects one of them in between
		r.endpoints[ep.id] = ep
	}
	r.mu.Unlock()
	for _, ep := range saved {
		r.comeBack(ep, publish)
	}
	r.publishModels(publish)
	r.changing.Unlock()
	for _, ep := range saved {
		r.watch(ep)
	}
	group.Go(func() error { // keeps the group open for endpoints that connect later
		<-ctx.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.publish = nil
		return nil
	})
	err = group.Wait()
	if t, ok := r.cfg.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return err
}

// running returns the function that publishes batches. It fails before Run has begun and
// after it has ended.
func (r *Registry) running() (func(capability.Batch) error, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.publish == nil {
		return nil, errStopped()
	}
	return r.publish, nil
}

func errStopped() error {
	return capability.Errorf(capability.CodeUnavailable, "endpoints", "the server is starting or stopping").With("service_unavailable",
		"try again in a moment")
}

func (r *Registry) get(id string) (*Endpoint, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ep, ok := r.endpoints[id]
	return ep, ok
}

func (r *Registry) all() []*Endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*Endpoint, 0, len(r.endpoints))
	for _, ep := range r.endpoints {
		list = append(list, ep)
	}
	slices.SortFunc(list, func(a, b *Endpoint) int { return strings.Compare(a.id, b.id) })
	return list
}

// Running reports whether Run has begun and not ended, so that endpoints can be connected.
func (r *Registry) Running() bool {
	_, err := r.running()
	return err == nil
}
