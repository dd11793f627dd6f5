package workspace

import (
	"context"
	"net/url"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

// PublishRequest describes the pull request for the result of a task in a user's checkout.
type PublishRequest struct {
	ID          string // workspace of the result
	Base        string // commit that the work begins with
	Commit      string // that the user was shown
	Title, Body string
	Into        string // branch; "" means the one that was checked out when the task was created
	Draft       bool
}

// PublishTask pushes the result of a task to the origin of the user's checkout and opens a pull
// request, or updates the open one. Everything that is pushed is searched for credentials before.
// Errors: conflict, reason work_moved, merge_conflict or remote_changed; invalid_input, reason
// no_remote; and those of [forge.Policy.Parse], Push and OpenPull.
func (m *Manager) PublishTask(ctx context.Context, req PublishRequest) (forge.Pull, error) {
	w, release, err := m.hold(ctx, req.ID)
	if err != nil {
		return forge.Pull{}, err
	}
	if w, err = m.push(ctx, w, req); err != nil {
		release()
		return forge.Pull{}, err
	}
	release()
	return m.OpenPull(ctx, w.ID, forge.PullRequest{Title: req.Title, Body: req.Body, Base: w.BaseBranch, Draft: req.Draft})
}

// push pushes the branch of a result and stores its repository and base branch in the record.
func (m *Manager) push(ctx context.Context, w Workspace, req PublishRequest) (Workspace, error) {
	const op = "workspace.publish"
	if w.Mode != Checkout || w.Source == nil {
		return w, badCheckout("no_checkout", "", "the workspace is not of a task in a checkout")
	}
	now, err := m.Inspect(ctx, w.Source.Path)
	if err != nil {
		return w, err
	}
	if now.Remote == "" || now.Remote != w.Source.Remote {
		if w.Source.Remote == "" {
			return w, badCheckout("no_remote", "add one: git remote add origin URL; then create the task again", "the checkout had no remote origin")
		}
		return w, conflict("remote_changed", "set it back: git remote set-url origin "+w.Source.Remote,
			"the remote origin of the checkout is another one than when the task was created")
	}
	if w.Repo, err = m.cfg.Policy.Parse(now.Remote); err != nil {
		return w, err
	}
	if m.cfg.Forge(w.Repo) == nil {
		return w, capability.Errorf(capability.CodeUnavailable, op, "the kind of the forge %.100q is not configured", w.Repo.Host).
			With("no_forge", "add it to agents.forges as HOST=gitlab, HOST=forgejo or HOST=github")
	}
	// With a token, which git's helper passes over https only, the address of a login by ssh is not used.
	if u, err := url.Parse(w.Repo.URL); err == nil && u.Scheme == "ssh" {
		token, err := m.token(ctx, w)
		if err != nil {
			return w, err
		}
		if !token.Empty() {
			w.Repo.URL = (&url.URL{Scheme: "https", Host: u.Hostname(), Path: u.Path}).String()
		}
	}
	if w.BaseBranch = req.Into; w.BaseBranch == "" {
		w.BaseBranch = w.Source.Branch
	}
	if err := m.checkRef(ctx, w.BaseBranch, "invalid_base_branch"); err != nil {
		return w, err
	}
	if err := m.checkReviewed(ctx, w, req.Commit); err != nil {
		return w, err
	}
	redirected, err := m.configured(ctx, w, `^(url|http|remote\..*:.*)\.`)
	if err != nil {
		return w, err
	}
	if len(redirected) > 0 {
		return w, capability.Errorf(capability.CodeDenied, op, "the configuration of the repository redirects its addresses").
			With("security_violation", "take what is under url and http, and remotes that are named like a URL, out of .git/config, or push by hand: git push origin "+w.Branch)
	}
	if err := m.filtered(ctx, w, req.Base, req.Commit); err != nil {
		return w, err
	}
	// An agent may have changed the refs of the remote, so its own commits are searched in any case.
	if err := m.scanRange(ctx, w, "merge the branch with git: "+w.Branch, req.Commit, "--not", req.Base); err != nil {
		return w, err
	}
	if err := m.scanCommits(ctx, w); err != nil {
		return w, err
	}
	ref := "refs/heads/" + w.Branch
	args := []string{"push", "--quiet", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--", w.Repo.URL, req.Commit + ":" + ref}
	if _, err := m.remote(ctx, w, w, "", pushTimeout, args...); err != nil {
		return w, err
	}
	return m.update(w.ID, func(kept *Workspace) { kept.Repo, kept.BaseBranch, kept.Published = w.Repo, w.BaseBranch, req.Commit })
}

// TaskChecks returns the checks of the forge for the commit that PublishTask pushed last. It fails with
// not_found, reason not_published.
func (m *Manager) TaskChecks(ctx context.Context, id string) (w Workspace, list []forge.Check, err error) {
	if w, err = m.Get(id); err != nil {
		return w, nil, err
	}
	if w.Published == "" || w.Pull == nil {
		return w, nil, capability.Errorf(capability.CodeNotFound, "workspace.checks", "the work has no pull request").
			With("not_published", "open one with: junctor tasks pr")
	}
	repo, err := m.forge(ctx, w)
	if err == nil && repo == nil {
		err = capability.Errorf(capability.CodeUnavailable, "workspace.checks", "no forge is configured for this repository").With("no_forge", "")
	}
	if err != nil {
		return w, nil, err
	}
	list, err = repo.Checks(ctx, w.Published)
	return w, list, err
}
