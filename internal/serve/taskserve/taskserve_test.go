package taskserve_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/taskserve"
	"github.com/junctor-run/junctor/internal/store"
)

// fake knows one task, of agent:ann.
type fake struct{ asked string }

func (*fake) task(owner, id string) (tasks.Task, error) {
	if owner != "agent:ann" || id != "tsk_1" {
		return tasks.Task{}, capability.Errorf(capability.CodeNotFound, "tasks", "there is no task")
	}
	return tasks.Task{
		ID: id, Owner: owner, State: tasks.Completed, Result: json.RawMessage(`{"n":9007199254740993}`),
		History: []json.RawMessage{nil},
	}, nil
}

func (f *fake) Get(_ context.Context, owner, id string) (tasks.Task, error) { return f.task(owner, id) }

func (f *fake) Cancel(_ context.Context, owner, id string) (tasks.Task, error) {
	return f.task(owner, id)
}

func (f *fake) List(_ context.Context, q tasks.Query) (tasks.Page, error) {
	one, err := f.task(q.Owner, "tsk_1")
	if err != nil || q.Limit > 100 {
		return tasks.Page{}, err
	}
	return tasks.Page{Tasks: []tasks.Task{one}, Total: 1}, nil
}

func (f *fake) Answer(_ context.Context, who capability.Principal, id, key string, answer json.RawMessage,
	_ ...json.RawMessage,
) (tasks.Task, error) {
	f.asked = key + " " + string(answer)
	return f.task(who.ID, id)
}

func TestTasksOverHTTP(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p, err := policy.New(t.Context(), policy.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{"": ""}
	for _, name := range []string{"ann", "ben"} {
		_, v, err := p.CreateToken(t.Context(), capability.Principal{ID: "admin:setup"},
			policy.TokenRequest{Role: capability.RoleAgent, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = v.Reveal()
	}
	f, mux := &fake{}, http.NewServeMux()
	taskserve.New(httpapi.New(p, nil, nil), f).Routes(mux)
	for _, tt := range []struct {
		who, method, path, body string
		status                  int
		want                    string
	}{
		{"ann", "GET", "/api/v1/tasks", "", 200, `"total":1`},
		{"ann", "GET", "/api/v1/tasks?limit=x", "", 400, "limit"},
		{"ann", "GET", "/api/v1/tasks/tsk_1", "", 200, `"result":{"n":9007199254740993}`},
		{"ben", "GET", "/api/v1/tasks/tsk_1", "", 404, "not_found"},
		{"", "GET", "/api/v1/tasks/tsk_1", "", 401, "unauthenticated"},
		{"ann", "POST", "/api/v1/tasks/tsk_1/cancel", "", 200, `"id":"tsk_1"`},
		{"ben", "POST", "/api/v1/tasks/tsk_1/cancel", "", 404, "not_found"},
		{"ann", "POST", "/api/v1/tasks/tsk_1/answer", `{"key":"q1","answer":{"action":"accept"}}`, 200, `"id":"tsk_1"`},
		{"ann", "POST", "/api/v1/tasks/tsk_1/answer", `{"answer":"yes"}`, 400, "object"},
		{"ann", "POST", "/api/v1/tasks/tsk_1/answer", `{"anser":{}}`, 400, "/anser"},
	} {
		req := httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body))
		if tokens[tt.who] != "" {
			req.Header.Set("Authorization", "Bearer "+tokens[tt.who])
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, req)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s as %s: %d %s; want w.Code = %v, w.Body.String() with %v",
				tt.method, tt.path, tt.who, w.Code, w.Body, tt.status, tt.want)
		}
	}
	if f.asked != `q1 {"action":"accept"}` {
		t.Errorf("f.asked = %v, want %v", f.asked, `q1 {"action":"accept"}`)
	}
}
