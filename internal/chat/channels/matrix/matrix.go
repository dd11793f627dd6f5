// Package matrix is a chat service over Matrix's client-server API (v1.11): /sync in, requests
// out. Messages of encrypted rooms cannot be read. The usual library is not used, because a few
// requests of JSON are all that is needed of the API.
package matrix

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
)

const (
	pollTimeout = 25 * time.Second // that the service holds a /sync
	callTimeout = 30 * time.Second
	// onceTTL is how long a transaction id is taken as known. Homeservers keep them for half an hour
	// or longer.
	onceTTL   = 20 * time.Minute
	maxGap    = 100  // messages of a room that are requested after a gap
	maxRooms  = 1000 // whose size is remembered
	maxPinned = 100
	// maxJoins bounds the rooms that are entered after one /sync, and maxInvited those that wait for it.
	maxJoins   = 20
	maxInvited = 1000
	// maxPinsRead bounds the pinned messages that are read, each with a request.
	maxPinsRead = 20
	maxListed   = 50 // rooms of the directory
)

// Kind describes the service.
func Kind() channels.Kind {
	return channels.Kind{
		Name: "matrix", Label: "Matrix",
		Blurb: "Make a user for the bot on your homeserver, store its access token, and invite it to a room without encryption.",
		Actions: []capability.Action{
			"message.send", "message.reply", "message.edit", "message.delete", "message.react", "message.pin",
			"message.read", "message.pins.list", "message.attachment.fetch", "message.search",
		},
		Slash: "!", Direct: true, NoButtons: true, OnceTTL: onceTTL, MaxText: 16_000, MaxFile: 20 << 20, Rate: 5, NeedsURL: true,
		ID:    regexp.MustCompile(`^![^\s/?#%]+$`),
		Group: func(string) bool { return false }, // the limits are the same
		Open: func(s channels.Settings) (channels.Channel, error) {
			c := &channel{members: make(map[string]int)}
			c.REST = channels.REST{
				Client: channels.NewClient(), Base: strings.TrimSuffix(s.Account.URL, "/") + "/_matrix", Service: "the homeserver",
				Account: s.Account,
				Header: func() (http.Header, error) {
					token, err := s.Secret()
					return http.Header{"Authorization": {"Bearer " + token.Reveal()}}, err
				},
				Refusal: func(answer []byte) string {
					var said struct {
						Code string `json:"errcode"`
						Text string `json:"error"`
					}
					_ = json.Unmarshal(answer, &said) // the status counts then
					return strings.TrimSpace(said.Text + " " + said.Code)
				},
			}
			return c, nil
		},
	}
}

// channel is one user of a homeserver. members and invited are used by Run only.
type channel struct {
	channels.REST
	members map[string]int // of rooms
	invited []string       // rooms that are to be entered
}

// event is an event of a room.
type event struct {
	ID      string  `json:"event_id"`
	Type    string  `json:"type"`
	Sender  string  `json:"sender"`
	Key     *string `json:"state_key"`
	Time    int64   `json:"origin_server_ts"` // milliseconds
	Content struct {
		Kind     string `json:"msgtype"`
		Body     string `json:"body"`
		File     string `json:"filename"`
		URL      string `json:"url"`
		Mentions struct {
			Users []string `json:"user_ids"`
		} `json:"m.mentions"`
		Info struct {
			Size int64 `json:"size"`
		} `json:"info"`
		Relates struct {
			Kind    string `json:"rel_type"`
			Event   string `json:"event_id"`
			Falls   bool   `json:"is_falling_back"`
			Answers struct {
				Event string `json:"event_id"`
			} `json:"m.in_reply_to"`
		} `json:"m.relates_to"`
	} `json:"content"`
}

// joined is what a /sync has about a room that the user is in.
type joined struct {
	Timeline struct {
		Events  []event `json:"events"`
		Limited bool    `json:"limited"` // earlier ones are left out
		Before  string  `json:"prev_batch"`
	} `json:"timeline"`
}

// Run implements [channels.Channel]. The cursor is the token of /sync.
func (c *channel) Run(ctx context.Context, cursor string, connected func(string), receive channels.Receive) error {
	var me struct {
		User string `json:"user_id"`
	}
	if err := c.ask(ctx, callTimeout, http.MethodGet, "/client/v3/account/whoami", nil, &me); err != nil {
		return err
	}
	connected(me.User)
	for ctx.Err() == nil {
		next, list, err := c.sync(ctx, cursor, me.User)
		if err != nil {
			return err
		}
		if next != cursor {
			if err := receive(ctx, next, list); err != nil {
				return err
			}
		}
		cursor = next
	}
	return ctx.Err()
}

// ask makes a request whose lost answer has no consequence.
func (c *channel) ask(ctx context.Context, timeout time.Duration, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.Reading(c.Call(ctx, method, path, in, nil, out))
}

// sync waits for events after a cursor. Without a cursor it returns the one of now and no events.
func (c *channel) sync(ctx context.Context, cursor, me string) (next string, list []channels.Update, err error) {
	query := url.Values{"timeout": {"0"}, "filter": {`{"presence":{"not_types":["*"]},"account_data":{"not_types":["*"]},"room":{"timeline":{"limit":50},` +
		`"state":{"not_types":["*"]},"ephemeral":{"not_types":["*"]},"account_data":{"not_types":["*"]}}}`}}
	if cursor != "" {
		query.Set("since", cursor)
		query.Set("timeout", strconv.Itoa(int(pollTimeout/time.Millisecond)))
	}
	var got struct {
		Next  string `json:"next_batch"`
		Rooms struct {
			Join   map[string]joined          `json:"join"`
			Invite map[string]json.RawMessage `json:"invite"`
		} `json:"rooms"`
	}
	if err := c.ask(ctx, pollTimeout+callTimeout, http.MethodGet, "/client/v3/sync?"+query.Encode(), nil, &got); err != nil {
		return "", nil, err
	}
	for room := range got.Rooms.Invite {
		if len(c.invited) < maxInvited {
			c.invited = append(c.invited, room)
		}
	}
	joins := c.invited[:min(len(c.invited), maxJoins)]
	c.invited = c.invited[len(joins):]
	for _, room := range joins {
		err := c.ask(ctx, callTimeout, http.MethodPost, "/client/v3/join/"+url.PathEscape(room), map[string]any{}, nil)
		if e := capability.AsError(err); e != nil && e.Code != capability.CodeFailed { // one that was withdrawn does not matter
			return "", nil, err
		}
	}
	if cursor == "" {
		return got.Next, nil, nil
	}
	for room, of := range got.Rooms.Join {
		events := of.Timeline.Events
		entered := slices.IndexFunc(events, func(e event) bool { return e.Type == "m.room.member" && e.Key != nil && *e.Key == me })
		switch {
		case entered >= 0: // what was written before the invitation is not for us
			events = events[entered:]
		case of.Timeline.Limited:
			earlier, err := c.gap(ctx, room, of.Timeline.Before, cursor)
			if err != nil {
				return "", nil, err
			}
			events = append(earlier, events...)
		}
		for _, e := range events {
			if e.Type == "m.room.member" {
				delete(c.members, room) // it is asked for again
			}
			if u, ok := e.convert(room, me); ok {
				if err := c.place(ctx, &u); err != nil {
					return "", nil, err
				}
				list = append(list, u)
			}
		}
	}
	return got.Next, list, nil
}

// gap returns the events of a room between two points, the newest maxGap if there are more.
func (c *channel) gap(ctx context.Context, room, before, after string) ([]event, error) {
	var page struct {
		Chunk []event `json:"chunk"` // the newest first
	}
	query := url.Values{"dir": {"b"}, "from": {before}, "to": {after}, "limit": {strconv.Itoa(maxGap)}}
	err := c.ask(ctx, callTimeout, http.MethodGet, c.room(room, "messages")+"?"+query.Encode(), nil, &page)
	slices.Reverse(page.Chunk)
	return page.Chunk, err
}

// place decides whether a conversation is one with a single person.
func (c *channel) place(ctx context.Context, u *channels.Update) error {
	n, ok := c.members[u.Conversation]
	if !ok {
		var got struct {
			Joined map[string]json.RawMessage `json:"joined"`
		}
		err := c.ask(ctx, callTimeout, http.MethodGet, c.room(u.Conversation, "joined_members"), nil, &got)
		if e := capability.AsError(err); e != nil && e.Code != capability.CodeFailed { // otherwise the user has left the room
			return err
		}
		if len(c.members) >= maxRooms {
			clear(c.members)
		}
		n = len(got.Joined)
		c.members[u.Conversation] = n
	}
	if n == 2 {
		u.ConversationKind, u.ToMe = "dm", true
	}
	return nil
}

func (c *channel) room(id, rest string) string {
	return "/client/v3/rooms/" + url.PathEscape(id) + "/" + rest
}

// convert returns an update of a group; ok is false for an event that is not a person's message.
func (e *event) convert(room, me string) (out channels.Update, ok bool) {
	m := &e.Content
	if e.Type != "m.room.message" || e.ID == "" || e.Sender == "" || e.Sender == me || m.Relates.Kind == "m.replace" {
		return out, false
	}
	out = channels.Update{
		ID: e.ID, Kind: channels.Wrote, Conversation: room, ConversationKind: "group", Message: e.ID, User: e.Sender, UserName: e.Sender,
	}
	switch m.Kind {
	case "m.text":
		out.Text = m.Body
	case "m.file", "m.image", "m.video", "m.audio":
		out.Files = []channels.File{{Name: cmp.Or(m.File, m.Body), Size: m.Info.Size}}
		if m.File != "" && m.File != m.Body {
			out.Text = m.Body
		}
	default: // notices of bots, and kinds that are not known
		return out, false
	}
	if m.Relates.Kind == "m.thread" {
		out.Thread = m.Relates.Event
	}
	if m.Relates.Answers.Event != "" && !m.Relates.Falls && strings.HasPrefix(out.Text, "> ") { // older clients repeat what they answer
		if _, rest, found := strings.Cut(out.Text, "\n\n"); found {
			out.Text = rest
		}
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(me, "@"), ":")
	first, rest, _ := strings.Cut(out.Text, " ")
	addressed := strings.TrimRight(first, ":,")
	if addressed == me || strings.EqualFold(strings.TrimPrefix(addressed, "@"), name) {
		out.Text, out.ToMe = strings.TrimSpace(rest), true
	}
	out.ToMe = out.ToMe || slices.Contains(m.Mentions.Users, me)
	return out, out.Text != "" || len(out.Files) > 0
}

// Read implements [channels.Reader].
func (c *channel) Read(ctx context.Context, conversation, before string, pinned bool, limit int) ([]channels.Message, error) {
	var list []event
	if pinned {
		ids, err := c.pinned(ctx, conversation)
		if err != nil {
			return nil, err
		}
		for _, id := range ids[max(0, len(ids)-min(limit, maxPinsRead)):] {
			e, err := c.event(ctx, conversation, id)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		slices.Reverse(list)
	} else {
		query := url.Values{"dir": {"b"}, "limit": {strconv.Itoa(limit)}, "filter": {`{"types":["m.room.message"]}`}}
		if before != "" {
			var around struct {
				Start string `json:"start"`
			}
			at := c.room(conversation, "context/"+url.PathEscape(before)+"?limit=0")
			if err := c.ask(ctx, callTimeout, http.MethodGet, at, nil, &around); err != nil {
				return nil, err
			}
			query.Set("from", around.Start)
		}
		var page struct {
			Chunk []event `json:"chunk"`
		}
		if err := c.ask(ctx, callTimeout, http.MethodGet, c.room(conversation, "messages?"+query.Encode()), nil, &page); err != nil {
			return nil, err
		}
		list = page.Chunk
	}
	var out []channels.Message
	for _, e := range list {
		if m, ok := e.message(); ok {
			out = append(out, m)
		}
	}
	return out, nil
}

// message returns the message that an event is; ok is false for other events.
func (e *event) message() (one channels.Message, ok bool) {
	m := &e.Content
	if e.Type != "m.room.message" || m.Relates.Kind == "m.replace" {
		return one, false
	}
	one = channels.Message{ID: e.ID, User: e.Sender, UserName: e.Sender, Text: m.Body, At: time.UnixMilli(e.Time)}
	if m.Relates.Kind == "m.thread" {
		one.Thread = m.Relates.Event
	}
	if m.URL != "" {
		one.Files = []channels.File{{Name: cmp.Or(m.File, m.Body), Size: m.Info.Size}}
	}
	return one, true
}

func (c *channel) event(ctx context.Context, room, id string) (e event, err error) {
	err = c.ask(ctx, callTimeout, http.MethodGet, c.room(room, "event/"+url.PathEscape(id)), nil, &e)
	return e, err
}

// Fetch implements [channels.Reader].
func (c *channel) Fetch(ctx context.Context, conversation, message string, index, limit int) (channels.File, error) {
	e, err := c.event(ctx, conversation, message)
	if err != nil {
		return channels.File{}, err
	}
	at, ok := strings.CutPrefix(e.Content.URL, "mxc://")
	server, media, cut := strings.Cut(at, "/")
	if !ok || !cut || index > 0 {
		return channels.File{}, channels.NoAttachment(index)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	data, err := c.Download(ctx, c.Base+"/client/v1/media/download/"+url.PathEscape(server)+"/"+url.PathEscape(media), nil, true, limit)
	return channels.File{Name: cmp.Or(e.Content.File, e.Content.Body), Size: int64(len(data)), Data: data}, err
}

// Private implements [channels.Fetcher].
func (c *channel) Private(ctx context.Context, conversation string) (bool, error) {
	var got struct {
		Joined map[string]json.RawMessage `json:"joined"`
	}
	err := c.ask(ctx, callTimeout, http.MethodGet, c.room(conversation, "joined_members"), nil, &got)
	return len(got.Joined) <= 2, err
}

// Places implements [channels.Lister]. The name of each of the first maxListed rooms is asked for.
func (c *channel) Places(ctx context.Context) (list []channels.Place, err error) {
	var joined struct {
		Rooms []string `json:"joined_rooms"`
	}
	if err := c.ask(ctx, callTimeout, http.MethodGet, "/client/v3/joined_rooms", nil, &joined); err != nil {
		return nil, err
	}
	for _, room := range joined.Rooms[:min(len(joined.Rooms), maxListed)] {
		var named struct {
			Name string `json:"name"`
		}
		err := c.ask(ctx, callTimeout, http.MethodGet, c.room(room, "state/m.room.name/"), nil, &named)
		if capability.CodeOf(err) == capability.CodeUnavailable {
			return nil, err
		}
		list = append(list, channels.Place{ID: room, Name: cmp.Or(named.Name, room), Group: named.Name == ""})
	}
	return list, nil
}

// Search implements [channels.Searcher].
func (c *channel) Search(ctx context.Context, query string, limit int) ([]channels.Found, error) {
	var found struct {
		Categories struct {
			Events struct {
				Results []struct {
					Event struct {
						event
						Room string `json:"room_id"`
					} `json:"result"`
				} `json:"results"`
			} `json:"room_events"`
		} `json:"search_categories"`
	}
	in := map[string]any{"search_categories": map[string]any{"room_events": map[string]any{
		"search_term": query, "keys": []string{"content.body"}, "order_by": "recent",
		"filter": map[string]any{"limit": limit, "types": []string{"m.room.message"}},
	}}}
	if err := c.ask(ctx, callTimeout, http.MethodPost, "/client/v3/search", in, &found); err != nil {
		return nil, err
	}
	var out []channels.Found
	for _, r := range found.Categories.Events.Results {
		if m, ok := r.Event.message(); ok && len(out) < limit {
			out = append(out, channels.Found{Message: m, Conversation: r.Event.Room})
		}
	}
	return out, nil
}

// Do implements [channels.Channel]. A repeated operation has the same transaction id.
func (c *channel) Do(ctx context.Context, op channels.Op) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sum := sha256.Sum256([]byte(op.Key))
	transaction := hex.EncodeToString(sum[:16])
	put := func(kind string, content map[string]any) (string, error) {
		var sent struct {
			ID string `json:"event_id"`
		}
		err := c.Call(ctx, http.MethodPut, c.room(op.Conversation, "send/"+kind+"/"+transaction), content, nil, &sent)
		return sent.ID, err
	}
	switch op.Verb {
	case channels.VerbSend:
		content := words(op)
		if op.File != nil {
			var stored struct {
				URI string `json:"content_uri"`
			}
			to := "/media/v3/upload?" + url.Values{"filename": {op.File.Name}}.Encode()
			if err := c.Upload(ctx, http.MethodPost, to, "application/octet-stream", op.File.Data, &stored); err != nil {
				return "", c.Reading(err)
			}
			content = map[string]any{"msgtype": "m.file", "body": op.File.Name, "url": stored.URI, "info": map[string]any{"size": len(op.File.Data)}}
		}
		switch {
		case op.Thread != "":
			content["m.relates_to"] = map[string]any{
				"rel_type": "m.thread", "event_id": op.Thread, "is_falling_back": op.Message == "",
				"m.in_reply_to": map[string]any{"event_id": cmp.Or(op.Message, op.Thread)},
			}
		case op.Message != "":
			content["m.relates_to"] = map[string]any{"m.in_reply_to": map[string]any{"event_id": op.Message}}
		}
		return put("m.room.message", content)
	case channels.VerbEdit:
		_, err := put("m.room.message", map[string]any{
			"msgtype": "m.text", "body": "* " + op.Text, "m.mentions": map[string]any{}, "m.new_content": words(op),
			"m.relates_to": map[string]any{"rel_type": "m.replace", "event_id": op.Message},
		})
		return op.Message, err
	case channels.VerbDelete:
		return op.Message, c.redact(ctx, op.Conversation, op.Message, transaction)
	case channels.VerbReact:
		if op.Remove {
			return op.Message, c.unreact(ctx, op, transaction)
		}
		_, err := put("m.reaction", map[string]any{
			"m.relates_to": map[string]any{"rel_type": "m.annotation", "event_id": op.Message, "key": op.Emoji},
		})
		return op.Message, err
	case channels.VerbPin, channels.VerbUnpin:
		return op.Message, c.pin(ctx, op)
	case channels.VerbOpen:
		var made struct {
			ID string `json:"room_id"`
		}
		err := c.Call(ctx, http.MethodPost, "/client/v3/createRoom", map[string]any{
			"preset": "trusted_private_chat", "is_direct": true, "invite": []string{op.Conversation},
		}, nil, &made)
		return made.ID, err
	}
	return "", nil // the acknowledgement of a press: the service has no buttons
}

func (c *channel) redact(ctx context.Context, room, event, transaction string) error {
	return c.Call(ctx, http.MethodPut, c.room(room, "redact/"+url.PathEscape(event)+"/"+transaction), map[string]any{}, nil, nil)
}

// unreact removes the user's own reaction from a message.
func (c *channel) unreact(ctx context.Context, op channels.Op, transaction string) error {
	var me struct {
		User string `json:"user_id"`
	}
	if err := c.Call(ctx, http.MethodGet, "/client/v3/account/whoami", nil, nil, &me); err != nil {
		return err
	}
	var page struct {
		Chunk []struct {
			ID      string `json:"event_id"`
			Sender  string `json:"sender"`
			Content struct {
				Relates struct {
					Key string `json:"key"`
				} `json:"m.relates_to"`
			} `json:"content"`
		} `json:"chunk"`
	}
	at := "/client/v1/rooms/" + url.PathEscape(op.Conversation) + "/relations/" + url.PathEscape(op.Message) +
		"/m.annotation/m.reaction?limit=100"
	if err := c.Call(ctx, http.MethodGet, at, nil, nil, &page); err != nil {
		return err
	}
	for _, r := range page.Chunk {
		if r.Sender == me.User && r.Content.Relates.Key == op.Emoji {
			return c.redact(ctx, op.Conversation, r.ID, transaction)
		}
	}
	return nil
}

// pinned returns the ids of the pinned messages, which are a state of the room.
func (c *channel) pinned(ctx context.Context, room string) ([]string, error) {
	var state struct {
		Pinned []string `json:"pinned"`
	}
	err := c.ask(ctx, callTimeout, http.MethodGet, c.room(room, "state/m.room.pinned_events/"), nil, &state)
	if e := capability.AsError(err); e != nil && e.Code == capability.CodeFailed {
		err = nil // a room without pins has no such state
	}
	return state.Pinned, err
}

// pin changes the list of pinned messages.
func (c *channel) pin(ctx context.Context, op channels.Op) error {
	list, err := c.pinned(ctx, op.Conversation)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(id string) bool { return id == op.Message })
	if op.Verb == channels.VerbPin {
		list = append(list, op.Message)
	}
	at := c.room(op.Conversation, "state/m.room.pinned_events/")
	return c.Call(ctx, http.MethodPut, at, map[string]any{"pinned": list[max(0, len(list)-maxPinned):]}, nil, nil)
}

// words returns the content of a message, with its styles if it has some.
func words(op channels.Op) map[string]any {
	content := map[string]any{"msgtype": "m.text", "body": op.Text, "m.mentions": map[string]any{}}
	if op.Markdown {
		if shown := channels.HTML(op.Text, "<br>"); shown != "" {
			content["format"], content["formatted_body"] = "org.matrix.custom.html", shown
		}
	}
	return content
}
