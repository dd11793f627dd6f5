package fakechat

import (
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Matrix is a homeserver's client-server API with one user of ours.
type Matrix struct {
	base
	log     []matrixEvent
	rooms   map[string][]string // members
	pins    map[string][]any
	invited map[string]bool
	entered map[string]int // position of the entry into a room, whose earlier events then come, too
}

type matrixEvent struct {
	room string
	doc  map[string]any
}

const matrixBot = "@junctor:test"

// maxTimeline is the number of events of a room in one answer of /sync.
const maxTimeline = 3

// NewMatrix starts a service until the test ends.
func NewMatrix(t testing.TB) *Matrix {
	t.Helper()
	m := &Matrix{
		rooms: make(map[string][]string), pins: make(map[string][]any), invited: make(map[string]bool),
		entered: make(map[string]int),
	}
	m.rooms[m.Group()] = []string{matrixBot, "@a:test", "@b:test"}
	m.start(t, http.HandlerFunc(m.serve))
	return m
}

// Kind implements [Service].
func (*Matrix) Kind() string { return "matrix" }

// Secret implements [Service].
func (*Matrix) Secret() string { return "syt_token_of_the_test" }

// User implements [Service].
func (*Matrix) User(user string) string { return "@" + user + ":test" }

// Direct implements [Service].
func (*Matrix) Direct(user string) string { return "!dm" + user + ":test" }

// Group implements [Service].
func (*Matrix) Group() string { return "!group:test" }

// Mention implements [Service].
func (*Matrix) Mention() string { return matrixBot + ":" }

// Write implements [Service]. The first message of a user alone comes with an invitation.
func (m *Matrix) Write(conversation, user, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rooms[conversation] == nil {
		m.rooms[conversation] = []string{m.User(user)}
		m.invited[conversation] = true
		m.member(conversation, m.User(user), "invite")
	}
	m.append(conversation, m.User(user), "m.room.message", map[string]any{"msgtype": "m.text", "body": text})
}

// Attach implements [Service].
func (m *Matrix) Attach(conversation, user, name, data string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.append(conversation, m.User(user), "m.room.message", map[string]any{
		"msgtype": "m.file", "body": name, "url": "mxc://test/" + m.file(data), "info": map[string]any{"size": len(data)},
	})
}

// member adds the event of our membership. The caller holds m.mu.
func (m *Matrix) member(room, by, membership string) {
	m.append(room, by, "m.room.member", map[string]any{"membership": membership})
	m.log[len(m.log)-1].doc["state_key"] = matrixBot
}

// append adds an event. The caller holds m.mu.
func (m *Matrix) append(room, sender, kind string, content map[string]any) string {
	id := m.id("$e")
	m.log = append(m.log, matrixEvent{room, map[string]any{"event_id": id, "type": kind, "sender": sender, "content": content}})
	m.wake()
	return id
}

// Press implements [Service].
func (*Matrix) Press(string, string, string, string) {}

// Forget implements [Service]: the service has no sessions.
func (m *Matrix) Forget() { m.Interrupt() }

func (m *Matrix) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.EscapedPath(), "/_matrix"), "/"), "/")
	for i, p := range parts {
		parts[i], _ = url.PathUnescape(p)
	}
	parts = append(parts, "", "", "", "", "", "") // of the shorter paths
	m.mu.Lock()
	revoked := m.revoked
	m.mu.Unlock()
	if revoked || r.Header.Get("Authorization") != "Bearer "+m.Secret() {
		answer(w, http.StatusUnauthorized, map[string]any{"errcode": "M_UNKNOWN_TOKEN", "error": "Unrecognised access token"})
		return
	}
	method := parts[2]
	if method == "rooms" {
		method = parts[4]
	}
	cut, ok := m.attempt(w, method)
	if !ok {
		return
	}
	if method == "sync" {
		m.sync(w, r)
		return
	}
	if method == "upload" {
		data, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		uri := "mxc://test/" + m.file(string(data))
		m.mu.Unlock()
		answer(w, http.StatusOK, map[string]any{"content_uri": uri})
		return
	}
	if parts[2] == "media" {
		m.download(w, parts[5])
		return
	}
	in, _, _ := body(r)
	m.mu.Lock()
	status, out := m.do(r, parts, in)
	m.mu.Unlock()
	if cut {
		drop(w)
		return
	}
	answer(w, status, out)
}

// do carries out a request. The caller holds m.mu.
func (m *Matrix) do(r *http.Request, parts []string, in map[string]any) (status int, out any) {
	missing := map[string]any{"errcode": "M_NOT_FOUND", "error": "Not found"}
	room := parts[3]
	switch parts[2] {
	case "account":
		return http.StatusOK, map[string]any{"user_id": matrixBot}
	case "joined_rooms":
		list := []string{}
		for id, members := range m.rooms {
			if slices.Contains(members, matrixBot) {
				list = append(list, id)
			}
		}
		return http.StatusOK, map[string]any{"joined_rooms": list}
	case "search":
		query := text(in, "search_categories", "room_events", "search_term")
		results := []any{}
		for _, e := range slices.Backward(m.log) {
			content, _ := e.doc["content"].(map[string]any)
			if strings.Contains(text(content, "body"), query) {
				doc := maps.Clone(e.doc)
				doc["room_id"] = e.room
				results = append(results, map[string]any{"result": doc})
			}
		}
		return http.StatusOK, map[string]any{"search_categories": map[string]any{"room_events": map[string]any{"results": results}}}
	case "join":
		if !slices.Contains(m.rooms[room], matrixBot) {
			m.rooms[room] = append(m.rooms[room], matrixBot)
			delete(m.invited, room)
			m.member(room, matrixBot, "join")
			m.entered[room] = len(m.log)
		}
		return http.StatusOK, map[string]any{"room_id": room}
	case "createRoom":
		guests, _ := in["invite"].([]any)
		user, _ := guests[0].(string)
		name, _, _ := strings.Cut(strings.TrimPrefix(user, "@"), ":")
		room = m.Direct(name)
		m.rooms[room] = []string{matrixBot, user}
		return http.StatusOK, map[string]any{"room_id": room}
	}
	if !slices.Contains(m.rooms[room], matrixBot) {
		return http.StatusForbidden, map[string]any{"errcode": "M_FORBIDDEN", "error": "You are not in this room"}
	}
	switch parts[4] {
	case "joined_members":
		joined := map[string]any{}
		for _, user := range m.rooms[room] {
			joined[user] = map[string]any{}
		}
		return http.StatusOK, map[string]any{"joined": joined}
	case "messages":
		from, err := strconv.Atoi(r.URL.Query().Get("from"))
		if err != nil {
			from = len(m.log)
		}
		to, _ := strconv.Atoi(r.URL.Query().Get("to"))
		chunk := []any{}
		for i := from - 1; i >= to && i >= 0; i-- {
			if m.log[i].room == room {
				chunk = append(chunk, m.log[i].doc)
			}
		}
		return http.StatusOK, map[string]any{"chunk": chunk}
	case "event", "context":
		for i, e := range m.log {
			if e.doc["event_id"] != parts[5] {
				continue
			}
			if parts[4] == "context" {
				return http.StatusOK, map[string]any{"event": e.doc, "start": strconv.Itoa(i)}
			}
			return http.StatusOK, e.doc
		}
	case "send":
		return http.StatusOK, map[string]any{"event_id": m.send(room, parts[5], parts[6], in)}
	case "redact":
		for _, one := range m.messages {
			one.Markdown = text(in, "formatted_body") != ""
			if one.ID == parts[5] {
				one.Deleted = true
			}
			one.Reactions = slices.DeleteFunc(one.Reactions, func(r string) bool { return strings.HasSuffix(r, " "+parts[5]) })
		}
		return http.StatusOK, map[string]any{"event_id": m.id("$e")}
	case "relations":
		chunk := []any{}
		for _, e := range m.log {
			if e.doc["type"] == "m.reaction" && text(e.doc, "content", "m.relates_to", "event_id") == parts[5] {
				chunk = append(chunk, e.doc)
			}
		}
		return http.StatusOK, map[string]any{"chunk": chunk}
	case "state":
		if parts[5] == "m.room.name" {
			if room != m.Group() {
				return http.StatusNotFound, missing
			}
			return http.StatusOK, map[string]any{"name": "ops"}
		}
		if r.Method == http.MethodGet && m.pins[room] == nil {
			return http.StatusNotFound, missing
		}
		if r.Method == http.MethodPut {
			m.pins[room], _ = in["pinned"].([]any)
			for _, one := range m.messages {
				one.Pinned = slices.Contains(m.pins[room], any(one.ID))
			}
		}
		return http.StatusOK, map[string]any{"pinned": m.pins[room]}
	}
	return http.StatusNotFound, missing
}

// send adds an event of ours, once for each transaction. The caller holds m.mu.
func (m *Matrix) send(room, kind, transaction string, in map[string]any) string {
	for _, e := range m.log {
		if e.doc["transaction"] == transaction {
			return text(e.doc, "event_id")
		}
	}
	id := m.append(room, matrixBot, kind, maps.Clone(in))
	m.log[len(m.log)-1].doc["transaction"] = transaction
	about := text(in, "m.relates_to", "event_id")
	switch of := m.find(room, about); {
	case kind == "m.reaction" && of != nil:
		of.Reactions = append(of.Reactions, text(in, "m.relates_to", "key")+" "+id)
	case text(in, "m.relates_to", "rel_type") == "m.replace" && of != nil:
		of.Text = text(in, "m.new_content", "body")
		of.Edits++
	case kind == "m.room.message":
		one := &Message{ID: id, Conversation: room, Text: text(in, "body"), Answers: text(in, "m.relates_to", "m.in_reply_to", "event_id")}
		one.Markdown = text(in, "formatted_body") != ""
		if text(in, "msgtype") == "m.file" {
			one.Text, one.File, one.Data = "", text(in, "body"), m.files[strings.TrimPrefix(text(in, "url"), "mxc://test/")]
		}
		if text(in, "m.relates_to", "rel_type") == "m.thread" {
			one.Thread = about
		}
		m.put(one)
	}
	return id
}

// sync answers with the events after a token, which is a position in the log.
func (m *Matrix) sync(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.Atoi(r.URL.Query().Get("since"))
	millis, _ := strconv.Atoi(r.URL.Query().Get("timeout"))
	deadline := time.NewTimer(time.Duration(millis) * time.Millisecond)
	defer deadline.Stop()
	m.mu.Lock()
	epoch := m.epoch
	m.mu.Unlock()
	for late := false; ; {
		m.mu.Lock()
		join, invite := map[string]any{}, map[string]any{}
		for room := range m.invited {
			invite[room] = map[string]any{}
		}
		for room, members := range m.rooms {
			if err != nil || !slices.Contains(members, matrixBot) {
				continue
			}
			var list []any
			from := since
			if since < m.entered[room] {
				from = 0
			}
			before, limited := from, false
			for i := from; i < len(m.log); i++ {
				if m.log[i].room != room {
					continue
				}
				if list = append(list, m.log[i].doc); len(list) > maxTimeline {
					list, limited = list[1:], true
				}
				if len(list) == 1 || limited {
					before = i
				}
			}
			if limited { // the position of the first event that is in the list
				n := 0
				for i := len(m.log) - 1; i >= 0 && n < maxTimeline; i-- {
					if m.log[i].room == room {
						before = i
						n++
					}
				}
			}
			if len(list) > 0 {
				join[room] = map[string]any{"timeline": map[string]any{"events": list, "limited": limited, "prev_batch": strconv.Itoa(before)}}
			}
		}
		next, changed, over := len(m.log), m.changed, m.epoch != epoch
		m.mu.Unlock()
		if over {
			drop(w)
			return
		}
		if len(join)+len(invite) > 0 || late || err != nil {
			answer(w, http.StatusOK, map[string]any{"next_batch": strconv.Itoa(next), "rooms": map[string]any{"join": join, "invite": invite}})
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			late = true
		case <-r.Context().Done():
			return
		}
	}
}
