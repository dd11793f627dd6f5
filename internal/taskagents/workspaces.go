package taskagents

import (
	"context"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge/bareforge"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge/githubforge"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/scratch"
	"github.com/junctor-run/junctor/secret"
)

// workspaces are the folders that agents work in. Without git there are only those
// that were made empty.
type workspaces struct {
	*workspace.Manager
	missing error // why there is no manager
	scratch *scratch.Keeper
	log     func(what string, err error)
}

// openWorkspaces opens what was there before.
func (s *Service) openWorkspaces(ctx context.Context) error {
	base, state := s.path("workspaces"), s.path("agents")
	keeper, err := scratch.Open(s.scratchConfig(base, state))
	if err != nil {
		return err
	}
	w := &workspaces{scratch: keeper, log: func(what string, err error) { s.logger.Error(what, "err", err) }}
	s.folders = w
	github := githubforge.New(githubforge.Config{})
	git, err := gitcmd.New(gitcmd.Config{})
	if err != nil {
		w.missing = err
		s.logger.Warn("there are no workspaces of repositories", "err", err)
		return nil
	}
	bare := &bareforge.Host{Git: git}
	clones, records := filepath.Join(base, "repositories"), filepath.Join(state, "workspaces")
	if own := s.cfg.Agents.WorkspaceBase; own != "" {
		clones, records = own, ofFolder(records, own)
	}
	w.Manager, w.missing = workspace.Open(ctx, workspace.Config{
		Base: clones, State: records, BranchPrefix: s.cfg.Agents.BranchPrefix, TTL: s.cfg.Agents.WorkspaceTTL,
		Policy: forge.Policy{Hosts: s.cfg.Agents.Forges, OperatorPrefixes: s.cfg.Agents.Repositories},
		Forge: func(r forge.Repo) forge.Host {
			switch {
			case r.Dir != "":
				return bare
			case r.Host == "github.com":
				return github
			}
			return nil
		},
		Token: func(_ context.Context, r forge.Repo) (secret.Value, error) {
			if r.Host != "github.com" {
				return secret.Value{}, nil
			}
			return s.githubToken()
		},
		OnEvent: s.workspaceChanged,
	})
	if w.missing != nil {
		s.logger.Warn("there are no workspaces of repositories", "err", w.missing)
	}
	return nil
}

// workspaceChanged records what became of a workspace.
func (s *Service) workspaceChanged(e workspace.Event) {
	rec := audit.Record{
		Logger: "workspace", Event: audit.Event(e.Name),
		Metadata: audit.Metadata{WorkDir: e.Workspace.Path, Attrs: []audit.Attr{{Key: "workspace", Value: e.Workspace.ID}, {Key: "repo", Value: e.Workspace.Repo.URL}, {Key: "branch", Value: e.Workspace.Branch}}},
	}
	if _, err := s.cfg.Log.Append(context.Background(), rec, audit.Buffered); err != nil {
		s.logger.Error("audit record not written", "event", e.Name, "err", err)
	}
	s.cfg.Publish("agent."+e.Name, map[string]any{"workspace_id": e.Workspace.ID})
}

// run collects garbage each hour, but what somebody works in.
func (w *workspaces) run(ctx context.Context, a *agents.Agents) error {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if _, err := w.scratch.Sweep(); err != nil {
			w.log("folders of sessions whose time has come are still there", err)
		}
		if w.missing == nil {
			used := map[string]bool{}
			for _, i := range a.List() {
				if i.Live() {
					used[i.Workdir] = true
				}
			}
			if _, err := w.GC(ctx, func(ws workspace.Workspace) bool { return used[ws.Path] }); err != nil && ctx.Err() == nil {
				w.log("old workspaces are still there", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *workspaces) close() {
	if w == nil {
		return
	}
	_ = w.scratch.Close() // a folder that was open, as below
	if w.missing == nil {
		_ = w.Close()
	}
}

// folderDoor adapts them to what the surface asks for.
type folderDoor struct{ *workspaces }

// List implements agentserve.Workspaces.
func (d folderDoor) List(context.Context) (any, error) {
	if d.missing != nil {
		return nil, d.missing
	}
	list := []workspace.Workspace{}
	return append(list, d.Manager.List()...), nil
}

// body decodes a request strictly, where there are workspaces.
func (d folderDoor) body(raw json.RawMessage, v any) error {
	if d.missing != nil {
		return d.missing
	}
	return httpapi.DecodeStrict(raw, v)
}

// Provision implements agentserve.Workspaces.
func (d folderDoor) Provision(ctx context.Context, raw json.RawMessage) (any, error) {
	var in struct {
		Repo       string `json:"repo"`
		BaseBranch string `json:"baseBranch"`
		Worktree   bool   `json:"useWorktree"`
		Parent     string `json:"parentWorkspaceId"`
		Branch     string `json:"branchName"`
		Label      string `json:"label"`
	}
	if err := d.body(raw, &in); err != nil {
		return nil, err
	}
	req := workspace.Request{Repo: in.Repo, BaseBranch: in.BaseBranch, BranchName: in.Branch, Label: in.Label}
	if in.Worktree {
		if in.Parent == "" {
			return nil, capability.Errorf(capability.CodeInvalidInput, "workspace", "a worktree needs parentWorkspaceId").With("missing_parent", "provision a clone first")
		}
		req.Repo, req.Parent = "", in.Parent
	}
	return d.Manager.Provision(ctx, req)
}

// Status implements agentserve.Workspaces.
func (d folderDoor) Status(ctx context.Context, id string) (any, error) {
	if d.missing != nil {
		return nil, d.missing
	}
	ws, err := d.Get(id)
	if err != nil {
		return nil, err
	}
	status, err := d.Manager.Status(ctx, id)
	return struct {
		workspace.Status
		Workspace workspace.Workspace `json:"workspace"`
	}{status, ws}, err
}

// Diff implements agentserve.Workspaces.
func (d folderDoor) Diff(ctx context.Context, id, from string) (any, error) {
	if d.missing != nil {
		return nil, d.missing
	}
	return d.Manager.Diff(ctx, id, from)
}

// Commit implements agentserve.Workspaces.
func (d folderDoor) Commit(ctx context.Context, id string, raw json.RawMessage) (any, error) {
	var in struct {
		Message string `json:"message"`
	}
	if err := d.body(raw, &in); err != nil {
		return nil, err
	}
	return d.Manager.Commit(ctx, id, in.Message)
}

// Push implements agentserve.Workspaces. The upstream is always set.
func (d folderDoor) Push(ctx context.Context, id string, raw json.RawMessage) (any, error) {
	var in struct {
		Force       bool  `json:"force"`
		SetUpstream *bool `json:"setUpstream"`
	}
	if err := d.body(raw, &in); err != nil {
		return nil, err
	}
	return map[string]any{"success": true}, d.Manager.Push(ctx, id, in.Force)
}

// Pull implements agentserve.Workspaces.
func (d folderDoor) Pull(ctx context.Context, id string, raw json.RawMessage) (any, error) {
	var in struct {
		Title string `json:"title"`
		Body  string `json:"body"`
		Base  string `json:"baseBranch"`
		Draft bool   `json:"draft"`
	}
	if err := d.body(raw, &in); err != nil {
		return nil, err
	}
	return d.OpenPull(ctx, id, forge.PullRequest{Title: in.Title, Body: in.Body, Base: in.Base, Draft: in.Draft})
}

// Finalize implements agentserve.Workspaces.
func (d folderDoor) Finalize(ctx context.Context, id string, raw json.RawMessage) (any, error) {
	var in struct {
		Message  string `json:"commitMessage"`
		Title    string `json:"prTitle"`
		Body     string `json:"prBody"`
		Base     string `json:"baseBranch"`
		Draft    bool   `json:"draft"`
		SkipPull bool   `json:"skipPR"`
	}
	if err := d.body(raw, &in); err != nil {
		return nil, err
	}
	return d.Manager.Finalize(ctx, id, workspace.FinalizeRequest{Message: in.Message, Title: in.Title, Body: in.Body, Base: in.Base, Draft: in.Draft, SkipPull: in.SkipPull})
}

// Remove implements agentserve.Workspaces.
func (d folderDoor) Remove(ctx context.Context, id string, force bool) error {
	if d.missing != nil {
		return d.missing
	}
	return d.Manager.Remove(ctx, id, force)
}

func (d folderDoor) repository(ctx context.Context, name string) (forge.Repository, error) {
	if d.missing != nil {
		return nil, d.missing
	}
	return d.Repository(ctx, name)
}

// Issues implements agentserve.Workspaces.
func (d folderDoor) Issues(ctx context.Context, name, state string, labels []string) (any, error) {
	repo, err := d.repository(ctx, name)
	if err != nil {
		return nil, err
	}
	return repo.ListIssues(ctx, forge.IssueFilter{State: state, Labels: labels})
}

// CreateIssue implements agentserve.Workspaces.
func (d folderDoor) CreateIssue(ctx context.Context, raw json.RawMessage) (any, error) {
	var in struct {
		Repo   string   `json:"repo"`
		Title  string   `json:"title"`
		Body   string   `json:"body"`
		Labels []string `json:"labels"`
	}
	if err := d.body(raw, &in); err != nil {
		return nil, err
	}
	if in.Title == "" {
		return nil, capability.Errorf(capability.CodeInvalidInput, "issues", "an issue needs a title").With("missing_title", "")
	}
	repo, err := d.repository(ctx, in.Repo)
	if err != nil {
		return nil, err
	}
	return repo.CreateIssue(ctx, in.Title, in.Body, in.Labels)
}

// Issue implements agentserve.Workspaces.
func (d folderDoor) Issue(ctx context.Context, name string, number int) (any, error) {
	repo, err := d.repository(ctx, name)
	if err != nil {
		return nil, err
	}
	return repo.GetIssue(ctx, number)
}

// Comment implements agentserve.Workspaces.
func (d folderDoor) Comment(ctx context.Context, name string, number int, raw json.RawMessage) (any, error) {
	var in struct {
		Body string `json:"body"`
	}
	if err := d.body(raw, &in); err != nil {
		return nil, err
	}
	if in.Body == "" {
		return nil, capability.Errorf(capability.CodeInvalidInput, "issues", "a comment needs a body").With("missing_params", "")
	}
	repo, err := d.repository(ctx, name)
	if err != nil {
		return nil, err
	}
	return repo.Comment(ctx, number, in.Body)
}

// CloseIssue implements agentserve.Workspaces.
func (d folderDoor) CloseIssue(ctx context.Context, name string, number int) (any, error) {
	repo, err := d.repository(ctx, name)
	if err != nil {
		return nil, err
	}
	closed := "closed"
	return repo.UpdateIssue(ctx, number, forge.IssueChange{State: &closed})
}

// Scratch implements agentserve.Workspaces.
func (d folderDoor) Scratch() any {
	list := []scratch.Record{}
	return append(list, d.scratch.List()...)
}

// Decide implements agentserve.Workspaces.
func (d folderDoor) Decide(session, verb string, raw json.RawMessage) (any, error) {
	var in struct {
		Name string `json:"name"`
	}
	if err := httpapi.DecodeStrict(raw, &in); err != nil {
		return nil, err
	}
	switch verb {
	case "keep":
		return d.scratch.Keep(session)
	case "promote":
		return d.scratch.Promote(session, in.Name)
	}
	return nil, d.scratch.Delete(session)
}
