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
)

// Console is the terminals of sessions, for people who watch and type (task-agents,
// section 18).
type Console interface {
	// Hear hears of all sessions from now on.
	Hear() Hearer
	// Snapshot repaints a session's screen; next is the offset of the output that comes.
	Snapshot(session string) (Snapshot, error)
	// The rest is done by somebody, and refused while another one is in control.
	Type(ctx context.Context, session, who string, data []byte) error
	Keys(ctx context.Context, session string, keys []string) error
	Say(ctx context.Context, session, text string) (outcome string, err error)
	Resize(session, who string, cols, rows int) error
	Control(session, who string, take bool) error
	Stop(session string) error
}

// Snapshot makes a terminal show what a session's shows.
type Snapshot struct {
	Cols, Rows int
	Data       []byte
	Offset     uint64
}

// Hearer gets news until it is closed; slow ones miss output, which the offsets show.
type Hearer interface {
	// Next waits. ok is false at the end, also when ctx ends.
	Next(ctx context.Context) (n News, ok bool)
	Close()
}

// News is output of a session, or something else that happened to it.
type News struct {
	Session string
	Output  []byte
	Offset  uint64          // of the first byte of Output
	Status  json.RawMessage // nil for output
}

const (
	consoleMessage = 1 << 20 // bytes of one message from a person
	mostWatched    = 64      // sessions of one connection
	consoleWrite   = 10 * time.Second
	consoleBeat    = 30 * time.Second
)

// viewer is one connection.
type viewer struct {
	console Console
	conn    *websocket.Conn
	who     string
	next    map[string]uint64 // offset of the output that comes, by session
	binary  map[string]bool   // whose output is wanted in base64
	rest    map[string][]byte // the beginning of a character whose end has not come
	orders  chan order
}

// order is a message of the person.
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

// serveConsole is a WebSocket over which one person watches any number of sessions and
// types into them. A page of another origin is refused.
func (s *Surface) serveConsole(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil //nolint:nilerr // it has been answered
	}
	defer func() { _ = conn.CloseNow() }() // what was said is said
	conn.SetReadLimit(consoleMessage)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	v := &viewer{console: s.Console, conn: conn, who: who.ID + " " + r.RemoteAddr, next: map[string]uint64{}, binary: map[string]bool{}, rest: map[string][]byte{}, orders: make(chan order)}
	hearer := s.Console.Hear()
	defer hearer.Close()
	news := make(chan News)
	ended := make(chan struct{}, 2)
	go func() {
		defer func() { ended <- struct{}{} }()
		v.read(ctx)
	}()
	go func() {
		defer func() { ended <- struct{}{} }()
		for {
			n, ok := hearer.Next(ctx)
			if !ok {
				return
			}
			select {
			case news <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	beat := time.NewTicker(consoleBeat)
	defer beat.Stop()
	over := 0
	for err = nil; err == nil && over == 0; {
		select {
		case o := <-v.orders:
			err = v.obey(ctx, o)
		case n := <-news:
			err = v.tell(ctx, n)
		case <-beat.C:
			ping, done := context.WithTimeout(ctx, consoleWrite)
			err = conn.Ping(ping)
			done()
		case <-ended:
			over++
		}
	}
	for session := range v.next { // whoever leaves is not in control any more
		_ = s.Console.Control(session, v.who, false) // another one may be
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

// read takes what the person sends.
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

// obey does what a message asks; what is wrong with it is answered.
func (v *viewer) obey(ctx context.Context, o order) error {
	err := v.do(ctx, o)
	if e, ok := errors.AsType[*capability.Error](err); ok {
		code := e.Reason
		if code == "" {
			code = string(e.Code)
		}
		return v.send(ctx, map[string]any{"type": "error", "sessionId": o.Session, "code": code, "message": e.Message})
	}
	return err
}

func (v *viewer) do(ctx context.Context, o order) error {
	c := v.console
	switch o.Type {
	case "subscribe":
		if len(v.next) >= mostWatched {
			return capability.Errorf(capability.CodeOverloaded, "console", "one connection watches %d sessions at most", mostWatched).With("too_many_sessions", "")
		}
		v.binary[o.Session] = o.Base64
		err := v.show(ctx, o.Session)
		if _, watched := v.next[o.Session]; !watched { // nothing is remembered of what is none
			delete(v.binary, o.Session)
		}
		return err
	case "unsubscribe":
		delete(v.next, o.Session)
		delete(v.binary, o.Session)
		delete(v.rest, o.Session)
		return nil
	case "input":
		return c.Type(ctx, o.Session, v.who, []byte(o.Data))
	case "keys":
		return c.Keys(ctx, o.Session, o.Keys)
	case "message":
		go func() { // it may wait for the program for as long as that takes
			outcome, err := c.Say(ctx, o.Session, o.Text)
			if err == nil && outcome != "delivered" {
				err = capability.Errorf(capability.CodeConflict, "console", "the message was %s", strings.ReplaceAll(outcome, "_", " ")).With(outcome, "")
			}
			if err != nil {
				_ = v.obey(ctx, order{Type: "failed", Session: o.Session, Text: err.Error()})
			}
		}()
		return nil
	case "failed":
		return v.send(ctx, map[string]any{"type": "error", "sessionId": o.Session, "code": "not_delivered", "message": o.Text})
	case "resize":
		return c.Resize(o.Session, v.who, o.Cols, o.Rows)
	case "stop":
		return c.Stop(o.Session)
	case "control":
		return c.Control(o.Session, v.who, o.Take)
	}
	return capability.Errorf(capability.CodeInvalidInput, "console", "a message is a JSON object whose type is subscribe, unsubscribe, input, keys, message, resize, control or stop").With("bad_message", "")
}

// show sends a snapshot, from which the output goes on.
func (v *viewer) show(ctx context.Context, session string) error {
	shot, err := v.console.Snapshot(session)
	if err != nil {
		return err
	}
	v.next[session] = shot.Offset
	delete(v.rest, session)
	return v.send(ctx, map[string]any{"type": "snapshot", "sessionId": session, "cols": shot.Cols, "rows": shot.Rows, "seq": shot.Offset, "data": v.text(session, shot.Data)})
}

// tell passes news of a watched session on. Where output was missed, a snapshot takes
// its place.
func (v *viewer) tell(ctx context.Context, n News) error {
	next, watched := v.next[n.Session]
	if !watched {
		return nil
	}
	if n.Status != nil {
		return v.send(ctx, map[string]any{"type": "status", "sessionId": n.Session, "event": n.Status})
	}
	end := n.Offset + uint64(len(n.Output))
	switch {
	case end <= next:
		return nil // the snapshot had it
	case n.Offset > next:
		return v.show(ctx, n.Session)
	}
	v.next[n.Session] = end
	return v.send(ctx, map[string]any{"type": "output", "sessionId": n.Session, "seq": end, "data": v.text(n.Session, n.Output[next-n.Offset:])})
}

// text is output as it is sent: bytes that are no text become one sign each, unless
// base64 was asked for.
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
	ctx, cancel := context.WithTimeout(ctx, consoleWrite)
	defer cancel()
	return v.conn.Write(ctx, websocket.MessageText, data)
}

func (s *Surface) consoleRoute(mux *http.ServeMux, base string) {
	mux.Handle("GET "+base+"/console", s.Door.Guard(httpapi.Handler(s.serveConsole), capability.RoleAdmin, capability.RoleOperator))
}
