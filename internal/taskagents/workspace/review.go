package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// ResultRole is the Role of the workspace that holds the parts of a task together.
const ResultRole = "result"

// Parts returns the worktrees of a task in a user's repository, the oldest first.
func (m *Manager) Parts(task string) []Workspace {
	list := slices.DeleteFunc(m.List(), func(w Workspace) bool { return w.Mode != Checkout || w.Execution != task })
	slices.Reverse(list)
	return list
}

// CommitPart commits the work in a part's worktree on its branch, without the repository's hooks,
// and returns the branch's commit. Nothing to commit is not an error. Files that still have the
// markers of a conflict stay in Conflicts. Errors: those of [Manager.Commit] without the search.
func (m *Manager) CommitPart(ctx context.Context, id, message string) (head string, err error) {
	w, release, err := m.hold(ctx, id)
	if err != nil {
		return "", err
	}
	defer release()
	return m.commitPart(ctx, w, message)
}

func (m *Manager) commitPart(ctx context.Context, w Workspace, message string) (string, error) {
	if err := m.onBranch(ctx, w); err != nil {
		return "", err
	}
	if _, err := m.run(ctx, w, []string{"add", "--all", "--", "."}); err != nil {
		return "", err
	}
	staged, err := m.run(ctx, w, []string{"diff", "--cached", "--quiet", "--ignore-submodules=dirty"}, 1)
	if err == nil && staged.ExitCode == 1 {
		_, err = m.run(ctx, w, []string{"commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message=" + message})
	}
	if err != nil {
		return "", err
	}
	head, err := m.line(ctx, w, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if err == nil && len(w.Conflicts) > 0 {
		_, err = m.update(w.ID, func(now *Workspace) { now.Conflicts = m.stillMarked(now.ID, now.Conflicts) })
	}
	return head, err
}

// stillMarked returns the files of a workspace that have the markers of a conflict. A file that is
// too large to be searched counts as one.
func (m *Manager) stillMarked(id string, names []string) (left []string) {
	for _, name := range names {
		f, err := m.dir.Open(filepath.Join(id, filepath.FromSlash(name)))
		if err != nil {
			continue // it was deleted
		}
		info, err := f.Stat()
		data := []byte{}
		if err == nil && info.Mode().IsRegular() && info.Size() <= maxMarked {
			data = make([]byte, info.Size())
			n, _ := io.ReadFull(f, data)
			data = data[:n]
		}
		if _ = f.Close(); err == nil && info.Size() > maxMarked || bytes.Contains(append([]byte("\n"), data...), []byte("\n<<<<<<< ")) {
			left = append(left, name)
		}
	}
	return left
}

// MergePart merges a commit into the branch of a workspace, unless it contains it. Conflicts are
// committed with their markers and recorded, as in [Manager.ProvisionPart].
func (m *Manager) MergePart(ctx context.Context, id, commit string) (Workspace, error) {
	w, release, err := m.hold(ctx, id)
	if err != nil {
		return w, err
	}
	defer release()
	if err = m.mergeCommit(ctx, &w, commit); err != nil {
		return w, err
	}
	conflicts := w.Conflicts
	return m.update(id, func(w *Workspace) { w.Conflicts = conflicts })
}

// CopyChanges copies the uncommitted changes of a user's checkout, with untracked
// files, into a part's worktree and commits them there. It returns the commit.
func (m *Manager) CopyChanges(ctx context.Context, id string) (string, error) {
	w, release, err := m.hold(ctx, id)
	if err != nil {
		return "", err
	}
	defer release()
	listed, err := m.inSource(ctx, *w.Source, "diff", "--name-only", "-z", "--no-renames", "--ignore-submodules=all", "HEAD", "--")
	if err != nil {
		return "", err
	}
	others, err := m.inSource(ctx, *w.Source, "ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return "", err
	}
	if listed.Stdout.Truncated() || others.Stdout.Truncated() {
		return "", capability.Errorf(capability.CodeTooLarge, "workspace.checkout", "too many files have changed in the checkout").
			With("change_too_large", "commit some of them first")
	}
	from, err := os.OpenRoot(w.Source.Path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	names := strings.Split(string(listed.Stdout.Bytes())+string(others.Stdout.Bytes()), "\x00")
	for _, name := range names {
		if name == "" || strings.HasSuffix(name, "/") { // a repository within the checkout
			continue
		}
		if err := m.copyChange(from, name, w.ID); err != nil {
			return "", capability.Wrap(capability.CodeFailed, "workspace.checkout", "a changed file could not be copied", err).
				With("setup_failed", "commit the changes, or leave --include-uncommitted out")
		}
	}
	return m.commitPart(ctx, w, "Uncommitted changes of the checkout")
}

// copyChange copies one file or link of a user's checkout to a workspace, or removes it there if the
// user has deleted it.
func (m *Manager) copyChange(from *os.Root, name, id string) error {
	name = filepath.FromSlash(name)
	target := filepath.Join(id, name)
	if err := hostfs.RemoveTree(m.dir, target); err != nil {
		return err
	}
	info, err := from.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = m.dir.MkdirAll(filepath.Dir(target), 0o755)
	}
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := from.Readlink(name)
		if err == nil {
			err = m.dir.Symlink(to, target)
		}
		return err
	case !info.Mode().IsRegular():
		return nil
	}
	data, err := from.ReadFile(name)
	if err == nil {
		err = m.dir.WriteFile(target, data, info.Mode().Perm())
	}
	return err
}

// Review is the change of a task, as a merge would add it.
type Review struct {
	Base      string   `json:"base"` // commit
	Head      string   `json:"head"`
	Branch    string   `json:"branch"`
	Stat      DiffStat `json:"stat"`
	Conflicts []string `json:"conflicts,omitempty"`
	Diff      []byte   `json:"diff,omitempty"` // git's binary diff, byte for byte
}

// Review returns the change between a commit and the branch of a workspace, complete with new and
// binary files. Errors: too_large, reason change_too_large; and those of Status.
func (m *Manager) Review(ctx context.Context, id, base string) (Review, error) {
	w, err := m.Get(id)
	if err != nil {
		return Review{}, err
	}
	r := Review{Base: base, Branch: w.Branch, Conflicts: w.Conflicts}
	if r.Head, err = m.line(ctx, w, "rev-parse", "--verify", "--quiet", "refs/heads/"+w.Branch); err != nil {
		return r, err
	}
	result, err := m.run(ctx, w, diffArgs("diff", "--binary", "--full-index", "--no-renames", base, r.Head, "--"))
	if err != nil {
		return r, err
	}
	if result.Stdout.Truncated() {
		return r, capability.Errorf(capability.CodeTooLarge, "workspace.diff", "the change has more than %d MiB", largeOutput>>20).
			With("change_too_large", "look at it in the checkout with: git diff "+base+" "+w.Branch)
	}
	r.Diff = result.Stdout.Bytes()
	r.Stat, err = m.stat(ctx, w, base, r.Head)
	return r, err
}

// Line returns a line of a file as it is committed on the branch of a workspace; the first is 1. It
// fails with invalid_input, reason no_such_line.
func (m *Manager) Line(ctx context.Context, id, file string, line int) (string, error) {
	w, err := m.Get(id)
	if err != nil {
		return "", err
	}
	none := badCheckout("no_such_line", "name a line as tasks diff shows it, from the root of the repository",
		"%.200q has no line %d on the branch %s", file, line, w.Branch)
	if !filepath.IsLocal(file) || strings.ContainsRune(file, 0) || line < 1 {
		return "", none
	}
	result, err := m.run(ctx, w, []string{"cat-file", "blob", "refs/heads/" + w.Branch + ":" + filepath.ToSlash(filepath.Clean(file))}, 128)
	if err != nil || result.ExitCode != 0 {
		return "", cmp.Or(err, error(none))
	}
	for text := range strings.Lines(string(result.Stdout.Bytes())) {
		if line--; line == 0 {
			return strings.ToValidUTF8(strings.TrimRight(text, "\r\n"), "\uFFFD"), nil
		}
	}
	return "", none
}

// MergeMethod is the way in which a task's work gets into the user's branch.
type MergeMethod string

// The methods.
const (
	FastForward MergeMethod = "fast-forward"
	Squash      MergeMethod = "squash"
	Rebase      MergeMethod = "rebase"
)

// MergeRequest describes a merge of a task's result.
type MergeRequest struct {
	ID      string // workspace of the result
	Base    string // commit that the task started from
	Commit  string // the result's commit that was reviewed
	Method  MergeMethod
	Message string // of the commit of Squash
}

// Merged is the result of a merge.
type Merged struct {
	Branch string   `json:"branch"`
	From   string   `json:"from"` // commit of the branch before
	Commit string   `json:"commit"`
	Stat   DiffStat `json:"stat"`
}

// MergeTask adds the result of a task to the branch that is checked out in the user's checkout.
// The commit is prepared in a worktree of its own, and the last step is a fast-forward, so that
// the checkout either has all of it or is unchanged. Errors: conflict, reason checkout_dirty,
// no_branch, not_fast_forward, merge_conflict or work_moved; denied, reason secret_found; invalid_input,
// reason invalid_method.
func (m *Manager) MergeTask(ctx context.Context, req MergeRequest) (Merged, error) {
	w, release, err := m.hold(ctx, req.ID)
	if err != nil {
		return Merged{}, err
	}
	defer release()
	source, err := m.Inspect(ctx, w.Source.Path)
	if err != nil {
		return Merged{}, err
	}
	if err := m.mergeable(ctx, w, source, req); err != nil {
		return Merged{}, err
	}
	out := Merged{Branch: source.Branch, From: source.Head}
	if out.Commit, err = m.prepare(ctx, w, source, req); err != nil {
		return out, err
	}
	if _, err := m.inSource(ctx, source, "merge", "--ff-only", "--quiet", "--no-verify", "--no-gpg-sign", out.Commit); err != nil {
		return out, capability.Wrap(capability.CodeConflict, "workspace.merge", "git left the checkout as it was: "+
			capability.AsError(err).Message, err).
			With("checkout_dirty", "move the files away that git names, and merge again")
	}
	if out.Stat, err = m.stat(ctx, w, source.Head, out.Commit); err != nil {
		return out, err
	}
	for _, one := range m.Parts(w.Execution) {
		if _, err := m.update(one.ID, func(w *Workspace) { w.Merged = true }); err != nil {
			return out, err
		}
	}
	return out, nil
}

func conflict(reason, hint, format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeConflict, "workspace.merge", format, args...).With(reason, hint)
}

// mergeable checks that a result can be merged into a checkout, and that it is still the reviewed one.
func (m *Manager) mergeable(ctx context.Context, w Workspace, source Source, req MergeRequest) error {
	if source.GitDir != w.Source.GitDir {
		return badCheckout("not_a_checkout", "", "%.300q is another repository than before", source.Path)
	}
	if source.Branch == "" {
		return conflict("no_branch", "check out the branch that the work is for", "no branch is checked out in %.300q", source.Path)
	}
	status, err := m.sourceStatus(ctx, source)
	if err != nil {
		return err
	}
	if n := len(status.Modified) + len(status.Staged) + len(status.Unmerged); n > 0 {
		return conflict("checkout_dirty", "commit or stash them first", "%d files of the checkout have changes that are not committed", n)
	}
	for _, name := range []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG"} {
		at, err := m.inSource(ctx, source, "rev-parse", "--path-format=absolute", "--git-path", name)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(strings.TrimSpace(at.Stdout.Text())); err == nil {
			return conflict("checkout_dirty", "finish or abort it first", "another operation of git is in progress in the checkout")
		}
	}
	if err := m.checkReviewed(ctx, w, req.Commit); err != nil {
		return err
	}
	head := req.Commit
	if err := m.filtered(ctx, w, req.Base, head); err != nil {
		return err
	}
	return m.scanRange(ctx, w, "merge the branch with git: "+w.Branch, head, "--not", source.Head)
}

// filtered returns an error if a changed file passes a filter of the repository, such as LFS,
// because filters are programs and are not run here.
func (m *Manager) filtered(ctx context.Context, w Workspace, base, head string) error {
	listed, err := m.run(ctx, w, diffArgs("diff", "--name-only", "-z", "--no-renames", base, head, "--"))
	if err != nil {
		return err
	}
	names := strings.Split(strings.TrimSuffix(string(listed.Stdout.Bytes()), "\x00"), "\x00")
	for part := range slices.Chunk(names, 500) {
		if part[0] == "" {
			continue
		}
		found, err := m.run(ctx, w, append([]string{"check-attr", "-z", "filter", "--"}, part...))
		if err != nil {
			return err
		}
		fields := strings.Split(string(found.Stdout.Bytes()), "\x00")
		for i := 2; i < len(fields); i += 3 {
			if fields[i] != "unspecified" && fields[i] != "unset" {
				return conflict("filtered_files", "merge the branch with your own git: git merge "+w.Branch,
					"the file %.200q passes the filter %.40q, which is a program and is not run here", fields[i-2], fields[i])
			}
		}
	}
	return nil
}

// checkReviewed returns the error conflict if the task's branch is not at the commit that the user was
// shown, or has merge conflicts.
func (m *Manager) checkReviewed(ctx context.Context, w Workspace, commit string) error {
	if len(w.Conflicts) > 0 {
		return conflict(ReasonMergeConflict, "resolve them in "+w.Path+", or have an agent do it with tasks send",
			"%d files have conflicts between the parts", len(w.Conflicts)).
			Detail("files", w.Conflicts)
	}
	head, err := m.line(ctx, w, "rev-parse", "--verify", "--quiet", "refs/heads/"+w.Branch)
	if err == nil && head != commit {
		return conflict(ReasonWorkMoved, "look at it again with: junctor tasks diff",
			"the work is at %.12s, and the commit that was shown is %.12s", head, commit).
			Detail("commit", head)
	}
	if err != nil {
		return err
	}
	return m.checkHistory(ctx, w)
}

// forged is the error for a repository that shows other objects or other parents than a merge adds, so that
// the user's own git would be deceived.
func forged(remedy, what string) error {
	return capability.Errorf(capability.CodeDenied, "workspace.merge", "the repository does not show what would be merged: it %s", what).
		With("security_violation", remedy)
}

// checkHistory fails with denied, reason security_violation, if the repository replaces objects or parents.
// Our git does not use either.
func (m *Manager) checkHistory(ctx context.Context, w Workspace) error {
	replaced, err := m.line(ctx, w, "for-each-ref", "--count=1", "--format=%(refname:lstrip=2)", "refs/replace/")
	if err == nil && replaced != "" {
		err = forged("see them with: git replace -l; and remove them with: git replace -d", "replaces objects, such as "+replaced)
	}
	if err != nil {
		return err
	}
	grafts, err := m.line(ctx, w, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return err
	}
	grafts = filepath.Join(grafts, "info", "grafts")
	if info, err := os.Lstat(grafts); err == nil && info.Size() > 0 {
		return forged("remove the file "+grafts, "gives commits other parents")
	}
	return nil
}

func (m *Manager) sourceStatus(ctx context.Context, s Source) (Status, error) {
	result, err := m.inSource(ctx, s, "status", "--porcelain=v2", "-z", "--branch", "--untracked-files=no",
		"--no-renames", "--ignore-submodules=dirty")
	if err != nil {
		return Status{}, err
	}
	return parseStatus(string(complete(result.Stdout.Bytes()))), nil
}

// ReasonWorkMoved is the reason of a merge of other work than the reviewed one.
const ReasonWorkMoved = "work_moved"

// ReasonMergeConflict is the reason of a merge that git cannot make by itself.
const ReasonMergeConflict = "merge_conflict"

// prepare returns the commit that the user's branch is moved to.
func (m *Manager) prepare(ctx context.Context, w Workspace, source Source, req MergeRequest) (string, error) {
	head := req.Commit
	switch req.Method {
	case "", FastForward:
		found, err := m.run(ctx, w, []string{"merge-base", "--is-ancestor", source.Head, head}, 1)
		if err == nil && found.ExitCode == 1 {
			err = conflict("not_fast_forward", "merge with --squash or --rebase",
				"the branch %s has commits that the task did not start from", source.Branch)
		}
		return head, err
	case Squash, Rebase:
	default:
		return "", badCheckout("invalid_method", "methods are fast-forward, squash and rebase", "%.40q is not a method of merging", req.Method)
	}
	id := newID()
	now := m.cfg.Now().UTC()
	t := Workspace{
		ID: id, Mode: Checkout, State: Provisioning, Path: filepath.Join(m.base, id), Source: &source, CreatedAt: now, UsedAt: now,
	}
	if err := m.put(t); err != nil { // so that a crash leaves nothing
		return "", err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workTimeout)
		defer cancel()
		_ = m.discard(ctx, t) // GC tries again
	}()
	start := source.Head
	if req.Method == Rebase {
		start = head
	}
	if _, err := m.inSource(ctx, source, "worktree", "add", "--quiet", "--detach", "--", t.Path, start); err != nil {
		return "", err
	}
	steps := [][]string{
		{"merge", "--quiet", "--squash", "--no-verify", "--no-gpg-sign", head},
		{"commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message=" + req.Message},
	}
	if req.Method == Rebase {
		steps = [][]string{{"rebase", "--quiet", "--no-verify", "--no-gpg-sign", source.Head}}
	}
	for i, args := range steps {
		result, err := m.run(ctx, t, args, 1)
		if err != nil {
			return "", err
		}
		if result.ExitCode == 0 {
			continue
		}
		s, err := m.status(ctx, t)
		switch {
		case err != nil:
			return "", err
		case len(s.Unmerged) > 0:
			return "", conflict(ReasonMergeConflict, "merge the branch with your own git, or have an agent bring it up to date",
				"%d files of the branch %s conflict with the work", len(s.Unmerged), source.Branch).Detail("files", s.Unmerged)
		case i == 1:
			return source.Head, nil // nothing to commit
		}
		return "", m.failed("workspace.merge", result)
	}
	return m.line(ctx, t, "rev-parse", "HEAD")
}

// DiscardTask removes the worktrees and branches of a task, with all work that was not merged.
func (m *Manager) DiscardTask(ctx context.Context, task string) (removed []string, err error) {
	for _, w := range m.Parts(task) {
		if one := m.Remove(ctx, w.ID, true); one != nil {
			err = errors.Join(err, one)
			continue
		}
		removed = append(removed, w.Branch)
	}
	return removed, err
}
