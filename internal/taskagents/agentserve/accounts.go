package agentserve

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// Accounts says how programs are chosen and how they did, sets it, and logs people in
// (task-agents, section 9.1).
type Accounts interface {
	Metrics() any
	Settings(ctx context.Context) (any, error)
	ChangeSettings(ctx context.Context, by capability.Principal, request json.RawMessage) (any, error)
	// SignIn starts a login of an agent type, or of github, and returns once it is known
	// what a person has to do. It goes on afterwards; a request may carry the code that
	// they were given.
	SignIn(ctx context.Context, name string, request json.RawMessage) (any, error)
}

func (s *Surface) accountRoutes(mux *http.ServeMux, base string, handle func(method, path string, h httpapi.Handler)) {
	handle("GET", "/metrics", func(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
		return answer(w, http.StatusOK, s.Accounts.Metrics(), nil)
	})
	handle("GET", "/settings", func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		doc, err := s.Accounts.Settings(r.Context())
		return answer(w, http.StatusOK, doc, err)
	})
	handle("PATCH", "/settings", func(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
		body, err := httpapi.ReadBody(w, r, httpapi.BodyLimit)
		if err != nil {
			return err
		}
		doc, err := s.Accounts.ChangeSettings(r.Context(), who, body)
		return answer(w, http.StatusOK, doc, err)
	})
	// /auth/{agent} overlaps with /{id}/send, which a mux refuses: so it is found among all
	// paths of its length that nothing else takes.
	signIn := s.guard(func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		body, err := httpapi.ReadBody(w, r, httpapi.BodyLimit)
		if err != nil {
			return err
		}
		doc, err := s.Accounts.SignIn(r.Context(), r.PathValue("word"), body)
		return answer(w, http.StatusOK, doc, err)
	})
	mux.HandleFunc(base+"/{id}/{word}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "auth" && r.Method == http.MethodPost {
			signIn.ServeHTTP(w, r)
			return
		}
		s.Unrouted(mux, w, r)
	})
}
