package workspace

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// Commit is the result of Manager.Commit. If there was nothing to commit, Hash is "" and
// Reason states that.
type Commit struct {
	Hash   string   `json:"hash,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Stat   DiffStat `json:"stat"`
}

const noChanges = "no changes"

// Commit stages and commits all changes that git does not ignore, after a search for
// credentials in the added lines. Hooks are not run. If the search fails, the changes are
// unstaged again. Errors: denied, reason secret_found, with the places in details.findings;
// conflict, reason unmerged or wrong_branch; invalid_input, reason missing_message; too_large,
// reason change_too_large.
func (m *Manager) Commit(ctx context.Context, id, message string) (Commit, error) {
	if strings.TrimSpace(message) == "" || len(message) > maxMessage || strings.ContainsRune(message, 0) {
		return Commit{}, capability.Errorf(capability.CodeInvalidInput, "workspace.commit", "a commit needs a message of at most %d bytes",
			maxMessage).With("missing_message", "say what was changed and why")
	}
	w, release, err := m.hold(ctx, id)
	if err != nil {
		return Commit{}, err
	}
	defer release()
	if err := m.onBranch(ctx, w); err != nil {
		return Commit{}, err
	}
	if _, err := m.run(ctx, w, []string{"add", "--all", "--", "."}); err != nil {
		return Commit{}, err
	}
	listed, err := m.run(ctx, w, diffArgs("diff", "--cached", "--name-only", "-z", "--no-renames", "--"))
	if err != nil {
		return Commit{}, err
	}
	if listed.Stdout.Truncated() {
		return Commit{}, capability.Errorf(capability.CodeTooLarge, "workspace.commit",
			"too many files have changed for one commit").With("change_too_large", "keep what is generated out of the repository")
	}
	names := strings.Split(strings.TrimSuffix(string(listed.Stdout.Bytes()), "\x00"), "\x00")
	if names[0] == "" {
		return Commit{Reason: noChanges}, nil
	}
	err = m.scan(ctx, names, func(part []string) (sandbox.Result, error) {
		args := []string{"--cached", "--"}
		for _, name := range part {
			args = append(args, ":(top,literal)"+name)
		}
		return m.run(ctx, w, plainDiff("diff", args...))
	})
	if err != nil {
		// Refused changes must not stay staged for the agent's own next commit.
		if _, left := m.run(context.WithoutCancel(ctx), w, []string{"reset", "--quiet"}); left != nil {
			return Commit{}, capability.AsError(err).Detail("still_staged", true)
		}
		return Commit{}, err
	}
	if _, err := m.run(ctx, w, []string{"commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message=" + message}); err != nil {
		return Commit{}, err
	}
	hash, err := m.line(ctx, w, "rev-parse", "HEAD")
	if err != nil {
		return Commit{}, err
	}
	before, err := m.line(ctx, w, "rev-parse", "--verify", "--quiet", "HEAD^")
	if before == "" {
		before = emptyTree
	}
	c := Commit{Hash: hash}
	if err == nil {
		c.Stat, err = m.stat(ctx, w, before, hash)
	}
	if err == nil {
		_, err = m.update(id, func(*Workspace) {})
	}
	return c, err
}

// hold acquires the lock of a workspace's repository and returns the workspace as it is then,
// because it may have changed or gone meanwhile. The caller calls the result to release the
// lock, unless there is an error.
func (m *Manager) hold(ctx context.Context, id string) (Workspace, func(), error) {
	w, err := m.Get(id)
	if err != nil {
		return w, nil, err
	}
	release, err := m.locks.take(ctx, w.root())
	if err != nil {
		return w, nil, err
	}
	if w, err = m.Get(id); err != nil {
		release()
	}
	return w, release, err
}

// onBranch returns an error if the work tree has unresolved conflicts (reason unmerged), or is
// not on the workspace's branch (reason wrong_branch).
func (m *Manager) onBranch(ctx context.Context, w Workspace) error {
	s, err := m.status(ctx, w)
	switch {
	case err != nil:
		return err
	case len(s.Unmerged) > 0:
		return capability.Errorf(capability.CodeConflict, "workspace.commit", "%d files have conflicts", len(s.Unmerged)).With("unmerged",
			"resolve them first").Detail("files", s.Unmerged)
	case s.Branch != w.Branch:
		return capability.Errorf(capability.CodeConflict, "workspace.commit", "the workspace is not on its branch %s",
			w.Branch).With("wrong_branch", "switch back to it")
	}
	return nil
}

// Push pushes the branch to origin and sets its upstream; force means --force-with-lease.
// Before, all commits that are not at the remote are searched for credentials, including the
// agent's own. Errors: those of the search as in [Manager.Commit]; conflict, reason
// push_rejected or nothing_to_push; failed, reason invalid_credentials; denied, reason
// security_violation, if the configuration was changed to another remote.
func (m *Manager) Push(ctx context.Context, id string, force bool) error {
	w, release, err := m.hold(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	if err := m.checkRemote(ctx, w); err != nil {
		return err
	}
	if err := m.scanCommits(ctx, w); err != nil {
		return err
	}
	ref := "refs/heads/" + w.Branch
	args := []string{"push", "--quiet", "--no-verify", "--no-follow-tags", "--set-upstream"}
	if force {
		args = append(args, "--force-with-lease="+ref)
	}
	if _, err := m.remote(ctx, w, w, "", pushTimeout, append(args, "--", "origin", ref+":"+ref)...); err != nil {
		return err
	}
	_, err = m.update(id, func(*Workspace) {})
	return err
}

// scanCommits searches the commits that are not at the remote for credentials.
func (m *Manager) scanCommits(ctx context.Context, w Workspace) error {
	if tip, err := m.line(ctx, w, "rev-parse", "--verify", "--quiet", "refs/heads/"+w.Branch); err != nil || tip == "" {
		if err == nil {
			err = capability.Errorf(capability.CodeConflict, "workspace.push", "the branch %s has no commits", w.Branch).With("nothing_to_push",
				"commit something first")
		}
		return err
	}
	return m.scanRange(ctx, w, "push in parts, or start from a newer base", "refs/heads/"+w.Branch, "--not", "--remotes=origin")
}

// checkRoot fails with denied, reason security_violation, if git lists a commit without parents that has some,
// as of a shallow repository, because those are not searched.
func (m *Manager) checkRoot(ctx context.Context, w Workspace, commit string) error {
	object, err := m.run(ctx, w, []string{"cat-file", "commit", commit})
	if err != nil {
		return err
	}
	if head, _, _ := strings.Cut(object.Stdout.Text(), "\n\n"); strings.Contains(head, "\nparent ") {
		return forged("complete it with: git fetch --unshallow", "omits the history before "+commit)
	}
	return nil
}

// scanRange searches the commits that rev-list names for credentials. It fails with too_large if they
// are too many, with the remedy.
func (m *Manager) scanRange(ctx context.Context, w Workspace, remedy string, which ...string) error {
	list := []string{"rev-list", "--parents", "--max-count=" + strconv.Itoa(maxCommits+1)}
	listed, err := m.run(ctx, w, slices.Concat(list, which, []string{"--"}))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(listed.Stdout.Text()), "\n")
	if len(lines) > maxCommits || listed.Stdout.Truncated() {
		return capability.Errorf(capability.CodeTooLarge, "workspace.scan", "more than %d commits have to be searched for credentials",
			maxCommits).With("change_too_large", remedy)
	}
	var commits []string
	for _, line := range lines {
		ids := strings.Fields(line) // of the commit and its parents
		switch len(ids) {
		case 0:
			continue
		case 1:
			err = m.checkRoot(ctx, w, ids[0])
		case 2:
		default:
			err = m.scanMerge(ctx, w, ids[0], ids[1:])
		}
		if err != nil {
			return err
		}
		if len(ids) <= 2 {
			commits = append(commits, ids[0])
		}
	}
	return m.scan(ctx, commits, func(part []string) (sandbox.Result, error) {
		args := plainDiff("show", "--root", "--format=")
		return m.command(ctx, m.git, w, gitcmd.Command{Args: append(append(args, part...), "--"), NeedRepository: true})
	})
}
