// Package nodes lets devices join this gateway and offers their functions and skills in the
// catalog. Service opens the message bus, the gateway with its fleet, and the API for nodes.
package nodes

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/nodes/admission"
	"github.com/junctor-run/junctor/internal/nodes/cmpserve"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/nodes/nodeserve"
	"github.com/junctor-run/junctor/internal/nodes/nodesource"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/platform/telemetry"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/blob"
)

// Config is what a Service needs. All fields are required.
type Config struct {
	NATS    config.NATS
	Gateway config.Gateway
	Limits  config.Limits
	Version string // the server's
	Dir     string // of the bus inside this process
	Store   *store.DB
	Blobs   *blob.Store
	Secrets *secretstore.Store
	Policy  *policy.Policy
	Log     *audit.Log
	Engine  *invoke.Engine
	Door    *httpapi.Door
	Metrics *telemetry.Metrics
	// Publish sends a notice to the live feed. It does not block.
	Publish func(event string, data any)
	Logger  *slog.Logger
}

// Service holds the nodes of this gateway.
type Service struct {
	cfg       Config
	bus       *natsbus.Broker
	admission *admission.Admission
	gateway   *gateway.Gateway
	source    *nodesource.Source
	held      *tasks.HeldKeeper
	assets    *assetStore
	surface   *nodeserve.Surface
	calls     *cmpserve.Surface
}

// New opens the bus and the gateway. Nodes join once Run serves.
func New(ctx context.Context, cfg Config) (_ *Service, err error) {
	s := &Service{cfg: cfg, admission: admission.New(admission.NewSQLStore(cfg.Store), cfg.Policy, time.Now)}
	if s.bus, err = openBus(ctx, cfg, s.admission.Authorize); err != nil {
		return nil, err
	}
	assets := assetConfig{Blobs: cfg.Blobs, Logger: cfg.Logger}
	if cfg.NATS.URL != "" { // other gateways may use the same cluster
		assets.Bus = s.bus.Conn()
	}
	s.assets = newAssetStore(assets)
	s.gateway = gateway.New(gateway.Config{
		Broker: s.bus, Granted: s.admission.Granted, Told: s.nodeChanged, PutAsset: s.assets.Keep, Logger: cfg.Logger,
		Heartbeat: cfg.Gateway.Heartbeat, Fleet: fleet.Config{Lease: cfg.Gateway.HeartbeatTimeout, Grace: cfg.Gateway.Grace},
		TotalStreams: cfg.Gateway.Streams.Total, NodeStreams: cfg.Gateway.Streams.PerNode, Window: int(cfg.Gateway.Streams.Window),
	})
	s.source = nodesource.New(nodesource.Config{
		Fleet: s.gateway.Fleet(), Caller: s.gateway, Unhealthy: s.gateway.Unhealthy, Asset: s.assets.Fetch, MaxResult: int(cfg.Limits.Result),
		Told: s.onNode, Logger: cfg.Logger,
	})
	s.openHeldCalls()
	s.surface = nodeserve.New(nodeserve.Config{
		Door: cfg.Door, Engine: cfg.Engine, Admission: s.admission, Gateway: s.gateway, Assets: s.assets,
		Connect: s.bus.Handler, Bus: s.bus.Conn(), Logger: cfg.Logger, Watch: s.gateway.Watch,
		Held: heldCalls{s.held, cfg.Store}, MayHold: s.mayHold,
		May: func(who capability.Principal, n *fleet.Node) bool {
			return cfg.Policy.Serves(who, nodesource.UsersOf(n.Granted), nodesource.ExtensionOf(n.ID))
		},
	})
	s.calls = cmpserve.New(cmpserve.Config{Door: cfg.Door, Engine: cfg.Engine, Version: cfg.Version, MaxBody: int64(cfg.Limits.RequestBody)})
	s.gauges()
	return s, nil
}

// Run serves nodes until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{s.gateway.Run, s.assets.Run, s.surface.Run, s.revokes, s.held.Run} {
		parts.Go(func() error { return run(ctx) })
	}
	return parts.Wait()
}

// Close closes the bus.
func (s *Service) Close() error {
	s.bus.Close()
	return nil
}

// Routes adds the API of nodes to mux.
func (s *Service) Routes(mux *http.ServeMux) {
	s.surface.Routes(mux)
	s.calls.Routes(mux)
}

// Source returns the source of the catalog.
func (s *Service) Source() capability.Source { return s.source }

// Order returns the candidates in the order in which a balanced call tries them.
func (s *Service) Order(b capability.Balance, among []*catalog.Entry) ([]*catalog.Entry, error) {
	return s.source.Order(b, among)
}
