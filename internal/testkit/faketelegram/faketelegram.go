// Package faketelegram is Telegram's Bot API on loopback, in its published wire format, with
// faults: rate limits, lost connections, duplicate and reordered updates, and answers that are cut
// after the message was accepted.
package faketelegram

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BotID and BotName are the bot's own id and name.
const (
	BotID   = 4200
	BotName = "junctor_test_bot"
)

// Fault is what happens to one request instead of, or after, its answer.
type Fault struct {
	Status     int  // an error of this code is answered
	RetryAfter int  // of status 429, in seconds
	Drop       bool // the connection ends before the request is carried out
	Cut        bool // the connection ends after the request was carried out
}

// Message is a message that the bot sent.
type Message struct {
	ID       int
	Chat     int64
	Thread   int
	Text     string
	Styled   string   // the text with its tags, as it was sent; "" without a mode
	Buttons  []string // data of the buttons
	File     string   // name of the document
	Data     string   // content of the document
	Edits    int
	Reaction string
	Deleted  bool
	At       time.Time
}

// Server is the service for one bot.
type Server struct {
	*httptest.Server
	mu       sync.Mutex
	token    string
	next     int64
	updates  []update
	messages map[int]*Message
	acks     []string
	faults   func(method string, n int) Fault
	shuffle  func([]json.RawMessage) []json.RawMessage
	calls    map[string]int
	changed  chan struct{}
	polling  int
	closed   chan struct{}
}

type update struct {
	id  int64
	doc json.RawMessage
}

// New starts a service that accepts a token, until the test ends.
func New(t testing.TB, token string) *Server {
	t.Helper()
	s := &Server{
		token: token, next: 1000, messages: make(map[int]*Message), calls: make(map[string]int), changed: make(chan struct{}),
		closed: make(chan struct{}),
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		close(s.closed)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Fail sets what happens to the n-th request of each method, from 0.
func (s *Server) Fail(f func(method string, n int) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Shuffle sets a function that returns the batch that is delivered instead of one. It may reorder and
// repeat updates, but loses none: the service counts those below the next offset as received.
func (s *Server) Shuffle(f func([]json.RawMessage) []json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shuffle = f
}

// Revoke replaces the accepted token.
func (s *Server) Revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// Deliver adds an update with the given content and returns its id. update_id is set if it is missing.
func (s *Server) Deliver(content map[string]any) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := content["update_id"].(int64)
	if !ok {
		s.next++
		id = s.next
	}
	content = maps.Clone(content)
	content["update_id"] = id
	doc, err := json.Marshal(content)
	if err != nil {
		panic(err) // the test's own value
	}
	s.updates = append(s.updates, update{id, doc})
	s.wake()
	return id
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// User is a user as the service describes it.
func User(id int64) map[string]any {
	return map[string]any{"id": id, "is_bot": false, "first_name": fmt.Sprintf("User %d", id)}
}

func chat(id int64) map[string]any {
	if id > 0 {
		return map[string]any{"id": id, "type": "private"}
	}
	return map[string]any{"id": id, "type": "supergroup", "title": "a group"}
}

// Write delivers a message of a user in a chat. more are further members of the message.
func (s *Server) Write(chatID, user int64, text string, more ...map[string]any) int64 {
	s.mu.Lock()
	s.next++
	id := s.next
	s.mu.Unlock()
	m := map[string]any{"message_id": id, "date": time.Now().Unix(), "chat": chat(chatID), "from": User(user), "text": text}
	for _, one := range more {
		maps.Copy(m, one)
	}
	return s.Deliver(map[string]any{"message": m})
}

// Press delivers the press of a button below a message.
func (s *Server) Press(chatID, user int64, message int, data string) int64 {
	return s.Deliver(map[string]any{"callback_query": map[string]any{
		"id": fmt.Sprintf("q%d", time.Now().UnixNano()), "from": User(user), "chat_instance": "1", "data": data,
		"message": map[string]any{
			"message_id": message, "date": 1, "chat": chat(chatID), "from": map[string]any{"id": BotID, "is_bot": true, "first_name": "J"},
		},
	}})
}

// Sent returns what the bot has sent, in order.
func (s *Server) Sent() (list []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.messages)) {
		list = append(list, *s.messages[id])
	}
	return list
}

// Acks returns the texts with which presses were acknowledged.
func (s *Server) Acks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acks)
}

// Polling reports whether a poll is open.
func (s *Server) Polling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polling > 0
}

// control lets a shell act as the user 71: the parameter write is a message, press the data of a
// button below the last message that has buttons.
func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	const user = 71
	if text := r.FormValue("write"); text != "" {
		s.Write(user, user, strings.TrimSpace(text))
		return
	}
	for _, m := range slices.Backward(s.Sent()) {
		if len(m.Buttons) > 0 {
			s.Press(user, user, m.ID, r.FormValue("press"))
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/control" {
		s.control(w, r)
		return
	}
	s.mu.Lock()
	files := "/file/bot" + s.token + "/documents/"
	s.mu.Unlock()
	if name, ok := strings.CutPrefix(r.URL.Path, files); ok {
		fmt.Fprintf(w, "content of %s", name)
		return
	}
	rest, _ := strings.CutPrefix(r.URL.Path, "/bot")
	token, method, _ := strings.Cut(rest, "/")
	params, documents, err := arguments(r)
	if err != nil {
		fail(w, Fault{Status: http.StatusBadRequest}, "Bad Request: "+err.Error())
		return
	}
	s.mu.Lock()
	n := s.calls[method]
	s.calls[method]++
	var f Fault
	if s.faults != nil {
		f = s.faults(method, n)
	}
	known := token == s.token
	s.mu.Unlock()
	switch {
	case !known:
		fail(w, Fault{Status: http.StatusUnauthorized}, "Unauthorized")
		return
	case f.Drop:
		drop(w)
		return
	case f.Status != 0:
		fail(w, f, http.StatusText(f.Status))
		return
	}
	if method == "getUpdates" {
		s.poll(w, r, params)
		return
	}
	result, problem := s.do(method, params, documents)
	switch {
	case problem != "":
		fail(w, Fault{Status: http.StatusBadRequest}, "Bad Request: "+problem)
	case f.Cut:
		drop(w)
	default:
		answer(w, result)
	}
}

// arguments reads the parameters of a request in JSON or as a form, as the service accepts both.
func arguments(r *http.Request) (params map[string]string, files map[string][2]string, err error) {
	params, files = map[string]string{}, map[string][2]string{}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "application/json" {
		var in map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return nil, nil, err
		}
		for k, v := range in {
			params[k] = strings.Trim(string(v), `"`)
		}
		return params, files, nil
	}
	if kind != "multipart/form-data" {
		return params, files, nil
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, nil, err
	}
	for {
		p, err := parts.NextPart()
		if errors.Is(err, io.EOF) || err != nil && len(params) == 0 { // some clients send a form without its end
			return params, files, nil
		}
		if err != nil {
			return nil, nil, err
		}
		data, err := io.ReadAll(p)
		if err != nil {
			return nil, nil, err
		}
		if p.FileName() != "" {
			files[p.FormName()] = [2]string{p.FileName(), string(data)}
		} else {
			params[p.FormName()] = string(data)
		}
	}
}

var tag = regexp.MustCompile(`<[^>]*>`)

// parsed returns the text of HTML with tags of those that the service accepts.
func parsed(styled string) (text, problem string) {
	for _, one := range tag.FindAllString(styled, -1) {
		if !slices.Contains([]string{"b", "i", "code", "pre", "blockquote"}, strings.Trim(one, "</>")) {
			return "", "can't parse entities: unsupported start tag"
		}
	}
	return html.UnescapeString(tag.ReplaceAllString(styled, "")), ""
}

func answer(w http.ResponseWriter, result any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"ok": true, "result": result})
}

func fail(w http.ResponseWriter, f Fault, said string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	doc := map[string]any{"ok": false, "error_code": f.Status, "description": said}
	if f.RetryAfter > 0 {
		doc["parameters"] = map[string]any{"retry_after": f.RetryAfter}
	}
	_ = json.NewEncoder(w).Encode(doc)
}

func drop(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

// poll waits for updates from an offset on; those before it are confirmed and forgotten.
func (s *Server) poll(w http.ResponseWriter, r *http.Request, params map[string]string) {
	offset, _ := strconv.ParseInt(params["offset"], 10, 64)
	limit, _ := strconv.Atoi(params["limit"])
	seconds, _ := strconv.Atoi(params["timeout"])
	deadline := time.NewTimer(time.Duration(seconds) * time.Second)
	defer deadline.Stop()
	s.mu.Lock()
	s.polling++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.polling--
		s.mu.Unlock()
	}()
	for {
		s.mu.Lock()
		s.updates = slices.DeleteFunc(s.updates, func(u update) bool { return u.id < offset })
		list := []json.RawMessage{}
		for _, u := range s.updates {
			if len(list) < max(limit, 1) {
				list = append(list, u.doc)
			}
		}
		if s.shuffle != nil {
			list = s.shuffle(list)
		}
		changed := s.changed
		s.mu.Unlock()
		if len(list) > 0 {
			answer(w, list)
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			answer(w, list)
			return
		case <-r.Context().Done():
			return
		case <-s.closed:
			return
		}
	}
}

// do carries out a method.
func (s *Server) do(method string, params map[string]string, files map[string][2]string) (result any, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	chatID, err := strconv.ParseInt(params["chat_id"], 10, 64)
	id, _ := strconv.Atoi(params["message_id"])
	of := s.messages[id]
	switch method {
	case "getMe":
		return map[string]any{"id": BotID, "is_bot": true, "first_name": "Junctor", "username": BotName}, ""
	case "getFile":
		return map[string]any{"file_id": params["file_id"], "file_unique_id": "u", "file_path": "documents/" + params["file_id"] + ".txt"}, ""
	case "answerCallbackQuery":
		s.acks = append(s.acks, params["text"])
		return true, ""
	case "sendMessage", "sendDocument":
		if err != nil {
			return nil, "chat not found"
		}
		if params["text"] == "" && method == "sendMessage" {
			return nil, "message text is empty"
		}
		styled := ""
		if params["parse_mode"] != "" {
			styled = params["text"]
			if params["text"], problem = parsed(styled); problem != "" {
				return nil, problem
			}
		}
		if len([]rune(params["text"])) > 4096 {
			return nil, "message is too long"
		}
		s.next++
		m := &Message{ID: int(s.next), Chat: chatID, Text: params["text"], Buttons: buttonsOf(params["reply_markup"]), At: time.Now()}
		m.Styled = styled
		m.Thread, _ = strconv.Atoi(params["message_thread_id"])
		m.File, m.Data = files["document"][0], files["document"][1]
		for _, f := range files { // the field is named as its attach:// reference
			m.File, m.Data = f[0], f[1]
		}
		s.messages[m.ID] = m
		return map[string]any{"message_id": m.ID, "date": m.At.Unix(), "chat": chat(chatID), "text": m.Text}, ""
	}
	if of == nil || of.Deleted || of.Chat != chatID {
		return nil, "message to edit not found"
	}
	switch method {
	case "editMessageText":
		if params["parse_mode"] != "" {
			params["text"], _ = parsed(params["text"])
		}
		if of.Text == params["text"] {
			return nil, "message is not modified"
		}
		of.Text, of.Buttons = params["text"], buttonsOf(params["reply_markup"])
		of.Edits++
		return map[string]any{"message_id": of.ID, "date": 1, "chat": chat(chatID), "text": of.Text}, ""
	case "deleteMessage":
		of.Deleted = true
	case "setMessageReaction":
		of.Reaction = params["reaction"]
	case "pinChatMessage", "unpinChatMessage":
	default:
		return nil, "no such method"
	}
	return true, ""
}

func buttonsOf(markup string) (list []string) {
	var k struct {
		Rows [][]struct {
			Data string `json:"callback_data"`
		} `json:"inline_keyboard"`
	}
	_ = json.Unmarshal([]byte(markup), &k)
	for _, row := range k.Rows {
		for _, b := range row {
			list = append(list, b.Data)
		}
	}
	return list
}
