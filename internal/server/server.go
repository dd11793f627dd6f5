// Package server connects all parts in one process and is the only package that imports all
// of them. The lists of parts are in kinds.go (wings and sources), executors.go (functions of
// this machine) and surfaces.go (HTTP surfaces).
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/chat"
	"github.com/junctor-run/junctor/internal/chat/engine"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/console"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/publish"
	"github.com/junctor-run/junctor/internal/core/intake"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/endpoints"
	"github.com/junctor-run/junctor/internal/extensions"
	"github.com/junctor-run/junctor/internal/nodes"
	"github.com/junctor-run/junctor/internal/platform/approvalhook"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/llm"
	"github.com/junctor-run/junctor/internal/platform/oauth"
	"github.com/junctor-run/junctor/internal/platform/policyfiles"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/platform/telemetry"
	"github.com/junctor-run/junctor/internal/platform/toolnames"
	"github.com/junctor-run/junctor/internal/serve/a2aserve"
	"github.com/junctor-run/junctor/internal/serve/a2aserve/push"
	"github.com/junctor-run/junctor/internal/serve/mcpserve"
	"github.com/junctor-run/junctor/internal/serve/restserve"
	"github.com/junctor-run/junctor/internal/setup"
	"github.com/junctor-run/junctor/internal/taskagents"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
	"github.com/junctor-run/junctor/internal/upstreams"
	"github.com/junctor-run/junctor/secret"
)

// Server is one running junctor. New opens everything. Run serves until its context ends, and
// closes everything that New opened.
type Server struct {
	cfg     config.Config
	version string
	began   time.Time
	logger  *slog.Logger

	home *Home
	stores
	plane
	machine
	surfaces
	bus    *bus.Bus
	models llm.Classes

	extensions *extensions.Service
	agents     *taskagents.Service
	nodes      *nodes.Service
	upstreams  *upstreams.Service
	endpoints  *endpoints.Service
	chat       *chat.Service
	setup      *setup.Service
	hook       *approvalhook.Hook // nil: none is configured
	console    *console.Service

	listener net.Listener
	startup  *httpapi.Startup
	stopping chan struct{} // closed when Run begins to stop
}

// surfaces holds the HTTP surfaces over the whole catalog.
type surfaces struct {
	door   *httpapi.Door
	oauth  *oauth.Server // nil: no authorization server is trusted
	mcp    *mcpserve.Surface
	a2a    *a2aserve.Surface
	tasks  *tasks.Manager // that other agents leave here
	pushes *push.Sender
}

// Options holds the parameters of New that are not configuration.
type Options struct {
	Version string
	Logger  *slog.Logger
	// Print shows a line to the person at the server's terminal. nil if it has no terminal.
	Print func(line string)
}

// New opens the home of cfg and everything in it, and listens. On an error nothing stays open.
func New(ctx context.Context, cfg config.Config, opts Options) (*Server, error) {
	logger := cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	s := &Server{cfg: cfg, version: opts.Version, logger: logger, began: time.Now(), stopping: make(chan struct{})}
	s.startup = httpapi.NewStartup(settleTimeout+time.Second, func() int { return s.endpoints.Missing() })
	s.plane.logger = logger
	var err error
	if s.home, err = OpenHome(cfg.Home); err != nil {
		return nil, err
	} else if err = s.open(ctx, opts); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// open opens the parts of the server in the order of their dependencies.
func (s *Server) open(ctx context.Context, opts Options) (err error) {
	cfg := s.cfg
	// The server listens before it opens anything else, so that an address in use is reported first.
	if s.listener, err = net.Listen("tcp", cfg.Listen); err != nil {
		said := fmt.Sprintf("the address %s cannot be listened on", cfg.Listen)
		if errors.Is(err, syscall.EADDRINUSE) {
			said = fmt.Sprintf("the address %s is in use by another program", cfg.Listen)
		}
		return capability.Wrap(capability.CodeConflict, "listen", said, err).
			With("address_in_use", "choose another one with --listen; 127.0.0.1:0 takes a free port")
	}
	if err = s.openStores(ctx); err != nil {
		return err
	}
	s.bus = bus.New(bus.Config{})
	if err = s.openPolicy(ctx); err != nil {
		return err
	}
	if err = s.openPlane(); err != nil {
		return err
	}
	if s.models, err = chat.OpenModels(cfg.Model, s.secrets, s.engine); err != nil {
		return err
	}
	if s.extensions, err = extensions.New(ctx, extensions.Config{
		Home: s.home.Path, DB: s.db, Sessions: s.shared, Log: s.log, Logger: s.logger, Secrets: s.secrets, Version: s.version,
		Model:    s.models.Small,
		Builtins: engine.Builtins(), Channels: ownChannels(),
		Mode: s.deployment, NeedDigest: !s.loopback(), Settings: cfg.Extensions, Sandbox: cfg.Sandbox, Catalog: s.catalog, Door: s.door,
		Metrics: s.metrics,
	}); err != nil {
		return err
	}
	if s.nodes, err = nodes.New(ctx, nodes.Config{
		NATS: cfg.NATS, Gateway: cfg.Gateway, Limits: cfg.Limits, Version: s.version, Dir: s.home.Path("state", "nats"),
		Store: s.shared, Blobs: s.extensions.Blobs(), Secrets: s.secrets, Policy: s.policy, Log: s.log, Engine: s.engine, Door: s.door,
		Metrics: s.metrics, Publish: s.publish, Logger: s.logger,
	}); err != nil {
		return err
	}
	if err = s.openHost(s.cfg); err != nil {
		return err
	}
	if err = s.openOAuth(); err != nil {
		return err
	}
	if s.endpoints, err = endpoints.New(endpoints.Config{
		Router: cfg.Router, Eliza: cfg.Eliza, Limits: cfg.Limits, Store: s.shared, Secrets: s.secrets, Log: s.log, Catalog: s.catalog,
		Engine: s.engine, Door: s.door, Logger: s.logger, Within: func(v string) func(string) bool { return views(cfg.MCP.Views)[v].Within() },
	}); err != nil {
		return err
	}
	if s.upstreams, err = upstreams.New(ctx, upstreams.Config{
		Home: s.home.Path, Walls: cfg.Sandbox, Settings: cfg.Upstreams, Store: s.shared, Secrets: s.secrets, Log: s.log, Door: s.door,
		Publish: s.publish, Logger: s.logger, People: s.policy, Key: s.home.key, Bus: s.bus,
	}); err != nil {
		return err
	}
	if err = s.openSetup(); err != nil {
		return err
	}
	if s.console, err = console.New(console.Config{
		Dir: s.home.Path("console"), Home: s.home.Dir, PublicURL: cfg.PublicURL, Address: s.Address, NotFound: restserve.NotFound,
		Tokens: s.policy, Door: s.door, Bus: s.bus, Log: s.log, Logger: s.logger, Print: opts.Print, Verify: cfg.Console.Verify,
		OIDC: cfg.OIDC, Secret: s.secrets.Get,
	}); err != nil {
		return err
	}
	s.door.UseSessions(s.console.Session)
	key := func() (secret.Value, error) { return s.secrets.Get(cfg.Approvals.WebhookSecret) }
	s.hook = approvalhook.New(cfg.Approvals.Webhook, cmp.Or(cfg.PublicURL, s.Address()),
		approvalhook.FindDesktop(cfg.Approvals.Desktop, os.Getenv), key, s.policy, s.bus, s.logger)
	cursorKey, err := s.home.key("cursor.key")
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "home", "the cursor key cannot be read", err)
	}
	if err = s.openAgents(ctx); err != nil {
		return err
	}
	if s.chat, err = chat.New(ctx, chat.Config{
		Home: s.home.Dir, Store: s.shared, Results: s.extensions.Results(), Blobs: s.extensions.Blobs(), Commands: s.extensions,
		Models: s.models, Subagents: verbs.Action, Engine: s.engine, Log: s.log, Door: s.door,
		Agent: cfg.Agent, Within: views(cfg.MCP.Views)[cfg.Agent.View].Within(), Policy: s.policy, Tasks: s.tasks, Bus: s.bus,
		Publish: s.publish, Gateway: s.gateway, Begun: s.startup.Begun(), Logger: s.logger,
		Channels: chat.Channels{Policy: s.policy, Verify: s.console, Secrets: s.secrets.Get, Catalog: s.catalog},
	}); err != nil {
		return err
	}
	if err = s.openTaskAgents(ctx); err != nil {
		return err
	}
	if err = s.db.Upgraded(); err != nil { // no table is migrated after this
		return err
	}
	s.mcp = mcpserve.New(mcpserve.Config{
		Door: s.door, Engine: s.engine, Catalog: s.catalog, Policy: s.policy, Version: opts.Version, Views: views(cfg.MCP.Views),
		Own:   mcpserve.OwnStore{Blobs: s.extensions.Blobs(), Log: s.log, Usages: s.extensions.Usage, Limit: int64(cfg.Limits.Result)},
		Texts: s.agentTexts(), Updates: s.upstreams, Tasks: s.tasks, TaskAfter: cfg.MCP.TaskAfter, ApprovalWait: cfg.WaitFor,
		SessionIdle: cfg.MCP.SessionIdle, Missing: s.startup.Missing,
		MaxBody: int64(cfg.Limits.RequestBody), PageSize: cfg.MCP.PageSize, Exposure: compile.View(cfg.MCP.Exposure), CursorKey: cursorKey,
		Logger: s.logger,
	})
	return nil
}

// openPlane creates the catalog, the engine and their parts. It starts no goroutine.
func (s *Server) openPlane() error {
	cfg := s.cfg
	var settings catalog.Settings
	if err := config.ReadCatalog(s.home.Path("catalog.yaml"), &settings); err != nil {
		return capability.Wrap(capability.CodeInvalidInput, "catalog", "catalog.yaml cannot be used: "+err.Error(), err).
			With("invalid_settings", "correct the file in the home, or remove it")
	}
	from, err := s.home.generations()
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "home", "the catalog's generation cannot be kept", err)
	}
	s.names, err = toolnames.Open(toolnames.Config{
		Path: s.home.Path("state", "naming.json"), Fresh: from == 0, Log: s.log, Logger: s.logger, Now: time.Now,
	})
	if err != nil {
		return err
	}
	s.names.Complete(&settings)
	if s.catalog, err = catalog.New(settings, from); err != nil {
		return err
	}
	s.compiler = compile.New(s.catalog)
	s.told = publish.NewQueue(toldQueue)
	s.notices = publish.New(s.catalog.Snapshot(), s.compiler, publish.NewEmitter(time.Now, &s.recent, s.told))
	s.metrics = telemetry.NewMetrics()
	export := telemetry.ExportConfig{Endpoint: cfg.OTel.Endpoint, Version: s.version, Instance: s.gateway, Logger: s.logger}
	if name := cfg.OTel.TokenSecret; name != "" {
		export.Token = func() (secret.Value, error) { return s.secrets.Get(name) }
	}
	s.metrics.Export(export)
	s.intake = intake.New(intake.Config{Catalog: s.catalog, Log: s.log, Logger: s.logger, Changed: s.catalogChanged})
	s.names.Use(s.catalog, s.intake.Configure)
	s.engine = invoke.New(invoke.Config{
		Catalog: s.catalog, Compiler: s.compiler, Policy: s.policy, Log: s.log, Outcomes: s.shared, SharedOutcomes: s.shared.Shared(),
		Observer: s.metrics, Logger: s.logger,
		DefaultTimeout: cfg.Limits.CallTimeout, MaxTimeout: cfg.Limits.MaxTimeout,
		ProviderTimeout: map[string]time.Duration{"endpoint": cfg.Limits.EndpointTimeout},
		MaxInput:        int(cfg.Limits.RequestBody), MaxResult: int(cfg.Limits.Result),
		PerProvider: cfg.Limits.PerProvider, SlowAfter: cfg.Audit.SlowAfter,
		Balance: func(b capability.Balance, among []*catalog.Entry) ([]*catalog.Entry, error) {
			return s.nodes.Order(b, among)
		},
		RecordReads: cfg.Audit.Level == "debug", Explain: s.explain, Vetoed: s.vetoed, Compiled: s.notices.Telemetry.Compiled,
	})
	s.door = httpapi.New(s.policy, s.log, s.logger)
	s.gauges()
	return nil
}

// openPolicy loads the policy files and creates the two tokens that every home has.
func (s *Server) openPolicy(ctx context.Context) error {
	files, docs, err := policyfiles.Open(s.home.Path("policy"), s.logger)
	if err != nil {
		return err
	}
	s.policyFiles = files
	mode, known := policy.ParseDeployment(s.cfg.DeploymentMode, s.loopback())
	s.deployment = mode
	if !known {
		s.logger.Warn("the deployment mode is not known, so extensions are locked", "deployment_mode", s.cfg.DeploymentMode)
	}
	if s.policy, err = policy.New(ctx, policy.Config{
		Documents: docs, Store: s.shared, Log: s.log, Logger: s.logger,
		Deployment: mode, Publish: s.publish,
	}); err != nil {
		return err
	}
	for _, t := range []struct {
		file string
		role capability.Role
		name string
	}{
		{"admin.token", capability.RoleAdmin, s.ownToken("local-admin")},
		{"agent.token", capability.RoleAgent, s.ownToken("local-agent")},
	} {
		if err := s.ensureToken(ctx, t.file, t.role, t.name); err != nil {
			return err
		}
	}
	return nil
}

// ensureToken creates a token and its file if the file is missing or its token is not valid.
func (s *Server) ensureToken(ctx context.Context, file string, role capability.Role, name string) error {
	path := s.home.Path("run", file)
	if old, _, err := secretstore.ReadFile(path); err == nil {
		if who, err := s.policy.Verify(old.Reveal()); err == nil && who.Role == role {
			return nil
		}
	}
	by := capability.Principal{ID: "server", Role: capability.RoleAdmin}
	if _, err := s.policy.RevokeToken(ctx, by, name); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
		return err
	}
	_, value, err := s.policy.CreateToken(ctx, by, policy.TokenRequest{Role: role, Name: name})
	if err != nil {
		return err
	}
	return hostfs.WriteFile(path, []byte(value.Reveal()+"\n"))
}

// loopback reports whether only this machine can reach the listener.
func (s *Server) loopback() bool {
	host, _, _ := net.SplitHostPort(s.listener.Addr().String())
	return net.ParseIP(host).IsLoopback()
}

func (s *Server) catalogChanged(change catalog.Change) {
	s.policy.CatalogChanged()
	s.supersedeApprovals(change)
	s.mcp.CatalogChanged()
	s.notices.Changed(change)
	s.publish("catalog.changed", map[string]any{"generation": change.After.Generation, "etag": change.After.Etag})
}
