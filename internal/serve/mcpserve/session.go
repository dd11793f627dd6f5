package mcpserve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// errWithdrawn is the cause with which a client cancels its own call; the client receives
// no response.
var errWithdrawn = errors.New("the client withdrew the request")

// errUnanswered is the cause with which a call is cancelled whose provider asked a
// question that was not answered in time.
var errUnanswered = errors.New("the provider's question was not answered")

// session is a legacy session: its id, its viewer and its running calls. The SDK holds its streams.
type session struct {
	id, digest string
	viewer     *viewer
	release    func() // ends the use of the viewer
	client     string
	version    string // as negotiated
	ctx        context.Context
	cancel     context.CancelCauseFunc

	// Guarded by Surface.mu.
	used   time.Time
	active int // requests and streams open now

	abilities abilities

	mu    sync.Mutex
	calls map[string]context.CancelCauseFunc // by id
	asked map[string]chan mcpwire.Message    // the server's requests to the client, by id
	level int                                // least severity of log lines that are sent
}

// bind registers a session that the SDK has just opened. If the table is full, the
// viewer's longest idle session is removed; bind returns false if the viewer has none.
func (s *Surface) bind(c caller, id, version string) bool {
	v, release := s.viewer(c)
	sum := sha256.Sum256([]byte(id))
	sess := &session{
		id: id, digest: "mcp_" + hex.EncodeToString(sum[:8]), viewer: v, release: release,
		client: c.client, version: version, calls: make(map[string]context.CancelCauseFunc),
		abilities: c.abilities, asked: make(map[string]chan mcpwire.Message),
	}
	sess.ctx, sess.cancel = context.WithCancelCause(s.base)
	s.mu.Lock()
	own := 0
	var oldest *session
	for _, other := range s.sessions {
		if other.viewer != v {
			continue
		}
		own++
		if other.active == 0 && (oldest == nil || other.used.Before(oldest.used)) {
			oldest = other
		}
	}
	full := own >= maxSessionsPerViewer || len(s.sessions) >= maxSessions
	if full && oldest == nil {
		s.mu.Unlock()
		sess.cancel(nil)
		release()
		return false
	}
	if full {
		delete(s.sessions, oldest.id)
	}
	sess.used = s.now()
	s.sessions[id] = sess
	s.mu.Unlock()
	if full {
		s.end(oldest)
	}
	return true
}

func (s *Surface) sessionOf(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// enter returns the session and marks it as in use until the returned function is called.
// It returns nil if the session does not exist or belongs to another viewer.
func (s *Surface) enter(c caller, id string) (*session, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.sessions[id]
	if sess == nil || sess.viewer.caller.key != c.key {
		return nil, nil
	}
	sess.active++
	sess.used = s.now()
	return sess, func() {
		s.mu.Lock()
		sess.active--
		sess.used = s.now()
		s.mu.Unlock()
	}
}

// forget removes the session from the table. It returns false if it was already removed.
func (s *Surface) forget(sess *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[sess.id] != sess {
		return false
	}
	delete(s.sessions, sess.id)
	return true
}

// end cancels the calls of a session that was removed from the table, ends its
// subscriptions and closes the SDK's session.
func (s *Surface) end(sess *session) {
	s.leases.Forget(compile.LeaseKey{Session: sess.digest})
	sess.cancel(errWithdrawn)
	if live := sess.viewer.liveSession(sess.id); live != nil {
		s.unfollowAll(sess.viewer, live)
		if err := closeAll([]*mcp.ServerSession{live}); err != nil {
			s.cfg.Logger.Warn("mcp session", "err", err)
		}
	}
	sess.release()
}

// expire ends the sessions that were unused for Config.SessionIdle, and drops unused
// viewers and lists.
func (s *Surface) expire() {
	limit := s.now().Add(-s.cfg.SessionIdle)
	s.mu.Lock()
	var gone []*session
	for id, sess := range s.sessions {
		if sess.active == 0 && sess.used.Before(limit) {
			gone = append(gone, sess)
			delete(s.sessions, id)
		}
	}
	s.mu.Unlock()
	for _, sess := range gone {
		s.end(sess)
	}
	var stops []*hold
	s.mu.Lock()
	for key, v := range s.viewers {
		if v.busy == 0 {
			delete(s.viewers, key)
			s.lists.Delete(key)
			for _, held := range v.following { // of sessions that the SDK ended by itself
				stops = append(stops, held.taken())
			}
			clear(v.following)
		}
	}
	s.mu.Unlock()
	for _, held := range stops {
		held.end()
	}
	// A caller without a session has only its lists. They are dropped if the caller has not
	// sent a request since the last time.
	s.lists.Range(func(key, l any) bool {
		if !l.(*rendered).used.Swap(false) {
			s.lists.CompareAndDelete(key, l)
			s.links.forget(key.(string))
		}
		return true
	})
}

// inSession serves a request that names a session.
func (s *Surface) inSession(w http.ResponseWriter, r *http.Request, c caller, id string) {
	sess, leave := s.enter(c, id)
	if sess == nil {
		// After this status a client starts again with initialize.
		exchange.WriteFault(w, nil, &mcpwire.Fault{Status: http.StatusNotFound, Code: jsonrpc.CodeInvalidRequest, Message: "session not found"})
		return
	}
	defer leave()
	c.client, c.session, c.abilities = sess.client, sess.digest, sess.abilities
	switch r.Method {
	case http.MethodGet:
		out := exchange.NewBeating(httpapi.While(w, r))
		defer out.Stop()
		s.legacy.ServeHTTP(out, forSDK(r, sess.viewer, nil))
	case http.MethodDelete:
		if s.forget(sess) {
			s.end(sess)
		}
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		s.postInSession(w, r, c, sess)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// postInSession handles a POST of a session: lists and calls itself, everything else and
// batches by the SDK.
func (s *Surface) postInSession(w http.ResponseWriter, r *http.Request, c caller, sess *session) {
	body, m, f := s.read(w, r)
	if f != nil {
		exchange.WriteFault(w, m.ID, f)
		return
	}
	if v := r.Header.Get(mcpwire.HeaderVersion); v != "" && !slices.Contains(mcpwire.Versions()[1:], v) {
		exchange.WriteFault(w, m.ID, mcpwire.Unsupported(v, mcpwire.Versions()[1:]))
		return
	}
	switch {
	case m.Batch && sess.version != mcpwire.Version20250326:
		exchange.WriteFault(w, nil, mcpwire.BadRequest("batches exist only in protocol version %s; this session has %s", mcpwire.Version20250326,
			sess.version))
		return
	case m.Batch && longBatch(body):
		exchange.WriteFault(w, nil, mcpwire.BadRequest("a batch has %d messages at most", maxBatch))
		return
	case m.Batch && !sameScope(c, sess.viewer.caller):
		// The elements of a batch run as the viewer, and another token of the same principal may
		// be wider than this one.
		exchange.WriteFault(w, nil, &mcpwire.Fault{
			Status: http.StatusForbidden, Code: jsonrpc.CodeInvalidRequest,
			Message: "a batch cannot be sent with this access token: send its requests one by one",
		})
		return
	case m.Batch:
	case m.Method == "" && m.ID != nil && sess.answered(&m):
		w.WriteHeader(http.StatusAccepted)
		return
	case m.ID == nil:
	case isList(m.Method):
		result, f := s.pageOf(c, m.Method, m.Params.Cursor, mcpwire.Era{})
		if f != nil {
			f.Status = http.StatusOK
			exchange.WriteFault(w, m.ID, f)
			return
		}
		writePage(w, m.ID, result)
		return
	case m.Method == "tools/call", m.Method == "prompts/get", m.Method == "resources/read", m.Method == "completion/complete":
		s.callInSession(w, r, c, sess, &m)
		return
	case m.Method == "logging/setLevel":
		sess.setLevel(&m)
	case m.Method != "" && (!ofSDK(m.Method) || strings.HasPrefix(m.Method, "notifications/")):
		f := unknownMethod(m.Method)
		f.Status = http.StatusOK // the SDK would answer 400, without a JSON-RPC error
		exchange.WriteFault(w, m.ID, f)
		return
	}
	switch {
	case m.Method == "notifications/cancelled" && sess.withdraw(mcpwire.IDKey(m.Params.RequestID)),
		m.Method != "" && m.ID == nil && !ofSDK(m.Method): // an unknown notification is ignored
		w.WriteHeader(http.StatusAccepted)
		return
	}
	s.legacy.ServeHTTP(w, forSDK(r, sess.viewer, body))
}

// ofSDK reports whether the SDK handles a session's messages of that method.
func ofSDK(method string) bool {
	switch method {
	case "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed":
		return true
	}
	return false
}

// callInSession runs a call that continues if its request ends, because a legacy client
// that disconnects has not cancelled.
func (s *Surface) callInSession(w http.ResponseWriter, r *http.Request, c caller, sess *session, m *mcpwire.Message) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	key := mcpwire.IDKey(m.ID)
	sess.mu.Lock()
	_, taken := sess.calls[key]
	if !taken {
		sess.calls[key] = cancel
	}
	sess.mu.Unlock()
	if taken {
		exchange.WriteFault(w, m.ID, mcpwire.BadRequest("a request with this id is running already"))
		return
	}
	if !s.begin(sess.viewer) {
		sess.mu.Lock()
		delete(sess.calls, key)
		sess.mu.Unlock()
		exchange.WriteFault(w, m.ID, &mcpwire.Fault{
			Status: http.StatusOK, Code: codeRefused,
			Message: fmt.Sprintf("%d calls of this principal are running, which is the most: wait for some of them, or cancel them", maxCalls),
		})
		return
	}
	defer s.done(sess.viewer)
	defer context.AfterFunc(sess.ctx, func() { cancel(context.Cause(sess.ctx)) })()
	x := exchange.New(w, r, m, mcpwire.Era{})
	x.Ask, x.Logs = s.asker(sess, x), x.Streams
	x.Severity = sess.severity()
	out := s.answer(ctx, r, c, m, x)
	sess.mu.Lock()
	delete(sess.calls, key) // before the client has its answer, and may use the id again
	sess.mu.Unlock()
	s.challenge(w, r, out)
	x.End(out)
}

// withdraw cancels the session's call with that id. It returns false if it is not running.
func (sess *session) withdraw(key string) bool {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	cancel, ok := sess.calls[key]
	if ok {
		cancel(errWithdrawn)
	}
	return ok
}

// serveSessionless serves the only request of a legacy client that has no session: initialize.
func (s *Surface) serveSessionless(w http.ResponseWriter, r *http.Request, c caller, body []byte, m *mcpwire.Message) {
	if m.Method != "initialize" || m.ID == nil {
		exchange.WriteFault(w, m.ID, mcpwire.BadRequest("there is no session: send initialize first, and its %s header in every later request",
			mcpwire.HeaderSession))
		return
	}
	if len(body) > maxInitialize {
		exchange.WriteFault(w, m.ID, &mcpwire.Fault{
			Status: http.StatusRequestEntityTooLarge, Code: jsonrpc.CodeInvalidRequest,
			Message: "initialize may have 64 KiB at most",
		})
		return
	}
	c.client, c.abilities = m.Params.Client, readAbilities(m.Params.Abilities)
	version := mcpwire.Version20251125
	if slices.Contains(mcpwire.Versions()[1:], m.Params.Version) {
		version = m.Params.Version
	}
	v, done := s.viewer(c)
	defer done()
	r = forSDK(r, v, body)
	if h := r.Header.Get(mcpwire.HeaderVersion); h != "" && !slices.Contains(mcpwire.Versions()[1:], h) {
		// The answer negotiates the version, so the header of a first request cannot have it yet.
		r.Header = r.Header.Clone()
		r.Header.Del(mcpwire.HeaderVersion)
	}
	out := &opening{ResponseWriter: w, bind: func(id string) bool { return s.bind(c, id, version) }}
	s.legacy.ServeHTTP(out, r)
	if live := v.liveSession(out.id); out.refused && live != nil {
		if err := closeAll([]*mcp.ServerSession{live}); err != nil { // no other code would ever end it
			s.cfg.Logger.Warn("mcp session", "err", err)
		}
	}
	if sess := s.sessionOf(out.id); sess != nil && v.liveSession(out.id) == nil && s.forget(sess) {
		s.end(sess) // the handshake failed, and the SDK has dropped it
	}
}

// opening reads the session's id from the answer to initialize, because the session must
// be registered before the client can use it.
type opening struct {
	http.ResponseWriter
	bind    func(id string) bool
	id      string
	started bool
	refused bool
}

// WriteHeader binds the session before anything is sent.
func (o *opening) WriteHeader(status int) {
	if o.started {
		return
	}
	o.started = true
	if id := o.Header().Get(mcpwire.HeaderSession); id != "" && status == http.StatusOK {
		o.id = id
		if !o.bind(id) {
			o.refused = true
			o.Header().Del(mcpwire.HeaderSession)
			exchange.WriteFault(o.ResponseWriter, nil, &mcpwire.Fault{
				Status: http.StatusServiceUnavailable, Code: jsonrpc.CodeInternal,
				Message: "too many sessions are open; end some with DELETE",
			})
			return
		}
	}
	o.ResponseWriter.WriteHeader(status)
}

func (o *opening) Write(data []byte) (int, error) {
	o.WriteHeader(http.StatusOK)
	if o.refused {
		return len(data), nil
	}
	return o.ResponseWriter.Write(data)
}

// Unwrap lets the SDK flush.
func (o *opening) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func newBody(data []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) }
