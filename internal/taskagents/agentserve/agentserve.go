// Package agentserve is the HTTP API of task agents: their sessions, the hooks by which
// their programs speak to us, their workspaces. The prefixes /api/coding-agents and
// /api/task-agents are the same. It reads requests and writes answers; what may be done
// is decided behind Agents.
//
// Looking after sessions is an operator's. Hooks come from this machine only and with
// the token of the session that they speak of.
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
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// Agents looks after sessions.
type Agents interface {
	Programs(ctx context.Context) []preflight.Result
	List() []agents.Info
	Get(id string) (agents.Info, sessions.Live, error)
	Spawn(ctx context.Context, by capability.Principal, req agents.Request) (agents.Info, error)
	// Recording is what was recorded so far.
	Recording(id string) (io.ReadCloser, error)

	// Hook takes what the program of a session tells and returns what it is answered.
	Hook(ctx context.Context, session string, body []byte) (json.RawMessage, error)
	// ParentContext, Peers and Memory are what that program may know; ok is false when the
	// session is over. Alive is that alone, at once.
	Alive(session string) (ok bool)
	ParentContext(ctx context.Context, session string) (c agents.ParentContext, ok bool)
	Peers(session string) (list []agents.Peer, ok bool)
	Memory(ctx context.Context, session, query string, limit int) (m Memory, ok bool, err error)
}

// Config is what the surface needs; all are required, unless they name another meaning of
// nil.
type Config struct {
	Door     *httpapi.Door
	Agents   Agents
	Accounts Accounts
	Console  Console

	Workspaces   Workspaces // not used if NoWorkspaces is set
	NoWorkspaces error      // why workspaces are unavailable; nil if they are available
	Scratch      Scratch

	Threads    Threads
	Launcher   Launcher
	Supervisor Supervisor
	Choice     Choice
	Feed       *bus.Bus // of the coordinator's events
	Roots      []string // folders that shares of threads may name
	// Unrouted answers what no route of mux takes.
	Unrouted func(mux *http.ServeMux, w http.ResponseWriter, r *http.Request)
}

// Surface serves the paths.
type Surface struct{ Config }

// New returns the surface.
func New(cfg Config) *Surface { return &Surface{cfg} }

const (
	lines        = 100
	maxLineRunes = 10_000
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
		handle("POST", "/spawn", posted(http.StatusCreated, nil, s.spawn))
		handle("GET", "/{id}", s.get)
		handle("POST", "/{id}/send", s.send)
		handle("POST", "/{id}/choose", posted(http.StatusOK, nil, s.choose))
		handle("POST", "/{id}/stop", posted(http.StatusOK, nil, s.stop))
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

// errorAnswer is the form of an error. The members of all answers are in alphabetical
// order, which clients have always seen.
type errorAnswer struct {
	Code    capability.Code `json:"code"`
	Details map[string]any  `json:"details,omitempty"`
	Error   string          `json:"error"`
	Hint    string          `json:"hint,omitempty"`
	Reason  string          `json:"reason,omitempty"`
}

func writeError(w http.ResponseWriter, err error) {
	e := capability.AsError(err)
	httpapi.WriteJSON(w, e.Code.Row().HTTP, errorAnswer{Code: e.Code, Details: e.Details, Error: e.Message, Hint: e.Hint, Reason: e.Reason})
}

// answer writes a typed answer, unless err is set.
func answer[Out any](w http.ResponseWriter, status int, v Out, err error) error {
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, status, v)
	return nil
}

// posted handles a request with a body, which may be missing. If ready is set, it is asked
// before the body is decoded.
func posted[In, Out any](status int, ready func() error, do func(r *http.Request, by capability.Principal, in In) (Out,
	error),
) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request, by capability.Principal) error {
		body, err := httpapi.ReadBody(w, r, httpapi.BodyLimit)
		if err != nil {
			return err
		}
		if ready != nil {
			if err := ready(); err != nil {
				return err
			}
		}
		var in In
		if err := httpapi.DecodeStrict(body, &in); err != nil {
			return err
		}
		out, err := do(r, by, in)
		return answer(w, status, out, err)
	}
}

// success is the answer where there is nothing else to say.
type success struct {
	Success bool `json:"success"`
}

func (s *Surface) preflight(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	return answer(w, http.StatusOK, s.Agents.Programs(r.Context()), nil)
}

func (s *Surface) presets(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	return answer(w, http.StatusOK, programs.Presets(), nil)
}

func frameworkNamed(text string) (programs.Name, error) {
	name, ok := programs.Normalise(text)
	if !ok {
		return "", capability.Errorf(capability.CodeInvalidInput, "tasks", "there is no agent type %.60q",
			text).With(programs.ReasonUnknownAgent, "list them with: junctor frameworks list")
	}
	return name, nil
}

func (s *Surface) approval(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	q := r.URL.Query()
	name, err := frameworkNamed(q.Get("agentType"))
	if err != nil {
		return err
	}
	a, err := programs.ApprovalOf(name, programs.Preset(q.Get("preset")))
	return answer(w, http.StatusOK, a, err)
}

// workspaceFiles are the files that a program reads in its working directory.
type workspaceFiles struct {
	AgentType  programs.Name            `json:"agentType"`
	MemoryFile string                   `json:"memoryFilePath,omitempty"`
	Files      []programs.WorkspaceFile `json:"files"`
}

func filesOf(name programs.Name) workspaceFiles {
	f := workspaceFiles{AgentType: name, Files: programs.Of(name).Files}
	if len(f.Files) > 0 && f.Files[0].Type == "memory" {
		f.MemoryFile = f.Files[0].RelativePath
	}
	return f
}

func (s *Surface) files(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	if text := r.URL.Query().Get("agentType"); text != "" {
		name, err := frameworkNamed(text)
		return answer(w, http.StatusOK, filesOf(name), err)
	}
	var list []workspaceFiles
	for _, n := range programs.All() {
		list = append(list, filesOf(n.Name))
	}
	return answer(w, http.StatusOK, list, nil)
}

func (s *Surface) list(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	return answer(w, http.StatusOK, s.Agents.List(), nil)
}

func (s *Surface) get(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	i, _, err := s.Agents.Get(r.PathValue("id"))
	return answer(w, http.StatusOK, i, err)
}

// spawned is the answer to a start.
type spawned struct {
	AgentType programs.Name `json:"agentType"`
	Session   agents.Info   `json:"session"`
	SessionID string        `json:"sessionId"`
	Status    detect.State  `json:"status"`
	Workdir   string        `json:"workdir"`
}

func (s *Surface) spawn(r *http.Request, who capability.Principal, req agents.Request) (spawned, error) {
	i, err := s.Agents.Spawn(r.Context(), who, req)
	return spawned{AgentType: i.AdapterType, Session: i, SessionID: i.ID, Status: i.Status, Workdir: i.Workdir}, err
}

// sendRequest is a text, or keys to press.
type sendRequest struct {
	Input string   `json:"input"`
	Keys  []string `json:"keys"`
	Queue string   `json:"queue"`
}

// sent is the answer to a text.
type sent struct {
	Outcome sessions.Outcome `json:"outcome"`
	Success bool             `json:"success"`
}

func (s *Surface) send(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	var in sendRequest
	if err := httpapi.Decode(w, r, &in); err != nil {
		return err
	}
	_, session, err := s.Agents.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	if len(in.Keys) > 0 {
		return answer(w, http.StatusOK, success{true}, session.Keys(r.Context(), in.Keys))
	}
	outcome, err := sessions.SendSoon(r.Context(), session, in.Input, in.Queue == "agent")
	return answer(w, http.StatusOK, sent{outcome, true}, err)
}

// chooseRequest answers the open dialog by a label.
type chooseRequest struct {
	Fingerprint string `json:"fingerprint"`
	Label       string `json:"label"`
}

func (s *Surface) choose(r *http.Request, _ capability.Principal, in chooseRequest) (success, error) {
	_, session, err := s.Agents.Get(r.PathValue("id"))
	if err == nil {
		err = session.Choose(r.Context(), in.Fingerprint, in.Label)
	}
	return success{true}, err
}

type stopRequest struct {
	Force bool `json:"force"`
}

// stopped is the answer to a stop.
type stopped struct {
	SessionID string `json:"sessionId"`
	Success   bool   `json:"success"`
}

func (s *Surface) stop(r *http.Request, _ capability.Principal, in stopRequest) (stopped, error) {
	id := r.PathValue("id")
	_, session, err := s.Agents.Get(id)
	if err != nil {
		return stopped{}, err
	}
	session.Stop(in.Force)
	return stopped{id, true}, nil
}

// outputText is the end of what a session has shown.
type outputText struct {
	Output    string `json:"output"`
	SessionID string `json:"sessionId"`
}

func (s *Surface) output(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	n, err := number(r.URL.Query(), "lines", lines, maxLineRunes)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	_, session, err := s.Agents.Get(id)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, outputText{strings.Join(session.Lines(int(n)), "\n"), id}, nil)
}

// bufferedText is what a session has shown from an offset on, and the offset after it.
type bufferedText struct {
	Output    string `json:"output"`
	Seq       uint64 `json:"seq"`
	SessionID string `json:"sessionId"`
}

func (s *Surface) buffered(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	since, err := number(r.URL.Query(), "since", 0, 1<<62)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	_, session, err := s.Agents.Get(id)
	if err != nil {
		return err
	}
	data, next := session.Console(since)
	return answer(w, http.StatusOK, bufferedText{strings.ToValidUTF8(string(data), "\uFFFD"), next, id}, nil)
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
	_, session, err := s.Agents.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, session.Explain(), nil)
}

func (s *Surface) screen(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	_, session, err := s.Agents.Get(r.PathValue("id"))
	if err != nil {
		return err
	}
	terminal, err := sessions.InTerminal(session)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, terminal.Screen(), nil)
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
