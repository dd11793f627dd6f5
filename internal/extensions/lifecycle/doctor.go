package lifecycle

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// Finding is one problem or oddity of the installed extensions.
type Finding struct {
	Code      string `json:"code"` // lower_snake
	Extension string `json:"extension_id,omitempty"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	// Broken is true if something does not work because of it.
	Broken bool `json:"broken"`
}

// Doctor returns the inconsistencies of the installed extensions: rows without files, files without
// rows, changed files, packages that are no longer valid, missing programs and tiers, commands that
// several extensions declare, interrupted changes, and leftovers. It changes nothing. has reports
// whether an extension would find a program. Findings are ordered by extension and code.
func (m *Manager) Doctor(ctx context.Context, has func(ctx context.Context, extension, program string) (bool, error)) ([]Finding, error) {
	rows, err := m.cfg.Registry.All(ctx)
	if err != nil {
		return nil, err
	}
	var out []Finding
	add := func(broken bool, code, id, message, hint string) {
		out = append(out, Finding{code, id, message, hint, broken})
	}
	known := make(map[string]bool)
	commands := make(map[string][]string)
	for i := range rows {
		row := &rows[i]
		known[row.ID] = true
		if row.Status != Installed {
			add(true, "not_installed", row.ID, "its state is "+string(row.Status), "install it again, or uninstall it")
			continue
		}
		if !m.exists(row.ID) {
			add(true, "row_without_files", row.ID, "it is installed, but its files are gone", "install it again, or uninstall it")
			continue
		}
		if err := m.intact(ctx, row); err != nil {
			if ctx.Err() != nil {
				return nil, capability.AsError(ctx.Err())
			}
			add(true, "files_changed", row.ID, capability.AsError(err).Message, "install it again")
			continue
		}
		pkg, err := m.read(row.ID)
		if err != nil {
			add(true, "package_unreadable", row.ID, capability.AsError(err).Message, "ask the author for a version that fits, or uninstall it")
			continue
		}
		for _, w := range pkg.Warnings {
			add(false, "package_warning", row.ID, w, "report it to the author")
		}
		if err := m.cfg.Tier(m.tier(row)); err != nil && row.Enabled {
			add(true, "sandbox_unavailable", row.ID, "it needs a sandbox of tier "+m.tier(row)+": "+capability.AsError(err).Message,
				"junctor debug sandbox status")
		}
		for _, bin := range pkg.External() {
			if has == nil {
				break
			}
			if there, err := has(ctx, row.ID, bin); err == nil && !there {
				add(true, "program_missing", row.ID, bin+" is not installed on this machine", "install "+bin)
			}
		}
		for i := range pkg.Commands {
			for _, name := range append([]string{pkg.Commands[i].Name}, pkg.Commands[i].Aliases...) {
				commands[name] = append(commands[name], row.ID)
			}
		}
	}
	for name, ids := range commands {
		if len(ids) > 1 {
			slices.Sort(ids)
			for _, id := range ids {
				add(false, "command_conflict", id, name+" is also declared by "+
					strings.Join(slices.DeleteFunc(slices.Clone(ids), func(x string) bool { return x == id }), ", "), "use "+name+":"+id)
			}
		}
	}
	if err := m.leftovers(ctx, known, add); err != nil {
		return nil, err
	}
	out = slices.DeleteFunc(out, func(f Finding) bool { return f.Extension != "" && m.moved(ctx, f.Extension, rows) })
	slices.SortFunc(out, func(a, b Finding) int {
		return strings.Compare(a.Extension+"\x00"+a.Code+"\x00"+a.Message, b.Extension+"\x00"+b.Code+"\x00"+b.Message)
	})
	return out, nil
}

// moved reports whether an extension is being changed or has changed since rows was
// read. Findings about it would then mix two versions.
func (m *Manager) moved(ctx context.Context, id string, rows []Extension) bool {
	if m.Busy(id) {
		return true
	}
	at := slices.IndexFunc(rows, func(r Extension) bool { return r.ID == id })
	now, err := m.cfg.Registry.Get(ctx, id)
	if err != nil || at < 0 {
		return (err == nil) != (at >= 0)
	}
	return now.Generation != rows[at].Generation
}

// leftovers adds findings for interrupted changes, folders without a row and working
// folders that were kept on removal.
func (m *Manager) leftovers(ctx context.Context, known map[string]bool, add func(broken bool, code, id, message, hint string)) error {
	open, err := m.cfg.Registry.Open(ctx)
	if err != nil {
		return err
	}
	for i := range open {
		rec := &open[i]
		if rec.Extension == "" || m.Busy(rec.Extension) {
			continue
		}
		// It may have ended since it was read, but does not end from now on.
		if now, err := m.cfg.Registry.Record(ctx, rec.ID); err == nil && now.Ended.IsZero() {
			add(true, "change_stuck", rec.Extension, rec.ID+" did not end and could not be undone",
				"restart the server; the log says what is in the way")
		}
	}
	entries, err := fs.ReadDir(m.root.FS(), ".")
	if err != nil {
		return broken("the folder of the extensions cannot be read", err)
	}
	for _, e := range entries {
		if name := e.Name(); !known[name] && name != stagingDir && name != trashDir {
			add(false, "files_without_row", name, "a folder is there that nothing installed", "remove it; nothing reads it")
		}
	}
	entries, err = fs.ReadDir(m.root.FS(), trashDir)
	if err != nil {
		return broken("the trash cannot be read", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), keptSuffix) {
			add(false, "work_kept", "", "the working folder .trash/"+e.Name()+" was kept", "remove it when it is not needed")
		}
	}
	return nil
}

// configFile is the copy of the settings in the working folder.
const configFile = "config.json"

// Config returns an extension's settings with secrets as ***.
func (m *Manager) Config(ctx context.Context, id string) (json.RawMessage, error) {
	doc, err := m.RawConfig(ctx, id)
	if err != nil {
		return nil, err
	}
	var secrets []string
	if pkg, err := m.read(id); err == nil { // otherwise only the names indicate secrets
		secrets = pkg.SecretNames()
	}
	return maskSettings(doc, secrets...)
}

// RawConfig returns the settings with secrets, for the executors of the extension.
func (m *Manager) RawConfig(ctx context.Context, id string) (json.RawMessage, error) {
	if _, err := m.cfg.Registry.Get(ctx, id); err != nil {
		return nil, err
	}
	return m.cfg.Registry.Config(ctx, id)
}

// SetConfig replaces an extension's settings and returns them with secrets as ***. In
// next, *** keeps the stored secret. Only an administrator may set a secret (denied).
// Other errors: those of mergeSettings and of the manifest's schema. A copy without
// secrets is written to work/config.json; see republish.
func (m *Manager) SetConfig(ctx context.Context, by capability.Principal, id string, next json.RawMessage) (json.RawMessage, error) {
	row, release, err := m.hold(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	stored, err := m.cfg.Registry.Config(ctx, row.ID)
	if err != nil {
		return nil, err
	}
	var secrets []string
	var schema json.RawMessage
	if pkg, err := m.read(row.ID); err == nil {
		secrets, schema = pkg.SecretNames(), pkg.Manifest.ConfigSchema
	}
	if by.Role != capability.RoleAdmin && hasSecrets(next, secrets...) {
		return nil, capability.Errorf(capability.CodeDenied, "settings",
			"a secret among the settings is an administrator's to change; yours is the role %s", by.Role).With("forbidden",
			"leave *** where it stands to keep the old value")
	}
	doc, err := mergeSettings(stored, next, secrets...)
	if err != nil {
		return nil, err
	}
	if len(schema) > 0 && m.cfg.Settings != nil {
		if err := m.cfg.Settings(schema, doc); err != nil {
			return nil, err
		}
	}
	if err := m.cfg.Registry.SetConfig(ctx, row.ID, doc, m.cfg.Now()); err != nil {
		return nil, err
	}
	m.record(ctx, audit.Record{Event: audit.ConfigChanged, Extension: row.ID, User: by.ID, Success: audit.OutcomeSuccess}, audit.Synced)
	m.republish(ctx, row.ID, true)
	return maskSettings(doc, secrets...)
}

// republish writes the copy of the settings again, because it may have been written when a secret was
// not yet known as one. If that fails, for example because the package that names its secrets cannot be read,
// the copy is removed and a warning is logged. Without settings, the file is replaced only if they were set.
func (m *Manager) republish(ctx context.Context, id string, set bool) {
	doc, err := m.cfg.Registry.Config(ctx, id)
	if err == nil && (set || string(doc) != "{}") {
		pkg, e := m.read(id)
		if err = e; err == nil {
			err = m.publishConfig(id, doc, pkg.SecretNames())
		}
	}
	if err == nil {
		return
	}
	if work, e := m.openWork(id); e == nil {
		err = errors.Join(err, hostfs.RemoveTree(work, configFile), work.Close())
	}
	m.cfg.Logger.Warn("settings not copied to the working folder", "extension", id, "err", err)
}

func (m *Manager) publishConfig(id string, doc json.RawMessage, secrets []string) error {
	public, err := publicSettings(doc, secrets...)
	if err != nil {
		return err
	}
	work, err := m.openWork(id)
	if err != nil {
		return err
	}
	defer work.Close()
	return replaceConfig(work, public)
}

// replaceConfig writes the copy to configFile. The extension may have put a link, a pipe or
// anything else there, so the existing entry is replaced without being opened. Only the extension's
// user can enter the folder, so the file's mode protects nothing further.
func replaceConfig(work *os.Root, public []byte) error {
	next := "." + configFile + "-" + rand.Text()
	f, err := work.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = work.Remove(next) }() // does nothing after the rename
	_, err = f.Write(public)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := work.Rename(next, configFile); err == nil {
		return nil
	}
	if err := hostfs.RemoveTree(work, configFile); err != nil { // a folder
		return err
	}
	return work.Rename(next, configFile)
}
