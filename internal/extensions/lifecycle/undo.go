package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

func (m *Manager) exists(name string) bool {
	_, err := m.root.Lstat(name)
	return err == nil
}

// undo restores the state before the install of a record and marks it as failed with
// cause. It can be interrupted at any point and called again: the journal and the
// existing folders determine the next action.
func (m *Manager) undo(ctx context.Context, rec *Record, cause *capability.Error) error {
	if rec.FailedStep == "" {
		rec.FailedStep = rec.Step
		if s, ok := cause.Details["failed_step"].(string); ok {
			rec.FailedStep = s
		}
	}
	rec.Error, rec.Code, rec.Hint = cause.Message, cause.Reason, cause.Hint
	rec.Code = cmp.Or(rec.Code, string(cause.Code))
	registered := rec.Step == stepRegister || rec.Step == stepPlan || rec.Step == stepSwap || rec.Step == stepUndone
	staging, trash := path.Join(stagingDir, rec.ID), path.Join(trashDir, rec.ID)
	if rec.Step == stepSwap {
		if !m.exists(staging) && m.exists(rec.Extension) { // the new version has been moved in
			if err := m.root.Rename(rec.Extension, staging); err != nil {
				return err
			}
		}
		if m.exists(trash) {
			if err := m.root.Rename(trash, rec.Extension); err != nil {
				return err
			}
		}
		if err := m.at("undo: folders back"); err != nil {
			return err
		}
		// Without this step, a crash after staging is removed would make the old version
		// look like the new one.
		rec.Step = stepUndone
		if err := m.cfg.Registry.SaveRecord(ctx, *rec); err != nil {
			return err
		}
	}
	if err := errors.Join(hostfs.RemoveTree(m.root, staging), hostfs.RemoveTree(m.root, staging+".zip")); err != nil {
		return err
	}
	if err := m.at("undo: staging empty"); err != nil {
		return err
	}
	change := Change{}
	if registered && rec.Extension != "" {
		if row, err := m.cfg.Registry.Get(ctx, rec.Extension); err == nil && row.Status == Installing {
			change.Delete = rec.Extension
		}
	}
	failed := *rec
	failed.Status, failed.Ended = Failed, m.cfg.Now().UTC()
	change.Record = &failed
	if err := m.cfg.Registry.Apply(ctx, change); err != nil {
		return err
	}
	*rec = failed
	return nil
}

// repair undoes or completes the changes that a crash interrupted, and removes leftovers. An
// extension that cannot be repaired is logged and keeps its record; the others are still repaired.
func (m *Manager) repair(ctx context.Context) error {
	open, err := m.cfg.Registry.Open(ctx)
	if err != nil {
		return err
	}
	stuck := make(map[string]bool)
	for i := range open {
		rec := &open[i]
		interrupted := capability.Errorf(capability.CodeFailed, "extensions", "the server stopped in the middle of it").With("interrupted",
			"do it again")
		var err error
		switch {
		case rec.Operation != OpUninstall:
			err = m.undo(ctx, rec, interrupted)
		case rec.Step == stepDisable:
			err = m.undoRemoval(ctx, rec, interrupted)
		default:
			err = m.remove(ctx, rec)
		}
		if err != nil {
			stuck[rec.ID] = true
			m.cfg.Logger.Error("what the last run left behind could not be repaired", "install", rec.ID, "extension", rec.Extension, "err", err)
			continue
		}
		event := audit.Record{
			Event: audit.ExtensionInstallFailed, Extension: rec.Extension, Success: audit.OutcomeFailure, Error: rec.Error,
			Metadata: audit.Metadata{Reason: "interrupted", Attrs: []audit.Attr{
				{Key: "install", Value: rec.ID},
				{Key: "operation", Value: string(rec.Operation)},
				{Key: "status", Value: string(rec.Status)},
			}},
		}
		if rec.Operation == OpUninstall && rec.Status == Completed {
			event.Event, event.Success, event.Error = audit.ExtensionUninstalled, audit.OutcomeSuccess, ""
		}
		m.record(ctx, event, audit.Synced)
	}
	return errors.Join(m.settle(ctx, stuck), m.sweep(stagingDir, stuck), m.sweep(trashDir, stuck))
}

// settle marks rows with status INSTALLING as failed, unless a record is stuck.
func (m *Manager) settle(ctx context.Context, stuck map[string]bool) error {
	rows, err := m.cfg.Registry.All(ctx)
	if err != nil || len(stuck) > 0 {
		return err
	}
	for i := range rows {
		if rows[i].Status == Installing {
			rows[i].Status, rows[i].Enabled = FailedState, false
			if err := m.cfg.Registry.Apply(ctx, Change{Put: &rows[i]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweep empties a folder, except for kept working folders and the folders of stuck
// records. Doctor reports what cannot be removed.
func (m *Manager) sweep(dir string, stuck map[string]bool) error {
	entries, err := fs.ReadDir(m.root.FS(), dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); !stuck[strings.TrimSuffix(name, ".zip")] && !strings.HasSuffix(name, keptSuffix) {
			if err := hostfs.RemoveTree(m.root, path.Join(dir, name)); err != nil {
				m.cfg.Logger.Warn("a leftover could not be removed", "in", dir, "name", name, "err", err)
			}
		}
	}
	return nil
}

// copyWork copies the working folder from one package to another. The extension may still be
// writing, so links are copied and not followed, and only files, folders and links are copied.
func (m *Manager) copyWork(ctx context.Context, from, to string) error {
	if !m.exists(path.Join(from, archive.WorkDir)) {
		return nil
	}
	src, err := m.openWork(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := m.openWork(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	left, entries := int64(maxWork), 0
	return fs.WalkDir(src.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if entries++; err != nil || p == "." {
			return err
		}
		if entries > maxWorkEntries || strings.Count(p, "/") >= hostfs.MaxDepth {
			return tooMuch()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			err = dst.Mkdir(p, info.Mode().Perm()|0o700)
		case info.Mode().Type() == fs.ModeSymlink:
			var target string
			if target, err = src.Readlink(p); err == nil {
				err = dst.Symlink(target, p)
			}
		case info.Mode().IsRegular():
			err = copyFile(src, dst, p, info.Mode().Perm(), &left)
		default:
			return nil // a socket or pipe
		}
		if err == nil {
			err = keepOwner(dst, p, info)
		}
		return err
	})
}

func tooMuch() error {
	return capability.Errorf(capability.CodeTooLarge, "extensions",
		"the working folder is too large, or nested too deeply, to be kept through an upgrade").With(archive.ReasonTooLarge,
		"empty it, or uninstall first")
}

func copyFile(src, dst *os.Root, p string, mode fs.FileMode, left *int64) error {
	in, err := archive.OpenRegular(src, p)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := dst.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, *left+1))
	if *left -= n; err == nil && *left < 0 {
		err = tooMuch()
	}
	return errors.Join(err, out.Chmod(mode), out.Close())
}
