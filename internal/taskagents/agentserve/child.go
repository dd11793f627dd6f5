package agentserve

import (
	"cmp"
	"encoding/json"
	"math"
	"net"
	"net/http"
	"regexp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
)

// childRoutes adds the routes for sessions' programs, which require a connection from this machine
// and the token of the session.
func (s *Surface) childRoutes(mux *http.ServeMux, base string) {
	mux.HandleFunc("POST "+base+"/hooks", func(w http.ResponseWriter, r *http.Request) {
		reply, err := s.hook(w, r)
		if err != nil {
			writeError(w, err)
			return
		}
		httpapi.WriteJSON(w, http.StatusOK, reply)
	})
	bridge := func(name string, h func(id string, r *http.Request) (any, bool, error)) {
		mux.HandleFunc(base+"/{id}/"+name, func(w http.ResponseWriter, r *http.Request) {
			status, doc := s.bridge(r, h)
			httpapi.WriteJSON(w, status, doc)
		})
	}
	bridge("parent-context", func(id string, r *http.Request) (any, bool, error) {
		doc, ok := s.Agents.ParentContext(r.Context(), id)
		return doc, ok, nil
	})
	bridge("active-workspaces", func(id string, _ *http.Request) (any, bool, error) {
		list, ok := s.Agents.Peers(id)
		return peersAnswer{len(list), list}, ok, nil
	})
	bridge("memory", func(id string, r *http.Request) (any, bool, error) {
		limit, err := httpapi.Number(r, "limit", remembered, 0, math.MaxInt32)
		if err != nil {
			return nil, true, err
		}
		return s.Agents.Memory(r.Context(), id, r.URL.Query().Get("q"), limit)
	})
}

// peersAnswer lists the sessions that work at the same time.
type peersAnswer struct {
	Count      int           `json:"count"`
	Workspaces []agents.Peer `json:"workspaces"`
}

// Memory holds the messages of a conversation that match a query, the newest last.
type Memory struct {
	RoomID   string          `json:"room_id"`
	Query    string          `json:"query"`
	Count    int             `json:"count"`
	Messages []MemoryMessage `json:"messages"`
}

// MemoryMessage is one message of a [Memory].
type MemoryMessage struct {
	Speaker   string `json:"speaker"`
	Text      string `json:"text"`
	CreatedAt string `json:"created_at,omitempty"`
}

const remembered = 10 // default number of messages in an answer

// hook handles a hook of a session's program.
func (s *Surface) hook(w http.ResponseWriter, r *http.Request) (json.RawMessage, error) {
	session, err := s.session(r)
	if err != nil {
		return nil, err
	}
	if named := r.Header.Get("X-Parallax-Session-Id"); named != "" && named != session {
		return nil, capability.Errorf(capability.CodeUnauthenticated, "hooks", "the token is that of another session").With("other_session", "")
	}
	body, err := httpapi.ReadBody(w, r, httpapi.MaxBody)
	if err != nil {
		return nil, err
	}
	return s.Agents.Hook(r.Context(), session, body)
}

// session returns the session to which the request's token belongs. The token is in the header of
// hooks or in Authorization.
func (s *Surface) session(r *http.Request) (string, error) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return "", capability.Errorf(capability.CodeDenied, "hooks", "only programs on this machine may ask this").With("loopback_only", "")
	}
	if token := r.Header.Get("X-Parallax-Hook-Token"); token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return s.Door.Task(r)
}

var sessionID = regexp.MustCompile(`^pty-\d{1,20}-[0-9a-f]{1,32}$`)

// refusal is the JSON form of an error for the program of a session.
type refusal struct {
	Code  string `json:"code"`
	Error string `json:"error"`
}

// bridge answers a request of a session's program about its own session. The token may also be in
// the query, because helpers of older agents send it there.
func (s *Surface) bridge(r *http.Request, h func(id string, r *http.Request) (doc any, ok bool, err error)) (status int, doc any) {
	refuse := func(status int, code, text string) (int, any) {
		return status, refusal{code, text}
	}
	id := r.PathValue("id")
	if r.Method != http.MethodGet {
		return refuse(http.StatusMethodNotAllowed, "method_not_allowed", "this can only be read")
	}
	if !sessionID.MatchString(id) {
		return refuse(http.StatusBadRequest, "invalid_agent_id", "that is not the id of a session")
	}
	if token := r.URL.Query().Get("token"); token != "" && r.Header.Get("X-Parallax-Hook-Token") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("X-Parallax-Hook-Token", token)
	}
	session, err := s.session(r)
	_, _, unknown := s.Agents.Get(id)
	if capability.CodeOf(err) == capability.CodeUnauthenticated && unknown == nil && !s.Agents.Alive(id) {
		return refuse(http.StatusGone, "task_no_longer_active", "the session is over") // its token is revoked too
	}
	if err != nil {
		e := capability.AsError(err)
		return refuse(e.Code.Row().HTTP, cmp.Or(e.Reason, string(e.Code)), e.Message)
	}
	switch {
	case unknown != nil:
		return refuse(http.StatusNotFound, "not_found", "there is no such session")
	case session != id:
		return refuse(http.StatusForbidden, "other_session", "the token is that of another session")
	}
	doc, ok, err := h(id, r)
	switch {
	case !ok:
		return refuse(http.StatusGone, "task_no_longer_active", "the session is over")
	case err != nil:
		e := capability.AsError(err)
		return refuse(e.Code.Row().HTTP, cmp.Or(e.Reason, string(e.Code)), e.Message)
	}
	return http.StatusOK, doc
}
