package fakechat

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Slack is Slack's Web API and Socket Mode with one app.
type Slack struct {
	base
	pending  []delivery        // that were not acknowledged
	uploaded map[string]string // content of files
	names    map[string]string
	history  map[string][]map[string]any // of conversations
}

type delivery struct {
	id  string
	doc map[string]any
}

const slackBot = "U0BOT"

// NewSlack starts a service until the test ends.
func NewSlack(t testing.TB) *Slack {
	t.Helper()
	s := &Slack{uploaded: make(map[string]string), names: make(map[string]string), history: make(map[string][]map[string]any)}
	s.start(t, http.HandlerFunc(s.serve))
	return s
}

// Kind implements [Service].
func (*Slack) Kind() string { return "slack" }

// Secret implements [Service].
func (*Slack) Secret() string { return "xoxb-1-bot-token xapp-1-app-token" }

// User implements [Service].
func (*Slack) User(user string) string { return "U" + user }

// Direct implements [Service].
func (*Slack) Direct(user string) string { return "D" + user }

// Group implements [Service].
func (*Slack) Group() string { return "C555" }

// Mention implements [Service].
func (*Slack) Mention() string { return "<@" + slackBot + ">" }

// Write implements [Service].
func (s *Slack) Write(conversation, user, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	marks := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	said := marks.Replace(text)
	if rest, ok := strings.CutPrefix(text, s.Mention()); ok {
		said = s.Mention() + marks.Replace(rest)
	}
	s.write(conversation, user, said, nil)
}

// Attach implements [Service].
func (s *Slack) Attach(conversation, user, name, data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.URL() + "/files/" + s.file(data)
	s.write(conversation, user, "", []any{map[string]any{"name": name, "size": len(data), "url_private": at}})
}

// write delivers a message. The caller holds s.mu.
func (s *Slack) write(conversation, user, text string, files []any) {
	m := map[string]any{
		"type": "message", "channel": conversation, "user": "U" + user, "text": text, "ts": s.id("1700000000.00"), "files": files,
	}
	if files != nil {
		m["subtype"] = "file_share"
	}
	s.history[conversation] = append(s.history[conversation], m)
	s.deliver("events_api", map[string]any{"type": "event_callback", "event_id": s.id("Ev"), "event": m})
}

// Press implements [Service].
func (s *Slack) Press(conversation, user, message, data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver("interactive", map[string]any{
		"type": "block_actions", "user": map[string]any{"id": "U" + user, "name": "user" + user},
		"container": map[string]any{"type": "message", "channel_id": conversation, "message_ts": message},
		"actions":   []any{map[string]any{"action_id": "b0", "value": data, "action_ts": s.id("1700000000.00")}},
	})
}

// deliver adds an envelope. The caller holds s.mu.
func (s *Slack) deliver(kind string, payload any) {
	id := s.id("envelope")
	s.pending = append(s.pending, delivery{id, map[string]any{"envelope_id": id, "type": kind, "payload": payload}})
	s.wake()
}

// Forget implements [Service]: the service has no sessions.
func (s *Slack) Forget() { s.Interrupt() }

func (s *Slack) serve(w http.ResponseWriter, r *http.Request) {
	switch method := strings.Trim(r.URL.Path, "/"); {
	case method == "socket":
		s.socket(w, r)
	case strings.HasPrefix(method, "files/"):
		if bot, _, _ := strings.Cut(s.Secret(), " "); r.Header.Get("Authorization") == "Bearer "+bot {
			s.download(w, strings.TrimPrefix(method, "files/"))
			return
		}
		w.WriteHeader(http.StatusForbidden)
	case strings.HasPrefix(method, "upload/"):
		data, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.uploaded[strings.TrimPrefix(method, "upload/")] = string(data)
		s.mu.Unlock()
		_, _ = io.WriteString(w, "OK")
	default:
		s.api(w, r, method)
	}
}

func (s *Slack) api(w http.ResponseWriter, r *http.Request, method string) {
	cut, ok := s.attempt(w, method)
	if !ok {
		return
	}
	in, _, _ := body(r)
	bot, app, _ := strings.Cut(s.Secret(), " ")
	want := "Bearer " + bot
	if method == "apps.connections.open" {
		want = "Bearer " + app
	}
	s.mu.Lock()
	var out map[string]any
	problem := ""
	if s.revoked || r.Header.Get("Authorization") != want {
		problem = "invalid_auth"
	} else {
		out, problem = s.do(r, method, in)
	}
	s.mu.Unlock()
	switch {
	case cut:
		drop(w)
	case problem != "":
		answer(w, http.StatusOK, map[string]any{"ok": false, "error": problem})
	default:
		if out == nil {
			out = map[string]any{}
		}
		out["ok"] = true
		answer(w, http.StatusOK, out)
	}
}

// do carries out a method. The caller holds s.mu.
func (s *Slack) do(r *http.Request, method string, in map[string]any) (out map[string]any, problem string) {
	m := s.find(text(in, "channel"), text(in, "ts")+text(in, "timestamp"))
	switch method {
	case "auth.test":
		return map[string]any{"user_id": slackBot, "user": "junctor", "team": "Test"}, ""
	case "apps.connections.open":
		return map[string]any{"url": strings.Replace(s.URL(), "http", "ws", 1) + "/socket"}, ""
	case "users.conversations": // one on each page
		one, next := map[string]any{"id": s.Group(), "name": "ops"}, "2"
		if text(in, "cursor") == next {
			one, next = map[string]any{"id": "G1", "name": "mpdm-a-b", "is_mpim": true}, ""
		}
		return map[string]any{"channels": []any{one}, "response_metadata": map[string]any{"next_cursor": next}}, ""
	case "conversations.open":
		return map[string]any{"channel": map[string]any{"id": s.Direct(strings.TrimPrefix(text(in, "users"), "U"))}}, ""
	case "conversations.history", "conversations.replies":
		page := []any{}
		latest, oldest := text(in, "latest"), text(in, "oldest")
		for _, m := range s.history[text(in, "channel")] {
			if at := text(m, "ts"); (latest == "" || at < latest || at == latest && in["inclusive"] == true) && at >= oldest {
				page = append([]any{m}, page...)
			}
		}
		return map[string]any{"messages": page}, ""
	case "pins.list":
		items := []any{}
		for _, m := range s.history[text(in, "channel")] {
			if own := s.find(text(in, "channel"), text(m, "ts")); own != nil && own.Pinned {
				items = append(items, map[string]any{"message": m})
			}
		}
		return map[string]any{"items": items}, ""
	case "chat.postEphemeral":
		s.acks = append(s.acks, shown(in))
		return nil, ""
	case "files.getUploadURLExternal":
		file := s.id("F")
		s.names[file] = r.URL.Query().Get("filename")
		return map[string]any{"upload_url": s.URL() + "/upload/" + file, "file_id": file}, ""
	case "files.completeUploadExternal":
		list, _ := in["files"].([]any)
		for _, one := range list {
			file := text(one.(map[string]any), "id")
			s.put(&Message{ID: file, Conversation: text(in, "channel_id"), File: s.names[file], Data: s.uploaded[file]})
		}
		return nil, ""
	case "chat.postMessage":
		if shown(in) == "" {
			return nil, "no_text"
		}
		if len([]rune(shown(in))) > 3000 {
			return nil, "msg_blocks_too_long"
		}
		m := s.put(&Message{
			ID: s.id("1700000000.00"), Conversation: text(in, "channel"), Thread: text(in, "thread_ts"), Answers: text(in, "thread_ts"),
			Text: shown(in), Markdown: in["markdown_text"] != nil, Buttons: buttonData(in["blocks"], "value"),
		})
		s.history[m.Conversation] = append(s.history[m.Conversation], map[string]any{
			"type": "message", "user": slackBot, "bot_id": "B1", "text": m.Text, "ts": m.ID,
		})
		return map[string]any{"ts": m.ID, "channel": m.Conversation}, ""
	}
	if m == nil {
		return nil, "message_not_found"
	}
	switch method {
	case "chat.update":
		m.Text, m.Buttons = shown(in), buttonData(in["blocks"], "value")
		m.Edits++
	case "chat.delete":
		m.Deleted = true
	case "reactions.add":
		m.Reactions = append(m.Reactions, text(in, "name"))
	case "reactions.remove":
		m.Reactions = nil
	case "pins.add", "pins.remove":
		m.Pinned = method == "pins.add"
	default:
		return nil, "unknown_method"
	}
	return nil, ""
}

// shown returns the text of a message: of its first block, or its Markdown.
func shown(in map[string]any) string {
	if blocks, _ := in["blocks"].([]any); len(blocks) > 0 {
		return text(blocks[0].(map[string]any), "text", "text")
	}
	return text(in, "markdown_text")
}

// socket is one connection for events. What was not acknowledged comes again on the next one.
func (s *Slack) socket(w http.ResponseWriter, r *http.Request) {
	conn, ctx, cancel := accept(w, r)
	if conn == nil {
		return
	}
	defer cancel()
	write := func(v any) bool { return writeJSON(ctx, conn, v) }
	if !write(map[string]any{"type": "hello", "num_connections": 1}) {
		return
	}
	go func() { // acknowledgements; ends with the connection
		defer cancel()
		for {
			_, raw, err := conn.Read(ctx)
			var ack struct {
				ID string `json:"envelope_id"`
			}
			if err != nil || json.Unmarshal(raw, &ack) != nil {
				return
			}
			s.mu.Lock()
			for i, d := range s.pending {
				if d.id == ack.ID {
					s.pending = append(s.pending[:i:i], s.pending[i+1:]...)
					break
				}
			}
			s.mu.Unlock()
		}
	}()
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	sent := map[string]bool{}
	for {
		s.mu.Lock()
		over, changed, list := s.epoch != epoch, s.changed, s.pending
		s.mu.Unlock()
		for _, d := range list {
			if sent[d.id] {
				continue
			}
			if sent[d.id] = true; !write(d.doc) {
				return
			}
		}
		if over {
			write(map[string]any{"type": "disconnect", "reason": "refresh_requested"})
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
