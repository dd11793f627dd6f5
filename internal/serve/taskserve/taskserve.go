// Package taskserve is the part of /api/v1 with which owners list, read, answer and cancel their
// tasks, whichever surface these were started on. Tasks of other owners are not found.
package taskserve

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// Tasks is the task store; *tasks.Manager implements it.
type Tasks interface {
	Get(ctx context.Context, owner, id string) (tasks.Task, error)
	List(ctx context.Context, q tasks.Query) (tasks.Page, error)
	Cancel(ctx context.Context, owner, id string) (tasks.Task, error)
	Answer(ctx context.Context, who capability.Principal, id, key string, answer json.RawMessage, docs ...json.RawMessage) (tasks.Task, error)
}

// Surface serves the HTTP routes.
type Surface struct {
	door  *httpapi.Door
	tasks Tasks
}

// New returns the surface.
func New(d *httpapi.Door, t Tasks) *Surface { return &Surface{door: d, tasks: t} }

// Routes adds every path to mux.
func (s *Surface) Routes(mux *http.ServeMux) {
	mux.Handle("GET /api/v1/tasks", s.door.Guard(s.list))
	mux.Handle("GET /api/v1/tasks/{id}", s.door.Guard(s.get))
	mux.Handle("POST /api/v1/tasks/{id}/cancel", s.door.Guard(s.cancel))
	mux.Handle("POST /api/v1/tasks/{id}/answer", s.door.Guard(s.answer))
}

// list returns the caller's tasks; the query parameters are state, surface, context, limit
// and cursor.
func (s *Surface) list(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	v := r.URL.Query()
	q := tasks.Query{
		Owner: who.ID, State: tasks.State(v.Get("state")), Surface: v.Get("surface"), Context: v.Get("context"), Cursor: v.Get("cursor"),
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return capability.Errorf(capability.CodeInvalidInput, "tasks.list", "limit is a number from 1 to 100")
		}
		q.Limit = n
	}
	if q.State != "" && !q.State.Known() {
		return capability.Errorf(capability.CodeInvalidInput, "tasks.list",
			"%.40q is not a state of a task; use submitted, working, input_required, auth_required, completed, failed, rejected, cancelled or interrupted", q.State)
	}
	page, err := s.tasks.List(r.Context(), q)
	if err != nil {
		return err
	}
	list := []tasks.Task{}
	list = append(list, page.Tasks...)
	return write(w, map[string]any{"tasks": list, "total": page.Total, "next": page.Next})
}

func (s *Surface) get(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	t, err := s.tasks.Get(r.Context(), who.ID, r.PathValue("id"))
	if err != nil {
		return err
	}
	return write(w, map[string]any{"task": t})
}

func (s *Surface) cancel(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	t, err := s.tasks.Cancel(r.Context(), who.ID, r.PathValue("id"))
	if err != nil {
		return err
	}
	return write(w, map[string]any{"task": t})
}

// answer answers a question of a task. The body holds the question's key, which may be
// omitted if there is only one, and the result of its method.
func (s *Surface) answer(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var in struct {
		Key    string    `json:"key"`
		Answer jsonx.Raw `json:"answer"`
	}
	if err := httpapi.Decode(w, r, &in); err != nil {
		return err
	}
	if in.Answer.Kind() != '{' {
		return capability.Errorf(capability.CodeInvalidInput, "tasks.answer", "answer must be an object").
			With("", `for a form: {"action": "accept", "content": {…}}, or {"action": "decline"}`)
	}
	t, err := s.tasks.Answer(r.Context(), who, r.PathValue("id"), in.Key, json.RawMessage(in.Answer))
	if err != nil {
		return err
	}
	return write(w, map[string]any{"task": t})
}

func write(w http.ResponseWriter, v any) error {
	httpapi.WriteJSON(w, http.StatusOK, v)
	return nil
}
