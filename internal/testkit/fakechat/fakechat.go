// Package fakechat is four chat services on loopback in their published wire formats, with faults:
// Discord, e-mail, Slack and Matrix. Rate limits, lost connections, expired sessions, repeated events, and
// answers that are cut after the message was accepted can be requested.
package fakechat

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// Fault is what happens to one request instead of, or after, its answer.
type Fault struct {
	Status     int  // this status is answered
	RetryAfter int  // of status 429, in seconds
	Drop       bool // the connection ends before the request is carried out
	Cut        bool // the connection ends after the request was carried out
}

// Message is a message that the account sent.
type Message struct {
	ID, Conversation, Thread, Answers string
	Text                              string // as a person reads it: without escapes
	Buttons                           []string
	File, Data                        string
	Edits                             int
	Deleted, Pinned, Markdown         bool
	Reactions                         []string
	key                               string
}

// Service is what a test needs of a service.
type Service interface {
	Kind() string
	URL() string
	// Secret is the content of the account's secret.
	Secret() string
	// User returns the service's id of a user with a number.
	User(user string) string
	// Direct returns the conversation of a user with the account alone, and Group one of several
	// people, or "" on a service without groups.
	Direct(user string) string
	Group() string
	// Mention returns how the account is addressed in a group.
	Mention() string
	// Write delivers a message of a user.
	Write(conversation, user, text string)
	// Attach delivers a message of a user with a file.
	Attach(conversation, user, name, data string)
	// Press delivers the press of a button. It does nothing on a service without buttons.
	Press(conversation, user, message, data string)
	Sent() []Message
	Acks() []string
	// Fail sets what happens to the n-th request of each method, from 0.
	Fail(f func(method string, n int) Fault)
	// Interrupt ends all connections for events.
	Interrupt()
	// Forget does so too, and the service has no session any more.
	Forget()
	// Revoke makes the service refuse the token.
	Revoke()
}

// base is what the services share.
type base struct {
	*httptest.Server
	mu       sync.Mutex
	next     int
	messages []*Message
	acks     []string
	faults   func(method string, n int) Fault
	calls    map[string]int
	revoked  bool
	changed  chan struct{} // closed when something is to be delivered or a connection is to end
	epoch    int           // of connections
	files    map[string]string
}

func (b *base) start(t testing.TB, serve http.Handler) {
	b.calls, b.files, b.changed, b.next = make(map[string]int), make(map[string]string), make(chan struct{}), 1000
	b.Server = httptest.NewServer(serve)
	t.Cleanup(func() {
		b.Interrupt()
		b.CloseClientConnections()
		b.Close()
	})
}

// URL implements [Service].
func (b *base) URL() string { return b.Server.URL }

// Fail implements [Service].
func (b *base) Fail(f func(method string, n int) Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = f
}

// Revoke implements [Service].
func (b *base) Revoke() {
	b.mu.Lock()
	b.revoked = true
	b.mu.Unlock()
	b.Interrupt()
}

// Interrupt implements [Service].
func (b *base) Interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.epoch++
	b.wake()
}

// wake wakes all that wait for a change. The caller holds b.mu.
func (b *base) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Sent implements [Service].
func (b *base) Sent() (list []Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		one := *m
		one.Reactions = slices.Clone(m.Reactions)
		list = append(list, one)
	}
	return list
}

// Acks implements [Service].
func (b *base) Acks() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.acks)
}

// id returns a new id. The caller holds b.mu.
func (b *base) id(prefix string) string {
	b.next++
	return fmt.Sprint(prefix, b.next)
}

// file adds a file and returns its id. The caller holds b.mu.
func (b *base) file(data string) string {
	id := b.id("f")
	b.files[id] = data
	return id
}

// download answers with a file.
func (b *base) download(w http.ResponseWriter, id string) {
	b.mu.Lock()
	data, ok := b.files[id]
	b.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = io.WriteString(w, data)
}

// put adds a message, or returns the one with its key. The caller holds b.mu.
func (b *base) put(m *Message) *Message {
	for _, old := range b.messages {
		if m.key != "" && old.key == m.key {
			return old
		}
	}
	b.messages = append(b.messages, m)
	return m
}

// find returns a message or nil. The caller holds b.mu.
func (b *base) find(conversation, id string) *Message {
	for _, m := range b.messages {
		if m.ID == id && m.Conversation == conversation && !m.Deleted {
			return m
		}
	}
	return nil
}

// attempt applies the fault of a request of a method, and reports whether it is to be carried out.
// after is called with the answer.
func (b *base) attempt(w http.ResponseWriter, method string) (cut, ok bool) {
	f := b.fault(method)
	switch {
	case f.Drop:
		drop(w)
		return false, false
	case f.Status != 0:
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(f.RetryAfter))
		}
		answer(w, f.Status, map[string]any{"ok": false, "error": http.StatusText(f.Status), "message": http.StatusText(f.Status)})
		return false, false
	}
	return f.Cut, true
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// accept opens a WebSocket, which cancel closes. conn is nil if it cannot be opened.
func accept(w http.ResponseWriter, r *http.Request) (conn *websocket.Conn, ctx context.Context, cancel func()) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil, nil, nil
	}
	ctx, stop := context.WithCancel(r.Context())
	return conn, ctx, func() {
		stop()
		_ = conn.CloseNow()
	}
}

// writeJSON sends a frame, and reports whether the connection took it.
func writeJSON(ctx context.Context, conn *websocket.Conn, v any) bool {
	raw, err := json.Marshal(v)
	return err == nil && conn.Write(ctx, websocket.MessageText, raw) == nil
}

func drop(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}

// body reads a request: JSON, or a form with the part payload_json and a file.
func body(r *http.Request) (in map[string]any, file, data string) {
	in = map[string]any{}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "multipart/form-data" {
		_ = json.NewDecoder(r.Body).Decode(&in)
		return in, "", ""
	}
	parts, err := r.MultipartReader()
	for err == nil {
		p, e := parts.NextPart()
		if err = e; err != nil {
			break
		}
		content, _ := io.ReadAll(p)
		if p.FileName() != "" {
			file, data = p.FileName(), string(content)
		} else if p.FormName() == "payload_json" {
			_ = json.Unmarshal(content, &in)
		}
	}
	return in, file, data
}

// text returns a member that is a string, at a path.
func text(in map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		in, _ = in[name].(map[string]any)
	}
	s, _ := in[path[len(path)-1]].(string)
	return s
}

// buttonData returns the members that are named key of all objects in v, in order.
func buttonData(v any, key string) (list []string) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			list = append(list, buttonData(one, key)...)
		}
	case map[string]any:
		if s, ok := v[key].(string); ok {
			list = append(list, s)
		}
		for _, name := range []string{"components", "elements"} {
			list = append(list, buttonData(v[name], key)...)
		}
	}
	return list
}

// unescape removes the backslashes of Markdown.
func unescape(s string) string {
	var b strings.Builder
	escaped := false
	for _, r := range s {
		if r == '\\' && !escaped {
			escaped = true
			continue
		}
		escaped = false
		b.WriteRune(r)
	}
	return b.String()
}
