package verbs

// This file has the three verbs about repositories: provision a workspace, finalize its work,
// and manage issues. Package workspace and the forge implement the operations.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
)

// provisioned is the data in the result of PROVISION_WORKSPACE.
type provisioned struct {
	WorkspaceID string         `json:"workspaceId"`
	Path        string         `json:"path"`
	Branch      string         `json:"branch"`
	BaseBranch  string         `json:"baseBranch"`
	Mode        workspace.Mode `json:"mode"`
	Repo        string         `json:"repo"`
	Parent      string         `json:"parentWorkspaceId,omitempty"`
	Notes       []string       `json:"notes,omitempty"`
}

// provision implements PROVISION_WORKSPACE. The call's conversation uses the new workspace.
func (v *verbs) provision(ctx context.Context, c Call, params json.RawMessage) (Result, error) {
	var p struct {
		Repo       string `json:"repo"`
		BaseBranch string `json:"baseBranch"`
		BranchName string `json:"branchName"`
		Worktree   bool   `json:"useWorktree"`
		Parent     string `json:"parentWorkspaceId"`
		Label      string `json:"label"`
	}
	if err := Params(params, &p); err != nil {
		return Fail(err, nil)
	}
	req := workspace.Request{BaseBranch: p.BaseBranch, BranchName: p.BranchName, Label: p.Label, Slug: p.Label}
	switch {
	case p.Worktree && p.Parent == "":
		return Fail(MissingParent.Errorf("a worktree needs parentWorkspaceId, the workspace whose clone it belongs to"), nil)
	case p.Parent != "":
		parent, err := v.cfg.Workspaces.Resolve(p.Parent)
		if err != nil {
			return Fail(err, nil)
		}
		req.Parent = parent.ID
	default:
		if req.Repo = strings.TrimSpace(p.Repo); req.Repo == "" {
			return Fail(MissingRepo.Errorf("say which repository: owner/name, or its address"), nil)
		}
	}
	w, err := v.cfg.Workspaces.Provision(ctx, req)
	if err != nil {
		return Fail(err, nil)
	}
	v.talks.Remember(c, func(t *Talk) { t.WorkspaceID, t.Workdir, t.Repo = w.ID, w.Path, w.Repo.URL })
	return Result{
		Success: true, Text: fmt.Sprintf("%s/%s is ready on branch %s in %s.", w.Repo.Owner, w.Repo.Name, w.Branch, w.Path),
		Data: provisioned{w.ID, w.Path, w.Branch, w.BaseBranch, w.Mode, w.Repo.URL, w.Parent, w.Notes},
	}, nil
}

// finalize implements FINALIZE_WORKSPACE.
func (v *verbs) finalize(ctx context.Context, c Call, params json.RawMessage) (Result, error) {
	var p struct {
		Workspace string `json:"workspaceId"`
		Message   string `json:"commitMessage"`
		Title     string `json:"prTitle"`
		Body      string `json:"prBody"`
		Base      string `json:"baseBranch"`
		Draft     bool   `json:"draft"`
		SkipPull  bool   `json:"skipPR"`
	}
	if err := Params(params, &p); err != nil {
		return Fail(err, nil)
	}
	w, err := v.workspace(c, p.Workspace)
	if err != nil {
		return Fail(err, nil)
	}
	done, err := v.cfg.Workspaces.Finalize(ctx, w.ID, workspace.FinalizeRequest{
		Message: p.Message, Title: p.Title, Body: p.Body, Base: p.Base, Draft: p.Draft, SkipPull: p.SkipPull,
	})
	if err != nil {
		e := *capability.AsError(err)
		r, failed := Fail(&e, done)
		// All steps have one code; the data and the error's reason identify the step and cause.
		r.Error = FinalizeFailed
		if known, ok := failed.(*capability.Error); ok { //nolint:errorlint // Fail returns this type
			known.Details["error"] = FinalizeFailed
		}
		return r, failed
	}
	v.talks.Remember(c, func(t *Talk) { t.WorkspaceID = w.ID })
	return Result{Success: true, Text: done.Text, Data: done}, nil
}

// workspace returns the workspace with the given id or label. If named is "", it returns the
// last one of the conversation, otherwise the newest with a repository, or NO_WORKSPACE.
func (v *verbs) workspace(c Call, named string) (workspace.Workspace, error) {
	if named != "" {
		return v.cfg.Workspaces.Resolve(named)
	}
	last := v.talks.Last(c)
	list := slices.DeleteFunc(v.cfg.Workspaces.List(), func(w workspace.Workspace) bool { return w.Mode == workspace.Folder })
	for _, meant := range []func(workspace.Workspace) bool{
		func(w workspace.Workspace) bool { return w.Path == last.Workdir },
		func(w workspace.Workspace) bool { return w.ID == last.WorkspaceID },
		func(workspace.Workspace) bool { return true },
	} {
		if at := slices.IndexFunc(list, meant); at >= 0 {
			return list[at], nil
		}
	}
	return workspace.Workspace{}, NoWorkspace.Errorf("there is no workspace with a repository")
}

// sentence returns the formatted text with a capital letter and a full stop.
func sentence(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
