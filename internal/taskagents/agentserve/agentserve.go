// Package agentserve is the HTTP API of task agents (task-agents, section 9): their
// sessions, the hooks by which their programs speak to us, their workspaces. The prefixes
// /api/coding-agents and /api/task-agents are the same. It reads requests and writes
// answers; what may be done is decided behind Agents.
//
// Looking after sessions is an operator's. Hooks come from this machine only and with
// the token of the session that they speak of (section 19.1, README R41).
package agentserve

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// Agents looks after sessions. Values marshal to the answers as they are; requests come
// as the bodies that were sent, and are decoded strictly.
type Agents interface {
	Programs(ctx context.Context) any
	Presets() any
	Approval(agentType, preset string) (any, error)
	Files(agentType string) (any, error)

	List() any
	Get(id string) (any, error)
	Spawn(ctx context.Context, by capability.Principal, request json.RawMessage) (any, error)
	// Send types a text, or presses keys; the outcome is one of section 4.5.
	Send(ctx context.Context, id string, request json.RawMessage) (any, error)
	// Choose answers the open dialog by a label.
	Choose(ctx context.Context, id string, request json.RawMessage) (any, error)
	Stop(id string, force bool) (any, error)
	Lines(id string, n int) ([]string, error)
	Console(id string, since uint64) (data []byte, next uint64, err error)
	Explain(id string) (any, error)
	Screen(id string) (any, error)
	// Recording is what was recorded so far.
	Recording(id string) (io.ReadCloser, error)

	// Hook takes what the program of a session tells and returns what it is answered.
	Hook(ctx context.Context, session string, body []byte) (json.RawMessage, error)
	// Parent, Peers and Memory are what that program may know; ok is false when the session
	// is over. Alive is that alone, at once.
	Alive(session string) (ok bool)
	Parent(ctx context.Context, session string) (doc any, ok bool)
	Peers(session string) (list any, n int, ok bool)
	Memory(ctx context.Context, session, query string, limit int) (doc any, ok bool, err error)
}

// Config is what the surface needs; all are required.
type Config struct {
	Door        *httpapi.Door
	Agents      Agents
	Accounts    Accounts
	Workspaces  Workspaces
	Console     Console
	Coordinator Coordinator
	// Unrouted answers what no route of mux takes.
	Unrouted func(mux *http.ServeMux, w http.ResponseWriter, r *http.Request)
}

// Surface serves the paths.
type Surface struct{ Config }

// New returns the surface.
func New(cfg Config) *Surface { return &Surface{cfg} }

const (
	lines    = 100
	mostLine = 10_000
)

// Routes adds every path to mux.
func (s *Surface) Routes(mux *http.ServeMux) {
	for _, base := range []string{"/api/coding-agents", "/api/task-agents"} {
		handle := func(method, path string, h httpapi.Handler) {
			mux.Handle(method+" "+base+path, s.guard(h))
		}
		handle("GET", "/preflight", s.preflight)
		handle("GET", "/approval-presets", s.presets)
		handle("GET", "/approval-config", s.approval)
		handle("GET", "/workspace-files", s.files)
		handle("GET", "", s.list)
		handle("POST", "/spawn", s.spawn)
		handle("GET", "/{id}", s.get)
		handle("POST", "/{id}/send", s.send)
		handle("POST", "/{id}/choose", s.choose)
		handle("POST", "/{id}/stop", s.stop)
		handle("GET", "/{id}/output", s.output)
		handle("GET", "/{id}/buffered-output", s.buffered)
		handle("GET", "/{id}/explain", s.explain)
		handle("GET", "/{id}/screen", s.screen)
		handle("GET", "/{id}/recording", s.recording)
		s.accountRoutes(mux, base, handle)
		s.scratchRoutes(mux, base)
		s.consoleRoute(mux, base)
		s.childRoutes(mux, base)
		s.coordinatorRoutes(mux, base)
	}
	s.workspaceRoutes(mux)
}

// guard lets operators in, and answers errors in this API's form: the sentence as error.
func (s *Surface) guard(h httpapi.Handler) http.Handler {
	return s.Door.Guard(func(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
		if err := h(w, r, who); err != nil {
			writeError(w, err)
		}
		return nil
	}, capability.RoleAdmin, capability.RoleOperator)
}

func writeError(w http.ResponseWriter, err error) {
	e := capability.AsError(err)
	doc := map[string]any{"error": e.Message, "code": e.Code}
	if e.Reason != "" {
		doc["reason"] = e.Reason
	}
	if e.Hint != "" {
		doc["hint"] = e.Hint
	}
	if len(e.Details) > 0 {
		doc["details"] = e.Details
	}
	httpapi.WriteJSON(w, e.Code.Row().HTTP, doc)
}

func answer(w http.ResponseWriter, status int, v any, err error) error {
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, status, v)
	return nil
}

func (s *Surface) preflight(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	return answer(w, http.StatusOK, s.Agents.Programs(r.Context()), nil)
}

func (s *Surface) presets(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	return answer(w, http.StatusOK, s.Agents.Presets(), nil)
}

func (s *Surface) approval(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	q := r.URL.Query()
	doc, err := s.Agents.Approval(q.Get("agentType"), q.Get("preset"))
	return answer(w, http.StatusOK, doc, err)
}

func (s *Surface) files(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	doc, err := s.Agents.Files(r.URL.Query().Get("agentType"))
	return answer(w, http.StatusOK, doc, err)
}

func (s *Surface) list(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	return answer(w, http.StatusOK, s.Agents.List(), nil)
}

func (s *Surface) get(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	doc, err := s.Agents.Get(r.PathValue("id"))
	return answer(w, http.StatusOK, doc, err)
}

func (s *Surface) spawn(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, httpapi.BodyLimit)
	if err != nil {
		return err
	}
	doc, err := s.Agents.Spawn(r.Context(), who, body)
	return answer(w, http.StatusCreated, doc, err)
}

func (s *Surface) send(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, httpapi.BodyLimit)
	if err != nil {
		return err
	}
	doc, err := s.Agents.Send(r.Context(), r.PathValue("id"), body)
	return answer(w, http.StatusOK, doc, err)
}

func (s *Surface) choose(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, httpapi.BodyLimit)
	if err != nil {
		return err
	}
	doc, err := s.Agents.Choose(r.Context(), r.PathValue("id"), body)
	return answer(w, http.StatusOK, doc, err)
}

func (s *Surface) stop(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	var in struct {
		Force bool `json:"force"`
	}
	if r.ContentLength != 0 {
		if err := httpapi.Decode(w, r, &in); err != nil {
			return err
		}
	}
	doc, err := s.Agents.Stop(r.PathValue("id"), in.Force)
	return answer(w, http.StatusOK, doc, err)
}

func (s *Surface) output(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	n, err := number(r.URL.Query(), "lines", lines, mostLine)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	list, err := s.Agents.Lines(id, int(n))
	return answer(w, http.StatusOK, map[string]any{"sessionId": id, "output": strings.Join(list, "\n")}, err)
}

func (s *Surface) buffered(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	since, err := number(r.URL.Query(), "since", 0, 1<<62)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	data, next, err := s.Agents.Console(id, since)
	return answer(w, http.StatusOK, map[string]any{"sessionId": id, "output": strings.ToValidUTF8(string(data), "\uFFFD"), "seq": next}, err)
}

func number(q url.Values, name string, def, most uint64) (uint64, error) {
	text := q.Get(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > most {
		return 0, capability.Errorf(capability.CodeInvalidInput, "tasks", "%s is a number up to %d", name, most).With("bad_query", "")
	}
	return n, nil
}

func (s *Surface) explain(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	doc, err := s.Agents.Explain(r.PathValue("id"))
	return answer(w, http.StatusOK, doc, err)
}

func (s *Surface) screen(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	doc, err := s.Agents.Screen(r.PathValue("id"))
	return answer(w, http.StatusOK, doc, err)
}

func (s *Surface) recording(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	file, err := s.Agents.Recording(r.PathValue("id"))
	if err != nil {
		return err
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/x-asciicast")
	_, _ = io.Copy(w, file) // who leaves early has what they have
	return nil
}
