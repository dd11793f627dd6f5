package workspace

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

// Request describes a workspace to create.
type Request struct {
	// Repo is owner/name or a URL of a repository to clone. Parent is a workspace whose clone
	// gets a worktree. Set one of them, or Folder.
	Repo   string
	Parent string
	Folder bool

	BaseBranch string // "" means the remote's default branch, of a worktree the parent's base
	// BranchName must not exist. If it is "", the name consists of execution, role and slug,
	// with a number if it exists.
	BranchName            string
	Execution, Role, Slug string
	Label                 string
	// Token is the credential for this repository. It is stored until the workspace is
	// removed.
	Token secret.Value
	// NeedPush fails before anything is created if the credential cannot push.
	NeedPush bool
}

// Provision creates a workspace. On failure it removes everything again; if that fails too, the
// id is in details.left_behind, and GC removes the rest. Errors, by reason: missing_repo,
// missing_parent, invalid_repo, invalid_repo_domain, invalid_base_branch, invalid_branch,
// branch_exists, invalid_credentials, missing_scope, repo_not_found, remote_unreachable,
// disk_full, setup_failed.
func (m *Manager) Provision(ctx context.Context, req Request) (Workspace, error) {
	w, parent, err := m.plan(ctx, req)
	if err != nil {
		return Workspace{}, err
	}
	if err := m.room(ctx); err != nil {
		return Workspace{}, err
	}
	if err := m.put(w); err != nil {
		return Workspace{}, err
	}
	if err = m.make(ctx, &w, parent, req); err == nil {
		w.State, w.UsedAt = Ready, m.cfg.Now().UTC()
		err = m.put(w)
	}
	if err != nil {
		// The caller's context may have ended, but an incomplete workspace must be removed.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), workTimeout)
		defer cancel()
		w.State = Removing
		if left := m.collect(undo, w); left != nil {
			err = capability.AsError(err).Detail("left_behind", w.ID) // Open and GC remove it
		}
		return Workspace{}, err
	}
	m.cfg.OnEvent(Event{"workspace_provisioned", w})
	return w, nil
}

// plan validates a request and returns the new record and its parent. It writes nothing.
func (m *Manager) plan(ctx context.Context, req Request) (w, parent Workspace, err error) {
	now := m.cfg.Now().UTC()
	id := newID()
	w = Workspace{
		ID: id, State: Provisioning, Path: filepath.Join(m.base, id), Label: req.Label, CreatedAt: now, UsedAt: now,
		Execution: Word(req.Execution, maxExecutionSlug, strings.TrimPrefix(id, "ws-")), Role: Word(req.Role, maxRoleSlug, "agent"),
	}
	if len(req.Label) > maxLabel {
		return w, parent, capability.Errorf(capability.CodeInvalidInput, "workspace.provision", "a label has at most %d bytes",
			maxLabel).With("invalid_label", "")
	}
	for _, branch := range []struct{ name, reason string }{{req.BaseBranch, "invalid_base_branch"}, {req.BranchName, "invalid_branch"}} {
		if branch.name != "" {
			if err := m.checkRef(ctx, branch.name, branch.reason); err != nil {
				return w, parent, err
			}
		}
	}
	switch {
	case req.Folder:
		w.Mode = Folder
		if req.Repo != "" || req.Parent != "" {
			err = capability.Errorf(capability.CodeInvalidInput, "workspace.provision",
				"a folder has neither repository nor parent").With("invalid_mode", "leave one out")
		}
	case req.Parent != "":
		w.Mode = Worktree
		parent, err = m.parent(req)
		w.Parent, w.Repo, w.BaseBranch, w.Partial = parent.ID, parent.Repo, req.BaseBranch, parent.Partial
		if w.BaseBranch == "" {
			w.BaseBranch = parent.BaseBranch
		}
	default:
		w.Mode, w.BaseBranch = Clone, req.BaseBranch
		w.Repo, err = m.cfg.Policy.Parse(req.Repo)
	}
	return w, parent, err
}

// parent returns the clone of the request's parent workspace. It fails with missing_parent, or
// with invalid_repo if the request names another repository.
func (m *Manager) parent(req Request) (Workspace, error) {
	parent, err := m.Get(req.Parent)
	if err == nil && parent.Parent != "" {
		parent, err = m.Get(parent.Parent)
	}
	if err != nil || parent.Mode != Clone {
		return parent, capability.Wrap(capability.CodeInvalidInput, "workspace.provision",
			"there is no parent workspace of that id with a repository", err).
			With("missing_parent", "name a workspace that is a clone")
	}
	if req.Repo != "" {
		if repo, err := m.cfg.Policy.Parse(req.Repo); err != nil || repo.URL != parent.Repo.URL {
			return parent, capability.Errorf(capability.CodeInvalidInput, "workspace.provision",
				"the parent workspace is of another repository").With(forge.ReasonInvalidRepo, "leave the repository out")
		}
	}
	return parent, nil
}

// make stores the token, checks the credential, and creates the folder with its content. The caller
// removes what it created on failure.
func (m *Manager) make(ctx context.Context, w *Workspace, parent Workspace, req Request) error {
	if !req.Token.Empty() && w.Mode != Folder {
		if err := m.keepToken(*w, req.Token); err != nil {
			return err
		}
		w.OwnToken = true
		if err := m.put(*w); err != nil {
			return err
		}
	}
	if err := m.facts(ctx, w, req.NeedPush); err != nil {
		return err
	}
	if err := m.dir.Mkdir(w.ID, 0o700); err != nil {
		return capability.Wrap(capability.CodeFailed, "workspace.provision", "the workspace's folder could not be made", err).With("no_space",
			"look at the disk")
	}
	if err := m.fill(ctx, w, parent, req); err != nil {
		return err
	}
	if w.Mode != Worktree {
		return nil
	}
	return m.copyIncluded(ctx, *w, parent)
}

// fill clones the repository into the folder or adds a worktree, with its submodules, under the
// repository's lock. A Folder workspace stays empty.
func (m *Manager) fill(ctx context.Context, w *Workspace, parent Workspace, req Request) error {
	if w.Mode == Folder {
		return nil
	}
	release, err := m.locks.take(ctx, w.root())
	if err != nil {
		return err
	}
	defer release()
	if w.Mode == Clone {
		err = m.clone(ctx, w, req)
	} else if _, err = m.Get(parent.ID); err == nil { // it may have been removed meanwhile
		err = m.worktree(ctx, w, parent, req)
	}
	if err != nil {
		return err
	}
	return m.submodules(ctx, w, w.Path, 0)
}

// facts asks the forge whether the credential may push, and sets w.Partial for a large
// repository. It fails with missing_scope if needPush is set and the credential may not push;
// without needPush, errors of the forge are ignored.
func (m *Manager) facts(ctx context.Context, w *Workspace, needPush bool) error {
	repo, err := m.forge(ctx, *w)
	if repo == nil || err != nil || !needPush && (w.Mode != Clone || m.cfg.PartialAbove < 0) {
		return err
	}
	f, err := repo.Facts(ctx)
	switch {
	case !needPush && err != nil:
		return nil // cloning will report relevant errors
	case err != nil:
		return err
	case needPush && !f.Push:
		return capability.Errorf(capability.CodeDenied, "workspace.provision", "the credential may not push to this repository").
			With("missing_scope", "give a token with write access, such as one with the scope repo")
	}
	if w.Mode == Clone {
		w.Partial = m.cfg.PartialAbove >= 0 && f.Bytes > m.cfg.PartialAbove && w.Repo.Dir == ""
	}
	return nil
}

// forge returns the workspace's repository at its forge, or nil if it has none.
func (m *Manager) forge(ctx context.Context, w Workspace) (forge.Repository, error) {
	if w.Mode == Folder {
		return nil, nil
	}
	host := m.cfg.Forge(w.Repo)
	if host == nil {
		return nil, nil
	}
	token, err := m.token(ctx, w)
	if err != nil {
		return nil, err
	}
	return host.Open(w.Repo, token)
}

// clone clones the repository, creates the branch from the base branch, and sets the record's
// Branch, BaseBranch and BaseCommit.
func (m *Manager) clone(ctx context.Context, w *Workspace, req Request) error {
	asked := w.BaseBranch != ""
	if !asked {
		w.BaseBranch = m.defaultBranch(ctx, *w)
	}
	args := []string{
		"clone", "--quiet", "--no-checkout", "--origin", "origin", "--no-local",
		"--config", "user.name=" + m.cfg.AuthorName, "--config", "user.email=" + m.cfg.AuthorEmail,
	}
	if w.Partial {
		args = append(args, "--filter=blob:none")
	}
	if _, err := m.ask(ctx, *w, cloneTimeout, append(args, "--", w.Repo.URL, w.Path)...); err != nil {
		return err
	}
	start, err := m.startOf(ctx, w, asked)
	if err != nil {
		return err
	}
	if w.Branch, err = m.branch(ctx, *w, *w, req); err != nil {
		return err
	}
	if start == "" { // the repository has no commits
		_, err = m.run(ctx, *w, []string{"symbolic-ref", "HEAD", "refs/heads/" + w.Branch})
		return err
	}
	checkout := []string{"checkout", "--quiet", "--no-track", "-b", w.Branch, start, "--"}
	if w.Partial {
		_, err = m.remote(ctx, *w, *w, "", cloneTimeout, checkout...)
	} else {
		_, err = m.run(ctx, *w, checkout)
	}
	if err == nil {
		w.BaseCommit, err = m.line(ctx, *w, "rev-parse", "HEAD")
	}
	return err
}

// defaultBranch returns the branch of the remote's HEAD, or main if the remote does not answer
// in time or has none.
func (m *Manager) defaultBranch(ctx context.Context, w Workspace) string {
	result, err := m.ask(ctx, w, queryTimeout, "ls-remote", "--symref", "--", w.Repo.URL, "HEAD")
	if err == nil {
		for line := range strings.Lines(result.Stdout.Text()) {
			name, ok := strings.CutPrefix(line, "ref: refs/heads/")
			name, _, tab := strings.Cut(name, "\t")
			if ok && tab && m.checkRef(ctx, name, "invalid_base_branch") == nil {
				return name
			}
		}
	}
	return "main"
}

// startOf returns the ref to start from, or "" in a repository without branches. If the base
// branch was not requested (asked) and does not exist, it changes w.BaseBranch to that of
// origin/HEAD. It fails with invalid_base_branch if that does not exist either.
func (m *Manager) startOf(ctx context.Context, w *Workspace, asked bool) (string, error) {
	start := "refs/remotes/origin/" + w.BaseBranch
	found, err := m.line(ctx, *w, "rev-parse", "--verify", "--quiet", "--end-of-options", start+"^{commit}")
	if err != nil || found != "" {
		return start, err
	}
	any, err := m.line(ctx, *w, "for-each-ref", "--count=1", "--format=%(refname)", "refs/remotes/origin")
	if err != nil || any == "" && !asked {
		return "", err
	}
	if head, err := m.line(ctx, *w, "rev-parse", "--verify", "--quiet", "--abbrev-ref", "refs/remotes/origin/HEAD"); err == nil && !asked {
		if name, ok := strings.CutPrefix(head, "origin/"); ok && name != "HEAD" {
			w.BaseBranch = name
			return "refs/remotes/origin/" + name, nil
		}
	}
	return "", capability.Errorf(capability.CodeInvalidInput, "workspace.provision", "the repository has no branch %s", w.BaseBranch).
		With("invalid_base_branch", "name a branch that is there")
}

// worktree fetches the base branch into the parent's clone, adds a worktree with a new branch,
// and sets the record's Branch and BaseCommit.
func (m *Manager) worktree(ctx context.Context, w *Workspace, parent Workspace, req Request) error {
	if err := m.checkRemote(ctx, parent); err != nil {
		return err
	}
	start := "refs/remotes/origin/" + w.BaseBranch
	_, err := m.remote(ctx, *w, parent, "", pushTimeout, "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head",
		"--", "origin", "+refs/heads/"+w.BaseBranch+":"+start)
	if err != nil {
		if strings.Contains(capability.AsError(err).Message, "couldn't find remote ref") {
			return capability.Wrap(capability.CodeInvalidInput, "workspace.provision", "the repository has no branch "+w.BaseBranch,
				err).With("invalid_base_branch", "name a branch that is there")
		}
		return err
	}
	if w.Branch, err = m.branch(ctx, parent, *w, req); err != nil {
		return err
	}
	if err := m.put(*w); err != nil { // the record names the branch before it is created, so that discard can delete it
		return err
	}
	add := []string{"worktree", "add", "--quiet", "--no-track", "-b", w.Branch, "--", w.Path, start}
	if w.Partial {
		_, err = m.remote(ctx, *w, parent, "", cloneTimeout, add...)
	} else {
		_, err = m.run(ctx, parent, add)
	}
	if err == nil {
		w.BaseCommit, err = m.line(ctx, *w, "rev-parse", "HEAD")
	}
	return err
}

// branch returns the requested or a generated branch name that does not exist in the clone at
// or at its origin. It fails with conflict, reason branch_exists.
func (m *Manager) branch(ctx context.Context, at, w Workspace, req Request) (string, error) {
	refs, err := m.run(ctx, at, []string{"for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes/origin"})
	if err != nil {
		return "", err
	}
	taken := make(map[string]bool)
	for ref := range strings.Lines(refs.Stdout.Text()) {
		ref = strings.TrimSpace(ref)
		ref = strings.TrimPrefix(strings.TrimPrefix(ref, "refs/heads/"), "refs/remotes/origin/")
		taken[ref] = true
	}
	if req.BranchName != "" {
		if taken[req.BranchName] {
			return "", capability.Errorf(capability.CodeConflict, "workspace.provision", "the branch %s exists already", req.BranchName).
				With("branch_exists", "choose another name, or start from it as the base branch")
		}
		return req.BranchName, nil
	}
	slug := req.Slug
	if slug == "" {
		slug = req.Label
	}
	name := m.cfg.BranchPrefix + "/" + w.Execution + "/" + w.Role + "-" + Word(slug, maxBranchSlug, "task")
	for n, candidate := 2, name; n <= 1000; n, candidate = n+1, name+"-"+strconv.Itoa(n) {
		if !taken[candidate] {
			return candidate, nil
		}
	}
	return "", capability.Errorf(capability.CodeConflict, "workspace.provision", "a thousand branches are called %s",
		name).With("branch_exists", "give another slug")
}

// Word converts a text to a part of a branch name: lower-case letters, digits and hyphens, at
// most about most bytes. If nothing is left, it returns otherwise.
func Word(text string, most int, otherwise string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if b.Len() > 0 && !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
		if b.Len() >= most {
			break
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return otherwise
}
