package fakechat

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// Discord is version 10 of Discord's API with one bot.
type Discord struct {
	base
	session string // "": none
	events  []json.RawMessage
	history map[string][]map[string]any // of conversations
}

const discordBot = "4200"

// NewDiscord starts a service until the test ends.
func NewDiscord(t testing.TB) *Discord {
	t.Helper()
	d := &Discord{history: make(map[string][]map[string]any)}
	d.start(t, http.HandlerFunc(d.serve))
	return d
}

// Kind implements [Service].
func (*Discord) Kind() string { return "discord" }

// Secret implements [Service].
func (*Discord) Secret() string { return "discord-token-of-the-test" }

// User implements [Service].
func (*Discord) User(user string) string { return user }

// Direct implements [Service].
func (*Discord) Direct(user string) string { return "9" + user }

// Group implements [Service].
func (*Discord) Group() string { return "555" }

// Mention implements [Service].
func (*Discord) Mention() string { return "<@" + discordBot + ">" }

func (d *Discord) user(id string) map[string]any {
	return map[string]any{"id": id, "username": "user" + id, "bot": id == discordBot}
}

// place adds the conversation of a message. The API's lists of messages have no guild.
func (d *Discord) place(conversation string, m map[string]any) map[string]any {
	if m["channel_id"] = conversation; conversation == d.Group() {
		m["guild_id"] = "77"
	}
	return m
}

// Write implements [Service].
func (d *Discord) Write(conversation, user, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.write(conversation, user, text, []any{})
}

// Attach implements [Service].
func (d *Discord) Attach(conversation, user, name, data string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.URL() + "/cdn/" + d.file(data)
	d.write(conversation, user, "", []any{map[string]any{"filename": name, "size": len(data), "url": at}})
}

// write delivers a message. The caller holds d.mu.
func (d *Discord) write(conversation, user, text string, files []any) {
	m := map[string]any{
		"id": d.id(""), "type": 0, "author": d.user(user), "content": text, "attachments": files, "mentions": []any{},
		"timestamp": time.Unix(1_700_000_000, 0).Format(time.RFC3339),
	}
	if strings.Contains(text, d.Mention()) {
		m["mentions"] = []any{d.user(discordBot)}
	}
	listed := map[string]any{"channel_id": conversation}
	for k, v := range m {
		listed[k] = v
	}
	d.history[conversation] = append(d.history[conversation], listed)
	d.dispatch("MESSAGE_CREATE", d.place(conversation, m))
}

// Press implements [Service].
func (d *Discord) Press(conversation, user, message, data string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.place(conversation, map[string]any{
		"id": d.id(""), "type": 3, "token": "press-token", "message": map[string]any{"id": message},
		"data": map[string]any{"custom_id": data, "component_type": 2},
	})
	if p["guild_id"] != nil {
		p["member"] = map[string]any{"user": d.user(user)}
	} else {
		p["user"] = d.user(user)
	}
	d.dispatch("INTERACTION_CREATE", p)
}

// dispatch adds an event to the session. The caller holds d.mu.
func (d *Discord) dispatch(kind string, data any) {
	if d.session == "" {
		return
	}
	raw, err := json.Marshal(map[string]any{"op": 0, "t": kind, "s": len(d.events) + 1, "d": data})
	if err != nil {
		panic(err) // the test's own value
	}
	d.events = append(d.events, raw)
	d.wake()
}

// Forget implements [Service].
func (d *Discord) Forget() {
	d.mu.Lock()
	d.session, d.events = "", nil
	d.mu.Unlock()
	d.Interrupt()
}

func (d *Discord) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/gateway" {
		d.gateway(w, r)
		return
	}
	if id, ok := strings.CutPrefix(r.URL.Path, "/cdn/"); ok { // the address is the permission
		d.download(w, id)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	for i, p := range parts {
		parts[i], _ = url.PathUnescape(p)
	}
	d.mu.Lock()
	revoked := d.revoked
	d.mu.Unlock()
	if revoked || parts[0] != "interactions" && r.Header.Get("Authorization") != "Bot "+d.Secret() {
		answer(w, http.StatusUnauthorized, map[string]any{"message": "401: Unauthorized", "code": 0})
		return
	}
	method := r.Method + " " + parts[0]
	if parts[0] == "channels" && len(parts) > 2 {
		method = r.Method + " " + parts[2]
	}
	cut, ok := d.attempt(w, method)
	if !ok {
		return
	}
	in, file, data := body(r)
	d.mu.Lock()
	status, out := d.do(r, parts, in, file, data)
	d.mu.Unlock()
	if cut {
		drop(w)
		return
	}
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	answer(w, status, out)
}

// do carries out a request. The caller holds d.mu.
func (d *Discord) do(r *http.Request, parts []string, in map[string]any, file, data string) (status int, out any) {
	refuse := func(said string) (int, any) {
		return http.StatusBadRequest, map[string]any{"message": said, "code": 50035}
	}
	switch {
	case r.URL.Path == "/users/@me/guilds":
		return http.StatusOK, []any{map[string]any{"id": "77", "name": "Guild"}}
	case r.URL.Path == "/guilds/77/channels":
		return http.StatusOK, []any{
			map[string]any{"id": d.Group(), "name": "ops", "type": 0}, map[string]any{"id": "556", "name": "ops by voice", "type": 2},
		}
	case r.URL.Path == "/users/@me":
		return http.StatusOK, d.user(discordBot)
	case r.URL.Path == "/users/@me/channels":
		return http.StatusOK, map[string]any{"id": d.Direct(text(in, "recipient_id")), "type": 1}
	case r.URL.Path == "/gateway/bot":
		return http.StatusOK, map[string]any{"url": strings.Replace(d.URL(), "http", "ws", 1) + "/gateway", "shards": 1}
	case parts[0] == "interactions":
		d.acks = append(d.acks, unescape(text(in, "data", "content")))
		return http.StatusNoContent, nil
	case len(parts) == 2 && parts[0] == "channels" && r.Method == http.MethodGet:
		return http.StatusOK, d.place(parts[1], map[string]any{"id": parts[1]})
	case len(parts) < 3:
		return http.StatusNotFound, map[string]any{"message": "404: Not Found", "code": 0}
	}
	conversation := parts[1]
	if len(parts) == 3 && r.Method == http.MethodGet {
		page := []any{}
		before := r.URL.Query().Get("before")
		for _, m := range d.history[conversation] {
			if id, _ := m["id"].(string); id > r.URL.Query().Get("after") && (before == "" || id < before) {
				page = append([]any{m}, page...)
			}
		}
		return http.StatusOK, page
	}
	if len(parts) == 4 && r.Method == http.MethodGet {
		var items []any
		for _, m := range d.history[conversation] {
			if m["id"] == parts[3] {
				return http.StatusOK, m
			}
			if own := d.find(conversation, text(m, "id")); own != nil && own.Pinned {
				items = append(items, map[string]any{"message": m})
			}
		}
		if parts[3] != "pins" {
			return http.StatusNotFound, map[string]any{"message": "Unknown Message", "code": 10008}
		}
		return http.StatusOK, map[string]any{"items": items}
	}
	if len(parts) == 3 {
		content := text(in, "content")
		if content == "" && file == "" || len([]rune(content)) > 2000 {
			return refuse("Invalid Form Body")
		}
		m := &Message{
			ID: d.id(""), Conversation: conversation, Text: unescape(content), Markdown: content == unescape(content),
			Answers: text(in, "message_reference", "message_id"), Buttons: buttonData(in["components"], "custom_id"), File: file, Data: data,
		}
		if in["enforce_nonce"] == true {
			m.key = text(in, "nonce")
		}
		if len(m.key) > 25 {
			return refuse("Invalid nonce")
		}
		sent := map[string]any{"id": d.put(m).ID, "channel_id": conversation, "content": content, "author": d.user(discordBot)}
		if sent["id"] == m.ID {
			d.history[conversation] = append(d.history[conversation], sent)
		}
		return http.StatusOK, sent
	}
	if parts[3] == "pins" {
		parts[3], parts = parts[4], parts[:4]
		if m := d.find(conversation, parts[3]); m != nil {
			m.Pinned = r.Method == http.MethodPut
		}
		return http.StatusNoContent, nil
	}
	m := d.find(conversation, parts[3])
	switch {
	case m == nil:
		return http.StatusNotFound, map[string]any{"message": "Unknown Message", "code": 10008}
	case len(parts) > 5 && r.Method == http.MethodPut:
		m.Reactions = append(m.Reactions, parts[5])
	case len(parts) > 5:
		m.Reactions = nil
	case r.Method == http.MethodDelete:
		m.Deleted = true
	default:
		m.Text, m.Buttons = unescape(text(in, "content")), buttonData(in["components"], "custom_id")
		m.Edits++
		return http.StatusOK, map[string]any{"id": m.ID}
	}
	return http.StatusNoContent, nil
}

// gateway is one connection for events.
func (d *Discord) gateway(w http.ResponseWriter, r *http.Request) {
	conn, ctx, cancel := accept(w, r)
	if conn == nil {
		return
	}
	defer cancel()
	write := func(v any) bool { return writeJSON(ctx, conn, v) }
	if !write(map[string]any{"op": 10, "d": map[string]any{"heartbeat_interval": 1000}}) {
		return
	}
	var login struct {
		Op   int `json:"op"`
		Data struct {
			Token   string `json:"token"`
			Session string `json:"session_id"`
			Seq     int    `json:"seq"`
		} `json:"d"`
	}
	_, raw, err := conn.Read(ctx)
	if err != nil || json.Unmarshal(raw, &login) != nil {
		return
	}
	d.mu.Lock()
	at, epoch := login.Data.Seq, d.epoch
	switch {
	case d.revoked || login.Data.Token != d.Secret():
		d.mu.Unlock()
		_ = conn.Close(4004, "Authentication failed.")
		return
	case login.Op == 6 && login.Data.Session == d.session && d.session != "":
		at = max(0, at-1) // the last one again
		d.dispatch("RESUMED", map[string]any{})
	case login.Op == 6:
		d.mu.Unlock()
		write(map[string]any{"op": 9, "d": false})
		return
	default:
		at, d.session, d.events = 0, d.id("session"), nil
		d.dispatch("READY", map[string]any{
			"v": 10, "user": d.user(discordBot), "session_id": d.session,
			"resume_gateway_url": strings.Replace(d.URL(), "http", "ws", 1) + "/gateway",
		})
	}
	d.mu.Unlock()
	go func() { // heartbeats; ends with the connection
		defer cancel()
		for {
			if _, _, err := conn.Read(ctx); err != nil || !write(map[string]any{"op": 11}) {
				return
			}
		}
	}()
	for {
		d.mu.Lock()
		over, changed := d.epoch != epoch, d.changed
		var list []json.RawMessage
		if at < len(d.events) {
			list = d.events[at:]
			at = len(d.events)
		}
		d.mu.Unlock()
		for _, raw := range list {
			if conn.Write(ctx, websocket.MessageText, raw) != nil {
				return
			}
		}
		if over {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
