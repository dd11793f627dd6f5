// Package parent is what task agents hear of whoever they work for. No agent's mind lives
// in this process. The person is asked by the task itself, as input_required, which is the
// coordinator's; what is answered here comes from a service that the operator has named,
// else from the conversation in which the task was given and from what the configuration
// says of the agent that gave it. Where nothing is there, that is said.
//
// A conversation belongs to the principal that made the task: messages are read as that
// one's and nobody else's, whatever a room is called.
package parent

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/secret"
)

// Limits of the bridge.
const (
	MaxMessages = 50 // of one answer
	MaxText     = 600
	MaxQuery    = 500
	budget      = 5 * time.Second
	page        = 50 // messages that are read at a time

	maxName  = 200
	maxLine  = 1_000
	maxLines = 50
)

// Origin is where a session's task comes from.
type Origin struct {
	Creator string // the id of the principal that made it
	Session string
	Thread  string // "": none
	Room    string // the creator's conversation; "": none
	// Said is what the creator says was said, for rooms that are not ours.
	Said []string
}

// Rooms are conversations; [session.Messages] is.
type Rooms interface {
	List(ctx context.Context, o session.Owner, after int64, limit int) ([]session.Message, error)
}

// Service answers a question, which is an object with op and the members of the origin,
// with the rights of the origin's creator: to decide, with the answer of task-agents
// 12.2; to context, with {"character": {...}}; to memory, with {"messages": [...]}.
type Service func(ctx context.Context, o Origin, question json.RawMessage) (json.RawMessage, error)

// Character is who the agents work for.
type Character struct {
	Name   string   `json:"name"`
	Bio    []string `json:"bio"`
	Topics []string `json:"topics"`
}

// Room is the conversation in which a task was given.
type Room struct {
	ID       string `json:"id"`
	ThreadID string `json:"thread_id"`
}

// Memory is what was said in a room about something, the newest last.
type Memory struct {
	RoomID   string    `json:"room_id"`
	Query    string    `json:"query"`
	Count    int       `json:"count"`
	Messages []Message `json:"messages"`
}

// Message is one of them.
type Message struct {
	Speaker   string `json:"speaker"`
	Text      string `json:"text"`
	CreatedAt string `json:"created_at,omitempty"`
}

// Config is what a Parent answers from.
type Config struct {
	Rooms     Rooms
	Service   Service   // nil: none is named
	Character Character // without a name it is nobody
	Logger    *slog.Logger
}

// Parent answers. It is safe for concurrent use.
type Parent struct{ cfg Config }

// New makes one.
func New(cfg Config) *Parent { return &Parent{cfg} }

// Decide has the service decide, and returns its words; the time is the caller's.
func (p *Parent) Decide(ctx context.Context, o Origin, event, prompt string) (string, error) {
	raw, err := p.ask(ctx, o, map[string]any{"op": "decide", "event": event, "prompt": prompt})
	return Text(raw), err
}

// Context is who speaks for a session and where; nil is nobody and nowhere.
func (p *Parent) Context(ctx context.Context, o Origin) (*Character, *Room) {
	var room *Room
	if o.Room != "" {
		room = &Room{o.Room, o.Thread}
	}
	who := p.cfg.Character
	if p.cfg.Service != nil {
		ctx, cancel := context.WithTimeout(ctx, budget)
		defer cancel()
		raw, err := p.ask(ctx, o, map[string]any{"op": "context"})
		if c, ok := character(raw); ok && err == nil {
			who = c
		} else {
			p.cfg.Logger.Debug("the parent's service says nothing of itself", "session", o.Session, "err", err)
		}
	}
	if who.Name == "" {
		return nil, room
	}
	who.Name, who.Bio, who.Topics = cut(who.Name, maxName), lines(who.Bio), lines(who.Topics)
	return &who, room
}

// Memory is what was said in the room of a session that has the query in it, in any case
// of its letters: the newest, limit of them, which is held to 1 to MaxMessages.
//
// Its errors: invalid_input (missing_query, query_too_long), unavailable
// (parent_context_timeout after 5 s, parent_context_unavailable where nobody's messages
// belong to the session: none in the room, and none that the creator has told of).
func (p *Parent) Memory(ctx context.Context, o Origin, query string, limit int) (Memory, error) {
	const op = "bridge"
	query = strings.TrimSpace(query)
	switch {
	case query == "":
		return Memory{}, capability.Errorf(capability.CodeInvalidInput, op, "say what to look for: q").With("missing_query", "")
	case utf8.RuneCountInString(query) > MaxQuery:
		return Memory{}, capability.Errorf(capability.CodeInvalidInput, op, "q has at most %d characters", MaxQuery).With("query_too_long", "")
	}
	limit = min(max(limit, 1), MaxMessages)
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	list, ok, err := p.remembered(ctx, o, query, limit)
	if !ok && ctx.Err() == nil {
		list, ok, err = p.said(ctx, o, query, limit)
	}
	if !ok && ctx.Err() == nil && len(o.Said) > 0 {
		list, ok = []Message{}, true
		for _, text := range o.Said {
			if found(text, query) {
				list = append(list, Message{Speaker: "conversation", Text: text})
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		return Memory{}, capability.Wrap(capability.CodeUnavailable, op, "what was said could not be looked up in time", ctx.Err()).With("parent_context_timeout", "try again, or go on without it")
	case !ok:
		return Memory{}, capability.Wrap(capability.CodeUnavailable, op, "nobody's messages belong to this session", err).With("parent_context_unavailable", "go on without it")
	}
	list = list[max(0, len(list)-limit):]
	for i, m := range list {
		list[i] = Message{cut(m.Speaker, maxName), cut(secret.MaskTokens(m.Text), MaxText), cut(m.CreatedAt, maxName)}
	}
	return Memory{RoomID: o.Room, Query: query, Count: len(list), Messages: list}, nil
}

// remembered is what the service says was said; ok is false where it says nothing.
func (p *Parent) remembered(ctx context.Context, o Origin, query string, limit int) (list []Message, ok bool, err error) {
	if p.cfg.Service == nil {
		return nil, false, nil
	}
	raw, err := p.ask(ctx, o, map[string]any{"op": "memory", "query": query, "limit": limit})
	if err != nil {
		p.cfg.Logger.Debug("the parent's service remembers nothing", "session", o.Session, "err", err)
		return nil, false, err
	}
	var said struct {
		Messages []Message `json:"messages"`
	}
	if jsonx.Unmarshal([]byte(Text(raw)), &said) != nil || said.Messages == nil {
		return nil, false, nil
	}
	return said.Messages, true, nil
}

// said looks through the room itself; ok is false where nothing was ever said in it.
func (p *Parent) said(ctx context.Context, o Origin, query string, limit int) (list []Message, ok bool, err error) {
	owner := session.Owner{Principal: o.Creator, Session: o.Room}
	if err := owner.Check(); err != nil {
		return nil, false, err
	}
	list = []Message{}
	for after := int64(0); ; {
		some, err := p.cfg.Rooms.List(ctx, owner, after, page)
		if err != nil {
			return nil, false, err
		}
		for _, m := range some {
			after = m.Seq
			if found(m.Text, query) {
				list = append(list, Message{m.Role, m.Text, m.Time.UTC().Format(time.RFC3339)})
			}
		}
		list = slices.Delete(list, 0, max(0, len(list)-limit))
		ok = ok || len(some) > 0
		if len(some) < page {
			return list, ok, nil
		}
	}
}

// found says whether a text has the words in it, where they may be shown.
func found(text, query string) bool {
	return strings.Contains(strings.ToLower(secret.MaskTokens(text)), strings.ToLower(query))
}

// ask asks the service; unavailable where there is none.
func (p *Parent) ask(ctx context.Context, o Origin, question map[string]any) (json.RawMessage, error) {
	if p.cfg.Service == nil {
		return nil, capability.Errorf(capability.CodeUnavailable, "task.parent", "no service answers for the parent").With("parent_context_unavailable", "set agents.parent")
	}
	question["sessionId"], question["threadId"], question["roomId"] = o.Session, o.Thread, o.Room
	raw, err := jsonx.Marshal(question)
	if err != nil {
		return nil, err
	}
	return p.cfg.Service(ctx, o, raw)
}

// character reads {"character": …}, whose bio may be one text.
func character(raw json.RawMessage) (c Character, ok bool) {
	var said struct {
		Character *struct {
			Name   string    `json:"name"`
			Bio    jsonx.Raw `json:"bio"`
			Topics []string  `json:"topics"`
		} `json:"character"`
	}
	if jsonx.Unmarshal([]byte(Text(raw)), &said) != nil || said.Character == nil || said.Character.Name == "" {
		return c, false
	}
	c.Name, c.Topics = said.Character.Name, said.Character.Topics
	if one, is := jsonx.Text(said.Character.Bio); is {
		c.Bio = []string{one}
	} else if len(said.Character.Bio) > 0 && jsonx.Unmarshal(said.Character.Bio, &c.Bio) != nil {
		return c, false
	}
	return c, true
}

// Text is what a result says: its text where it is one or has one (content of MCP, text of
// an action, output of an extension), what a service's result is, else the JSON that it is.
func Text(raw json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) == nil && len(members) == 1 && members["result"] != nil {
		raw, members = members["result"], nil
		_ = json.Unmarshal(raw, &members)
	}
	if text, ok := jsonx.Text(raw); ok {
		return text
	}
	var content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	var parts []string
	if json.Unmarshal(members["content"], &content) == nil {
		for _, c := range content {
			if c.Type == "text" {
				parts = append(parts, c.Text)
			}
		}
	}
	if len(parts) > 0 {
		return strings.Join(parts, "\n")
	}
	for _, name := range []string{"text", "output"} {
		if text, ok := jsonx.Text(members[name]); ok {
			return text
		}
	}
	return string(raw)
}

// lines bounds a list of texts, which is never null on the wire.
func lines(list []string) []string {
	out := []string{}
	for _, text := range list[:min(len(list), maxLines)] {
		out = append(out, cut(text, maxLine))
	}
	return out
}

func cut(s string, n int) string {
	return text.FitRunes(strings.ToValidUTF8(s, "\uFFFD"), n)
}
