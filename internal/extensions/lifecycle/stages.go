package lifecycle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/plan"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// register builds the new row, which is enabled only if no consent is needed or the
// earlier consent covers it, and compares it with the installed version. If there is no
// row yet, it stores one with status INSTALLING.
func (in *install) register(ctx context.Context) error {
	m, man := in.m, &in.pkg.Manifest
	x := &in.new
	x.ID, x.Name, x.Version, x.Icon, x.Status = man.ID, man.Name, man.Version, man.Icon, Installed
	x.InstalledAt = m.cfg.Now().UTC()
	x.Permissions, x.Capabilities = in.pkg.Permissions, jsonOf(man.Capabilities)
	x.TreeHash, x.SHA256 = in.hash, in.sha
	x.SHA256 = cmp.Or(x.SHA256, in.hash)
	if in.old != nil {
		x.AgentVisible = in.old.AgentVisible
	}
	screen := extension.NewScreen(in.pkg, in.hash, source(x), m.tier(x), x.AgentVisible)
	x.Description, x.Metadata = screen.Description, Metadata{Author: screen.Author, License: screen.License, Platforms: man.Platforms}
	switch given, had := givenOf(in.old); {
	case !screen.Asks():
		x.Enabled = in.old == nil || in.old.Enabled
	case had && len(given.Beyond(&screen)) == 0:
		given.TreeHash = in.hash
		x.Consent, x.Enabled = jsonOf(given), in.old.Enabled
	case had:
		x.Consent = in.old.Consent // to show what it does not cover; it is valid for the old tree only
	}
	if in.old != nil {
		if was, err := m.read(in.old.ID); err == nil {
			before := extension.NewScreen(was, in.old.TreeHash, source(in.old), m.tier(in.old), in.old.AgentVisible)
			changes := extension.CompareScreens(&before, &screen)
			in.changes = &changes
		}
	} else if !in.had { // the row of a failed install stays until this succeeds
		under := *x
		under.Status, under.Enabled = Installing, false
		if err := m.cfg.Registry.Apply(ctx, Change{Put: &under}); err != nil {
			return err
		}
	}
	return errors.Join(in.step(ctx, stepPlan, 30), m.at("registered"))
}

func source(x *Extension) string {
	if x.SourceURL != "" {
		return x.SourceURL
	}
	return x.Source
}

// plan runs the steps in a working folder in staging. For an upgrade, that is a copy of the present
// one, so that a failed step has changed nothing; the extension's runs are stopped first.
func (in *install) plan(ctx context.Context) error {
	m := in.m
	if err := m.permitted(in.pkg.Plan.Steps); err != nil {
		return err
	}
	work := path.Join(in.staging(), archive.WorkDir)
	if err := m.root.Mkdir(work, 0o700); err != nil {
		return broken("the working folder could not be made", err)
	}
	if in.old != nil {
		if m.cfg.Executions != nil {
			if err := m.cfg.Executions.Stop(ctx, in.old.ID); err != nil {
				return err
			}
		}
		if err := m.copyWork(ctx, in.old.ID, in.staging()); err != nil {
			return broken("the working folder could not be copied", err)
		}
	}
	if err := m.at("work copied"); err != nil {
		return err
	}
	dir, err := m.openWork(in.staging())
	if err != nil {
		return broken("the working folder could not be opened", err)
	}
	defer dir.Close()
	result, err := m.cfg.Steps.Run(ctx, plan.Job{
		Extension: in.new.ID, Install: in.rec.ID, Steps: in.pkg.Plan.Steps, Package: filepath.Join(m.cfg.Dir, in.staging()),
		Work: filepath.Join(m.cfg.Dir, work),
		Root: dir, Platform: m.cfg.Platform, Permissions: in.pkg.Permissions,
		Done: func(r plan.Report) error {
			m.recordStep(ctx, in.new.ID, in.rec.ID, in.by.ID, r)
			if r.Status == plan.Completed {
				in.rec.Steps = append(in.rec.Steps, r.Step)
			}
			return errors.Join(in.step(ctx, stepPlan, 30+65*r.Number/r.Total), m.at("step "+r.Step))
		},
	})
	if err != nil {
		return err
	}
	in.config = result.Config
	return in.keepTools(dir)
}

// keepTools copies the programs that the plan produced from the working folder, where
// the extension could change them, to the package, and compares each with its hash.
func (in *install) keepTools(work *os.Root) error {
	m, made := in.m, path.Join(in.staging(), archive.MadeDir)
	left := int64(maxWork)
	for i := range in.pkg.Manifest.Tools {
		t := &in.pkg.Manifest.Tools[i]
		if !t.Made() {
			continue
		}
		if err := m.root.Mkdir(made, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return broken("the tools could not be stored", err)
		}
		sum, err := in.keepTool(work, t, made, &left)
		if err == nil && sum != t.SHA256 {
			err = capability.Errorf(capability.CodeFailed, "extensions.install",
				"the plan made another tool %s than the manifest describes: its sha256 is %s", t.Name, sum).With(plan.ReasonVerification,
				"ask the author")
		}
		if err != nil {
			in.rec.FailedStep = "tool " + t.Name
			return err
		}
	}
	return m.at("tools kept")
}

// keepTool copies one program to the folder made, subtracts its size from left, and
// returns its SHA-256.
func (in *install) keepTool(work *os.Root, t *extension.Tool, made string, left *int64) (sum string, err error) {
	from, err := archive.OpenRegular(work, strings.TrimPrefix(t.Path, archive.WorkDir+"/"))
	if err != nil {
		return "", capability.Wrap(capability.CodeFailed, "extensions.install", "the plan did not make the tool "+t.Name+": "+t.Path+
			" is not a file", err).With(plan.ReasonVerification, "ask the author")
	}
	defer from.Close()
	to, err := in.m.root.OpenFile(path.Join(made, t.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", broken("the tools could not be stored", err)
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, h), io.LimitReader(from, *left+1))
	if *left -= n; err == nil && *left < 0 {
		err = tooMuch()
	}
	if err := errors.Join(err, to.Chmod(0o755), to.Close()); err != nil {
		return "", broken("the tools could not be stored", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (m *Manager) recordStep(ctx context.Context, id, installID, by string, r plan.Report) {
	rec := audit.Record{
		Event: audit.ExtensionStepExecuted, Extension: id, User: by, Success: audit.OutcomeOf(r.Err == nil), Duration: r.Duration,
		Metadata: audit.Metadata{Attrs: []audit.Attr{
			{Key: "install", Value: installID},
			{Key: "step", Value: r.Step},
			{Key: "type", Value: r.Type},
			{Key: "status", Value: string(r.Status)},
			{Key: "output", Value: r.Output},
		}},
	}
	if r.Err != nil {
		e := capability.AsError(r.Err)
		rec.Level, rec.Error, rec.Metadata.Code, rec.Metadata.Reason = audit.Error, e.Message, e.Code, e.Reason
	}
	m.record(ctx, rec, audit.Written)
}

// swap replaces the old package with the new one. The step is stored in the journal
// before the first folder moves; the transaction at the end makes the change effective.
// It fails if a step of the plan changed the package itself.
func (in *install) swap(ctx context.Context) error {
	m := in.m
	dir, err := m.root.OpenRoot(in.staging())
	if err != nil {
		return broken("the package could not be read", err)
	}
	hash, err := archive.TreeHash(ctx, dir)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	if hash != in.hash {
		return capability.Errorf(capability.CodeDenied, "extensions.install",
			"a step of the install changed the package itself").With(ReasonChanged, "steps may write beneath work/ only")
	}
	if err := errors.Join(in.step(ctx, stepSwap, 95), m.at("swap begun")); err != nil {
		return err
	}
	trash := path.Join(trashDir, in.rec.ID)
	if _, err := m.root.Lstat(in.new.ID); err == nil { // an upgrade, or files without a row
		if err := m.root.Rename(in.new.ID, trash); err != nil {
			return broken("the old version could not be moved", err)
		}
	}
	if err := m.at("old moved"); err != nil {
		return err
	}
	if err := m.root.Rename(in.staging(), in.new.ID); err != nil {
		return broken("the new version could not be moved", err)
	}
	if err := m.at("new moved"); err != nil {
		return err
	}
	done := in.rec
	done.Status, done.Progress, done.Step, done.Ended = Completed, 100, "", m.cfg.Now().UTC()
	// The caller's context is not used, because a cancelled commit may have happened.
	ctx = context.WithoutCancel(ctx)
	if err := m.cfg.Registry.Apply(ctx, Change{Put: &in.new, Config: in.config, Record: &done, Raise: true}); err != nil {
		if now, e := m.cfg.Registry.Record(ctx, done.ID); e != nil || now.Status != Completed {
			return broken("the registry could not be written", err)
		}
	}
	in.rec = done
	m.republish(ctx, in.new.ID, false)
	// The change is complete. The next start removes what cannot be removed now.
	if m.at("committed") == nil {
		if err := hostfs.RemoveTree(m.root, trash); err != nil {
			m.cfg.Logger.Warn("the old version is still in the trash", "extension", in.new.ID, "err", err)
		}
	}
	return nil
}
