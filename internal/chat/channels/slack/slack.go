// Package slack is a chat service over Slack's Web API and its Socket Mode, for which a server needs
// no address that Slack can reach. The dozen methods in use are called directly: the usual library
// brings a second WebSocket implementation.
package slack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
)

const (
	publicURL   = "https://slack.com/api"
	callTimeout = 30 * time.Second
	// cursor is constant: Slack itself repeats what was not acknowledged.
	cursor = "socket"
)

// Kind describes the service.
func Kind() channels.Kind {
	return channels.Kind{
		Name: "slack", Label: "Slack",
		Blurb: "Make an app with Socket Mode in Slack's app settings, and store its bot token and its app-level token in one secret, " +
			"with a space between them.",
		Actions: []capability.Action{
			"message.send", "message.reply", "message.edit", "message.delete", "message.react", "message.pin",
			"message.read", "message.pins.list", "message.attachment.fetch",
		},
		Slash: "!", Direct: true, MaxText: 3000, MaxFile: 50 << 20, Rate: 20, Pause: time.Second, GroupPause: time.Second,
		ID:    regexp.MustCompile(`^[A-Z][A-Z0-9]{1,20}$`),
		Group: func(conversation string) bool { return !strings.HasPrefix(conversation, "D") },
		Open: func(s channels.Settings) (channels.Channel, error) {
			c := &channel{settings: s}
			c.web = c.api("xoxb-")
			c.app = c.api("xapp-")
			return c, nil
		},
	}
}

// channel is one app in one workspace.
type channel struct {
	settings channels.Settings
	web, app channels.REST // with the bot's token, and with that of the app
}

// api returns the API with the token of the account that has a prefix.
func (c *channel) api(prefix string) channels.REST {
	return channels.REST{
		Client: channels.NewClient(), Base: strings.TrimSuffix(cmp.Or(c.settings.Account.URL, publicURL), "/"), Service: "Slack",
		Account: c.settings.Account,
		Header: func() (http.Header, error) {
			stored, err := c.settings.Secret()
			if err != nil {
				return nil, err
			}
			for _, token := range strings.Fields(stored.Reveal()) {
				if strings.HasPrefix(token, prefix) {
					return http.Header{"Authorization": {"Bearer " + token}}, nil
				}
			}
			return nil, errors.New("the secret has no token that begins with " + prefix)
		},
	}
}

// call calls a method. An answer that is not ok becomes an error of [channels.Channel].
func (c *channel) call(ctx context.Context, api *channels.REST, method string, in, out any) error {
	var raw json.RawMessage
	if err := api.Call(ctx, http.MethodPost, "/"+method, in, nil, &raw); err != nil {
		return err
	}
	var answer struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	if json.Unmarshal(raw, &answer) != nil || answer.OK && out != nil && json.Unmarshal(raw, out) != nil {
		return channels.DeliveryUnknown(errors.New("the answer cannot be read"))
	}
	switch answer.Error {
	case "":
	case "invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type":
		return api.Unauthorized()
	case "internal_error", "fatal_error", "service_unavailable", "request_timeout":
		return channels.DeliveryUnknown(errors.New("the service answered " + answer.Error))
	case "ratelimited", "rate_limited":
		e := capability.Errorf(capability.CodeOverloaded, "slack", "Slack takes no more messages now")
		e.RetryAfter = time.Second
		return e
	case "already_reacted", "no_reaction", "already_pinned", "no_pin", "not_pinned":
		return nil
	}
	if !answer.OK {
		return capability.Errorf(capability.CodeFailed, "slack", "Slack refused the request: %.200s", answer.Error).With("refused_by_service", "")
	}
	return nil
}

// Run implements [channels.Channel]. An envelope is acknowledged after its updates are stored.
func (c *channel) Run(ctx context.Context, _ string, connected func(string), receive channels.Receive) error {
	asked, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var me struct {
		User string `json:"user_id"`
		Name string `json:"user"`
		Team string `json:"team"`
	}
	if err := c.call(asked, &c.web, "auth.test", map[string]any{}, &me); err != nil {
		return c.web.Reading(err)
	}
	var found struct {
		URL string `json:"url"`
	}
	if err := c.call(asked, &c.app, "apps.connections.open", map[string]any{}, &found); err != nil {
		return c.app.Reading(err)
	}
	socket, err := c.app.Dial(ctx, found.URL, nil)
	if err != nil {
		return err
	}
	defer socket.Close()
	done := make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	go func() { // ends with ctx
		defer close(done)
		socket.KeepAlive(ctx)
	}()
	defer func() { <-done }()
	defer stop()
	lost := func(cause error) error {
		return capability.Wrap(capability.CodeUnavailable, "slack", "the connection to Slack was lost", cause)
	}
	for {
		var e envelope
		select {
		case data := <-socket.Frames:
			if json.Unmarshal(data, &e) != nil {
				continue // one that we cannot read must not stop the others
			}
		case err := <-socket.Failed:
			return lost(err)
		case <-ctx.Done():
			return ctx.Err()
		}
		switch e.Type {
		case "hello":
			connected(me.Name + " in " + me.Team)
			continue
		case "disconnect":
			return capability.Errorf(capability.CodeUnavailable, "slack", "Slack requested a new connection")
		}
		if u, ok := e.convert(me.User); ok {
			if err := receive(ctx, cursor, []channels.Update{u}); err != nil {
				return err
			}
		}
		if e.ID != "" {
			if err := socket.Write(ctx, map[string]string{"envelope_id": e.ID}); err != nil {
				return lost(err)
			}
		}
	}
}

// envelope is one frame of Socket Mode.
type envelope struct {
	ID      string `json:"envelope_id"`
	Type    string `json:"type"`
	Payload struct {
		Event *event `json:"event"` // of events_api

		Kind      string `json:"type"` // of interactive
		User      person `json:"user"`
		Container struct {
			Channel string `json:"channel_id"`
			Message string `json:"message_ts"`
		} `json:"container"`
		Actions []struct {
			Value string `json:"value"`
			At    string `json:"action_ts"`
		} `json:"actions"`
	} `json:"payload"`
}

type person struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// event is a message.
type event struct {
	Type        string `json:"type"`
	Subtype     string `json:"subtype"`
	Channel     string `json:"channel"`
	ChannelKind string `json:"channel_type"`
	User        string `json:"user"`
	Bot         string `json:"bot_id"`
	Text        string `json:"text"`
	Time        string `json:"ts"`
	Thread      string `json:"thread_ts"`
	ParentUser  string `json:"parent_user_id"`
	Files       []struct {
		Name string `json:"name"`
		Size int64  `json:"size"`
		URL  string `json:"url_private"`
	} `json:"files"`
	Attachments []struct {
		Shared bool `json:"is_share"` // a message of another conversation
	} `json:"attachments"`
}

// convert returns an update; ok is false for an envelope that has no meaning here.
func (e *envelope) convert(me string) (out channels.Update, ok bool) {
	p := &e.Payload
	if e.Type == "interactive" && p.Kind == "block_actions" && len(p.Actions) == 1 {
		return channels.Update{
			ID: p.Container.Channel + " " + p.Container.Message + " " + p.Actions[0].At, Kind: channels.Pressed,
			Conversation: p.Container.Channel, ConversationKind: kindOf(p.Container.Channel), Message: p.Container.Message,
			User: p.User.ID, UserName: p.User.Name, Press: p.Container.Channel + " " + p.User.ID, Data: p.Actions[0].Value,
		}, p.User.ID != ""
	}
	m := p.Event
	if e.Type != "events_api" || m == nil || m.Type != "message" && m.Type != "app_mention" || m.User == "" || m.Bot != "" || m.User == me ||
		m.Subtype != "" && m.Subtype != "file_share" && m.Subtype != "thread_broadcast" {
		return out, false
	}
	said, addressed := plain(m.Text), strings.Contains(m.Text, "<@"+me+">")
	for rest, again := strings.CutPrefix(said, "@"+me); again; rest, again = strings.CutPrefix(said, "@"+me) {
		said = strings.TrimSpace(rest)
	}
	out = channels.Update{
		ID: m.Channel + " " + m.Time, Kind: channels.Wrote, Conversation: m.Channel, ConversationKind: kindOf(m.Channel), Message: m.Time,
		User: m.User, UserName: m.User, Text: said,
	}
	if m.Thread != "" && m.Thread != m.Time {
		out.Thread = m.Thread
	}
	out.ToMe = out.ConversationKind == "dm" || addressed || m.ParentUser == me
	for _, f := range m.Files {
		out.Files = append(out.Files, channels.File{Name: f.Name, Size: f.Size})
	}
	for _, a := range m.Attachments {
		out.Forwarded = out.Forwarded || a.Shared
	}
	return out, out.Text != "" || len(out.Files) > 0
}

func kindOf(conversation string) string {
	if strings.HasPrefix(conversation, "D") {
		return "dm"
	}
	return "group"
}

var marked = regexp.MustCompile(`<([^<>|]*)(?:\|[^<>]*)?>`)

// plain returns a text without the service's marks: a link becomes its address, a mention the id of
// the user.
func plain(s string) string {
	s = marked.ReplaceAllString(s, "$1")
	return strings.TrimSpace(strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(s))
}

// Do implements [channels.Channel].
func (c *channel) Do(ctx context.Context, op channels.Op) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at := map[string]any{"channel": op.Conversation, "timestamp": op.Message}
	var method string
	switch op.Verb {
	case channels.VerbSend:
		return c.send(ctx, op)
	case channels.VerbEdit:
		at = content(op)
		at["ts"] = op.Message
		method = "chat.update"
	case channels.VerbDelete:
		at = map[string]any{"channel": op.Conversation, "ts": op.Message}
		method = "chat.delete"
	case channels.VerbReact:
		at["name"] = emojiName(op.Emoji)
		if method = "reactions.add"; op.Remove {
			method = "reactions.remove"
		}
	case channels.VerbPin:
		method = "pins.add"
	case channels.VerbUnpin:
		method = "pins.remove"
	case channels.VerbOpen:
		var made struct {
			Channel struct {
				ID string `json:"id"`
			} `json:"channel"`
		}
		err := c.call(ctx, &c.web, "conversations.open", map[string]any{"users": op.Conversation}, &made)
		return made.Channel.ID, err
	case channels.VerbAck:
		conversation, user, _ := strings.Cut(op.Press, " ")
		if op.Text == "" {
			return "", nil
		}
		at = content(channels.Op{Conversation: conversation, Text: op.Text})
		at["user"] = user
		method = "chat.postEphemeral"
	}
	return op.Message, c.call(ctx, &c.web, method, at, nil)
}

// send posts a message or a file and returns its id.
func (c *channel) send(ctx context.Context, op channels.Op) (string, error) {
	thread := cmp.Or(op.Thread, op.Message)
	if op.File != nil {
		return c.upload(ctx, op, thread)
	}
	out := content(op)
	if thread != "" {
		out["thread_ts"] = thread
	}
	out["unfurl_links"], out["unfurl_media"] = false, false
	var sent struct {
		Time string `json:"ts"`
	}
	err := c.call(ctx, &c.web, "chat.postMessage", out, &sent)
	return sent.Time, err
}

// content returns the members of a request that have the text of a message, and its buttons.
func content(op channels.Op) map[string]any {
	out := map[string]any{"channel": op.Conversation}
	if op.Markdown {
		out["markdown_text"] = op.Text
		return out
	}
	out["text"] = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(op.Text) // for notices
	blocks := []any{map[string]any{"type": "section", "text": map[string]any{"type": "plain_text", "emoji": false, "text": op.Text}}}
	var row []any
	for i, b := range op.Buttons {
		row = append(row, map[string]any{
			"type": "button", "action_id": "b" + strconv.Itoa(i), "value": b.Data,
			"text": map[string]any{"type": "plain_text", "emoji": false, "text": b.Label},
		})
	}
	if len(row) > 0 {
		blocks = append(blocks, map[string]any{"type": "actions", "elements": row})
	}
	out["blocks"] = blocks
	return out
}

// upload sends a file in three steps. Its id is that of the file.
func (c *channel) upload(ctx context.Context, op channels.Op, thread string) (string, error) {
	var place struct {
		URL  string `json:"upload_url"`
		File string `json:"file_id"`
	}
	query := url.Values{"filename": {op.File.Name}, "length": {strconv.Itoa(len(op.File.Data))}}
	if err := c.call(ctx, &c.web, "files.getUploadURLExternal?"+query.Encode(), nil, &place); err != nil {
		return "", c.web.Reading(err) // nothing was sent yet
	}
	to, err := url.Parse(place.URL)
	if err != nil || to.Scheme != "https" && c.settings.Account.URL == "" {
		return "", capability.Errorf(capability.CodeFailed, "slack", "Slack named an address for the file that cannot be used")
	}
	store := c.web
	store.Base, store.Header = place.URL, func() (http.Header, error) { return http.Header{}, nil } // the address is the permission
	if err := store.Upload(ctx, http.MethodPost, "", "application/octet-stream", op.File.Data, nil); err != nil {
		return "", c.web.Reading(err)
	}
	out := map[string]any{"channel_id": op.Conversation, "files": []any{map[string]any{"id": place.File, "title": op.File.Name}}}
	if thread != "" {
		out["thread_ts"] = thread
	}
	return place.File, c.call(ctx, &c.web, "files.completeUploadExternal", out, nil)
}

// Read implements [channels.Reader]. Answers in threads are left out.
func (c *channel) Read(ctx context.Context, conversation, before string, pinned bool, limit int) ([]channels.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var list []event
	if pinned {
		var page struct {
			Items []struct {
				Message event `json:"message"`
			} `json:"items"`
		}
		if err := c.call(ctx, &c.web, "pins.list", map[string]any{"channel": conversation}, &page); err != nil {
			return nil, c.web.Reading(err)
		}
		for _, item := range page.Items[:min(limit, len(page.Items))] {
			list = append(list, item.Message)
		}
	} else {
		in := map[string]any{"channel": conversation, "limit": limit}
		if before != "" {
			in["latest"] = before
		}
		var err error
		if list, err = c.history(ctx, "conversations.history", in); err != nil {
			return nil, err
		}
	}
	out := make([]channels.Message, len(list))
	for i, m := range list {
		out[i] = channels.Message{ID: m.Time, User: cmp.Or(m.User, m.Bot), UserName: cmp.Or(m.User, m.Bot), Text: plain(m.Text)}
		if seconds, err := strconv.ParseFloat(m.Time, 64); err == nil {
			out[i].At = time.Unix(int64(seconds), 0)
		}
		if m.Thread != m.Time {
			out[i].Thread = m.Thread
		}
		for _, f := range m.Files {
			out[i].Files = append(out[i].Files, channels.File{Name: f.Name, Size: f.Size})
		}
	}
	return out, nil
}

func (c *channel) history(ctx context.Context, method string, in map[string]any) ([]event, error) {
	var page struct {
		Messages []event `json:"messages"`
	}
	err := c.call(ctx, &c.web, method, in, &page)
	return page.Messages, c.web.Reading(err)
}

// Private implements [channels.Fetcher].
func (*channel) Private(_ context.Context, conversation string) (bool, error) {
	return kindOf(conversation) == "dm", nil
}

// Places implements [channels.Lister].
func (c *channel) Places(ctx context.Context) (list []channels.Place, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	in := map[string]any{"types": "public_channel,private_channel,mpim", "exclude_archived": true, "limit": 200}
	for len(list) < channels.MaxPlaces {
		var page struct {
			Channels []struct {
				ID    string `json:"id"`
				Name  string `json:"name"`
				Group bool   `json:"is_mpim"`
			} `json:"channels"`
			Next struct {
				Cursor string `json:"next_cursor"`
			} `json:"response_metadata"`
		}
		if err := c.call(ctx, &c.web, "users.conversations", in, &page); err != nil {
			return nil, c.web.Reading(err)
		}
		for _, p := range page.Channels {
			list = append(list, channels.Place{ID: p.ID, Name: p.Name, Group: p.Group})
		}
		if page.Next.Cursor == "" || len(page.Channels) == 0 {
			break
		}
		in["cursor"] = page.Next.Cursor
	}
	return list[:min(len(list), channels.MaxPlaces)], nil
}

// Fetch implements [channels.Reader].
func (c *channel) Fetch(ctx context.Context, conversation, message string, index, limit int) (channels.File, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at := map[string]any{"channel": conversation, "latest": message, "oldest": message, "inclusive": true, "limit": 1}
	list, err := c.history(ctx, "conversations.history", at)
	if err == nil && len(list) == 0 { // it is an answer in a thread
		at["ts"] = message
		list, err = c.history(ctx, "conversations.replies", at)
	}
	if err != nil {
		return channels.File{}, err
	}
	if len(list) == 0 || list[0].Time != message || index >= len(list[0].Files) {
		return channels.File{}, channels.NoAttachment(index)
	}
	f := list[0].Files[index]
	data, err := c.web.Download(ctx, f.URL, []string{"files.slack.com"}, true, limit)
	return channels.File{Name: f.Name, Size: int64(len(data)), Data: data}, err
}

// emojiName returns the name that the service has for an emoji: of a name as it is.
func emojiName(emoji string) string {
	names := map[string]string{
		"👍": "thumbsup", "👎": "thumbsdown", "✅": "white_check_mark", "❌": "x", "👀": "eyes", "🎉": "tada", "❤": "heart", "🚀": "rocket",
		"🙏": "pray", "😄": "smile", "🤔": "thinking_face", "👏": "clap", "🔥": "fire", "💯": "100", "⏳": "hourglass_flowing_sand",
	}
	return cmp.Or(names[strings.TrimSuffix(emoji, "\ufe0f")], strings.Trim(emoji, ":"))
}
