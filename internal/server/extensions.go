package server

import (
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
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
	"github.com/junctor-run/junctor/internal/audit"
	"github.com/junctor-run/junctor/internal/blob"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/chat"
	"github.com/junctor-run/junctor/internal/command"
	"github.com/junctor-run/junctor/internal/command/fault"
	"github.com/junctor-run/junctor/internal/exec/analyze"
	"github.com/junctor-run/junctor/internal/exec/api"
	"github.com/junctor-run/junctor/internal/exec/browser"
	"github.com/junctor-run/junctor/internal/exec/db"
	"github.com/junctor-run/junctor/internal/exec/llm"
	"github.com/junctor-run/junctor/internal/exec/script"
	"github.com/junctor-run/junctor/internal/exec/tool"
	"github.com/junctor-run/junctor/internal/intake/commandtable"
	"github.com/junctor-run/junctor/internal/intake/condition"
	"github.com/junctor-run/junctor/internal/intake/extension"
	"github.com/junctor-run/junctor/internal/intake/fetch"
	"github.com/junctor-run/junctor/internal/intake/lifecycle"
	"github.com/junctor-run/junctor/internal/intake/operator"
	"github.com/junctor-run/junctor/internal/intake/permission"
	"github.com/junctor-run/junctor/internal/intake/plan"
	"github.com/junctor-run/junctor/internal/intake/registry"
	"github.com/junctor-run/junctor/internal/provider/runner"
	"github.com/junctor-run/junctor/internal/queue"
	"github.com/junctor-run/junctor/internal/sandbox"
	"github.com/junctor-run/junctor/internal/sandbox/egress"
	"github.com/junctor-run/junctor/internal/secretstore"
	"github.com/junctor-run/junctor/internal/session"
	"github.com/junctor-run/junctor/internal/session/sqlstore"
	"github.com/junctor-run/junctor/internal/surface/extensionserve"
)

// extensions joins what runs installed extensions: their files and rows, their
// commands, and the room their programs run in.
type extensions struct {
	dir       string
	toolDirs  []string
	minTier   sandbox.Tier // the operator's; 0: each extension's own
	addresses []netip.Prefix
	patterns  []*regexp.Regexp // of command lines that the operator wants to be asked about
	secrets   *secretstore.Store
	log       *audit.Log
	results   *session.Results
	blobs     *blob.Store
	manager   *lifecycle.Manager
	box       *sandbox.Box
	tools     *tool.Executor
	scripts   *script.Executor
	model     *llm.Client // nil: none is configured
	calls     *api.Client
	databases *db.Executor
	browsers  *browser.Browsers
	analyzer  *analyze.Analyzer
	queue     *queue.Queue
	rates     queue.Rates
	cache     *queue.Cache
	running   runner.Running
	registry  *registry.Registry
	users     sync.Map // by extension: the user of its programs
	news      chan struct{}
	router    atomic.Pointer[command.Router]
	published published

	mu        sync.Mutex
	conflicts map[string]bool // names that several want, and who
}

// openExtensions repairs what a crash left and loads what is installed.
func (s *Server) openExtensions(ctx context.Context) (err error) {
	for _, t := range []struct {
		owner string
		files func() (fs.FS, error)
	}{{registry.Owner, registry.Migrations}, {sqlstore.Owner, sqlstore.Migrations}, {blob.Owner, blob.Migrations}} {
		tables, err := t.files()
		if err != nil {
			return err
		}
		if err := s.db.Migrate(ctx, t.owner, tables); err != nil {
			return err
		}
	}
	x := &extensions{
		dir: s.home.Path("extensions"), registry: registry.New(s.db.SQL()), secrets: s.secrets, log: s.log, news: make(chan struct{}, 1),
		toolDirs: []string{s.home.Path("tools"), s.home.Path("bin"), "/usr/local/bin", "/usr/bin", "/bin"},
		results:  session.NewResults(session.ResultsConfig{Store: sqlstore.New(s.db.SQL())}),
		cache:    queue.NewCache(time.Now),
		queue: queue.New(queue.Limits{
			Global: max(2, 2*runtime.GOMAXPROCS(0)), PerUser: s.cfg.Extensions.PerUser, PerExtension: s.cfg.Extensions.MaxConcurrent, Length: s.cfg.Extensions.Queue,
		}),
		rates: queue.Rates{PerMinute: s.cfg.Extensions.CallsPerMinute, Burst: s.cfg.Extensions.Burst},
	}
	if x.blobs, err = blob.Open(s.home.Path("blobs", "sha256"), s.db.SQL(), time.Now); err != nil {
		return err
	}
	if text := s.cfg.Sandbox.MinTier; text != "" {
		if err := x.minTier.UnmarshalText([]byte(text)); err != nil {
			return err
		}
	}
	for _, text := range s.cfg.Sandbox.Addresses {
		x.addresses = append(x.addresses, netip.MustParsePrefix(text)) // the configuration was checked
	}
	for _, text := range s.cfg.Sandbox.Confirm {
		x.patterns = append(x.patterns, regexp.MustCompile(text)) // the configuration was checked
	}
	scratch := s.home.Path("run")
	if os.Geteuid() == 0 { // programs run as somebody who cannot walk there
		scratch = ""
	}
	x.box = sandbox.New(sandbox.Config{
		Spares: 2, ReadOnly: s.cfg.Sandbox.ReadOnly, Off: sandbox.Without(s.cfg.Sandbox.Off), CacheFile: s.home.Path("cache", "sandbox.json"), Scratch: scratch,
		Private: []string{s.home.Path("state"), s.home.Path("logs"), s.home.Path("audit"), s.home.Path("secrets")},
	})
	x.calls, x.analyzer = api.New(api.Config{OnDecision: func(id string, d egress.Decision) { x.decided(audit.Record{Extension: id}, d) }}), s.newAnalyzer()
	x.browsers = browser.New(browser.Config{Walls: x.box})
	x.databases, err = x.openDatabases()
	if err != nil {
		return err
	}
	x.scripts, x.model = newScripts(x.box), s.model
	x.tools = tool.New(tool.Config{Walls: x.box, Dirs: x.toolDirs})
	fetcher := fetch.New(fetch.Config{})
	platform := condition.PlatformOf(runtime.GOOS, runtime.GOARCH)
	s.extensions = x
	x.manager, err = lifecycle.Open(ctx, lifecycle.Config{
		Dir: x.dir, Registry: x.registry, Steps: &plan.Engine{Programs: x, Fetcher: fetcher}, Fetcher: fetcher, Log: s.log, Logger: s.logger,
		Rules: extension.Rules{OS: platform.OS, Version: s.version, Reserved: operator.ReservedCommand, Schema: schemaFault}, Platform: platform, NeedDigest: !s.loopback(),
		Tier: x.reaches, Settings: fitsSchema, Executions: &x.running,
		Permit: func(name string) error {
			if s.deployment.Withholds(name) {
				return fault.PermissionDenied(name, "the deployment mode "+string(s.deployment)+" keeps it from extensions")
			}
			return nil
		},
		Changed: func(ctx context.Context) { // whoever changed something may use it at once
			wait := x.published.change()
			if x.changed(); x.manager != nil {
				wait(ctx)
			}
		},
	})
	if err != nil {
		return err
	}
	x.changed()
	return nil
}

// reaches reports whether programs that need a tier can run here at all.
func (x *extensions) reaches(tier string) error {
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

// changed makes the commands anew and tells the catalog's source.
func (x *extensions) changed() {
	if x.manager == nil {
		return // it is being opened
	}
	x.retainBrowsers()
	commands, conflicts := commandtable.Of(x.manager.View())
	x.router.Store(command.New(command.Table{Commands: append(chat.Builtins(), withFlags(commands)...), Reserved: operator.ReservedCommand}))
	x.conflicted(conflicts)
	select {
	case x.news <- struct{}{}:
	default: // it knows already
	}
}

// conflicted records the names that several extensions want, once for as long as
// they do.
func (x *extensions) conflicted(now []catalog.Conflict) {
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
		_, _ = x.log.Append(context.Background(), audit.Record{ // a broken log says so itself
			Logger: "extensions", Event: audit.CommandConflict, Command: "/" + c.Key,
			Metadata: audit.Metadata{Attrs: []audit.Attr{{Key: "wanted_by", Value: members}, {Key: "resolution", Value: c.Remediation}}},
		}, audit.Written)
	}
}

// list are the extensions as the catalog takes them: their commands under their
// own names, which are no others' business there.
func (x *extensions) list() (out []runner.Extension) {
	x.published.reading()
	view := x.manager.View()
	commands, _ := commandtable.Of(view)
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

// source feeds the catalog.
func (x *extensions) source() capability.Source {
	return extensionSource{published: &x.published, Source: runner.New(runner.Config{
		Executors: x.executors(), Queue: x.queue, Limiter: queue.NewLimiter(x.rates, time.Now), Cache: x.cache,
		Results: x.results, Running: &x.running, QueueWait: time.Minute, Effect: permission.Effect, Artifacts: x.artifacts,
	}, x.list, x.news)}
}

// close ends what runs and lets go of the folder.
func (x *extensions) close() error {
	if x.browsers != nil {
		x.browsers.Close()
	}
	if x.box != nil {
		x.box.Close()
	}
	if x.blobs != nil {
		_ = x.blobs.Close() // a folder that was read
	}
	if x.manager == nil {
		return nil
	}
	return x.manager.Close()
}

// Commands are those that can be typed now.
func (x *extensions) Commands() *command.Router { return x.router.Load() }

func schemaFault(doc []byte) error {
	_, err := catalog.CompileSchema(doc)
	return err
}

func fitsSchema(schema, doc []byte) error {
	compiled, err := catalog.CompileSchema(schema)
	if err != nil {
		return capability.Wrap(capability.CodeInternal, "settings", "the schema of the settings cannot be read", err) // it was at the install
	}
	return compiled.Check(doc)
}

// tryWalls runs the self-test, once a boot and binary, as soon as an extension is
// enabled: what would hold its programs is known before they run.
func (x *extensions) tryWalls(ctx context.Context, logger *slog.Logger) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		if slices.ContainsFunc(x.manager.View().Extensions, func(l lifecycle.Loaded) bool { return l.Enabled && slices.Contains(l.Permissions, "exec") }) {
			report, err := x.box.Report(ctx)
			if err == nil && !report.Held() {
				logger.Error("a wall of the sandbox gave way to the self-test; see junctor sandbox status")
			}
			return nil // the error is that the server stops
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// extensionDoor adapts the manager to what the surface asks for.
type extensionDoor struct {
	*extensions
	*lifecycle.Manager
}

func (d extensionDoor) List(ctx context.Context, enabledOnly bool, status string) (any, error) {
	return d.Manager.List(ctx, lifecycle.Filter{EnabledOnly: enabledOnly, Status: registry.Status(status)})
}

func (d extensionDoor) Show(ctx context.Context, id string) (any, error) {
	return d.Manager.Show(ctx, id)
}

func (d extensionDoor) Screen(ctx context.Context, id string, agentVisible []string) (any, error) {
	screen, err := d.Manager.Screen(ctx, id, agentVisible)
	return map[string]any{"screen": screen, "text": screen.Text(), "asks": screen.Asks()}, err
}

func (d extensionDoor) Install(ctx context.Context, by capability.Principal, src extensionserve.Source) (any, error) {
	return d.Manager.Install(ctx, by, lifecycle.Source{Zip: src.Zip, Size: src.Size, URL: src.URL, SHA256: src.SHA256}, lifecycle.Options{Force: src.Force})
}

func (d extensionDoor) Record(ctx context.Context, id string) (any, error) {
	return d.Manager.Record(ctx, id)
}

func (d extensionDoor) Enable(ctx context.Context, by capability.Principal, id string, c extensionserve.Consent) (any, error) {
	return d.Manager.Enable(ctx, by, id, lifecycle.Answer(c))
}

func (d extensionDoor) Disable(ctx context.Context, by capability.Principal, id string, kill bool) (any, error) {
	return d.Manager.Disable(ctx, by, id, kill)
}

func (d extensionDoor) Uninstall(ctx context.Context, by capability.Principal, id string, keepWork bool) (any, error) {
	return d.Manager.Uninstall(ctx, by, id, lifecycle.Removal{KeepWork: keepWork})
}

// SetConfig also forgets what was kept of runs: it may depend on the settings.
func (d extensionDoor) SetConfig(ctx context.Context, by capability.Principal, id string, doc json.RawMessage) (json.RawMessage, error) {
	defer d.cache.Clear()
	return d.Manager.SetConfig(ctx, by, id, doc)
}

// Sandbox is what holds programs here; fresh tries it now.
func (d extensionDoor) Sandbox(ctx context.Context, fresh bool) (any, error) {
	report, err := d.box.Report(ctx)
	if fresh {
		report, err = d.box.SelfTest(ctx)
	}
	if err != nil {
		return nil, capability.AsError(err)
	}
	return report.Status(), nil
}

// Logs are the records of an extension, newest first.
func (d extensionDoor) Logs(ctx context.Context, id string, limit, offset int) ([]json.RawMessage, error) {
	if _, err := d.Manager.Show(ctx, id); err != nil {
		return nil, err
	}
	list, err := d.log.Query(ctx, audit.Query{Extension: id, Limit: limit + offset})
	return list[min(offset, len(list)):], err
}

func (d extensionDoor) Doctor(ctx context.Context) (any, error) {
	return d.Manager.Doctor(ctx, d.Exists)
}
