package agentserve

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// Console gives users access to the live sessions, to watch them and to type. Sessions without a
// terminal are shown as text.
type Console interface {
	// Subscribe returns a subscription to the events of all sessions from now on.
	Subscribe() *sessions.Subscription
	Get(session string) (sessions.Live, error)
}

const consoleMessage = 1 << 20 // bytes of one message of a client

// viewer is the state of one connection.
type viewer struct {
	console Console
	conn    *websocket.Conn
	by      capability.Principal
	taken   func(ctx context.Context, by capability.Principal, session sessions.Info)
	who     string            // by and its connection, which holds the keyboard
	next    map[string]uint64 // offset of the next output, by session
	binary  map[string]bool   // sessions whose output is sent in base64
	rest    map[string][]byte // incomplete character at the end of the output, by session
	orders  chan order
}

// order is a message of the client.
type order struct {
	Type    string   `json:"type"`
	Session string   `json:"sessionId"`
	Since   *uint64  `json:"since"`
	Base64  bool     `json:"base64"`
	Data    string   `json:"data"`
	Keys    []string `json:"keys"`
	Text    string   `json:"text"`
	Cols    int      `json:"cols"`
	Rows    int      `json:"rows"`
	Take    bool     `json:"take"`
}

// The messages to the client, by type.
type (
	errorMessage struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		SessionID string `json:"sessionId"`
		Type      string `json:"type"`
	}
	snapshotMessage struct {
		Cols      int    `json:"cols"`
		Data      string `json:"data"`
		Rows      int    `json:"rows"`
		Seq       uint64 `json:"seq"`
		SessionID string `json:"sessionId"`
		Type      string `json:"type"`
	}
	statusMessage struct {
		Event     sessions.Event `json:"event"`
		SessionID string         `json:"sessionId"`
		Type      string         `json:"type"`
	}
	outputMessage struct {
		Data      string `json:"data"`
		Seq       uint64 `json:"seq"`
		SessionID string `json:"sessionId"`
		Type      string `json:"type"`
	}
)

// serveConsole serves a WebSocket with which one user watches up to maxWatched sessions and types
// into them. Pages of other origins are refused.
func (s *Surface) serveConsole(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"junctor"}})
	if err != nil {
		return nil //nolint:nilerr // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }() // errors of closing are irrelevant
	conn.SetReadLimit(consoleMessage)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	v := &viewer{
		console: s.Console, conn: conn, by: who, taken: s.Taken, who: who.ID + " " + r.RemoteAddr,
		next: map[string]uint64{}, binary: map[string]bool{},
		rest: map[string][]byte{}, orders: make(chan order),
	}
	heard := s.Console.Subscribe()
	defer heard.Close()
	news := make(chan sessions.Event)
	ended := make(chan struct{}, 2)
	go func() {
		defer func() { ended <- struct{}{} }()
		v.read(ctx)
	}()
	go func() {
		defer func() { ended <- struct{}{} }()
		for {
			e, ok, err := heard.Next(ctx)
			if !ok || err != nil {
				return
			}
			select {
			case news <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	beat := time.NewTicker(consolePingInterval)
	defer beat.Stop()
	over := 0
	for err = nil; err == nil && over == 0; {
		select {
		case o := <-v.orders:
			if err = httpapi.Stands(r, true); err == nil {
				err = v.obey(ctx, o)
			}
		case e := <-news:
			if err = httpapi.Stands(r, false); err == nil {
				err = v.tell(ctx, e)
			}
		case <-beat.C:
			if err = httpapi.Stands(r, false); err != nil {
				break
			}
			ping, done := context.WithTimeout(ctx, consoleWriteTimeout)
			err = conn.Ping(ping)
			done()
		case <-ended:
			over++
		}
	}
	for session := range v.next { // a disconnected client loses control
		_ = v.control(ctx, session, false) // fails if another user has control
	}
	_ = conn.Close(websocket.StatusGoingAway, "")
	cancel()
	for over < 2 {
		select {
		case <-ended:
			over++
		case <-news:
		case <-v.orders:
		}
	}
	return nil
}

// read reads messages of the client until the connection ends.
func (v *viewer) read(ctx context.Context) {
	for {
		kind, data, err := v.conn.Read(ctx)
		if err != nil {
			return
		}
		var o order
		if kind != websocket.MessageText || jsonx.Unmarshal(data, &o) != nil {
			o = order{Type: "unreadable"}
		}
		select {
		case v.orders <- o:
		case <-ctx.Done():
			return
		}
	}
}

// obey executes a message and sends an error message if that fails. The error is that of sending.
func (v *viewer) obey(ctx context.Context, o order) error {
	err := v.do(ctx, o)
	if e, ok := errors.AsType[*capability.Error](err); ok {
		code := e.Reason
		if code == "" {
			code = string(e.Code)
		}
		return v.send(ctx, errorMessage{code, e.Message, o.Session, "error"})
	}
	return err
}

// do executes a message of the client.
func (v *viewer) do(ctx context.Context, o order) error {
	switch o.Type {
	case "subscribe":
		if len(v.next) >= maxWatched {
			return capability.Errorf(capability.CodeOverloaded, "console", "one connection watches %d sessions at most",
				maxWatched).With("too_many_sessions", "")
		}
		v.binary[o.Session] = o.Base64
		err := v.show(ctx, o.Session)
		if _, watched := v.next[o.Session]; !watched { // nothing is stored for an unknown session
			delete(v.binary, o.Session)
		}
		return err
	case "unsubscribe":
		delete(v.next, o.Session)
		delete(v.binary, o.Session)
		delete(v.rest, o.Session)
		return nil
	case "input":
		terminal, err := v.terminal(o.Session)
		if err != nil {
			return err
		}
		return terminal.Raw(ctx, v.who, []byte(o.Data))
	case "keys":
		session, err := v.console.Get(o.Session)
		if err != nil {
			return err
		}
		return session.Keys(ctx, o.Keys)
	case "message":
		go func() { // sending may wait for the program for a long time
			outcome, err := v.say(ctx, o.Session, o.Text)
			if err == nil && outcome != "delivered" {
				err = capability.Errorf(capability.CodeConflict, "console", "the message was %s", strings.ReplaceAll(outcome, "_", " ")).With(outcome,
					"")
			}
			if err != nil {
				_ = v.obey(ctx, order{Type: "failed", Session: o.Session, Text: err.Error()})
			}
		}()
		return nil
	case "failed":
		return v.send(ctx, errorMessage{"not_delivered", o.Text, o.Session, "error"})
	case "resize":
		terminal, err := v.terminal(o.Session)
		if err != nil {
			return err
		}
		return terminal.Resize(v.who, o.Cols, o.Rows)
	case "stop":
		session, err := v.console.Get(o.Session)
		if err == nil {
			session.Stop(false)
		}
		return err
	case "control":
		return v.control(ctx, o.Session, o.Take)
	}
	return capability.Errorf(capability.CodeInvalidInput, "console",
		"a message is a JSON object whose type is subscribe, unsubscribe, input, keys, message, resize, control or stop").With("bad_message", "")
}

// terminal returns the session for typing. It fails for a session without a terminal, which
// accepts only whole messages.
func (v *viewer) terminal(session string) (*sessions.Session, error) {
	s, err := v.console.Get(session)
	if err != nil {
		return nil, err
	}
	return sessions.InTerminal(s)
}

func (v *viewer) say(ctx context.Context, session, text string) (outcome string, err error) {
	s, err := v.console.Get(session)
	if err != nil {
		return "", err
	}
	sent, err := s.Send(ctx, text, false)
	return string(sent), err
}

func (v *viewer) control(ctx context.Context, session string, take bool) error {
	s, err := v.terminal(session)
	if err == nil {
		err = s.Control(v.who, take)
	}
	if err == nil && take {
		v.taken(ctx, v.by, s.Info())
	}
	return err
}

// show sends a snapshot of a session; later output continues after it.
func (v *viewer) show(ctx context.Context, session string) error {
	s, err := v.console.Get(session)
	if err != nil {
		return err
	}
	shot := s.Snapshot()
	v.next[session] = shot.Offset
	delete(v.rest, session)
	return v.send(ctx, snapshotMessage{
		Cols: shot.Cols, Data: v.text(session, shot.Data), Rows: shot.Rows, Seq: shot.Offset, SessionID: session, Type: "snapshot",
	})
}

// tell sends an event of a watched session to the client. If output was lost, it sends a snapshot
// instead.
func (v *viewer) tell(ctx context.Context, e sessions.Event) error {
	next, watched := v.next[e.Session]
	if !watched {
		return nil
	}
	if e.Type != sessions.Output {
		return v.send(ctx, statusMessage{Event: e, SessionID: e.Session, Type: "status"})
	}
	end := e.Offset + uint64(len(e.Data))
	switch {
	case end <= next:
		return nil // the snapshot contained it
	case e.Offset > next:
		return v.show(ctx, e.Session)
	}
	v.next[e.Session] = end
	return v.send(ctx, outputMessage{Data: v.text(e.Session, e.Data[next-e.Offset:]), Seq: end, SessionID: e.Session, Type: "output"})
}

// text returns output for a message: in base64 if the client requested that, otherwise as UTF-8
// with invalid bytes replaced.
func (v *viewer) text(session string, data []byte) string {
	if v.binary[session] {
		return base64.StdEncoding.EncodeToString(data)
	}
	data = append(v.rest[session], data...)
	whole := len(data)
	for i := 1; i <= min(utf8.UTFMax-1, len(data)); i++ {
		if at := len(data) - i; utf8.RuneStart(data[at]) {
			if !utf8.FullRune(data[at:]) {
				whole = at
			}
			break
		}
	}
	v.rest[session] = bytes.Clone(data[whole:])
	return strings.ToValidUTF8(string(data[:whole]), "\uFFFD")
}

func (v *viewer) send(ctx context.Context, doc any) error {
	data, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, consoleWriteTimeout)
	defer cancel()
	return v.conn.Write(ctx, websocket.MessageText, data)
}

func (s *Surface) consoleRoute(mux *http.ServeMux, base string) {
	mux.Handle("GET "+base+"/console", s.Door.Guard(httpapi.Handler(s.serveConsole), capability.RoleAdmin, capability.RoleOperator))
}
