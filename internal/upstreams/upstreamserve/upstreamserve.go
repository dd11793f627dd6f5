// Package upstreamserve is the part of /api/v1 that manages upstreams. It decodes requests
// and encodes answers; Upstreams decides what may be added and what agents see.
//
// Only an administrator may add and remove upstreams, because a record may name a program
// that is then started on this machine. Operators may also list and restart upstreams, read
// their logs, log in to them, and approve waiting definitions. Where each principal has its own
// login, agents may log in too.
package upstreamserve

import (
	"context"
	"net/http"
	"strconv"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/upstreams/mcpregistry"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// Upstreams manages the upstreams. Its values marshal to the responses.
type Upstreams interface {
	List() []upstream.Status
	Show(name string) (upstream.Status, error)
	Add(ctx context.Context, by capability.Principal, r record.Record) (upstream.Status, error)
	Remove(ctx context.Context, by capability.Principal, name string) error
	Restart(ctx context.Context, by capability.Principal, name string) (upstream.Status, error)
	Confine(ctx context.Context, by capability.Principal, name string, to upstream.Walled) (upstream.Status, error)
	Set(ctx context.Context, by capability.Principal, name string, to upstream.Settings) (upstream.Status, error)
	Logs(name string, after uint64, limit int) (upstream.LogPage, error)
	Login(ctx context.Context, by capability.Principal, name string, step upstream.LoginStep) (upstream.LoginResult, error)
	Logout(ctx context.Context, by capability.Principal, name string, req upstream.LogoutRequest) (upstream.LoginResult, error)
	Diff(name string) ([]ingest.PinDifference, error)
	Approve(ctx context.Context, by capability.Principal, name string, which upstream.Selection) ([]upstream.Approved, error)
}

// Registry reads the MCP registry. Its values marshal to the responses.
type Registry interface {
	Search(ctx context.Context, words string) (mcpregistry.Found, error)
	Plan(ctx context.Context, req mcpregistry.Request) (mcpregistry.Plan, error)
}

// Config holds the dependencies of a Surface. All are required.
type Config struct {
	Door      *httpapi.Door
	Upstreams Upstreams
	Registry  Registry
}

// Surface serves the HTTP routes.
type Surface struct{ Config }

// New returns the surface.
func New(cfg Config) *Surface { return &Surface{cfg} }

// Routes adds every path to mux.
func (s *Surface) Routes(mux *http.ServeMux) {
	const base = "/api/v1/upstreams"
	operator := func(h httpapi.Handler) http.Handler {
		return s.Door.Guard(h, capability.RoleAdmin, capability.RoleOperator)
	}
	admin := func(h httpapi.Handler) http.Handler { return s.Door.Guard(h, capability.RoleAdmin) }
	mux.Handle("GET "+base, operator(s.list))
	mux.Handle("POST "+base, admin(s.add))
	mux.Handle("GET "+base+"/{name}", operator(s.show))
	mux.Handle("DELETE "+base+"/{name}", admin(s.remove))
	mux.Handle("POST "+base+"/{name}/restart", operator(s.restart))
	mux.Handle("POST "+base+"/{name}/confine", admin(about(s.Upstreams.Confine)))
	mux.Handle("POST "+base+"/{name}/settings", admin(about(s.Upstreams.Set)))
	mux.Handle("GET "+base+"/{name}/logs", operator(s.logs))
	own := func(h httpapi.Handler) http.Handler { // Upstreams decides whose login it may be
		return s.Door.Guard(h, capability.RoleAdmin, capability.RoleOperator, capability.RoleAgent)
	}
	mux.Handle("POST "+base+"/{name}/login", own(about(s.Upstreams.Login)))
	mux.Handle("POST "+base+"/{name}/logout", own(about(s.Upstreams.Logout)))
	mux.Handle("GET "+base+"/{name}/diff", operator(s.diff))
	mux.Handle("POST "+base+"/{name}/approve", operator(about(s.approve)))
	mux.Handle("GET /api/v1/registry", operator(func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		found, err := s.Registry.Search(r.Context(), r.URL.Query().Get("search"))
		return answer(w, found, err)
	}))
	mux.Handle("POST /api/v1/registry/plan", admin(func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		in, err := read[mcpregistry.Request](w, r)
		if err != nil {
			return err
		}
		plan, err := s.Registry.Plan(r.Context(), in)
		return answer(w, plan, err)
	}))
}

func (s *Surface) list(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	httpapi.WriteJSON(w, http.StatusOK, map[string]any{"upstreams": s.Upstreams.List()})
	return nil
}

func (s *Surface) add(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	in, err := read[record.Record](w, r)
	if err != nil {
		return err
	}
	added, err := s.Upstreams.Add(r.Context(), who, in)
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusCreated, added)
	return nil
}

func (s *Surface) show(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	shown, err := s.Upstreams.Show(r.PathValue("name"))
	return answer(w, shown, err)
}

func (s *Surface) remove(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	name := r.PathValue("name")
	err := s.Upstreams.Remove(r.Context(), who, name)
	return answer(w, map[string]any{"removed": name}, err)
}

func (s *Surface) restart(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	status, err := s.Upstreams.Restart(r.Context(), who, r.PathValue("name"))
	return answer(w, status, err)
}

// logs handles GET …/logs: the last limit lines of the log, or those after a number.
func (s *Surface) logs(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	var after, limit uint64
	for name, to := range map[string]*uint64{"after": &after, "limit": &limit} {
		word := r.URL.Query().Get(name)
		if word == "" {
			continue
		}
		n, err := strconv.ParseUint(word, 10, 31)
		if err != nil {
			return capability.Errorf(capability.CodeInvalidInput, "upstreams.logs", "%s: %.40q is not a number", name, word)
		}
		*to = n
	}
	page, err := s.Upstreams.Logs(r.PathValue("name"), after, int(limit))
	return answer(w, page, err)
}

func (s *Surface) diff(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	list, err := s.Upstreams.Diff(r.PathValue("name"))
	return answer(w, map[string]any{"definitions": list}, err)
}

func (s *Surface) approve(ctx context.Context, who capability.Principal, name string, which upstream.Selection) (map[string]any, error) {
	done, err := s.Upstreams.Approve(ctx, who, name, which)
	return map[string]any{"approved": done}, err
}

// about returns the handler of requests about one upstream, whose body do receives.
func about[T, V any](do func(ctx context.Context, who capability.Principal, name string, in T) (V, error)) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
		in, err := read[T](w, r)
		if err != nil {
			return err
		}
		done, err := do(r.Context(), who, r.PathValue("name"), in)
		return answer(w, done, err)
	}
}

// read decodes a body strictly; an empty one is {}.
func read[T any](w http.ResponseWriter, r *http.Request) (v T, err error) {
	body, err := httpapi.ReadBody(w, r, httpapi.MaxBody)
	if err != nil {
		return v, err
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := jsonx.UnmarshalStrict(body, &v); err != nil {
		return v, httpapi.BadJSON(err)
	}
	return v, nil
}

func answer(w http.ResponseWriter, v any, err error) error {
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, v)
	return nil
}
