package agentserve

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// Workspaces are the folders that agents work in, and the issues of their repositories
// (task-agents, sections 9.3 and 16). Values marshal to the answers as they are.
type Workspaces interface {
	List(ctx context.Context) (any, error)
	Provision(ctx context.Context, request json.RawMessage) (any, error)
	Status(ctx context.Context, id string) (any, error)
	Diff(ctx context.Context, id, from string) (any, error)
	Commit(ctx context.Context, id string, request json.RawMessage) (any, error)
	Push(ctx context.Context, id string, request json.RawMessage) (any, error)
	Pull(ctx context.Context, id string, request json.RawMessage) (any, error)
	Finalize(ctx context.Context, id string, request json.RawMessage) (any, error)
	Remove(ctx context.Context, id string, force bool) error

	Issues(ctx context.Context, repo, state string, labels []string) (any, error)
	CreateIssue(ctx context.Context, request json.RawMessage) (any, error)
	Issue(ctx context.Context, repo string, number int) (any, error)
	Comment(ctx context.Context, repo string, number int, request json.RawMessage) (any, error)
	CloseIssue(ctx context.Context, repo string, number int) (any, error)

	Scratch() any
	// Decide keeps, deletes or promotes the folder that was made for a session.
	Decide(session, verb string, request json.RawMessage) (any, error)
}

func (s *Surface) workspaceRoutes(mux *http.ServeMux) {
	const base, issues = "/api/workspace", "/api/issues"
	handle := func(pattern string, h httpapi.Handler) { mux.Handle(pattern, s.guard(h)) }
	// what answers with what is done to one workspace, with a body.
	what := func(status int, do func(context.Context, string, json.RawMessage) (any, error)) httpapi.Handler {
		return func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
			body, err := bodyOf(w, r)
			if err != nil {
				return err
			}
			doc, err := do(r.Context(), r.PathValue("id"), body)
			return answer(w, status, doc, err)
		}
	}
	handle("GET "+base, func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		doc, err := s.Workspaces.List(r.Context())
		return answer(w, http.StatusOK, doc, err)
	})
	handle("POST "+base+"/provision", what(http.StatusCreated, func(ctx context.Context, _ string, body json.RawMessage) (any, error) {
		return s.Workspaces.Provision(ctx, body)
	}))
	handle("GET "+base+"/{id}", func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		doc, err := s.Workspaces.Status(r.Context(), r.PathValue("id"))
		return answer(w, http.StatusOK, doc, err)
	})
	handle("GET "+base+"/{id}/diff", func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		doc, err := s.Workspaces.Diff(r.Context(), r.PathValue("id"), r.URL.Query().Get("from"))
		return answer(w, http.StatusOK, doc, err)
	})
	handle("POST "+base+"/{id}/commit", what(http.StatusOK, s.Workspaces.Commit))
	handle("POST "+base+"/{id}/push", what(http.StatusOK, s.Workspaces.Push))
	handle("POST "+base+"/{id}/pr", what(http.StatusCreated, s.Workspaces.Pull))
	handle("POST "+base+"/{id}/finalize", what(http.StatusOK, s.Workspaces.Finalize))
	handle("DELETE "+base+"/{id}", func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		id := r.PathValue("id")
		err := s.Workspaces.Remove(r.Context(), id, r.URL.Query().Get("force") == "true")
		return answer(w, http.StatusOK, map[string]any{"success": true, "workspaceId": id}, err)
	})

	handle("GET "+issues, func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		q := r.URL.Query()
		var labels []string
		if text := q.Get("labels"); text != "" {
			labels = strings.Split(text, ",")
		}
		doc, err := s.Workspaces.Issues(r.Context(), q.Get("repo"), q.Get("state"), labels)
		return answer(w, http.StatusOK, doc, err)
	})
	handle("POST "+issues, what(http.StatusCreated, func(ctx context.Context, _ string, body json.RawMessage) (any, error) {
		return s.Workspaces.CreateIssue(ctx, body)
	}))
	issue := func(status int, do func(ctx context.Context, repo string, number int, body json.RawMessage) (any, error)) httpapi.Handler {
		return func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
			number, err := strconv.Atoi(r.PathValue("number"))
			if err != nil || number < 1 {
				return capability.Errorf(capability.CodeInvalidInput, "issues", "an issue is named by its number").With("missing_issue_number", "")
			}
			var body json.RawMessage
			if r.Method == http.MethodPost {
				if body, err = bodyOf(w, r); err != nil {
					return err
				}
			}
			doc, err := do(r.Context(), r.PathValue("owner")+"/"+r.PathValue("name"), number, body)
			return answer(w, status, doc, err)
		}
	}
	handle("GET "+issues+"/{owner}/{name}/{number}", issue(http.StatusOK, func(ctx context.Context, repo string, number int, _ json.RawMessage) (any, error) {
		return s.Workspaces.Issue(ctx, repo, number)
	}))
	handle("POST "+issues+"/{owner}/{name}/{number}/comment", issue(http.StatusCreated, s.Workspaces.Comment))
	handle("POST "+issues+"/{owner}/{name}/{number}/close", issue(http.StatusOK, func(ctx context.Context, repo string, number int, _ json.RawMessage) (any, error) {
		return s.Workspaces.CloseIssue(ctx, repo, number)
	}))
}

// scratchRoutes are about the folders that were made for sessions.
func (s *Surface) scratchRoutes(mux *http.ServeMux, base string) {
	mux.Handle("GET "+base+"/scratch", s.guard(func(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
		return answer(w, http.StatusOK, s.Workspaces.Scratch(), nil)
	}))
	for _, verb := range []string{"keep", "delete", "promote"} {
		mux.Handle("POST "+base+"/{id}/scratch/"+verb, s.guard(func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
			body, err := bodyOf(w, r)
			if err != nil {
				return err
			}
			doc, err := s.Workspaces.Decide(r.PathValue("id"), verb, body)
			return answer(w, http.StatusOK, map[string]any{"success": true, "scratch": doc}, err)
		}))
	}
}

// bodyOf reads a body that may be missing.
func bodyOf(w http.ResponseWriter, r *http.Request) (json.RawMessage, error) {
	body, err := httpapi.ReadBody(w, r, httpapi.BodyLimit)
	if err == nil && len(body) == 0 {
		body = []byte("{}")
	}
	return body, err
}
