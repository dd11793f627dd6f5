// Package telegram is a chat service over Telegram's Bot API: long polling in, requests out. The
// token of a bot is part of every URL of that API, so no error of this package contains one.
package telegram

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/secret"
)

const (
	publicURL   = "https://api.telegram.org"
	pollTimeout = 25 * time.Second // that the service holds a poll
	callTimeout = 30 * time.Second
	maxUpdates  = 100 // updates of one poll
)

// Kind describes the service.
func Kind() channels.Kind {
	return channels.Kind{
		Name: "telegram", Label: "Telegram",
		Blurb: "Make a bot with @BotFather, store its token as a secret, and pair yourself with a code.",
		Actions: []capability.Action{
			"message.send", "message.reply", "message.edit", "message.delete", "message.react", "message.pin",
			"message.attachment.fetch",
		},
		MaxText: 4096, MaxFile: 50 << 20, Rate: 25, Pause: time.Second, GroupPause: 3 * time.Second,
		Group: func(conversation string) bool { return !positive(conversation) },
		Open: func(s channels.Settings) (channels.Channel, error) {
			if s.Account.URL == "" {
				s.Account.URL = publicURL
			}
			s.Account.URL = strings.TrimSuffix(s.Account.URL, "/")
			return &channel{settings: s, client: channels.NewClient()}, nil
		},
	}
}

// positive reports whether a conversation is one with a person: groups and channels have negative
// ids, or names.
func positive(conversation string) bool {
	n, err := strconv.ParseInt(conversation, 10, 64)
	return err == nil && n > 0
}

// channel is one bot.
type channel struct {
	settings channels.Settings
	client   *channels.Client
}

// open returns the library's bot with the current token.
func (c *channel) open() (*bot.Bot, secret.Value, error) {
	token, err := c.settings.Secret()
	if err != nil {
		return nil, token, capability.Wrap(capability.CodeUnauthenticated, "telegram",
			"the token of "+c.settings.Account.String()+" is not stored", err)
	}
	b, err := bot.New(token.Reveal(), bot.WithSkipGetMe(), bot.WithServerURL(c.settings.Account.URL),
		bot.WithHTTPClient(callTimeout, c.client), bot.WithErrorsHandler(func(error) {}))
	if err != nil {
		return nil, token, capability.Errorf(capability.CodeUnauthenticated, "telegram", "the token of %s cannot be used", c.settings.Account.Ref)
	}
	return b, token, nil
}

// explain returns the error of a request in the meaning of [channels.Channel].
func (c *channel) explain(err error, token secret.Value) error {
	said := strings.ReplaceAll(err.Error(), token.Reveal(), "***")
	limited, ok := errors.AsType[*bot.TooManyRequestsError](err)
	switch {
	case ok:
		e := capability.Errorf(capability.CodeOverloaded, "telegram", "Telegram takes no more messages now")
		e.RetryAfter = time.Duration(max(1, limited.RetryAfter)) * time.Second
		return e
	case errors.Is(err, channels.ErrNotSent):
		return capability.Errorf(capability.CodeUnavailable, "telegram", "Telegram cannot be reached")
	case errors.Is(err, bot.ErrorUnauthorized), errors.Is(err, bot.ErrorNotFound):
		return capability.Errorf(capability.CodeUnauthenticated, "telegram", "Telegram refuses the token of %s", c.settings.Account.Ref).
			With("token_refused", "make a new one with @BotFather, and store it with: junctor secrets set "+c.settings.Account.Secret)
	case errors.Is(err, bot.ErrorConflict):
		return capability.Errorf(capability.CodeConflict, "telegram", "another program receives the messages of %s", c.settings.Account.Ref).
			With("polled_elsewhere", "one server may poll a bot, and no webhook may be set")
	}
	moved, ok := errors.AsType[*bot.MigrateError](err)
	if ok {
		said = fmt.Sprintf("the group has the id %d now", moved.MigrateToChatID)
	}
	if ok || errors.Is(err, bot.ErrorBadRequest) || errors.Is(err, bot.ErrorForbidden) {
		return capability.Errorf(capability.CodeFailed, "telegram", "Telegram refused the message: %s", said).With("refused_by_service", "")
	}
	return channels.DeliveryUnknown(errors.New(said))
}

// Run implements [channels.Channel]. An update is confirmed with the poll after it was stored.
func (c *channel) Run(ctx context.Context, cursor string, connected func(string), receive channels.Receive) error {
	b, token, err := c.open()
	if err != nil {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, callTimeout)
	me, err := b.GetMe(asked)
	cancel()
	if err != nil {
		return c.lost(err, token)
	}
	connected("@" + me.Username)
	next, _ := strconv.ParseInt(cursor, 10, 64)
	for ctx.Err() == nil {
		raw, err := c.poll(ctx, token, next)
		if err != nil {
			return c.lost(err, token)
		}
		list := make([]channels.Update, 0, len(raw))
		slices.SortStableFunc(raw, func(a, b json.RawMessage) int { return cmp.Compare(idOf(a), idOf(b)) })
		for _, one := range raw {
			next = max(next, idOf(one)+1)
			var u models.Update
			if json.Unmarshal(one, &u) == nil { // one that we cannot read must not stop the others
				if u, ok := convert(&u, me); ok {
					list = append(list, u)
				}
			}
		}
		if len(raw) > 0 {
			if err := receive(ctx, strconv.FormatInt(next, 10), list); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// idOf returns the id of an update, or 0.
func idOf(update json.RawMessage) int64 {
	var u struct {
		ID int64 `json:"update_id"`
	}
	_ = json.Unmarshal(update, &u) // an update without an id has no place in the order
	return u.ID
}

// lost returns why polling ended. For reading, a lost answer has no consequence.
func (c *channel) lost(err error, token secret.Value) error {
	e := capability.AsError(c.explain(err, token))
	if e.Reason == channels.ReasonDeliveryUnknown {
		return capability.Errorf(capability.CodeUnavailable, "telegram", "the connection to Telegram was lost")
	}
	return e
}

// poll waits for updates. The library's own polling confirms updates before they are handled.
func (c *channel) poll(ctx context.Context, token secret.Value, next int64) ([]json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout+callTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"offset": next, "limit": maxUpdates, "timeout": int(pollTimeout / time.Second), "allowed_updates": []string{"message", "callback_query"},
	})
	if err != nil {
		return nil, err
	}
	to := c.settings.Account.URL + "/bot" + token.Reveal() + "/getUpdates"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL of the account cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var answer struct {
		OK     bool              `json:"ok"`
		Result []json.RawMessage `json:"result"`
		Code   int               `json:"error_code"`
		Extra  struct {
			RetryAfter int `json:"retry_after"`
		} `json:"parameters"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, errors.New("the answer cannot be read")
	}
	switch {
	case answer.OK:
		return answer.Result, nil
	case answer.Code == http.StatusUnauthorized || answer.Code == http.StatusNotFound:
		return nil, bot.ErrorUnauthorized
	case answer.Code == http.StatusConflict:
		return nil, bot.ErrorConflict
	case answer.Code == http.StatusTooManyRequests:
		return nil, &bot.TooManyRequestsError{RetryAfter: answer.Extra.RetryAfter}
	}
	return nil, fmt.Errorf("the service answered %d", answer.Code)
}

// convert returns an update; ok is false for one that has no meaning here.
func convert(u *models.Update, me *models.User) (out channels.Update, ok bool) {
	out.ID = strconv.FormatInt(u.ID, 10)
	chat := func(c models.Chat) {
		out.Conversation, out.ConversationKind = strconv.FormatInt(c.ID, 10), "group"
		if c.Type == models.ChatTypePrivate {
			out.ConversationKind = "dm"
		}
	}
	from := func(f *models.User) {
		out.User, out.UserName = strconv.FormatInt(f.ID, 10), strings.TrimSpace(f.FirstName+" "+f.LastName)
	}
	switch {
	case u.CallbackQuery != nil:
		q := u.CallbackQuery
		out.Kind, out.Press, out.Data = channels.Pressed, q.ID, q.Data
		from(&q.From)
		switch {
		case q.Message.Message != nil:
			chat(q.Message.Message.Chat)
			out.Message = strconv.Itoa(q.Message.Message.ID)
		case q.Message.InaccessibleMessage != nil:
			chat(q.Message.InaccessibleMessage.Chat)
			out.Message = strconv.Itoa(q.Message.InaccessibleMessage.MessageID)
		}
		return out, true
	case u.Message == nil || u.Message.From == nil || u.Message.From.IsBot || u.Message.EditDate != 0:
		return out, false
	}
	m := u.Message
	chat(m.Chat)
	from(m.From)
	out.Kind, out.Message, out.Forwarded = channels.Wrote, strconv.Itoa(m.ID), m.ForwardOrigin != nil || m.ViaBot != nil
	if m.IsTopicMessage {
		out.Thread = strconv.Itoa(m.MessageThreadID)
	}
	out.Text = m.Text + m.Caption // a message has one of them
	out.Files = files(m)
	if out.Text == "" && len(out.Files) == 0 {
		return out, false // a person joined, a title changed …
	}
	name := "@" + strings.ToLower(me.Username)
	first, rest, _ := strings.Cut(out.Text, " ")
	command, bot, addressed := strings.Cut(first, "@")
	if addressed && strings.HasPrefix(command, "/") {
		if "@"+strings.ToLower(bot) != name {
			return out, false // for another bot
		}
		out.Text = strings.TrimSpace(command + " " + rest)
		out.ToMe = true
	}
	reply := m.ReplyToMessage
	out.ToMe = out.ToMe || out.ConversationKind == "dm" || reply != nil && reply.From != nil && reply.From.ID == me.ID ||
		mentions(out.Text, name) || me.FirstName != "" && mentions(out.Text, strings.ToLower(me.FirstName))
	return out, true
}

// mentions reports whether a text has a name, in lower case, as words of their own.
func mentions(s, name string) bool {
	s = strings.ToLower(s)
	word := func(b byte) bool { return b == '_' || b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b >= 0x80 }
	for at := 0; ; {
		i := strings.Index(s[at:], name)
		if i < 0 {
			return false
		}
		i += at
		end := i + len(name)
		if (i == 0 || !word(s[i-1])) && (end == len(s) || !word(s[end])) {
			return true
		}
		at = end
	}
}

// files returns the attachments of a message.
func files(m *models.Message) (list []channels.File) {
	add := func(id, name string, size int64) {
		list = append(list, channels.File{ID: id, Name: name, Size: size})
	}
	if f := m.Document; f != nil {
		add(f.FileID, cmp.Or(f.FileName, "document"), f.FileSize)
	}
	if n := len(m.Photo); n > 0 {
		add(m.Photo[n-1].FileID, "photo.jpg", int64(m.Photo[n-1].FileSize))
	}
	if f := m.Video; f != nil {
		add(f.FileID, cmp.Or(f.FileName, "video"), f.FileSize)
	}
	if f := m.Audio; f != nil {
		add(f.FileID, cmp.Or(f.FileName, "audio"), f.FileSize)
	}
	if f := m.Voice; f != nil {
		add(f.FileID, "voice.ogg", f.FileSize)
	}
	return list
}

// Do implements [channels.Channel].
func (c *channel) Do(ctx context.Context, op channels.Op) (string, error) {
	b, token, err := c.open()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id, err := c.do(ctx, b, op)
	if err != nil {
		if _, known := errors.AsType[*capability.Error](err); known {
			return "", err
		}
		if errors.Is(err, bot.ErrorBadRequest) && op.Verb == channels.VerbEdit && strings.Contains(err.Error(), "not modified") {
			return op.Message, nil
		}
		return "", c.explain(err, token)
	}
	return id, nil
}

func (c *channel) do(ctx context.Context, b *bot.Bot, op channels.Op) (id string, err error) {
	bad := func(what, value string) error {
		return capability.Errorf(capability.CodeInvalidInput, "telegram", "%.80q is not the id of a %s", value, what)
	}
	var chat any = op.Conversation
	if !strings.HasPrefix(op.Conversation, "@") && op.Verb != channels.VerbAck {
		if chat, err = strconv.ParseInt(op.Conversation, 10, 64); err != nil {
			return "", bad("chat", op.Conversation)
		}
	}
	var message, thread int
	if op.Message, _, _ = strings.Cut(op.Message, channels.FileMark); op.Message != "" {
		if message, err = strconv.Atoi(op.Message); err != nil {
			return "", bad("message", op.Message)
		}
	}
	if op.Thread != "" {
		if thread, err = strconv.Atoi(op.Thread); err != nil {
			return "", bad("thread", op.Thread)
		}
	}
	noPreview := &models.LinkPreviewOptions{IsDisabled: bot.True()}
	switch op.Verb {
	case channels.VerbSend:
		var answers *models.ReplyParameters
		if message != 0 {
			answers = &models.ReplyParameters{MessageID: message, AllowSendingWithoutReply: true}
		}
		var sent *models.Message
		if op.File != nil {
			sent, err = b.SendDocument(ctx, &bot.SendDocumentParams{
				ChatID: chat, MessageThreadID: thread, DisableNotification: op.Silent, Caption: op.Text, ReplyParameters: answers,
				Document: &models.InputFileUpload{Filename: op.File.Name, Data: bytes.NewReader(op.File.Data)},
			})
		} else {
			params := &bot.SendMessageParams{
				ChatID: chat, MessageThreadID: thread, DisableNotification: op.Silent, ReplyParameters: answers, LinkPreviewOptions: noPreview,
			}
			if len(op.Buttons) > 0 {
				params.ReplyMarkup = keyboard(op.Buttons)
			}
			err = styled(op, func(text string, mode models.ParseMode) error {
				params.Text, params.ParseMode = text, mode
				sent, err = b.SendMessage(ctx, params)
				return err
			})
		}
		if err != nil {
			return "", err
		}
		return strconv.Itoa(sent.ID), nil
	case channels.VerbEdit:
		err = styled(op, func(text string, mode models.ParseMode) error {
			_, err = b.EditMessageText(ctx, &bot.EditMessageTextParams{
				ChatID: chat, MessageID: message, Text: text, ParseMode: mode, LinkPreviewOptions: noPreview,
			})
			return err
		})
	case channels.VerbDelete:
		_, err = b.DeleteMessage(ctx, &bot.DeleteMessageParams{ChatID: chat, MessageID: message})
	case channels.VerbReact:
		params := &bot.SetMessageReactionParams{ChatID: chat, MessageID: message}
		if !op.Remove {
			params.Reaction = []models.ReactionType{{
				Type: models.ReactionTypeTypeEmoji, ReactionTypeEmoji: &models.ReactionTypeEmoji{Type: models.ReactionTypeTypeEmoji, Emoji: op.Emoji},
			}}
		}
		_, err = b.SetMessageReaction(ctx, params)
	case channels.VerbPin:
		_, err = b.PinChatMessage(ctx, &bot.PinChatMessageParams{ChatID: chat, MessageID: message, DisableNotification: true})
	case channels.VerbUnpin:
		_, err = b.UnpinChatMessage(ctx, &bot.UnpinChatMessageParams{ChatID: chat, MessageID: message})
	case channels.VerbAck:
		_, err = b.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{CallbackQueryID: op.Press, Text: op.Text})
	}
	return op.Message, err
}

// Private implements [channels.Fetcher].
func (*channel) Private(_ context.Context, conversation string) (bool, error) {
	return positive(conversation), nil
}

// Fetch implements [channels.Fetcher]. The service finds a file by the id that came with its message.
func (c *channel) Fetch(ctx context.Context, _, message string, index, limit int) (channels.File, error) {
	_, id, ok := strings.Cut(message, channels.FileMark)
	if !ok {
		return channels.File{}, channels.NoAttachment(index)
	}
	b, token, err := c.open()
	if err != nil {
		return channels.File{}, err
	}
	asked, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	f, err := b.GetFile(asked, &bot.GetFileParams{FileID: id})
	if err != nil {
		return channels.File{}, c.lost(err, token)
	}
	// The path is of the service: it must not lead to another address.
	to, err := url.JoinPath(c.settings.Account.URL, "file", "bot"+token.Reveal(), path.Clean("/"+f.FilePath))
	if err != nil {
		return channels.File{}, channels.NoAttachment(index)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return channels.File{}, channels.NoAttachment(index)
	}
	data, err := c.client.File(req, "Telegram", limit)
	return channels.File{Name: path.Base(f.FilePath), Size: int64(len(data)), Data: data}, err
}

// styled sends a text with its styles, or as it is if the service refuses them.
func styled(op channels.Op, send func(text string, mode models.ParseMode) error) error {
	if op.Markdown {
		if text := channels.HTML(op.Text, "\n"); text != "" {
			err := send(text, models.ParseModeHTML)
			if !errors.Is(err, bot.ErrorBadRequest) || strings.Contains(err.Error(), "not modified") {
				return err
			}
		}
	}
	return send(op.Text, "")
}

// keyboard returns buttons, two in a row.
func keyboard(list []channels.Button) *models.InlineKeyboardMarkup {
	k := &models.InlineKeyboardMarkup{}
	for i, b := range list {
		if i%2 == 0 {
			k.InlineKeyboard = append(k.InlineKeyboard, nil)
		}
		row := &k.InlineKeyboard[len(k.InlineKeyboard)-1]
		*row = append(*row, models.InlineKeyboardButton{Text: b.Label, CallbackData: b.Data})
	}
	return k
}
