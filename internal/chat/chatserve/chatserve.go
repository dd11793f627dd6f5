// Package chatserve serves the part of /api/v1 that is for people: conversations, slash
// commands, and the runs that they start.
package chatserve

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/chat/engine"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store/blob"
)

// Config configures a Surface; all fields but Agent are required.
type Config struct {
	Door     *httpapi.Door
	Chat     *engine.Engine
	Agent    Agent // nil: it is off
	Channels Channels
	Runs     *tasks.Runs
	Blobs    *blob.Store
	Commands func() *command.Router
	// Refresh rebuilds the list of commands.
	Refresh func()
	// Preview returns what a command would run, with its arguments, without running it.
	Preview func(ctx context.Context, who capability.Principal, session string, route *command.Route) (capability.Preview, error)
}

// Surface implements the HTTP handlers of the package.
type Surface struct{ Config }

// New returns a Surface that uses cfg.
func New(cfg Config) *Surface { return &Surface{cfg} }

// Routes registers all handlers in mux, behind the door's authentication.
func (s *Surface) Routes(mux *http.ServeMux) {
	handle := func(pattern string, h httpapi.Handler, roles ...capability.Role) {
		mux.Handle(pattern, s.Door.Guard(h, roles...))
	}
	handle("POST /api/v1/chat/messages", s.say)
	handle("GET /api/v1/chat/sessions", s.sessions)
	handle("GET /api/v1/chat/sessions/{id}/messages", s.history)
	handle("DELETE /api/v1/chat/sessions/{id}", s.forget)
	handle("GET /api/v1/chat/slash-commands", s.commands)
	handle("POST /api/v1/chat/refresh-commands", s.refresh, capability.RoleAdmin, capability.RoleOperator)
	s.channelRoutes(mux)
	handle("GET /api/v1/agent/runs", s.withAgent(s.agentRuns))
	handle("GET /api/v1/agent/usage", s.withAgent(s.agentUsage))
	handle("GET /api/v1/agent/runs/{run}", s.withAgent(s.agentRun))
	handle("GET /api/v1/agent/runs/{run}/recording", s.withAgent(s.agentRecording))
	handle("GET /api/v1/agent/runs/{run}/events", s.withAgent(s.agentEvents))
	handle("GET /api/v1/agent/runs/{run}/pages/{call}", s.withAgent(s.agentPage))
	handle("POST /api/v1/agent/runs/{run}/cancel", s.withAgent(s.agentCancel))
	handle("POST /api/v1/extensions/execute", s.execute)
	handle("GET /api/v1/invocations", s.runs)
	handle("GET /api/v1/invocations/{id}", s.run)
	handle("POST /api/v1/invocations/{id}/cancel", s.cancel)
	handle("GET /api/v1/invocations/{id}/artifacts", s.artifacts)
	handle("GET /api/v1/invocations/{id}/artifacts/{name...}", s.artifact)
}

// message is the body of POST …/chat/messages.
type message struct {
	Session string `json:"session_id"`
	Named   string `json:"session"` // short for session_id
	Text    string `json:"text"`
	Stream  bool   `json:"stream,omitempty"` // answer with events: text, progress and, last, reply
	NoCache bool   `json:"no_cache,omitempty"`
}

// say answers a message, as one JSON object or as a stream of events. Once the stream has
// begun, an error is its last event instead of the HTTP status.
func (s *Surface) say(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req message
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	m := engine.Message{Principal: who, Session: cmp.Or(req.Session, req.Named), Text: req.Text, Client: r.UserAgent(), NoCache: req.NoCache}
	if !req.Stream {
		reply, err := s.Chat.Say(r.Context(), m, nil)
		return answer(w, reply, err)
	}
	to := &stream{w: w, r: r}
	reply, err := s.Chat.Say(r.Context(), m, to)
	if err != nil {
		if !to.began() {
			return err // nothing was sent yet: the status can report it
		}
		return to.send("error", capability.AsError(err))
	}
	return to.send("reply", reply)
}

// stream sends a reply as events. The HTTP response begins with the first event.
type stream struct {
	w   http.ResponseWriter
	r   *http.Request
	mu  sync.Mutex // guards out: progress comes from the provider's goroutine
	out *httpapi.Stream
}

func (t *stream) began() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out != nil
}

// send sends one event; in NDJSON it is an object whose one member is named for the event.
// It ignores errors of the connection, because the user finds the reply in the history.
func (t *stream) send(event string, value any) error {
	data, err := jsonx.Answer(value)
	if err != nil {
		return capability.Wrap(capability.CodeInternal, "chat", "the reply could not be written", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out == nil {
		t.out = httpapi.NewStream(t.w, t.r)
	}
	if t.out.NDJSON { // the member's name is that of the event
		data, err = jsonx.Marshal(map[string]any{event: jsonx.Raw(data)})
		if err != nil {
			return err
		}
	}
	_ = t.out.Send("", event, data) // a user who disconnected finds the reply in the history
	return nil
}

// Text implements engine.Stream and sends piece as a JSON string. It fails once the client
// has disconnected.
func (t *stream) Text(piece string) error {
	if err := t.r.Context().Err(); err != nil {
		return err
	}
	return t.send("text", piece)
}

// Progress implements engine.Stream.
func (t *stream) Progress(c capability.Chunk) { _ = t.send("progress", c) }

func (s *Surface) sessions(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	limit, err := httpapi.Number(r, "limit", 100, 0, maxLimit)
	if err != nil {
		return err
	}
	list, err := s.Chat.Sessions(r.Context(), who, limit)
	return answer(w, map[string]any{"sessions": orEmpty(list)}, err)
}

// history returns messages of a conversation, oldest first, after the number in query
// parameter after and at most limit of them (default 100).
func (s *Surface) history(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	after, err := httpapi.Number(r, "after", int64(0), 0, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := httpapi.Number(r, "limit", 100, 0, maxLimit)
	if err != nil {
		return err
	}
	list, err := s.Chat.History(r.Context(), who, r.PathValue("id"), after, limit)
	return answer(w, map[string]any{"messages": orEmpty(list)}, err)
}

func (s *Surface) forget(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	err := s.Chat.Forget(r.Context(), who, r.PathValue("id"))
	return answer(w, map[string]any{"ok": true}, err)
}

// commands lists the slash commands, with enabled_only only those that are enabled.
func (s *Surface) commands(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	enabled, err := httpapi.Flag(r, "enabled_only")
	if err != nil {
		return err
	}
	router := s.Commands()
	list := []command.Entry{}
	for _, e := range router.List() {
		if e.Enabled || !enabled {
			list = append(list, e)
		}
	}
	httpapi.WriteJSON(w, http.StatusOK, map[string]any{"commands": list, "total": len(list), "help": router.Help()})
	return nil
}

func (s *Surface) refresh(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	s.Refresh()
	httpapi.WriteJSON(w, http.StatusOK, map[string]any{"ok": true, "total": len(s.Commands().List())})
	return nil
}

// answer writes value as JSON with status 200. If err is not nil, it returns err and writes
// nothing.
func answer(w http.ResponseWriter, value any, err error) error {
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, value)
	return nil
}

// orEmpty returns a copy of list that is not nil, so that JSON has [] instead of null.
func orEmpty[T any](list []T) []T { return append([]T{}, list...) }
