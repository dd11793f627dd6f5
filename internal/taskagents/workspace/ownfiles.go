package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// AddOwnFiles names files, or whole folders, that we write into a workspace, relative
// to it: they are never committed, and the agent's own git leaves them out where they
// are new. At most 100 in all. Error: invalid_input, reason invalid_path.
func (m *Manager) AddOwnFiles(ctx context.Context, id string, paths ...string) error {
	w, err := m.Get(id)
	if err != nil {
		return err
	}
	const most = 100
	var lines strings.Builder
	for _, p := range paths {
		if !filepath.IsLocal(p) || p == "." || filepath.Clean(p) != p || strings.ContainsAny(p, "\n\r\x00") || len(w.OwnFiles)+len(paths) > most {
			return capability.Errorf(capability.CodeInvalidInput, "workspace.files", "a file of ours has a clean path inside the workspace, and there are at most %d", most).With("invalid_path", "")
		}
		lines.WriteString("/" + ignoreEscape.Replace(filepath.ToSlash(p)) + "\n")
	}
	if w.Mode != Folder {
		if err := m.ignore(ctx, w, lines.String()); err != nil {
			return err
		}
	}
	_, err = m.update(id, func(w *Workspace) { w.OwnFiles = append(append([]string(nil), w.OwnFiles...), paths...) })
	return err
}

var ignoreEscape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `)

// ignore adds lines to the exclude file of the repository, which no commit holds.
func (m *Manager) ignore(ctx context.Context, w Workspace, lines string) error {
	release, err := m.locks.take(ctx, w.root())
	if err != nil {
		return err
	}
	defer release()
	if err := m.checkGitDir(w); err != nil {
		return err
	}
	failed := func(err error) error {
		return capability.Wrap(capability.CodeFailed, "workspace.files", "the exclude file could not be written", err).With("record_failed", "look at the workspace's .git/info")
	}
	// Through a handle of the clone: a link that the agent put there leads nowhere else.
	clone, err := m.dir.OpenRoot(w.root())
	if err != nil {
		return failed(err)
	}
	defer clone.Close()
	info := filepath.Join(".git", "info")
	if err := clone.MkdirAll(info, 0o700); err != nil {
		return failed(err)
	}
	f, err := clone.OpenFile(filepath.Join(info, "exclude"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return failed(err)
	}
	_, err = f.WriteString(lines)
	if err = errors.Join(err, f.Close()); err != nil {
		return failed(err)
	}
	return nil
}
