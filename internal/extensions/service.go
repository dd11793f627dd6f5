// Package extensions is the runtime of installed extensions: their files and rows, their commands,
// the executors of their runners, and the sandbox of their programs. It connects the packages below
// it that install packages, run actions, publish them to the catalog and serve the API; these do
// not import each other. The list of executors is in toolrunner.go.
package extensions

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/queue"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/exec/analyze"
	"github.com/junctor-run/junctor/internal/extensions/exec/api"
	"github.com/junctor-run/junctor/internal/extensions/exec/browser"
	"github.com/junctor-run/junctor/internal/extensions/exec/db"
	"github.com/junctor-run/junctor/internal/extensions/exec/script"
	"github.com/junctor-run/junctor/internal/extensions/exec/tool"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/extensionserve"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/operator"
	"github.com/junctor-run/junctor/internal/extensions/plan"
	"github.com/junctor-run/junctor/internal/extensions/runner"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/llm"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/platform/telemetry"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/blob"
	"github.com/junctor-run/junctor/internal/store/sqlstore"
)

// Config holds the dependencies and settings of a Service. All but Model are required.
type Config struct {
	// Home returns a path below the home directory.
	Home func(elem ...string) string
	DB   *store.DB // this machine's database: installed extensions and blobs
	// Sessions holds the last results of sessions.
	Sessions *store.DB
	Log      *audit.Log
	Logger   *slog.Logger
	Secrets  *secretstore.Store
	Model    *llm.Model // nil if not configured
	Version  string     // of the server
	// Builtins are the commands that other parts of the server implement. They take
	// precedence over commands of extensions.
	Builtins []command.Command
	// Channels are the chat services that the server itself has, for the catalog of what can be set up.
	Channels []declaration.Channel
	Mode     policy.Deployment
	// NeedDigest refuses installs from an address without a hash.
	NeedDigest bool

	Settings config.Extensions
	Sandbox  config.Sandbox

	Catalog *catalog.Catalog
	Door    *httpapi.Door
	Metrics *telemetry.Metrics
}

// Service is the runtime of installed extensions. The owner runs Run and calls Close.
type Service struct {
	dir       string
	toolDirs  []string
	minTier   sandbox.Tier // sandbox.min_tier; 0: each extension's own
	addresses []netip.Prefix
	patterns  []*regexp.Regexp // of command lines that need an approval
	secrets   *secretstore.Store
	log       *audit.Log
	results   *session.Results
	blobs     *blob.Store
	manager   *lifecycle.Manager
	box       *sandbox.Box
	tools     *tool.Executor
	scripts   *script.Executor
	model     *llm.Model // nil if no model is configured
	calls     *api.Client
	databases *db.Executor
	browsers  *browser.Browsers
	analyzer  *analyze.Analyzer
	queue     *queue.Queue
	rates     queue.Rates
	builtins  []command.Command
	cache     *queue.Cache
	running   runner.Running
	registry  *lifecycle.Registry
	surface   *extensionserve.Surface
	logger    *slog.Logger
	users     sync.Map // by extension: the uid of its programs
	news      chan struct{}
	router    atomic.Pointer[command.Router]
	published published

	mu        sync.Mutex
	conflicts map[string]bool // recorded conflicts: a name and the extensions that declare it
}

// New migrates the tables, repairs changes that a crash interrupted, and loads the
// installed extensions. On an error, everything opened is closed again.
func New(ctx context.Context, cfg Config) (_ *Service, err error) {
	if err := sqlstore.Tables().Migrate(ctx, cfg.Sessions); err != nil {
		return nil, err
	}
	for _, t := range []store.Tables{lifecycle.Tables(), blob.Tables()} {
		if err := t.Migrate(ctx, cfg.DB); err != nil {
			return nil, err
		}
	}
	x := &Service{
		dir: cfg.Home("extensions"), registry: lifecycle.NewRegistry(cfg.DB.SQL()), secrets: cfg.Secrets, log: cfg.Log,
		news:     make(chan struct{}, 1),
		toolDirs: []string{cfg.Home("tools"), cfg.Home("bin"), "/usr/local/bin", "/usr/bin", "/bin"},
		results:  session.NewResults(session.ResultsConfig{Store: sqlstore.New(cfg.Sessions)}),
		cache:    queue.NewCache(time.Now),
		queue: queue.New(queue.Limits{
			Global: max(3, 2*runtime.GOMAXPROCS(0)), PerUser: cfg.Settings.PerUser, PerExtension: cfg.Settings.MaxConcurrent,
			Length: cfg.Settings.Queue,
		}),
		rates:    queue.Rates{PerMinute: cfg.Settings.CallsPerMinute, Burst: cfg.Settings.Burst},
		logger:   cfg.Logger,
		builtins: cfg.Builtins,
	}
	defer func() {
		if err != nil {
			_ = x.Close() // New returns the first error
		}
	}()
	if x.blobs, err = blob.Open(cfg.Home("blobs", "sha256"), cfg.DB.SQL(), time.Now); err != nil {
		return nil, err
	}
	if text := cfg.Sandbox.MinTier; text != "" {
		if err := x.minTier.UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
	}
	for _, text := range cfg.Sandbox.Addresses {
		x.addresses = append(x.addresses, netip.MustParsePrefix(text)) // the configuration was checked
	}
	for _, text := range cfg.Sandbox.Confirm {
		x.patterns = append(x.patterns, regexp.MustCompile(text)) // the configuration was checked
	}
	scratch := cfg.Home("run")
	if os.Geteuid() == 0 { // programs run as a user without access to it
		scratch = ""
	}
	x.box = sandbox.New(sandbox.Config{
		Spares: 2, ReadOnly: cfg.Sandbox.ReadOnly, Off: sandbox.Without(cfg.Sandbox.Off), CacheFile: cfg.Home("cache", "sandbox.json"),
		Scratch: scratch,
		Private: []string{cfg.Home("state"), cfg.Home("logs"), cfg.Home("audit"), cfg.Home("secrets")},
	})
	x.calls, x.analyzer = api.New(api.Config{OnDecision: func(id string, d egress.Decision) { x.decided(audit.Record{Extension: id}, d) }}),
		newAnalyzer(cfg.Model)
	x.browsers = browser.New(browser.Config{Walls: x.box})
	x.databases, err = x.openDatabases()
	if err != nil {
		return nil, err
	}
	x.scripts, x.model = newScripts(x.box), cfg.Model
	x.tools = tool.New(tool.Config{Walls: x.box, Dirs: x.toolDirs})
	fetcher := plan.NewHTTPFetcher(plan.FetchConfig{})
	platform := plan.PlatformOf(runtime.GOOS, runtime.GOARCH)
	x.manager, err = lifecycle.Open(ctx, lifecycle.Config{
		Dir: x.dir, Registry: x.registry, Steps: &plan.Engine{Programs: programs{x}, Fetcher: fetcher}, Fetcher: fetcher, Log: cfg.Log,
		Logger: cfg.Logger,
		Rules: extension.Rules{
			NoExternalBins: cfg.Settings.NoExternalBins, OS: platform.OS, Version: cfg.Version,
			Reserved: operator.ReservedCommand, Schema: schemaFault,
		}, Platform: platform, NeedDigest: cfg.NeedDigest,
		Tier: x.reaches, Settings: fitsSchema, Executions: &x.running,
		Permit: func(name string) error {
			if cfg.Mode.Withholds(name) {
				return fault.PermissionDenied(name, "the deployment mode "+string(cfg.Mode)+" keeps it from extensions")
			}
			return nil
		},
		Changed: func(ctx context.Context) { // waits, so that callers can use their change at once
			wait := x.published.change()
			if x.changed(); x.manager != nil {
				wait(ctx)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	x.changed()
	x.surface = extensionserve.New(extensionserve.Config{
		Door: cfg.Door, Extensions: management{x.manager, x}, Catalog: cfg.Catalog, MaxPackage: archive.MaxBytes,
		Static: operator.NewStaticBuilder(operator.StaticConfig{Dirs: []operator.Dir{{Path: x.dir, Origin: "global"}}, Channels: cfg.Channels}),
	})
	x.gauges(cfg.Metrics)
	return x, nil
}

// Routes adds the API of extensions to mux.
func (x *Service) Routes(mux *http.ServeMux) { x.surface.Routes(mux) }

// reaches returns sandbox_unavailable if this machine's sandbox is below the operator's
// tier or, if that is not set, below the given one.
func (x *Service) reaches(tier string) error {
	need := x.minTier
	if need == 0 {
		if err := need.UnmarshalText([]byte(tier)); err != nil {
			return err
		}
	}
	if got := x.box.Facts().Tier; got < need {
		return fault.SandboxUnavailable(need.String(), got.String())
	}
	return nil
}

// changed stops outdated browsers, rebuilds the command router, records new conflicts
// and notifies the catalog's source.
func (x *Service) changed() {
	if x.manager == nil {
		return // New is still running and calls changed at its end
	}
	x.retainBrowsers()
	commands, conflicts := commandTable(x.manager.View())
	x.router.Store(command.New(command.Table{
		Commands: append(slices.Clone(x.builtins), withFlags(commands)...),
		Reserved: operator.ReservedCommand,
	}))
	x.conflicted(conflicts)
	select {
	case x.news <- struct{}{}:
	default: // a notification is already pending
	}
}

// conflicted writes each name that several extensions declare to the audit log, once as
// long as the conflict lasts.
func (x *Service) conflicted(now []catalog.Conflict) {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.conflicts
	x.conflicts = make(map[string]bool, len(now))
	for _, c := range now {
		members := strings.Join(c.Members, ", ")
		key := c.Key + " " + members
		x.conflicts[key] = true
		if known[key] {
			continue
		}
		_, _ = x.log.Append(context.Background(), audit.Record{ // the log reports its own failures
			Logger: "extensions", Event: audit.CommandConflict, Command: "/" + c.Key,
			Metadata: audit.Metadata{Attrs: []audit.Attr{{Key: "wanted_by", Value: members}, {Key: "resolution", Value: c.Remediation}}},
		}, audit.Written)
	}
}

// List returns the enabled extensions for the catalog, with their commands under the
// names that the package declares.
func (x *Service) List() (out []runner.Extension) {
	x.published.reading()
	view := x.manager.View()
	commands, _ := commandTable(view)
	commands = withFlags(commands)
	batch, _ := view.Batch()
	for _, m := range batch.Modules {
		one := runner.Extension{Module: m}
		for _, c := range commands {
			if c.Extension == m.Extension {
				c.Name = c.Declared
				one.Commands = append(one.Commands, c)
			}
		}
		out = append(out, one)
	}
	return out
}

// Source returns the catalog's source of extensions.
func (x *Service) Source() capability.Source {
	return extensionSource{published: &x.published, Source: runner.New(runner.Config{
		Executors: x.executors(), Queue: x.queue, Limiter: queue.NewLimiter(x.rates, time.Now), Cache: x.cache,
		Results: x.results, Running: &x.running, QueueWait: time.Minute, Effect: declaration.PermissionsEffect, Artifacts: x.artifacts,
		Settings: x.settingsDigest,
	}, x.List, x.news)}
}

// Close stops browsers and sandboxes and releases the extensions directory.
func (x *Service) Close() error {
	if x.browsers != nil {
		x.browsers.Close()
	}
	if x.box != nil {
		x.box.Close()
	}
	if x.blobs != nil {
		_ = x.blobs.Close() // nothing is buffered, so no data can be lost
	}
	if x.manager == nil {
		return nil
	}
	return x.manager.Close()
}

// Results returns the store of the last results of sessions.
func (x *Service) Results() *session.Results { return x.results }

// Blobs returns the store of artifacts.
func (x *Service) Blobs() *blob.Store { return x.blobs }

// Usage returns the usage document of an extension.
func (x *Service) Usage(id string) (string, error) { return x.manager.Usage(id) }

// Tier returns the strongest sandbox tier that works on this machine.
func (x *Service) Tier() sandbox.Tier { return x.box.Facts().Tier }

// Refresh rebuilds the commands and publishes the extensions again.
func (x *Service) Refresh() { x.changed() }

// Commands returns the current command router.
func (x *Service) Commands() *command.Router { return x.router.Load() }

func schemaFault(doc []byte) error {
	_, err := catalog.CompileSchema(doc)
	return err
}

func fitsSchema(schema, doc []byte) error {
	compiled, err := catalog.CompileSchema(schema)
	if err != nil {
		return capability.Wrap(capability.CodeInternal, "settings", "the schema of the settings cannot be read", err) // valid when installed
	}
	return compiled.Check(doc)
}

// Run waits until an enabled extension may run programs, obtains the sandbox's report
// (which tests the sandbox once per boot and binary), logs an error if it did not hold,
// and returns. It looks once a minute and returns nil also when ctx ends.
func (x *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		if slices.ContainsFunc(x.manager.View().Extensions, func(l lifecycle.Loaded) bool {
			return l.Enabled &&
				slices.Contains(l.Permissions, "exec")
		}) {
			report, err := x.box.Report(ctx)
			if err == nil && !report.Held() {
				x.logger.Error("a wall of the sandbox gave way to the self-test; see junctor debug sandbox status")
			}
			return nil // an error here means that the server stops
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
