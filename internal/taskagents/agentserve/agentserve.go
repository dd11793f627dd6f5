// Package agentserve serves the HTTP API of task agents: their sessions, the hooks of their
// programs, their threads and workspaces. The prefixes /api/coding-agents and /api/task-agents
// are equivalent. It decodes requests and encodes answers; the interfaces in Config implement the
// operations.
//
// The API requires the operator role. Hooks are accepted from this machine only, with the token
// of their session.
package agentserve

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
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

// Agents starts sessions and gives access to them.
type Agents interface {
	Programs(ctx context.Context) []preflight.Result
	List() []agents.Info
	Get(id string) (agents.Info, sessions.Live, error)
	Spawn(ctx context.Context, by capability.Principal, req agents.Request) (agents.Info, error)
	// Answer answers what the program of a session waits for, as a user that sees the whole of it.
	Answer(ctx context.Context, by capability.Principal, s sessions.Live, r detect.Reply) error
	// Recording returns the recording of a session so far; the caller closes it.
	Recording(id string) (io.ReadCloser, error)

	// Hook handles a report of a session's program and returns the answer for it.
	Hook(ctx context.Context, session string, body []byte) (json.RawMessage, error)
	// ParentContext, Peers and Memory return information for that program; ok is false if the
	// session has ended. Alive returns only that, without waiting.
	Alive(session string) (ok bool)
	ParentContext(ctx context.Context, session string) (c agents.ParentContext, ok bool)
	Peers(session string) (list []agents.Peer, ok bool)
	Memory(ctx context.Context, session, query string, limit int) (m Memory, ok bool, err error)
}

// Config holds the dependencies of the surface. All fields are required, except those whose
// comment describes nil.
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
	Feed       *bus.Bus // carries the coordinator's events
	Roots      []string // folders whose files may be shared
	// Taken records that a person took the keyboard of a session's terminal over.
	Taken func(ctx context.Context, by capability.Principal, session sessions.Info)
	// Unrouted answers requests that no route of mux matches.
	Unrouted func(mux *http.ServeMux, w http.ResponseWriter, r *http.Request)
}

// Surface serves the API.
type Surface struct{ Config }

// New returns the surface.
func New(cfg Config) *Surface { return &Surface{cfg} }

const lines = 100

// Routes adds the API's routes to mux.
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
		handle("POST", "/{id}/answer", posted(http.StatusOK, nil, s.answer))
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

// guard requires the operator role and writes errors in this API's form, with the message as
// member error.
func (s *Surface) guard(h httpapi.Handler) http.Handler {
	return s.Door.Guard(func(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
		if err := h(w, r, who); err != nil {
			writeError(w, err)
		}
		return nil
	}, capability.RoleAdmin, capability.RoleOperator)
}

// errorAnswer is the JSON form of an error. The members of all answers are in alphabetical order,
// for compatibility with existing clients.
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

// answer writes v as JSON, or returns err if it is not nil.
func answer[Out any](w http.ResponseWriter, status int, v Out, err error) error {
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, status, v)
	return nil
}

// posted returns a handler that decodes an optional body, calls do and writes its result. If
// ready is not nil, it is called first, and its error ends the request.
func posted[In, Out any](status int, ready func() error, do func(r *http.Request, by capability.Principal, in In) (Out,
	error),
) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request, by capability.Principal) error {
		body, err := httpapi.ReadBody(w, r, httpapi.MaxBody)
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

// success is the answer without further data.
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

// workspaceFiles lists the files that a program reads in its working directory.
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

// answerRequest answers the open blocker: by a number, a label, yes or no, or a text, and the
// questions of a form by their ids.
type answerRequest struct {
	Blocker string              `json:"blocker"`
	Answer  string              `json:"answer"`
	Text    string              `json:"text"`
	Answers map[string][]string `json:"answers"`
	Decline bool                `json:"decline"`
}

func (s *Surface) answer(r *http.Request, who capability.Principal, in answerRequest) (success, error) {
	_, session, err := s.Agents.Get(r.PathValue("id"))
	if err != nil {
		return success{}, err
	}
	reply := detect.Reply{Blocker: in.Blocker, Text: in.Answer, Values: in.Answers, Decline: in.Decline}
	if in.Answer == "" && in.Text != "" {
		reply.Text, reply.Free = in.Text, true
	}
	return success{true}, s.Agents.Answer(r.Context(), who, session, reply)
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

// outputText holds the last lines of a session's output.
type outputText struct {
	Output    string `json:"output"`
	SessionID string `json:"sessionId"`
}

func (s *Surface) output(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	n, err := httpapi.Number(r, "lines", lines, 0, maxLineRunes)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	_, session, err := s.Agents.Get(id)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, outputText{strings.Join(session.Lines(n), "\n"), id}, nil)
}

// bufferedText holds a session's output from an offset on, and the offset after it.
type bufferedText struct {
	Output    string `json:"output"`
	Seq       uint64 `json:"seq"`
	SessionID string `json:"sessionId"`
}

func (s *Surface) buffered(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	since, err := httpapi.Number(r, "since", uint64(0), 0, 1<<62)
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
	_, _ = io.Copy(w, file) // a failed write means that the client has disconnected
	return nil
}
