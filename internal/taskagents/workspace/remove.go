package workspace

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// Remove removes a workspace: its folder, its entry in the list of worktrees, its credential
// and its record. The branch of a worktree stays in the clone, unless it is merged into its
// base. Errors: not_found; conflict, reason workspace_dirty, if uncommitted changes or (for a
// clone) unpushed commits would be lost and force is not set; conflict, reason has_worktrees,
// for a clone with worktrees, even with force; failed, reason cleanup_failed.
func (m *Manager) Remove(ctx context.Context, id string, force bool) error {
	w, release, err := m.hold(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	for _, other := range m.snapshot() {
		if other.Parent == id {
			return capability.Errorf(capability.CodeConflict, "workspace.remove",
				"other workspaces are worktrees of this one").With("has_worktrees", "remove those first")
		}
	}
	if !force {
		lost, err := m.unsaved(ctx, w)
		if err != nil || lost != "" {
			return capability.Wrap(capability.CodeConflict, "workspace.remove", "the workspace holds work that would be lost: "+lost, err).
				With("workspace_dirty", "finalize it, or remove it with force")
		}
	}
	if err := m.discard(ctx, w); err != nil {
		return err
	}
	m.cfg.OnEvent(Event{"workspace_removed", w})
	return nil
}

// unsaved describes the work that would be lost with a workspace, or returns "". If the
// workspace cannot be read, it returns an error, because it may contain work.
func (m *Manager) unsaved(ctx context.Context, w Workspace) (string, error) {
	if w.Mode == Folder {
		entries, err := fs.ReadDir(m.dir.FS(), w.ID)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
			return "", nil
		}
		return "files in it", err
	}
	if _, err := m.dir.Lstat(w.ID); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	s, err := m.status(ctx, w)
	if err != nil {
		return "it cannot be looked at", err
	}
	if !s.Clean {
		return "files that are not committed", nil
	}
	if w.Mode == Worktree && s.Branch != "" {
		return "", nil // its branch stays
	}
	if w.Mode == Checkout {
		return m.unmerged(ctx, w)
	}
	args := []string{"--branches", "--glob=refs/stas[h]"} // with a glob character, git does not append /*
	if head, err := m.line(ctx, w, "rev-parse", "--verify", "--quiet", "HEAD"); err != nil || head != "" {
		args = append(args, "HEAD")
	}
	args = append(args, "--not")
	if w.Mode == Worktree {
		args = []string{"HEAD", "--not", "--branches"}
	}
	count, err := m.line(ctx, w, append(append([]string{"rev-list", "--count"}, args...), "--remotes=origin", "--")...)
	if err != nil {
		return "it cannot be looked at", err
	}
	if n, _ := strconv.Atoi(count); n > 0 {
		return count + " commits that were not pushed", nil
	}
	return "", nil
}

// discard removes a workspace regardless of its content. Missing files are not errors, so that
// it can be repeated. It removes the folder by name below the base's handle instead of with
// git, which would use the path in the agent's files. It fails with reason cleanup_failed.
func (m *Manager) discard(ctx context.Context, w Workspace) error {
	failed := func(err error) error {
		return capability.Wrap(capability.CodeFailed, "workspace.remove", "the workspace could not be removed whole", err).With("cleanup_failed",
			"try again; GC will as well")
	}
	if !idForm.MatchString(w.ID) {
		return failed(errors.New("not an id of ours"))
	}
	w.State = Removing
	if m.put(w) != nil { // a full disk must not prevent the removal
		m.mu.Lock()
		m.all[w.ID] = w
		m.mu.Unlock()
	}
	if err := hostfs.RemoveTree(m.dir, w.ID); err != nil {
		return failed(err)
	}
	m.mu.Lock()
	parent, ok := m.all[w.Parent]
	m.mu.Unlock()
	if w.Mode == Worktree && ok && parent.State == Ready {
		if _, err := m.run(ctx, parent, []string{"worktree", "prune", "--expire=now"}); err == nil && w.Branch != "" {
			m.dropMerged(ctx, parent, w)
		} // if git fails in the parent, a stale entry stays in its list
	}
	if w.Mode == Checkout {
		if err := m.dropPart(ctx, w); err != nil {
			return failed(err)
		}
	}
	if err := errors.Join(m.forgetToken(w.ID), m.records.Delete(w.ID)); err != nil {
		return failed(err)
	}
	m.mu.Lock()
	delete(m.all, w.ID)
	m.mu.Unlock()
	return nil
}

// unmerged describes the commits of a part that no branch of the user has, or returns "".
func (m *Manager) unmerged(ctx context.Context, w Workspace) (string, error) {
	if w.Merged {
		return "", nil
	}
	count, err := m.line(ctx, w, "rev-list", "--count", "HEAD", "--not", "--exclude="+OwnPrefix+"*", "--branches", "--remotes",
		w.BaseCommit, "--")
	if err != nil {
		return "it cannot be looked at", err
	}
	if n, _ := strconv.Atoi(count); n > 0 {
		return count + " commits that were not merged", nil
	}
	return "", nil
}

// dropPart removes the entry of a worktree and its branch from a user's repository. The entry
// is removed by our own name, because git's prune would remove the user's stale entries too. A
// repository that is gone is not an error.
func (m *Manager) dropPart(ctx context.Context, w Workspace) error {
	root, err := os.OpenRoot(w.Source.GitDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	if err := hostfs.RemoveTree(root, "worktrees/"+w.ID); err != nil {
		return err
	}
	_ = root.Remove("worktrees") // fails unless it is empty
	if _, err := os.Lstat(w.Source.Path); errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(w.Branch, OwnPrefix) {
		return nil
	}
	_, err = m.inSource(ctx, *w.Source, "update-ref", "-d", "refs/heads/"+w.Branch)
	return err
}

// dropMerged deletes the branch of w if it is merged into its base as last fetched. git keeps a
// branch that another worktree uses.
func (m *Manager) dropMerged(ctx context.Context, parent, w Workspace) {
	ref := "refs/heads/" + w.Branch
	result, err := m.run(ctx, parent, []string{"merge-base", "--is-ancestor", ref, "refs/remotes/origin/" + w.BaseBranch}, 1, 128)
	if err == nil && result.ExitCode == 0 {
		_, _ = m.run(ctx, parent, []string{"branch", "--quiet", "-D", "--", w.Branch}, 1)
	}
}

// Collected is the result of [Manager.GC]. Kept has the reason for each old workspace that was
// not removed.
type Collected struct {
	Removed []string          `json:"removed"`
	Orphans []string          `json:"orphans"` // removed folders without record
	Kept    map[string]string `json:"kept"`
}

// Run calls GC with live each hour until ctx ends and passes the result to report. It returns
// ctx's error.
func (m *Manager) Run(ctx context.Context, live func(Workspace) bool, report func(Collected, error)) error {
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hourly.C:
			report(m.GC(ctx, live))
		}
	}
}

// GC removes workspaces that were not used for the TTL, have no live session and hold no unsaved
// work, and incomplete ones. Then it removes folders of the same age whose name is a workspace
// id without record. live reports whether a session works in a workspace.
func (m *Manager) GC(ctx context.Context, live func(Workspace) bool) (Collected, error) {
	out := Collected{Removed: []string{}, Orphans: []string{}, Kept: make(map[string]string)}
	now := m.cfg.Now()
	for _, worktrees := range []bool{true, false} { // worktrees first, because a clone with worktrees cannot be removed
		for _, w := range m.snapshot() {
			if (w.Mode == Worktree) != worktrees || w.State != Removing && now.Sub(w.UsedAt) < m.cfg.TTL {
				continue
			}
			if w.State == Ready && live(w) {
				out.Kept[w.ID] = "a session lives in it"
				continue
			}
			err := m.collect(ctx, w)
			switch {
			case err == nil:
				out.Removed = append(out.Removed, w.ID)
			case ctx.Err() != nil:
				return out, capability.AsError(ctx.Err())
			default:
				out.Kept[w.ID] = capability.AsError(err).Message
			}
		}
	}
	entries, err := fs.ReadDir(m.dir.FS(), ".")
	if err != nil {
		return out, capability.Wrap(capability.CodeFailed, "workspace.gc", "the folder of workspaces cannot be read", err).With("cleanup_failed",
			"")
	}
	m.mu.Lock()
	known := maps.Clone(m.all)
	m.mu.Unlock()
	for _, e := range entries {
		// A record is written before its folder is created, so a folder without one is unused.
		info, err := e.Info()
		if _, owned := known[e.Name()]; owned || err != nil || !idForm.MatchString(e.Name()) || now.Sub(info.ModTime()) < m.cfg.TTL {
			continue
		}
		if err := hostfs.RemoveTree(m.dir, e.Name()); err != nil {
			out.Kept[e.Name()] = "it could not be removed"
			continue
		}
		out.Orphans = append(out.Orphans, e.Name())
	}
	return out, nil
}

// collect removes a workspace: a ready one unless it holds unsaved work, an incomplete one in
// any case.
func (m *Manager) collect(ctx context.Context, w Workspace) error {
	if w.State == Ready {
		return m.Remove(ctx, w.ID, false)
	}
	release, err := m.locks.take(ctx, w.root())
	if err != nil {
		return err
	}
	defer release()
	return m.discard(ctx, w)
}

// room fails with unavailable, reason disk_full, if the disk has too little free space or the
// workspaces use more than MaxBytes.
func (m *Manager) room(ctx context.Context) error {
	full := func(format string, args ...any) error {
		return capability.Errorf(capability.CodeUnavailable, "workspace.provision", format, args...).With("disk_full",
			"remove workspaces that are not needed, or run the garbage collection")
	}
	free, err := m.cfg.FreeSpace(m.base)
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "workspace.provision", "the free space cannot be determined", err).With("disk_full",
			"look at the disk")
	}
	if free < m.cfg.MinFree {
		return full("only %d MiB are free; new workspaces need %d", free>>20, m.cfg.MinFree>>20)
	}
	if m.cfg.MaxBytes <= 0 {
		return nil
	}
	var used int64
	walked := 0
	err = fs.WalkDir(m.dir.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if walked++; walked%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if strings.Count(name, "/") > hostfs.MaxDepth {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return nil // it may be removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			used += info.Size()
		}
		if used > m.cfg.MaxBytes {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return capability.AsError(err)
	}
	if used > m.cfg.MaxBytes {
		return full("the workspaces hold more than their %d MiB", m.cfg.MaxBytes>>20)
	}
	return nil
}
