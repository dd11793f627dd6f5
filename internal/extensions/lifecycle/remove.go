package lifecycle

import (
	"context"
	"errors"
	"path"
	"path/filepath"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/plan"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// Removal holds the options of Uninstall.
type Removal struct {
	// KeepWork moves its working folder to .trash/<id>-<install id>.work, where nothing removes it.
	KeepWork bool
	// Strict aborts the removal if a step of the uninstall plan fails.
	Strict bool
}

// Uninstall removes an extension: it disables it, stops its runs, runs its uninstall
// steps, and deletes files, row and settings. A failed step is recorded and, unless
// Strict, does not stop the removal. On any other error the removal is undone.
func (m *Manager) Uninstall(ctx context.Context, by capability.Principal, id string, how Removal) (Record, error) {
	row, err := m.cfg.Registry.Get(ctx, id)
	if err != nil {
		return Record{}, err
	}
	release, err := m.take(row.ID)
	if err != nil {
		return Record{}, err
	}
	defer release()
	if row, err = m.cfg.Registry.Get(ctx, id); err != nil { // it may have been removed meanwhile
		return Record{}, err
	}
	rec := Record{
		ID: newInstallID(), Extension: row.ID, Operation: OpUninstall, Status: Uninstalling, Step: stepDisable, Started: m.cfg.Now().UTC(),
		Steps:      []string{},
		WasEnabled: row.Enabled, KeepWork: how.KeepWork,
	}
	if err := m.uninstall(ctx, by, &row, &rec, how); err != nil {
		ctx = context.WithoutCancel(ctx)
		e := capability.AsError(err)
		if err := m.undoRemoval(ctx, &rec, e); err != nil {
			m.cfg.Logger.Error("a removal could not be undone", "install", rec.ID, "err", err)
		}
		m.record(ctx, audit.Record{
			Event: audit.ExtensionInstallFailed, Extension: row.ID, User: by.ID, Success: audit.OutcomeFailure, Error: e.Message,
			Metadata: audit.Metadata{Code: e.Code, Reason: e.Reason, Attrs: []audit.Attr{
				{Key: "install", Value: rec.ID},
				{Key: "operation", Value: string(rec.Operation)},
			}},
		}, audit.Synced)
		m.changed(ctx)
		return rec, e
	}
	m.record(ctx, audit.Record{
		Event: audit.ExtensionUninstalled, Extension: row.ID, User: by.ID, Success: audit.OutcomeSuccess,
		Metadata: audit.Metadata{Attrs: []audit.Attr{
			{Key: "install", Value: rec.ID},
			{Key: "version", Value: row.Version},
			{Key: "failed_step", Value: rec.FailedStep},
		}},
	}, audit.Synced)
	m.changed(ctx)
	return rec, nil
}

// uninstall performs the removal of a reserved extension; the caller undoes it on an error.
func (m *Manager) uninstall(ctx context.Context, by capability.Principal, row *Extension, rec *Record, how Removal) error {
	off := *row
	off.Enabled = false
	if err := m.cfg.Registry.Apply(ctx, Change{Put: &off, Record: rec, Raise: true}); err != nil {
		return err
	}
	m.changed(ctx)
	if err := m.at("disabled"); err != nil {
		return err
	}
	if m.cfg.Executions != nil {
		if err := m.cfg.Executions.Stop(ctx, row.ID); err != nil {
			return err
		}
	}
	rec.Step, rec.Progress = stepCleanup, 10
	if err := errors.Join(m.cfg.Registry.SaveRecord(ctx, *rec), m.at("cleanup begun")); err != nil {
		return err
	}
	failed, err := m.cleanup(ctx, by, row, rec)
	switch {
	case err != nil:
		return err
	case failed != nil && how.Strict:
		return failed
	case failed != nil:
		rec.FailedStep, rec.Error, rec.Code = "uninstall", failed.Message, failed.Reason
		if s, ok := failed.Details["failed_step"].(string); ok {
			rec.FailedStep = s
		}
	}
	return m.remove(ctx, rec)
}

// cleanup runs the uninstall steps if the package is intact. failed is an error of the package or a
// step, which does not have to stop the removal; err is an error of the server or ctx, which does.
func (m *Manager) cleanup(ctx context.Context, by capability.Principal, row *Extension, rec *Record) (failed *capability.Error, err error) {
	if row.Status != Installed || !m.exists(row.ID) {
		return nil, nil
	}
	pkg, err := m.installed(ctx, row)
	if err != nil {
		return capability.AsError(err), ctx.Err()
	}
	if len(pkg.Plan.Uninstall) == 0 {
		return nil, nil
	}
	if err := m.permitted(pkg.Plan.Uninstall); err != nil {
		return capability.AsError(err), nil
	}
	work := path.Join(row.ID, archive.WorkDir)
	dir, err := m.openWork(row.ID)
	if err != nil {
		return capability.AsError(broken("the working folder could not be opened", err)), nil
	}
	defer dir.Close()
	_, err = m.cfg.Steps.Run(ctx, plan.Job{
		Extension: row.ID, Install: rec.ID, Steps: pkg.Plan.Uninstall, Package: filepath.Join(m.cfg.Dir, row.ID),
		Work: filepath.Join(m.cfg.Dir, work),
		Root: dir, Platform: m.cfg.Platform, Permissions: pkg.Permissions,
		Done: func(r plan.Report) error {
			m.recordStep(ctx, row.ID, rec.ID, by.ID, r)
			if r.Status == plan.Completed {
				rec.Steps = append(rec.Steps, r.Step)
			}
			if r.Err != nil {
				failed = capability.AsError(r.Err)
			}
			rec.Progress = 10 + 80*r.Number/r.Total
			return errors.Join(m.cfg.Registry.SaveRecord(ctx, *rec), m.at("uninstall step "+r.Step))
		},
	})
	if failed != nil {
		return failed, ctx.Err()
	}
	return nil, err
}

func (m *Manager) kept(rec *Record) string {
	return path.Join(trashDir, rec.Extension+"-"+rec.ID+keptSuffix)
}

// remove moves the files to the trash, deletes row and settings in one transaction, and
// empties the trash. It can be interrupted at any point and called again.
func (m *Manager) remove(ctx context.Context, rec *Record) error {
	ctx = context.WithoutCancel(ctx)
	rec.Step, rec.Progress = stepRemove, 95
	if err := errors.Join(m.cfg.Registry.SaveRecord(ctx, *rec), m.at("removal begun")); err != nil {
		return err
	}
	trash := path.Join(trashDir, rec.ID)
	if m.exists(rec.Extension) && !m.exists(trash) {
		if err := m.root.Rename(rec.Extension, trash); err != nil {
			return broken("the files could not be moved", err)
		}
	}
	if err := m.at("files moved"); err != nil {
		return err
	}
	work := path.Join(trash, archive.WorkDir)
	if rec.KeepWork && m.exists(work) && !m.exists(m.kept(rec)) {
		if err := m.root.Rename(work, m.kept(rec)); err != nil {
			return broken("the working folder could not be kept", err)
		}
	}
	if err := m.at("work kept"); err != nil {
		return err
	}
	done := *rec
	done.Status, done.Progress, done.Step, done.Ended = Completed, 100, "", m.cfg.Now().UTC()
	if err := m.cfg.Registry.Apply(ctx, Change{Delete: rec.Extension, Record: &done, Raise: true}); err != nil {
		if now, e := m.cfg.Registry.Record(ctx, done.ID); e != nil || now.Status != Completed {
			return broken("the registry could not be written", err)
		}
	}
	*rec = done
	if m.at("row deleted") == nil {
		if err := hostfs.RemoveTree(m.root, trash); err != nil {
			m.cfg.Logger.Warn("removed files are still in the trash", "extension", rec.Extension, "err", err)
		}
	}
	return nil
}

// undoRemoval restores the files, enables the extension if it was enabled, and marks the
// record as failed with cause.
func (m *Manager) undoRemoval(ctx context.Context, rec *Record, cause *capability.Error) error {
	trash := path.Join(trashDir, rec.ID)
	if m.exists(m.kept(rec)) {
		if err := m.root.Rename(m.kept(rec), path.Join(trash, archive.WorkDir)); err != nil {
			return err
		}
	}
	if m.exists(trash) && !m.exists(rec.Extension) {
		if err := m.root.Rename(trash, rec.Extension); err != nil {
			return err
		}
	}
	if err := m.at("undo: files back"); err != nil {
		return err
	}
	row, err := m.cfg.Registry.Get(ctx, rec.Extension)
	if err != nil {
		return err
	}
	row.Enabled = rec.WasEnabled
	failed := *rec
	failed.Status, failed.Ended, failed.Error, failed.Code, failed.Hint = Failed, m.cfg.Now().UTC(), cause.Message, cause.Reason, cause.Hint
	failed.FailedStep = rec.Step
	if s, ok := cause.Details["failed_step"].(string); ok {
		failed.FailedStep = s
	}
	if err := m.cfg.Registry.Apply(ctx, Change{Put: &row, Record: &failed, Raise: true}); err != nil {
		return err
	}
	*rec = failed
	return nil
}
