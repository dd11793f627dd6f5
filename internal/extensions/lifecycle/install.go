package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// Source is the origin of a package; exactly one of Zip, Dir and URL is set.
type Source struct {
	Zip  io.ReaderAt // stays open until Install returns
	Size int64       // of Zip
	Dir  string      // a folder of this machine
	URL  string
	// SHA256 is the required digest of the archive; "" if it is not checked.
	SHA256 string
}

// Options of an install.
type Options struct {
	// Record is the id of a record of Begin; if "", Install creates one.
	Record string
	// Force allows a lower version than the installed one.
	Force bool
	// Agree reports whether the operator has agreed to what the package does while it is
	// installed and removed, which the screen lists. It is called if a step runs a program or
	// contacts another machine. If nil, the operator has not agreed.
	Agree func(extension.Screen) bool
	// Strict treats the package's warnings as errors.
	Strict bool
}

// Begin stores the record of a new install, so that callers can look it up before the
// package has been read.
func (m *Manager) Begin(ctx context.Context) (Record, error) {
	rec := Record{ID: newInstallID(), Operation: OpInstall, Status: Running, Step: stepValidate, Started: m.cfg.Now().UTC(), Steps: []string{}}
	return rec, m.cfg.Registry.SaveRecord(ctx, rec)
}

// The steps of a record in the journal.
const (
	stepValidate = "validate"
	stepExtract  = "extract"
	stepRegister = "register"
	stepPlan     = "plan"
	stepSwap     = "swap"   // the folders may have been exchanged
	stepUndone   = "undone" // the exchange was reverted
	stepDisable  = "disable"
	stepCleanup  = "uninstall steps" // from here, an interrupted removal is completed instead of undone
	stepRemove   = "remove"
)

// install is the state of one running install.
type install struct {
	m    *Manager
	by   capability.Principal
	rec  Record
	opts Options
	src  Source

	sha     string
	hash    string
	old     *Extension // the installed version; nil if not installed
	had     bool       // a row of an install that failed exists
	new     Extension
	pkg     *extension.Package
	config  map[string]json.RawMessage
	changes *extension.ScreenChanges
	same    bool // this very package is already installed
	release func()
}

// Install installs or upgrades a package and returns its record. On an error, which the
// record also holds, everything is undone and the previous version stays. A package
// that is already installed unchanged succeeds without effect. An upgrade stops the
// extension's runs; it stays enabled only if the earlier consent covers the new version.
func (m *Manager) Install(ctx context.Context, by capability.Principal, src Source, opts Options) (Record, error) {
	in := &install{m: m, by: by, opts: opts, src: src, release: func() {}}
	defer func() { in.release() }() // after a failed install was undone
	var err error
	if opts.Record == "" {
		in.rec, err = m.Begin(ctx)
	} else {
		in.rec, err = m.cfg.Registry.Record(ctx, opts.Record)
	}
	if err != nil {
		return in.rec, err
	}
	if in.rec.Status != Running || in.rec.Operation != OpInstall || in.rec.Step != stepValidate {
		return in.rec, capability.Errorf(capability.CodeConflict, "extensions.install", "%s was used already", in.rec.ID).With(ReasonState, "")
	}
	if err = in.run(ctx); err != nil {
		e := *capability.AsError(in.fail(ctx, err))
		return in.rec, e.Detail("install_id", in.rec.ID).Detail("failed_step", in.rec.FailedStep)
	}
	if in.same {
		return in.rec, nil
	}
	m.record(ctx, audit.Record{
		Event: in.event(), Extension: in.new.ID, User: by.ID, Success: audit.OutcomeSuccess, Duration: in.rec.Ended.Sub(in.rec.Started),
		Metadata: audit.Metadata{Permissions: in.pkg.Permissions, Attrs: in.attrs()},
	}, audit.Synced)
	m.changed(ctx)
	return in.rec, nil
}

func (in *install) event() audit.Event {
	if in.rec.Operation == OpUpgrade {
		return audit.ExtensionUpgraded
	}
	return audit.ExtensionInstalled
}

func (in *install) attrs() []audit.Attr {
	out := []audit.Attr{
		{Key: "install", Value: in.rec.ID},
		{Key: "version", Value: in.new.Version},
		{Key: "tree_hash", Value: in.hash},
		{Key: "sha256", Value: in.sha},
	}
	if in.changes != nil {
		out = append(out, audit.Attr{Key: "from_version", Value: in.changes.From},
			audit.Attr{Key: "permissions_added", Value: strings.Join(in.changes.Permissions.Added, ",")},
			audit.Attr{Key: "hosts_added", Value: strings.Join(in.changes.Hosts.Added, ",")})
	}
	return out
}

// step stores the current step and progress in the record.
func (in *install) step(ctx context.Context, name string, progress int) error {
	in.rec.Step, in.rec.Progress = name, progress
	return in.m.cfg.Registry.SaveRecord(ctx, in.rec)
}

func (in *install) staging() string { return path.Join(stagingDir, in.rec.ID) }

// run performs the install up to the exchange of the folders. It reserves the extension
// as soon as its id is known; the caller undoes it on an error.
func (in *install) run(ctx context.Context) error {
	m := in.m
	tree, done, err := in.tree(ctx)
	if err != nil {
		return err
	}
	defer done()
	rules := m.cfg.Rules
	rules.Strict = in.opts.Strict
	pkg, err := extension.Read(tree, rules)
	if err != nil {
		return err
	}
	in.rec.Extension = pkg.Manifest.ID
	release, err := m.take(in.rec.Extension)
	if err != nil {
		return err
	}
	in.release = release
	if err := in.compare(ctx, pkg); err != nil {
		return err
	}
	if err := errors.Join(in.step(ctx, stepExtract, 10), m.at("validated")); err != nil {
		return err
	}
	if err := in.extract(ctx, tree, rules); err != nil {
		return err
	}
	if in.same {
		return in.nothingToDo(ctx)
	}
	if err := in.agreed(); err != nil {
		return err
	}
	if err := in.register(ctx); err != nil {
		return err
	}
	if err := in.plan(ctx); err != nil {
		return err
	}
	return in.swap(ctx)
}

// tree opens the source as a checked tree. done closes the source.
func (in *install) tree(ctx context.Context) (tree *archive.Tree, done func(), err error) {
	done = func() {}
	if in.src.SHA256 = strings.ToLower(in.src.SHA256); in.src.SHA256 != "" &&
		(len(in.src.SHA256) != 64 || strings.Trim(in.src.SHA256, "0123456789abcdef") != "") {
		return nil, done, capability.Errorf(capability.CodeInvalidInput, "extensions.install",
			"the sha256 is not one: 64 hex digits are").With(ReasonDigest, "")
	}
	switch {
	case in.src.URL != "":
		in.new.Source, in.new.SourceURL = "url", plainURL(in.src.URL)
		tree, done, err = in.fetch(ctx)
	case in.src.Dir != "":
		in.new.Source = "folder"
		root, e := os.OpenRoot(in.src.Dir)
		if e != nil {
			return nil, done, capability.Wrap(capability.CodeInvalidInput, "extensions.install", "the folder cannot be opened", e)
		}
		done = func() { _ = root.Close() }
		tree, err = archive.ReadDir(root)
	case in.src.Zip != nil:
		in.new.Source = "upload"
		tree, err = in.zip(in.src.Zip, in.src.Size)
	default:
		err = capability.Errorf(capability.CodeInvalidInput, "extensions.install", "nothing to install is named")
	}
	if err == nil {
		tree, err = tree.Package()
	}
	if err != nil {
		done()
		return nil, func() {}, err
	}
	return tree, done, nil
}

// plainURL returns an address for storage and display, without its signature.
func plainURL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(an address)"
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment = nil, "", "", ""
	return u.String()
}

// zip reads an archive, and checks its size and the required digest.
func (in *install) zip(r io.ReaderAt, size int64) (*archive.Tree, error) {
	if size > archive.MaxBytes {
		return nil, capability.Errorf(capability.CodeTooLarge, "extensions.install", "the archive has more than %d bytes",
			archive.MaxBytes).With(archive.ReasonTooLarge, "")
	}
	sum, err := archive.Digest(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, err
	}
	if in.sha = sum; in.src.SHA256 != "" && sum != in.src.SHA256 {
		return nil, capability.Errorf(capability.CodeFailed, "extensions.install",
			"this is not the archive that was announced: its sha256 is %s", sum).With(ReasonDigest,
			"ask the author; the file has changed, or was tampered with")
	}
	return archive.ReadZip(r, size)
}

// fetch downloads the archive to a file in staging, which the returned function closes
// and removes. In remote mode, an address without a digest is refused.
func (in *install) fetch(ctx context.Context) (*archive.Tree, func(), error) {
	done := func() {}
	if in.m.cfg.NeedDigest && in.src.SHA256 == "" {
		return nil, done, capability.Errorf(capability.CodeInvalidInput, "extensions.install",
			"an install from an address needs the archive's sha256 here").With(ReasonUnsealed, "pass --sha256")
	}
	name := in.staging() + ".zip"
	f, err := in.m.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, done, broken("the download could not be stored", err)
	}
	done = func() {
		_ = f.Close()
		_ = in.m.root.Remove(name)
	}
	err = in.m.cfg.Fetcher.Fetch(ctx, in.src.URL, f, archive.MaxBytes, func() error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return f.Truncate(0)
	})
	if err != nil {
		return nil, done, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, done, broken("the download could not be stored", err)
	}
	tree, err := in.zip(f, info.Size())
	return tree, done, err
}

func broken(message string, err error) error {
	if own, ok := errors.AsType[*capability.Error](err); ok {
		return own
	}
	return capability.Wrap(capability.CodeFailed, "extensions", message, err).With("storage_failed",
		"look at the server's log; is the disk full?")
}

// compare looks up the installed extension of that id and decides between install and
// upgrade. Errors: conflict, if the id differs in case only, or if the installed version
// is newer and Force is not set.
func (in *install) compare(ctx context.Context, pkg *extension.Package) error {
	x, err := in.m.cfg.Registry.Get(ctx, pkg.Manifest.ID)
	if capability.CodeOf(err) == capability.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if x.ID != pkg.Manifest.ID {
		return capability.Errorf(capability.CodeConflict, "extensions.install", "%s is installed, and differs in case only",
			x.ID).With("registration_conflict", "give the extension another id")
	}
	if x.Status != Installed {
		in.had = true
		return nil // a failed install may be replaced
	}
	in.old, in.rec.Operation = &x, OpUpgrade
	if extension.CompareVersions(pkg.Manifest.Version, x.Version) < 0 && !in.opts.Force {
		return capability.Errorf(capability.CodeConflict, "extensions.install", "%s %s is installed; %s is older", x.ID, x.Version,
			pkg.Manifest.Version).With(ReasonVersion, "force it if you mean it")
	}
	return nil
}

// extract writes the package to staging and reads it again from there, because the source may have
// changed since it was read. It sets in.same if the identical package is installed and intact.
func (in *install) extract(ctx context.Context, tree *archive.Tree, rules extension.Rules) error {
	if err := in.m.root.Mkdir(in.staging(), 0o755); err != nil {
		return broken("the package could not be stored", err)
	}
	dir, err := in.m.root.OpenRoot(in.staging())
	if err != nil {
		return broken("the package could not be stored", err)
	}
	defer dir.Close()
	if err := in.m.at("staging made"); err != nil {
		return err
	}
	if in.hash, err = tree.Extract(ctx, dir); err != nil {
		return err
	}
	staged, err := archive.OpenPackage(dir)
	if err != nil {
		return err
	}
	if in.pkg, err = extension.Read(staged, rules); err != nil {
		return err
	}
	if in.pkg.Manifest.ID != in.rec.Extension {
		return capability.Errorf(capability.CodeConflict, "extensions.install", "the folder changed while it was read").With(ReasonState,
			"try again")
	}
	in.same = in.old != nil && (in.sha != "" && in.sha == in.old.SHA256 || in.hash == in.old.TreeHash)
	if in.same { // only if the installed files are unchanged
		in.same = in.m.intact(ctx, in.old) == nil
	}
	return errors.Join(in.step(ctx, stepRegister, 20), in.m.at("extracted"))
}

// agreed returns approval_required, with the screen as details, if a step of the plan runs a program
// or contacts another machine, and the operator has not agreed to it.
func (in *install) agreed() error {
	if !in.pkg.Plan.Acts() {
		return nil
	}
	x := in.new
	x.ID, x.Permissions = in.pkg.Manifest.ID, in.pkg.Permissions
	if in.old != nil {
		x.AgentVisible = in.old.AgentVisible
	}
	screen := extension.NewScreen(in.pkg, in.hash, source(&x), in.m.tier(&x), x.AgentVisible)
	if given, had := givenOf(in.old); had {
		screen.More = given.Beyond(&screen)
	}
	if in.opts.Agree != nil && in.opts.Agree(screen) {
		return nil
	}
	return capability.Errorf(capability.CodeApprovalRequired, "extensions.install",
		"%s runs programs or downloads files while it is installed or removed, and no user has approved that yet", x.ID).
		With(ReasonConsent, "read what it does, then install it with --yes").
		Detail("screen", screen).Detail("text", screen.Text()).Detail("tree_hash", in.hash)
}

func (in *install) nothingToDo(ctx context.Context) error {
	if err := hostfs.RemoveTree(in.m.root, in.staging()); err != nil {
		return broken("staging could not be emptied", err)
	}
	in.rec.Status, in.rec.Ended = Completed, in.m.cfg.Now().UTC()
	return in.step(ctx, "nothing to do", 100)
}

// fail undoes the install, records the failure in the record and the audit log, and
// returns cause as a *capability.Error.
func (in *install) fail(ctx context.Context, cause error) error {
	m := in.m
	ctx = context.WithoutCancel(ctx)
	e := capability.AsError(cause)
	if err := m.undo(ctx, &in.rec, e); err != nil {
		// The record stays open, so the next start undoes it.
		m.cfg.Logger.Error("an install could not be undone", "install", in.rec.ID, "err", err)
	}
	event := audit.Record{
		Event: audit.ExtensionInstallFailed, Extension: in.rec.Extension, User: in.by.ID, Success: audit.OutcomeFailure, Error: e.Message,
		Metadata: audit.Metadata{Code: e.Code, Reason: e.Reason, Attrs: []audit.Attr{
			{Key: "install", Value: in.rec.ID},
			{Key: "failed_step", Value: in.rec.FailedStep},
		}},
	}
	m.record(ctx, event, audit.Synced)
	if e.Reason == archive.ReasonViolation {
		event.Event = audit.SecurityViolation
		m.record(ctx, event, audit.Synced)
	}
	return e
}
