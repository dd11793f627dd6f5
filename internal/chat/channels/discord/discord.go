// Package discord is a chat service over Discord's API, version 10: its gateway in, requests out.
// The protocol is implemented here, because the usual library has the addresses of the service in
// variables of the package and keeps the state of a session, with which missed messages are
// requested, to itself.
package discord

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
)

const publicURL = "https://discord.com/api/v10"

// Kind describes the service.
func Kind() channels.Kind {
	return channels.Kind{
		Name: "discord", Label: "Discord",
		Blurb: "Make an application with a bot in Discord's developer portal, switch its message content intent on, and store its token.",
		Actions: []capability.Action{
			"message.send", "message.reply", "message.edit", "message.delete", "message.react", "message.pin",
			"message.read", "message.pins.list", "message.attachment.fetch",
		},
		Slash: "!", Direct: true, OnceTTL: nonceTTL, MaxText: 2000, MaxFile: 10 << 20, Escapes: true, Rate: 40, Pause: time.Second, GroupPause: time.Second,
		ID:    regexp.MustCompile(`^[1-9][0-9]{0,19}$`),
		Group: func(string) bool { return false }, // the limits are the same
		Open: func(s channels.Settings) (channels.Channel, error) {
			c := &channel{settings: s}
			c.REST = channels.REST{
				Client: channels.NewClient(), Base: strings.TrimSuffix(cmp.Or(s.Account.URL, publicURL), "/"), Service: "Discord", Account: s.Account,
				Header: func() (http.Header, error) {
					token, err := s.Secret()
					return http.Header{
						"Authorization": {"Bot " + token.Reveal()}, "User-Agent": {"DiscordBot (https://github.com/junctor-run/junctor, 1)"},
					}, err
				},
				Refusal: refusal,
			}
			return c, nil
		},
	}
}

// channel is one bot.
type channel struct {
	channels.REST
	settings channels.Settings
}

// refusal returns the words of an error of the API.
func refusal(answer []byte) string {
	var said struct {
		Message string          `json:"message"`
		Code    int             `json:"code"`
		Errors  json.RawMessage `json:"errors"`
	}
	if json.Unmarshal(answer, &said) != nil || said.Message == "" {
		return ""
	}
	return fmt.Sprintf("%s (%d) %s", said.Message, said.Code, said.Errors)
}

// user is a user of the service.
type user struct {
	ID     string `json:"id"`
	Name   string `json:"username"`
	Shown  string `json:"global_name"`
	Bot    bool   `json:"bot"`
	System bool   `json:"system"`
}

// The types of messages that people write.
const (
	ordinary = 0
	reply    = 19
)

// message is a message as the gateway and the API deliver it.
type message struct {
	ID      string    `json:"id"`
	Channel string    `json:"channel_id"`
	Guild   string    `json:"guild_id"`
	Type    int       `json:"type"`
	Author  user      `json:"author"`
	Webhook string    `json:"webhook_id"`
	Content string    `json:"content"`
	Time    time.Time `json:"timestamp"`
	Files   []struct {
		Name string `json:"filename"`
		Size int64  `json:"size"`
		URL  string `json:"url"`
	} `json:"attachments"`
	Mentions []user `json:"mentions"`
	Answers  *struct {
		Author user `json:"author"`
	} `json:"referenced_message"`
	Reference struct {
		Type int `json:"type"` // 1: forwarded
	} `json:"message_reference"`
}

// convert returns an update; ok is false for a message that no person wrote.
func (m *message) convert(me user) (out channels.Update, ok bool) {
	forwarded := m.Reference.Type == 1
	if m.ID == "" || m.Author.ID == "" || m.Author.Bot || m.Author.System || m.Webhook != "" || m.Type != ordinary && m.Type != reply {
		return out, false
	}
	out = channels.Update{
		ID: m.ID, Kind: channels.Wrote, Conversation: m.Channel, ConversationKind: kindOf(m.Guild), Message: m.ID, User: m.Author.ID,
		UserName: cmp.Or(m.Author.Shown, m.Author.Name), Text: m.Content, Forwarded: forwarded,
	}
	out.ToMe = m.Guild == "" || m.Answers != nil && m.Answers.Author.ID == me.ID
	for _, u := range m.Mentions {
		out.ToMe = out.ToMe || u.ID == me.ID
	}
	for _, form := range []string{"<@" + me.ID + ">", "<@!" + me.ID + ">"} {
		if rest, addressed := strings.CutPrefix(out.Text, form); addressed {
			out.Text = strings.TrimSpace(rest)
		}
	}
	for _, f := range m.Files {
		out.Files = append(out.Files, channels.File{Name: f.Name, Size: f.Size})
	}
	return out, out.Text != "" || len(out.Files) > 0
}

func kindOf(guild string) string {
	if guild == "" {
		return "dm"
	}
	return "group"
}

// press is the press of a button below a message.
type press struct {
	ID      string `json:"id"`
	Type    int    `json:"type"` // 3: of a component
	Token   string `json:"token"`
	Channel string `json:"channel_id"`
	Guild   string `json:"guild_id"`
	User    *user  `json:"user"` // in a conversation with one person
	Member  *struct {
		User user `json:"user"`
	} `json:"member"`
	Message struct {
		ID string `json:"id"`
	} `json:"message"`
	Data struct {
		ID string `json:"custom_id"`
	} `json:"data"`
}

func (p *press) convert() (out channels.Update, ok bool) {
	by := p.User
	if by == nil && p.Member != nil {
		by = &p.Member.User
	}
	if p.Type != 3 || p.ID == "" || by == nil {
		return out, false
	}
	return channels.Update{
		ID: p.ID, Kind: channels.Pressed, Conversation: p.Channel, ConversationKind: kindOf(p.Guild), Message: p.Message.ID, User: by.ID,
		UserName: cmp.Or(by.Shown, by.Name), Press: p.ID + "/" + p.Token, Data: p.Data.ID,
	}, true
}

// The flags of messages.
const (
	flagNoPreview = 1 << 2
	flagOnlyYou   = 1 << 6
	flagSilent    = 1 << 12
)

// Do implements [channels.Channel].
func (c *channel) Do(ctx context.Context, op channels.Op) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at := "/channels/" + url.PathEscape(op.Conversation) + "/messages"
	of := at + "/" + url.PathEscape(op.Message)
	switch op.Verb {
	case channels.VerbSend:
		sum := sha256.Sum256([]byte(op.Key))
		out := map[string]any{
			"content": shown(op), "nonce": hex.EncodeToString(sum[:12]), "enforce_nonce": true, "flags": flagNoPreview,
			"allowed_mentions": map[string]any{"parse": []string{}},
		}
		if op.Silent {
			out["flags"] = flagNoPreview | flagSilent
		}
		if op.Message != "" {
			out["message_reference"] = map[string]any{"message_id": op.Message, "fail_if_not_exists": false}
		}
		if len(op.Buttons) > 0 {
			out["components"] = rows(op.Buttons)
		}
		var sent message
		err := c.Call(ctx, http.MethodPost, at, out, op.File, &sent)
		return sent.ID, err
	case channels.VerbEdit:
		return op.Message, c.Call(ctx, http.MethodPatch, of, map[string]any{"content": shown(op), "components": []any{}}, nil, nil)
	case channels.VerbDelete:
		return op.Message, c.Call(ctx, http.MethodDelete, of, nil, nil, nil)
	case channels.VerbReact:
		method := http.MethodPut
		if op.Remove {
			method = http.MethodDelete
		}
		return op.Message, c.Call(ctx, method, of+"/reactions/"+url.PathEscape(op.Emoji)+"/@me", nil, nil, nil)
	case channels.VerbPin, channels.VerbUnpin:
		method := http.MethodPut
		if op.Verb == channels.VerbUnpin {
			method = http.MethodDelete
		}
		return op.Message, c.Call(ctx, method, at+"/pins/"+url.PathEscape(op.Message), nil, nil, nil)
	case channels.VerbOpen:
		var made struct {
			ID string `json:"id"`
		}
		err := c.Call(ctx, http.MethodPost, "/users/@me/channels", map[string]any{"recipient_id": op.Conversation}, nil, &made)
		return made.ID, err
	case channels.VerbAck:
		id, token, _ := strings.Cut(op.Press, "/")
		answer := map[string]any{"type": 6} // the message changes later
		if op.Text != "" {
			answer = map[string]any{"type": 4, "data": map[string]any{"content": escape(op.Text), "flags": flagOnlyYou}}
		}
		return "", c.Call(ctx, http.MethodPost, "/interactions/"+url.PathEscape(id)+"/"+url.PathEscape(token)+"/callback", answer, nil, nil)
	}
	return "", capability.Errorf(capability.CodeInvalidInput, "discord", "Discord has no operation %q", op.Verb)
}

// Read implements [channels.Reader].
func (c *channel) Read(ctx context.Context, conversation, before string, pinned bool, limit int) ([]channels.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at := "/channels/" + url.PathEscape(conversation) + "/messages"
	var list []message
	if pinned {
		var page struct {
			Items []struct {
				Message message `json:"message"`
			} `json:"items"`
		}
		if err := c.Reading(c.Call(ctx, http.MethodGet, at+"/pins?limit="+strconv.Itoa(min(limit, 50)), nil, nil, &page)); err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			list = append(list, item.Message)
		}
	} else {
		query := url.Values{"limit": {strconv.Itoa(limit)}}
		if before != "" {
			query.Set("before", before)
		}
		if err := c.Reading(c.Call(ctx, http.MethodGet, at+"?"+query.Encode(), nil, nil, &list)); err != nil {
			return nil, err
		}
	}
	out := make([]channels.Message, len(list))
	for i, m := range list {
		out[i] = channels.Message{ID: m.ID, User: m.Author.ID, UserName: cmp.Or(m.Author.Shown, m.Author.Name), Text: m.Content, At: m.Time}
		for _, f := range m.Files {
			out[i].Files = append(out[i].Files, channels.File{Name: f.Name, Size: f.Size})
		}
	}
	return out, nil
}

// Private implements [channels.Fetcher].
func (c *channel) Private(ctx context.Context, conversation string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var place struct {
		Guild string `json:"guild_id"`
	}
	err := c.Call(ctx, http.MethodGet, "/channels/"+url.PathEscape(conversation), nil, nil, &place)
	return place.Guild == "", c.Reading(err)
}

// Places implements [channels.Lister]. The channels of the first maxGuilds guilds are listed.
func (c *channel) Places(ctx context.Context) (list []channels.Place, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var guilds []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	if err := c.Call(ctx, http.MethodGet, "/users/@me/guilds", nil, nil, &guilds); err != nil {
		return nil, c.Reading(err)
	}
	for _, g := range guilds[:min(len(guilds), maxGuilds)] {
		var places []struct {
			ID   string `json:"id"`
			Name string `json:"name"`
			Type int    `json:"type"`
		}
		if err := c.Call(ctx, http.MethodGet, "/guilds/"+url.PathEscape(g.ID)+"/channels", nil, nil, &places); err != nil {
			return nil, c.Reading(err)
		}
		for _, p := range places {
			if p.Type == 0 || p.Type == 5 { // text and announcements
				list = append(list, channels.Place{ID: p.ID, Name: g.Name + " #" + p.Name})
			}
		}
	}
	return list[:min(len(list), channels.MaxPlaces)], nil
}

// Fetch implements [channels.Reader].
func (c *channel) Fetch(ctx context.Context, conversation, id string, index, limit int) (channels.File, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var m message
	err := c.Call(ctx, http.MethodGet, "/channels/"+url.PathEscape(conversation)+"/messages/"+url.PathEscape(id), nil, nil, &m)
	if err != nil {
		return channels.File{}, c.Reading(err)
	}
	if index >= len(m.Files) {
		return channels.File{}, channels.NoAttachment(index)
	}
	f := m.Files[index]
	data, err := c.Download(ctx, f.URL, []string{"discordapp.com", "discordapp.net"}, false, limit)
	return channels.File{Name: f.Name, Size: int64(len(data)), Data: data}, err
}

// shown returns the text of an operation in the service's Markdown.
func shown(op channels.Op) string {
	if op.Markdown {
		return op.Text
	}
	return escape(op.Text)
}

// escape makes the service show a text letter by letter: no style, link, mention or spoiler.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 && strings.ContainsRune("\\`*_~|<>[]()#-:@", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// rows returns buttons as components, up to five in each row.
func rows(list []channels.Button) (out []any) {
	var row []any
	for i, b := range list {
		row = append(row, map[string]any{"type": 2, "style": 2, "label": b.Label, "custom_id": b.Data})
		if len(row) == 5 || i == len(list)-1 {
			out = append(out, map[string]any{"type": 1, "components": row})
			row = nil
		}
	}
	return out
}
