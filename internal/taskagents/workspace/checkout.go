package workspace

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// OwnPrefix is the first part of the branches that this package makes in a user's repository.
const OwnPrefix = "junctor/"

// Source is a user's own checkout. Its working tree, index and branches are read only, except
// by [Manager.MergeTask].
type Source struct {
	Path       string   `json:"path"`                 // top of the working tree, real
	GitDir     string   `json:"repository"`           // directory with the refs and objects, real
	Alternates []string `json:"alternates,omitempty"` // further directories that it reads objects from
	Branch     string   `json:"branch,omitempty"`     // checked-out branch; "" if HEAD is detached
	Head       string   `json:"head"`                 // checked-out commit
	Dirty      bool     `json:"dirty,omitempty"`      // it has changes that are not committed
	Remote     string   `json:"remote,omitempty"`     // URL of origin; "" if it has none or several
}

// Directories returns the directories with the data of the repository, beside its working tree.
func (s Source) Directories() []string { return append([]string{s.GitDir}, s.Alternates...) }

func badCheckout(reason, hint, format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, "workspace.checkout", format, args...).With(reason, hint)
}

// Inspect describes the checkout that contains a folder. It runs and writes nothing of the
// repository. Errors: invalid_input, reason not_a_checkout or no_commits; denied, reason
// foreign_repository, if it belongs to another user.
func (m *Manager) Inspect(ctx context.Context, path string) (Source, error) {
	none := badCheckout("not_a_checkout", "call it inside a git checkout, or name a repository with --repo",
		"%.300q is not a git checkout on the server's machine", path)
	dir, err := filepath.EvalSymlinks(path)
	if err != nil || !filepath.IsAbs(path) {
		return Source{}, none
	}
	ask := func(c gitcmd.Command) (sandbox.Result, error) {
		ctx, cancel := context.WithTimeout(ctx, workTimeout)
		defer cancel()
		c.ReadOnly = true
		return m.git.Run(ctx, c)
	}
	// The whole machine is the root only for this question, which finds the directories that
	// all other commands are limited to.
	found, err := ask(gitcmd.Command{Dir: dir, Root: "/", Args: []string{
		"rev-parse", "--show-toplevel", "--path-format=absolute", "--git-dir", "--git-common-dir",
	}})
	lines := strings.Split(strings.TrimSuffix(found.Stdout.Text(), "\n"), "\n")
	if err != nil || found.ExitCode != 0 || len(lines) != 3 {
		if ctx.Err() != nil {
			return Source{}, capability.AsError(ctx.Err())
		}
		return Source{}, none
	}
	for i, one := range lines {
		if lines[i], err = filepath.EvalSymlinks(one); err != nil {
			return Source{}, none
		}
		info, err := os.Stat(lines[i])
		if err != nil {
			return Source{}, none
		}
		if foreign(info) {
			return Source{}, capability.Errorf(capability.CodeDenied, "workspace.checkout", "%.300q belongs to another user", lines[i]).
				With("foreign_repository", "run the server as the owner of the repository, or clone it")
		}
	}
	s := Source{Path: lines[0], GitDir: lines[2]}
	if rel, err := filepath.Rel(s.Path, dir); err != nil || !filepath.IsLocal(rel) || within(m.base, s.Path) {
		return Source{}, none
	}
	s.Alternates = alternates(s.GitDir)
	line := func(args ...string) (string, error) {
		r, err := ask(gitcmd.Command{Dir: s.Path, Root: s.Path, Also: s.Directories(), Args: args, NeedRepository: true})
		if err != nil || r.ExitCode != 0 {
			return "", err
		}
		return strings.TrimSpace(r.Stdout.Text()), nil
	}
	if s.Head, err = line("rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err == nil && s.Head == "" {
		err = badCheckout("no_commits", "commit something first", "the repository %.300q has no commits", s.Path)
	}
	if err != nil {
		return Source{}, err
	}
	if s.Branch, err = line("symbolic-ref", "--quiet", "--short", "HEAD"); err != nil {
		return Source{}, err
	}
	if s.Remote, err = line("config", "--get-all", "remote.origin.url"); err != nil {
		return Source{}, err
	}
	if strings.Contains(s.Remote, "\n") {
		s.Remote = ""
	}
	changed, err := line("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty")
	s.Dirty = changed != ""
	return s, err
}

// within reports whether path is dir or below it.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// alternates returns the object directories that a user's repository borrows from, as it names
// them. The user chose them, so commands may read them.
func alternates(gitDir string) (list []string) {
	data, err := os.ReadFile(filepath.Join(gitDir, "objects", "info", "alternates"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || len(list) == maxSourceAlternates {
			continue
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(gitDir, "objects", line)
		}
		if real, err := filepath.EvalSymlinks(line); err == nil {
			list = append(list, real)
		}
	}
	return list
}

// PartRequest describes the worktree for a part of a task.
type PartRequest struct {
	Source Source
	Task   string // id of the task's thread
	Part   string // id of the part
	Branch string // begins with OwnPrefix
	Label  string
	Start  string   // commit
	Merge  []string // commits that the branch contains besides
	Setup  *Setup   // to which the user has agreed; nil for none
}

// ProvisionPart adds a worktree with a new branch to a user's repository. If merged commits have
// conflicts, these are committed with their markers, and the files are in the result's Conflicts.
// On failure everything is removed again. Errors: conflict, reason branch_exists; and those of
// Provision.
func (m *Manager) ProvisionPart(ctx context.Context, req PartRequest) (Workspace, error) {
	if err := m.checkRef(ctx, req.Branch, "invalid_branch"); err != nil || !strings.HasPrefix(req.Branch, OwnPrefix) {
		return Workspace{}, badCheckout("invalid_branch", "", "%.200q is not a name for the branch of a part", req.Branch)
	}
	if err := m.room(ctx); err != nil {
		return Workspace{}, err
	}
	now, id := m.cfg.Now().UTC(), newID()
	w := Workspace{
		ID: id, Mode: Checkout, State: Provisioning, Path: filepath.Join(m.base, id), Label: req.Label, Source: &req.Source,
		Execution: req.Task, Role: req.Part, BaseCommit: req.Start, CreatedAt: now, UsedAt: now,
	}
	release, err := m.locks.take(ctx, w.root())
	if err != nil {
		return Workspace{}, err
	}
	if err = m.put(w); err == nil {
		err = m.addPart(ctx, &w, req)
	}
	release() // a setup takes long
	if err == nil && req.Setup != nil {
		err = m.setUp(ctx, &w, req.Setup)
	}
	if err == nil {
		w.State, w.UsedAt = Ready, m.cfg.Now().UTC()
		err = m.put(w)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), workTimeout)
		defer cancel()
		if left := m.collect(undo, w); left != nil {
			err = capability.AsError(err).Detail("left_behind", w.ID)
		}
		return Workspace{}, err
	}
	m.cfg.OnEvent(Event{"workspace_provisioned", w})
	return w, nil
}

func (m *Manager) addPart(ctx context.Context, w *Workspace, req PartRequest) error {
	taken, err := m.inSource(ctx, req.Source, "for-each-ref", "--format=%(refname)", "refs/heads/"+req.Branch,
		"refs/heads/"+strings.TrimSuffix(OwnPrefix, "/"))
	if err != nil {
		return err
	}
	for ref := range strings.Lines(taken.Stdout.Text()) {
		if ref = strings.TrimSpace(ref); ref == "refs/heads/"+req.Branch || !strings.HasPrefix(ref, "refs/heads/"+OwnPrefix) {
			return capability.Errorf(capability.CodeConflict, "workspace.checkout", "the branch %s is in the way",
				strings.TrimPrefix(ref, "refs/heads/")).
				With("branch_exists", "rename or delete that branch")
		}
	}
	w.Branch = req.Branch
	if err := m.put(*w); err != nil { // the record names the branch before it is created, so that discard can delete it
		return err
	}
	add := []string{"worktree", "add", "--quiet", "--no-track", "-b", req.Branch, "--", w.Path, req.Start}
	if _, err := m.inSource(ctx, req.Source, add...); err != nil {
		return err
	}
	if err := m.ownSubmodules(ctx, w, req.Source.Path, w.Path, 0); err != nil {
		return err
	}
	m.noteLargeFiles(ctx, w)
	for _, commit := range req.Merge {
		if err := m.mergeCommit(ctx, w, commit); err != nil {
			return err
		}
	}
	return nil
}

// inSource runs a command without network in a user's checkout. ReadOnly only keeps git from
// refreshing the user's index on the way.
func (m *Manager) inSource(ctx context.Context, s Source, args ...string) (sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	result, err := m.git.Run(ctx, gitcmd.Command{
		Dir: s.Path, Root: s.Path, Also: s.Directories(), Args: args, Settings: m.author(), NeedRepository: true, ReadOnly: true,
	})
	if err == nil && result.ExitCode != 0 {
		err = m.failed("workspace.checkout", result)
	}
	return result, err
}

// mergeCommit merges a commit into the branch of a part. Conflicts are committed with their
// markers and recorded in w.
func (m *Manager) mergeCommit(ctx context.Context, w *Workspace, commit string) error {
	result, err := m.run(ctx, *w, []string{"merge", "--quiet", "--ff", "--no-edit", "--no-verify", "--no-gpg-sign", commit}, 1)
	if err != nil || result.ExitCode == 0 {
		return err
	}
	s, err := m.status(ctx, *w)
	if err != nil {
		return err
	}
	if len(s.Unmerged) == 0 {
		return m.failed("workspace.merge", result)
	}
	for _, name := range s.Unmerged {
		if !slices.Contains(w.Conflicts, name) {
			w.Conflicts = append(w.Conflicts, name)
		}
	}
	if _, err := m.run(ctx, *w, []string{"add", "--all", "--", "."}); err != nil {
		return err
	}
	_, err = m.run(ctx, *w, []string{"commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message=Merge with conflicts: " + commit})
	return err
}

// ownSubmodules fills the submodules of a worktree from those of the user's checkout, which has
// them on this machine. One that it does not have is noted.
func (m *Manager) ownSubmodules(ctx context.Context, w *Workspace, from, to string, depth int) error {
	if info, err := os.Lstat(filepath.Join(to, ".gitmodules")); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	note := func(what string) { w.Notes = append(w.Notes, "submodules: "+what) }
	if depth >= deepSubmodules {
		note("those within submodules three deep were left out")
		return nil
	}
	git := func(dir string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, workTimeout)
		defer cancel()
		result, err := m.command(ctx, m.git, *w, gitcmd.Command{Dir: dir, Args: args, NeedRepository: true}, 1)
		return string(result.Stdout.Bytes()), err
	}
	paths, err := git(to, "config", "--file", ".gitmodules", "-z", "--get-regexp", `^submodule\..*\.path$`)
	if err != nil {
		note("what .gitmodules says cannot be read")
		return nil
	}
	done := 0
	for entry := range strings.SplitSeq(strings.TrimSuffix(paths, "\x00"), "\x00") {
		_, path, _ := strings.Cut(entry, "\n")
		if path == "" || !filepath.IsLocal(path) || strings.HasPrefix(path, "-") {
			continue
		}
		listed, err := git(to, "ls-files", "--stage", "-z", "--", ":(top,literal)"+path)
		if err != nil {
			return err
		}
		fields := strings.Fields(listed)
		if len(fields) < 4 || fields[0] != "160000" {
			continue
		}
		source, target := filepath.Join(from, path), filepath.Join(to, path)
		if _, err := os.Lstat(filepath.Join(source, ".git")); err != nil || done >= maxSubmodules {
			note(path + " was left out: the checkout does not have it")
			continue
		}
		done++
		if err := m.cloneSubmodule(ctx, source, target, fields[1]); err != nil {
			if ctx.Err() != nil {
				return capability.AsError(ctx.Err())
			}
			note(path + " was left out: " + capability.AsError(err).Message)
			continue
		}
		if err := m.ownSubmodules(ctx, w, source, target, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// cloneSubmodule clones a user's submodule to a folder of a worktree, at a commit.
func (m *Manager) cloneSubmodule(ctx context.Context, source, target, commit string) error {
	ctx, cancel := context.WithTimeout(ctx, cloneTimeout)
	defer cancel()
	for _, c := range []gitcmd.Command{
		{Dir: m.base, Root: m.base, Args: []string{"clone", "--quiet", "--no-checkout", "--no-local", "--", source, target}},
		{Dir: target, Root: target, Args: []string{"checkout", "--quiet", "--detach", commit, "--"}, NeedRepository: true},
	} {
		result, err := m.local.Run(ctx, c)
		if err == nil && result.ExitCode != 0 {
			err = m.failed("workspace.submodule", result)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// noteLargeFiles notes that a repository keeps files in LFS, whose program is not run here: the
// worktree has their pointers, which stay as they are.
func (m *Manager) noteLargeFiles(ctx context.Context, w *Workspace) {
	found, err := m.run(ctx, *w, []string{"grep", "--quiet", "--cached", "-e", "filter=lfs", "--", ":(glob)**/.gitattributes"}, 1)
	if err == nil && found.ExitCode == 0 {
		w.Notes = append(w.Notes, "LFS: the worktree has the pointers of large files, not their content")
	}
}
