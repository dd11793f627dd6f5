// Package lifecycle installs, enables, disables, upgrades and removes
// extensions: package archive writes the files, extension reads and checks them, plan
// executes the steps, and a [Registry] stores the result.
//
// Every change is atomic. The new version is complete in .staging before the old one moves to
// .trash, and one transaction of the registry makes the change. The install records are the journal
// from which [Open], after a crash, undoes an install and finishes a removal.
package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/plan"
)

const (
	stagingDir = ".staging"
	trashDir   = ".trash"
	keptSuffix = ".work" // of a working folder that was kept
)

// Reasons of this package's own errors.
const (
	ReasonBusy     = "install_in_progress"
	ReasonState    = "wrong_state"
	ReasonVersion  = "older_version"
	ReasonConsent  = "confirmation_required"
	ReasonChanged  = "security_violation" // the files differ from the installed ones
	ReasonDigest   = plan.ReasonVerification
	ReasonUnsealed = "digest_required"
)

// Steps runs install plans; plan.Engine implements it.
type Steps interface {
	Run(ctx context.Context, j plan.Job) (plan.Result, error)
}

// Recorder is the audit log.
type Recorder interface {
	Append(ctx context.Context, r audit.Record, d audit.Durability) (audit.Receipt, error)
}

// Executions holds the current runs of extensions.
type Executions interface {
	// Stop ends every run of the extension and waits for their end.
	Stop(ctx context.Context, extension string) error
}

// Config of a Manager. Dir, Registry, Steps, Fetcher and Log are required.
type Config struct {
	Dir      string // <home>/extensions
	Registry *Registry
	Steps    Steps
	Fetcher  plan.Fetcher
	Log      Recorder
	// Rules for packages; OS is taken from Platform.
	Rules    extension.Rules
	Platform plan.Platform
	// Tier returns an error if the sandbox does not reach a tier (T1 to T3). If nil,
	// it always does.
	Tier func(tier string) error
	// Permit returns an error if the deployment mode forbids a permission to steps of
	// plans. If nil, all are allowed.
	Permit func(permission string) error
	// Settings validates settings against an extension's schema. If nil, they are not validated.
	Settings func(schema, doc []byte) error
	// Executions are stopped before a package is replaced or removed; may be nil.
	Executions Executions
	// Changed is called after each change that affects the catalog or the commands,
	// one call at a time, with View up to date. It may read from the Manager but must
	// not change anything through it. It may be nil.
	Changed func(ctx context.Context)
	// NeedDigest refuses installs from a URL without a digest (remote mode).
	NeedDigest bool
	Now        func() time.Time // nil: time.Now
	Logger     *slog.Logger     // nil: silent

	// fault injects a crash or a failing disk at a named point; tests only.
	fault func(point string) error
}

// Manager manages the installed extensions. It is safe for concurrent use. Two changes
// of one extension never overlap: the second fails with conflict.
type Manager struct {
	cfg  Config
	root *os.Root // of Dir
	view atomic.Pointer[View]

	mu   sync.Mutex
	busy map[string]bool // folded ids that are being changed
	// order serializes new views and calls of Changed, so that a view cannot replace a newer one.
	order sync.Mutex
}

// Open creates the folders, repairs changes that a crash interrupted, checks every
// enabled package against its hash and loads all. A package whose files changed on disk
// is disabled, which is recorded in the audit log. The caller closes the Manager.
func Open(ctx context.Context, cfg Config) (*Manager, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Tier == nil {
		cfg.Tier = func(string) error { return nil }
	}
	if cfg.Permit == nil {
		cfg.Permit = func(string) error { return nil }
	}
	cfg.Rules.OS = cfg.Platform.OS
	for _, dir := range []string{"", stagingDir, trashDir} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("make the folder of the extensions: %w", err)
		}
	}
	root, err := os.OpenRoot(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the extensions: %w", err)
	}
	m := &Manager{cfg: cfg, root: root, busy: make(map[string]bool)}
	if err := m.repair(ctx); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	if err := m.verify(ctx); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return m, nil
}

// Close releases the folder. No change may be running.
func (m *Manager) Close() error { return m.root.Close() }

// at is a named point at which tests inject faults; otherwise it returns nil.
func (m *Manager) at(point string) error {
	if m.cfg.fault == nil {
		return nil
	}
	return m.cfg.fault(point)
}

// take reserves an extension for one change, until the caller calls release. If it is
// reserved already, the error is conflict.
func (m *Manager) take(id string) (release func(), err error) {
	key := strings.ToLower(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[key] {
		return nil, capability.Errorf(capability.CodeConflict, "extensions", "%s is being changed already", id).With(ReasonBusy,
			"wait until that is done")
	}
	m.busy[key] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.busy, key)
	}, nil
}

// open opens the folder of an installed package. A link is an error.
func (m *Manager) open(id string) (*os.Root, error) {
	dir, err := openDir(m.root, id)
	if err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, "extensions", "the files of "+id+" are missing", err).With("extension_damaged",
			"install it again, or uninstall it")
	}
	return dir, nil
}

// openWork opens the working folder of the package in folder pkg. A link is an error,
// because it could lead to the folder of another extension.
func (m *Manager) openWork(pkg string) (*os.Root, error) {
	dir, err := openDir(m.root, pkg)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openDir(dir, archive.WorkDir)
}

// openDir opens a folder and fails for a link. It compares the open folder with what was
// at name before, so that no process can replace it with a link in between.
func openDir(in *os.Root, name string) (*os.Root, error) {
	before, err := in.Lstat(name)
	if err != nil {
		return nil, err
	}
	dir, err := in.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	after, err := dir.Stat(".")
	if err != nil || !before.IsDir() || !os.SameFile(before, after) {
		return nil, errors.Join(err, dir.Close(), &fs.PathError{Op: "open", Path: name, Err: errors.New("it is not a folder")})
	}
	return dir, nil
}

// read reads an installed package by the current rules, except Strict.
func (m *Manager) read(id string) (*extension.Package, error) {
	dir, err := m.open(id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	tree, err := archive.OpenPackage(dir)
	if err != nil {
		return nil, err
	}
	rules := m.cfg.Rules
	rules.Strict = false // applies to installs only
	return extension.Read(tree, rules)
}

// intact returns denied, reason security_violation, if the files of an installed package
// differ from the installed ones.
func (m *Manager) intact(ctx context.Context, row *Extension) error {
	dir, err := m.open(row.ID)
	if err != nil {
		return err
	}
	defer dir.Close()
	hash, err := archive.TreeHash(ctx, dir)
	if err != nil {
		return err
	}
	if hash != row.TreeHash {
		return capability.Errorf(capability.CodeDenied, "extensions", "the files of %s were changed after it was installed", row.ID).
			With(ReasonChanged, "install it again")
	}
	return nil
}

// verify disables enabled packages that are not intact, with an audit record, copies the
// settings of all, and loads the view. Open calls it.
func (m *Manager) verify(ctx context.Context) error {
	rows, err := m.cfg.Registry.All(ctx)
	if err != nil {
		return err
	}
	for i := range rows {
		row := &rows[i]
		if row.Status != Installed {
			continue
		}
		m.republish(ctx, row.ID, false)
		if !row.Enabled {
			continue
		}
		err := m.intact(ctx, row)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if capability.AsError(err).Reason == ReasonChanged {
			m.record(ctx, audit.Record{
				Event: audit.SecurityViolation, Extension: row.ID, Success: audit.OutcomeFailure, Error: err.Error(),
				Metadata: audit.Metadata{Reason: ReasonChanged},
			}, audit.Synced)
		}
		row.Enabled = false
		if err := m.cfg.Registry.Apply(ctx, Change{Put: row, Raise: true}); err != nil {
			return err
		}
		m.record(ctx, audit.Record{
			Event: audit.ExtensionDisabled, Extension: row.ID, Success: audit.OutcomeSuccess,
			Metadata: audit.Metadata{Attrs: []audit.Attr{{Key: "why", Value: capability.AsError(err).Message}}},
		}, audit.Synced)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.order.Lock()
	defer m.order.Unlock()
	return m.reload(ctx)
}

// record writes to the audit log, which reports its own failures.
func (m *Manager) record(ctx context.Context, r audit.Record, d audit.Durability) {
	r.Logger = "lifecycle"
	if _, err := m.cfg.Log.Append(context.WithoutCancel(ctx), r, d); err != nil {
		m.cfg.Logger.Error("audit record not written", "event", string(r.Event), "err", err)
	}
}

// permitted returns an error, with the step as detail failed_step, if the deployment
// mode forbids a permission that a step needs.
func (m *Manager) permitted(steps []plan.Step) error {
	for i := range steps {
		for _, p := range steps[i].Needs() {
			if err := m.cfg.Permit(p); err != nil {
				e := *capability.AsError(err)
				e.Details = map[string]any{"failed_step": steps[i].ID, "denied_permission": p}
				return &e
			}
		}
	}
	return nil
}

// jsonOf encodes a value that always encodes without error.
func jsonOf(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return data
}
