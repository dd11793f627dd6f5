package agentserve

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

// Workspaces manages the workspaces of agents, and gives access to the issues of repositories.
type Workspaces interface {
	List() []workspace.Workspace
	Get(id string) (workspace.Workspace, error)
	Provision(ctx context.Context, req workspace.Request) (workspace.Workspace, error)
	Status(ctx context.Context, id string) (workspace.Status, error)
	Diff(ctx context.Context, id, from string) (workspace.Diff, error)
	Commit(ctx context.Context, id, message string) (workspace.Commit, error)
	Push(ctx context.Context, id string, force bool) error
	OpenPull(ctx context.Context, id string, p forge.PullRequest) (forge.Pull, error)
	Finalize(ctx context.Context, id string, req workspace.FinalizeRequest) (workspace.Finalized, error)
	Remove(ctx context.Context, id string, force bool) error
	Issues(ctx context.Context, repo string) (forge.Issues, error)
}

// Scratch manages the scratch folders of sessions.
type Scratch interface {
	List() []workspace.ScratchRecord
	Keep(session string) (workspace.ScratchRecord, error)
	Promote(session, name string) (workspace.ScratchRecord, error)
	Delete(session string) error
}

type provisionRequest struct {
	Repo       string `json:"repo"`
	BaseBranch string `json:"baseBranch"`
	Worktree   bool   `json:"useWorktree"`
	Parent     string `json:"parentWorkspaceId"`
	Branch     string `json:"branchName"`
	Label      string `json:"label"`
}

// workspaceStatus is the answer about one workspace.
type workspaceStatus struct {
	workspace.Status
	Workspace workspace.Workspace `json:"workspace"`
}

type commitRequest struct {
	Message string `json:"message"`
}

// pushRequest is decoded strictly. The upstream is always set.
type pushRequest struct {
	Force       bool  `json:"force"`
	SetUpstream *bool `json:"setUpstream"`
}

type pullRequest struct {
	Title string `json:"title"`
	Body  string `json:"body"`
	Base  string `json:"baseBranch"`
	Draft bool   `json:"draft"`
}

type finalizeRequest struct {
	Message  string `json:"commitMessage"`
	Title    string `json:"prTitle"`
	Body     string `json:"prBody"`
	Base     string `json:"baseBranch"`
	Draft    bool   `json:"draft"`
	SkipPull bool   `json:"skipPR"`
}

// removed is the answer to a removal.
type removed struct {
	Success     bool   `json:"success"`
	WorkspaceID string `json:"workspaceId"`
}

type issueRequest struct {
	Repo   string   `json:"repo"`
	Title  string   `json:"title"`
	Body   string   `json:"body"`
	Labels []string `json:"labels"`
}

type commentRequest struct {
	Body string `json:"body"`
}

// decideRequest holds the new name of a promoted folder.
type decideRequest struct {
	Name string `json:"name"`
}

// decided is the answer to a decision about a folder. Scratch is null if it was deleted.
type decided struct {
	Scratch *workspace.ScratchRecord `json:"scratch"`
	Success bool                     `json:"success"`
}

func (s *Surface) workspaceRoutes(mux *http.ServeMux) {
	const base = "/api/workspace"
	handle := func(pattern string, h httpapi.Handler) { mux.Handle(pattern, s.guard(h)) }
	handle("GET "+base, s.workspaces)
	handle("POST "+base+"/provision", posted(http.StatusCreated, s.ready, s.provision))
	handle("GET "+base+"/{id}", s.workspaceStatus)
	handle("GET "+base+"/{id}/diff", s.diff)
	handle("POST "+base+"/{id}/commit", posted(http.StatusOK, s.ready, s.commit))
	handle("POST "+base+"/{id}/push", posted(http.StatusOK, s.ready, s.push))
	handle("POST "+base+"/{id}/pr", posted(http.StatusCreated, s.ready, s.pull))
	handle("POST "+base+"/{id}/finalize", posted(http.StatusOK, s.ready, s.finalize))
	handle("DELETE "+base+"/{id}", s.remove)
	s.issueRoutes(handle)
}

// ready returns why workspaces are unavailable.
func (s *Surface) ready() error { return s.NoWorkspaces }

func (s *Surface) workspaces(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	if err := s.ready(); err != nil {
		return err
	}
	return answer(w, http.StatusOK, s.Workspaces.List(), nil)
}

func (s *Surface) provision(r *http.Request, _ capability.Principal, in provisionRequest) (workspace.Workspace, error) {
	req := workspace.Request{Repo: in.Repo, BaseBranch: in.BaseBranch, BranchName: in.Branch, Label: in.Label}
	if in.Worktree {
		if in.Parent == "" {
			return workspace.Workspace{}, capability.Errorf(capability.CodeInvalidInput, "workspace",
				"a worktree needs parentWorkspaceId").With("missing_parent", "provision a clone first")
		}
		req.Repo, req.Parent = "", in.Parent
	}
	return s.Workspaces.Provision(r.Context(), req)
}

func (s *Surface) workspaceStatus(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	if err := s.ready(); err != nil {
		return err
	}
	id := r.PathValue("id")
	ws, err := s.Workspaces.Get(id)
	if err != nil {
		return err
	}
	status, err := s.Workspaces.Status(r.Context(), id)
	return answer(w, http.StatusOK, workspaceStatus{status, ws}, err)
}

func (s *Surface) diff(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	if err := s.ready(); err != nil {
		return err
	}
	d, err := s.Workspaces.Diff(r.Context(), r.PathValue("id"), r.URL.Query().Get("from"))
	return answer(w, http.StatusOK, d, err)
}

func (s *Surface) commit(r *http.Request, _ capability.Principal, in commitRequest) (workspace.Commit, error) {
	return s.Workspaces.Commit(r.Context(), r.PathValue("id"), in.Message)
}

func (s *Surface) push(r *http.Request, _ capability.Principal, in pushRequest) (success, error) {
	return success{true}, s.Workspaces.Push(r.Context(), r.PathValue("id"), in.Force)
}

func (s *Surface) pull(r *http.Request, _ capability.Principal, in pullRequest) (forge.Pull, error) {
	return s.Workspaces.OpenPull(r.Context(), r.PathValue("id"),
		forge.PullRequest{Title: in.Title, Body: in.Body, Base: in.Base, Draft: in.Draft})
}

func (s *Surface) finalize(r *http.Request, _ capability.Principal, in finalizeRequest) (workspace.Finalized, error) {
	return s.Workspaces.Finalize(r.Context(), r.PathValue("id"), workspace.FinalizeRequest{
		Message: in.Message, Title: in.Title, Body: in.Body, Base: in.Base, Draft: in.Draft, SkipPull: in.SkipPull,
	})
}

func (s *Surface) remove(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	if err := s.ready(); err != nil {
		return err
	}
	id := r.PathValue("id")
	err := s.Workspaces.Remove(r.Context(), id, r.URL.Query().Get("force") == "true")
	return answer(w, http.StatusOK, removed{true, id}, err)
}

func (s *Surface) issueRoutes(handle func(pattern string, h httpapi.Handler)) {
	const base = "/api/issues"
	handle("GET "+base, s.issues)
	handle("POST "+base, posted(http.StatusCreated, s.ready, s.createIssue))
	handle("GET "+base+"/{owner}/{name}/{number}", s.issue)
	handle("POST "+base+"/{owner}/{name}/{number}/comment", s.comment)
	handle("POST "+base+"/{owner}/{name}/{number}/close", s.closeIssue)
}

func (s *Surface) repository(ctx context.Context, name string) (forge.Issues, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	return s.Workspaces.Issues(ctx, name)
}

func (s *Surface) issues(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	q := r.URL.Query()
	var labels []string
	if text := q.Get("labels"); text != "" {
		labels = strings.Split(text, ",")
	}
	repo, err := s.repository(r.Context(), q.Get("repo"))
	if err != nil {
		return err
	}
	list, err := repo.ListIssues(r.Context(), forge.IssueFilter{State: q.Get("state"), Labels: labels})
	return answer(w, http.StatusOK, list, err)
}

func (s *Surface) createIssue(r *http.Request, _ capability.Principal, in issueRequest) (forge.Issue, error) {
	if in.Title == "" {
		return forge.Issue{}, capability.Errorf(capability.CodeInvalidInput, "issues", "an issue needs a title").With("missing_title", "")
	}
	repo, err := s.repository(r.Context(), in.Repo)
	if err != nil {
		return forge.Issue{}, err
	}
	return repo.CreateIssue(r.Context(), in.Title, in.Body, in.Labels)
}

// issueOf parses the repository and the issue number in a path.
func issueOf(r *http.Request) (repo string, number int, err error) {
	number, err = strconv.Atoi(r.PathValue("number"))
	if err != nil || number < 1 {
		return "", 0, capability.Errorf(capability.CodeInvalidInput, "issues", "an issue is named by its number").With("missing_issue_number", "")
	}
	return r.PathValue("owner") + "/" + r.PathValue("name"), number, nil
}

func (s *Surface) issue(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	name, number, err := issueOf(r)
	if err != nil {
		return err
	}
	repo, err := s.repository(r.Context(), name)
	if err != nil {
		return err
	}
	one, err := repo.GetIssue(r.Context(), number)
	return answer(w, http.StatusOK, one, err)
}

func (s *Surface) comment(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	name, number, err := issueOf(r)
	if err != nil {
		return err
	}
	return posted(http.StatusCreated, s.ready, func(r *http.Request, _ capability.Principal, in commentRequest) (forge.Comment, error) {
		if in.Body == "" {
			return forge.Comment{}, capability.Errorf(capability.CodeInvalidInput, "issues", "a comment needs a body").With("missing_params", "")
		}
		repo, err := s.repository(r.Context(), name)
		if err != nil {
			return forge.Comment{}, err
		}
		return repo.Comment(r.Context(), number, in.Body)
	})(w, r, who)
}

func (s *Surface) closeIssue(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	name, number, err := issueOf(r)
	if err != nil {
		return err
	}
	if _, err := httpapi.ReadBody(w, r, httpapi.MaxBody); err != nil {
		return err
	}
	repo, err := s.repository(r.Context(), name)
	if err != nil {
		return err
	}
	closed := "closed"
	one, err := repo.UpdateIssue(r.Context(), number, forge.IssueChange{State: &closed})
	return answer(w, http.StatusOK, one, err)
}

// scratchRoutes adds the routes for scratch folders.
func (s *Surface) scratchRoutes(mux *http.ServeMux, base string) {
	mux.Handle("GET "+base+"/scratch", s.guard(func(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
		return answer(w, http.StatusOK, s.Scratch.List(), nil)
	}))
	for verb, decide := range map[string]func(session, name string) (*workspace.ScratchRecord, error){
		"keep": func(session, _ string) (*workspace.ScratchRecord, error) { return record(s.Scratch.Keep(session)) },
		"promote": func(session, name string) (*workspace.ScratchRecord, error) {
			return record(s.Scratch.Promote(session, name))
		},
		"delete": func(session, _ string) (*workspace.ScratchRecord, error) { return nil, s.Scratch.Delete(session) },
	} {
		mux.Handle("POST "+base+"/{id}/scratch/"+verb, s.guard(posted(http.StatusOK, nil,
			func(r *http.Request, _ capability.Principal, in decideRequest) (decided, error) {
				rec, err := decide(r.PathValue("id"), in.Name)
				return decided{rec, true}, err
			})))
	}
}

func record(r workspace.ScratchRecord, err error) (*workspace.ScratchRecord, error) { return &r, err }
