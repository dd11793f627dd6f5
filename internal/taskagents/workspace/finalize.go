package workspace

import (
	"context"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

// FinalizeRequest selects the steps of Finalize. A pull request requires the push.
type FinalizeRequest struct {
	Message           string // commit message; "" means "Work on <branch>"
	Title, Body       string // of the pull request; "" means "[Eliza] <branch>" and the list of commits
	Base              string // "" means the base branch
	Draft             bool
	Labels, Reviewers []string
	Force             bool

	SkipCommit, SkipPush, SkipPull bool
}

// Step is the result of one step: done, skipped or failed.
type Step struct {
	Name    string `json:"name"` // commit, push or pull_request
	Outcome string `json:"outcome"`
	Detail  string `json:"detail,omitempty"`
}

// Finalized is the result of Finalize, with the steps up to the first that failed.
type Finalized struct {
	WorkspaceID string      `json:"workspaceId"`
	Branch      string      `json:"branch"`
	Text        string      `json:"text"` // one sentence
	Steps       []Step      `json:"steps"`
	Commit      string      `json:"commit,omitempty"` // the branch's last one
	Stat        DiffStat    `json:"stat"`             // of the branch against its base
	Pull        *forge.Pull `json:"pull,omitempty"`
}

// Finalize commits, pushes and opens a pull request. If the branch has no commits since its
// base, it succeeds with the text "no changes". The error is that of the failed step, with
// reason finalize_failed if it has none and the steps in its details. Finished steps are not
// undone; another call continues after them.
func (m *Manager) Finalize(ctx context.Context, id string, req FinalizeRequest) (Finalized, error) {
	w, err := m.Get(id)
	if err != nil {
		return Finalized{}, err
	}
	out := Finalized{WorkspaceID: id, Branch: w.Branch}
	if req.Base != "" {
		if err := m.checkRef(ctx, req.Base, "invalid_base_branch"); err != nil {
			return out, err
		}
	}
	noPull := "not asked for"
	if m.cfg.Forge(w.Repo) == nil {
		req.SkipPull, noPull = true, "no forge is configured for this repository"
	}
	err = m.step(&out, "commit", req.SkipCommit, "not asked for", func() (string, error) { return m.finalCommit(ctx, w, req, &out) })
	if err == nil {
		var ahead bool
		if ahead, err = m.ahead(ctx, w, &out); err == nil && !ahead {
			out.Text = noChanges
			return out, nil
		}
	}
	if err == nil {
		err = m.step(&out, "push", req.SkipPush, "not asked for", func() (string, error) { return "", m.Push(ctx, id, req.Force) })
	}
	if err == nil {
		err = m.step(&out, "pull_request", req.SkipPull || req.SkipPush, noPull, func() (string, error) { return m.openPull(ctx, w, req, &out) })
	}
	if err != nil {
		e := *capability.AsError(err)
		if e.Reason == "" {
			e.Reason = "finalize_failed"
		}
		out.Text = "finalizing failed: " + e.Message
		return out, e.Detail("steps", out.Steps)
	}
	out.Text = sentence(out)
	if w, err = m.Get(id); err == nil {
		m.cfg.OnEvent(Event{"workspace_finalized", w})
	}
	return out, err
}

// step runs do, unless skip is set, and appends the result to out.Steps. why is the detail of a
// skipped step.
func (m *Manager) step(out *Finalized, name string, skip bool, why string, do func() (string, error)) error {
	if skip {
		out.Steps = append(out.Steps, Step{name, "skipped", why})
		return nil
	}
	detail, err := do()
	switch {
	case err != nil:
		out.Steps = append(out.Steps, Step{name, "failed", capability.AsError(err).Message})
	case detail == noChanges:
		out.Steps = append(out.Steps, Step{name, "skipped", detail})
	default:
		out.Steps = append(out.Steps, Step{name, "done", detail})
	}
	return err
}

func sentence(f Finalized) string {
	text := strconv.Itoa(f.Stat.Files) + " files changed on " + f.Branch
	if f.Pull != nil {
		text += ", pull request " + strconv.Itoa(f.Pull.Number)
		if f.Pull.URL != "" {
			text += " (" + f.Pull.URL + ")"
		}
	}
	return text
}

// finalCommit commits with the request's or a default message. It returns the hash, or the
// reason for a missing commit.
func (m *Manager) finalCommit(ctx context.Context, w Workspace, req FinalizeRequest, out *Finalized) (string, error) {
	if req.Message == "" {
		req.Message = "Work on " + w.Branch
	}
	c, err := m.Commit(ctx, w.ID, req.Message)
	out.Commit = c.Hash
	if c.Reason != "" {
		return c.Reason, err
	}
	return c.Hash, err
}

// ahead reports whether the branch has commits that its base has not, and sets out.Commit and
// out.Stat.
func (m *Manager) ahead(ctx context.Context, w Workspace, out *Finalized) (bool, error) {
	head, err := m.line(ctx, w, "rev-parse", "--verify", "--quiet", "refs/heads/"+w.Branch)
	if err != nil || head == "" {
		return false, err
	}
	from, err := m.commitOf(ctx, w, "")
	if err != nil || from == head {
		return false, err
	}
	out.Commit = head // also if the agent committed by itself
	out.Stat, err = m.stat(ctx, w, from, head)
	return true, err
}

// openPull opens the pull request for the pushed branch, with default texts for empty fields,
// and returns the forge's notes.
func (m *Manager) openPull(ctx context.Context, w Workspace, req FinalizeRequest, out *Finalized) (string, error) {
	p := forge.PullRequest{
		Title: req.Title, Body: req.Body, Base: req.Base, Head: w.Branch, Draft: req.Draft, Labels: req.Labels,
		Reviewers: req.Reviewers,
	}
	if p.Base == "" {
		p.Base = w.BaseBranch
	}
	if p.Title == "" {
		p.Title = "[Eliza] " + w.Branch
	}
	if p.Body == "" {
		commits, err := m.ListCommits(ctx, w.ID, "", 20)
		if err != nil {
			return "", err
		}
		for _, c := range commits {
			p.Body += "- " + c.Subject + "\n"
		}
	}
	pull, err := m.OpenPull(ctx, w.ID, p)
	if err != nil {
		return "", err
	}
	out.Pull = &pull
	return strings.Join(pull.Notes, "; "), nil
}

// OpenPull opens a pull request for the workspace's branch, which must have been pushed, and
// stores it in the record. p.Head is ignored. Text that looks like a credential is masked.
// Errors: unavailable, reason no_forge; invalid_input, reason missing_title or
// invalid_base_branch; too_large; and those of forge.Repository.
func (m *Manager) OpenPull(ctx context.Context, id string, p forge.PullRequest) (forge.Pull, error) {
	w, err := m.Get(id)
	if err != nil {
		return forge.Pull{}, err
	}
	p.Title = text.OneLine(secret.MaskTokens(p.Title))
	p.Body, p.Head = secret.MaskTokens(p.Body), w.Branch
	if p.Base == "" {
		p.Base = w.BaseBranch
	}
	switch {
	case p.Title == "" || len([]rune(p.Title)) > maxTitle:
		return forge.Pull{}, capability.Errorf(capability.CodeInvalidInput, "workspace.pull",
			"a pull request needs a title of at most %d characters", maxTitle).With("missing_title", "")
	case len(p.Body) > maxBody || len(p.Labels) > maxNames || len(p.Reviewers) > maxNames:
		return forge.Pull{}, capability.Errorf(capability.CodeTooLarge, "workspace.pull",
			"a pull request has at most %d bytes of text, %d labels and as many reviewers", maxBody, maxNames).With("too_large", "")
	}
	if err := m.checkRef(ctx, p.Base, "invalid_base_branch"); err != nil {
		return forge.Pull{}, err
	}
	repo, err := m.forge(ctx, w)
	if err != nil {
		return forge.Pull{}, err
	}
	if repo == nil {
		return forge.Pull{}, capability.Errorf(capability.CodeUnavailable, "workspace.pull",
			"no forge is configured for this repository").With("no_forge", "open the pull request by hand: the branch may be pushed")
	}
	pull, err := repo.OpenPull(ctx, p)
	if err != nil {
		return pull, err
	}
	_, err = m.update(id, func(w *Workspace) { w.Pull = &pull })
	return pull, err
}

// Issues returns a repository at its forge with the operator's credential, for its issues. Errors:
// those of forge.Policy.Parse, and unavailable, reason no_forge or no_issues.
func (m *Manager) Issues(ctx context.Context, repo string) (forge.Issues, error) {
	r, err := m.cfg.Policy.Parse(repo)
	if err != nil {
		return nil, err
	}
	opened, err := m.forge(ctx, Workspace{Mode: Clone, Repo: r})
	if err == nil && opened == nil {
		err = capability.Errorf(capability.CodeUnavailable, "workspace.issues", "no forge is configured for this repository").With("no_forge", "")
	}
	if err != nil {
		return nil, err
	}
	issues, ok := opened.(forge.Issues)
	if !ok {
		err = capability.Errorf(capability.CodeUnavailable, "workspace.issues", "this forge keeps no issues").With("no_issues",
			"use a repository on a forge that has them")
	}
	return issues, err
}
