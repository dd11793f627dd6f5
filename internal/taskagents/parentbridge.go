package taskagents

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
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/agentserve"
	"github.com/junctor-run/junctor/secret"
)

// taskOrigin identifies who created a session's task, and in which conversation.
type taskOrigin struct {
	Creator string // id of the principal that created the task
	Session string
	Thread  string // "" if the session has no thread
	Room    string // the creator's conversation, or ""
	// Said holds messages that the creator passed with the task, for rooms that this
	// server does not store.
	Said []string
}

// Rooms lists the messages of conversations, as [session.Messages] does.
type Rooms interface {
	List(ctx context.Context, o session.Owner, after int64, limit int) ([]session.Message, error)
}

// parentBridge answers task agents about the agent or person they work for. The answer comes
// from the service that the operator has named, otherwise from the conversation in which the
// task was given and from the configured character. A conversation belongs to the principal
// that created the task, and only that principal's messages are read. It is safe for
// concurrent use.
type parentBridge struct {
	rooms Rooms
	// service answers a question with the rights of the origin's creator. It is nil if none
	// is configured. A question is an object with op and the members of the origin. The answer
	// to decide is the coordinator's decision, to context {"character": {...}}, and to memory
	// {"messages": [...]}.
	service   func(ctx context.Context, o taskOrigin, question json.RawMessage) (json.RawMessage, error)
	character agents.Character // not used if its name is empty
	logger    *slog.Logger
}

// decide returns the service's decision. The caller sets the timeout.
func (p *parentBridge) decide(ctx context.Context, o taskOrigin, event, prompt string) (string, error) {
	raw, err := p.ask(ctx, o, map[string]any{"op": "decide", "event": event, "prompt": prompt})
	return resultText(raw), err
}

// context returns the character and the conversation of a session. Either may be nil.
func (p *parentBridge) context(ctx context.Context, o taskOrigin) (*agents.Character, *agents.Room) {
	var room *agents.Room
	if o.Room != "" {
		room = &agents.Room{ID: o.Room, ThreadID: o.Thread}
	}
	who := p.character
	if p.service != nil {
		ctx, cancel := context.WithTimeout(ctx, parentTimeout)
		defer cancel()
		raw, err := p.ask(ctx, o, map[string]any{"op": "context"})
		if c, ok := parseCharacter(raw); ok && err == nil {
			who = c
		} else {
			p.logger.Debug("the parent's service says nothing of itself", "session", o.Session, "err", err)
		}
	}
	if who.Name == "" {
		return nil, room
	}
	who.Name, who.Bio, who.Topics = boundText(who.Name, maxSpeaker), boundLines(who.Bio), boundLines(who.Topics)
	return &who, room
}

// memory returns the newest messages of a session's conversation that contain the query,
// ignoring case. limit is bounded to 1 to maxRemembered.
//
// Errors are invalid_input (missing_query, query_too_long) and unavailable
// (parent_context_timeout after 5 s; parent_context_unavailable if neither the room nor the
// creator has messages for the session).
func (p *parentBridge) memory(ctx context.Context, o taskOrigin, query string, limit int) (agentserve.Memory, error) {
	const op = "bridge"
	query = strings.TrimSpace(query)
	switch {
	case query == "":
		return agentserve.Memory{}, capability.Errorf(capability.CodeInvalidInput, op, "say what to look for: q").With("missing_query", "")
	case utf8.RuneCountInString(query) > maxMemoryQuery:
		return agentserve.Memory{}, capability.Errorf(capability.CodeInvalidInput, op, "q has at most %d characters",
			maxMemoryQuery).With("query_too_long", "")
	}
	limit = min(max(limit, 1), maxRemembered)
	ctx, cancel := context.WithTimeout(ctx, parentTimeout)
	defer cancel()
	list, ok, err := p.remembered(ctx, o, query, limit)
	if !ok && ctx.Err() == nil {
		list, ok, err = p.said(ctx, o, query, limit)
	}
	if !ok && ctx.Err() == nil && len(o.Said) > 0 {
		list, ok = []agentserve.MemoryMessage{}, true
		for _, text := range o.Said {
			if mentions(text, query) {
				list = append(list, agentserve.MemoryMessage{Speaker: "conversation", Text: text})
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		return agentserve.Memory{}, capability.Wrap(capability.CodeUnavailable, op, "what was said could not be looked up in time",
			ctx.Err()).With("parent_context_timeout", "try again, or go on without it")
	case !ok:
		return agentserve.Memory{}, capability.Wrap(capability.CodeUnavailable, op, "this session belongs to no conversation",
			err).With("parent_context_unavailable", "go on without it")
	}
	list = list[max(0, len(list)-limit):]
	for i, m := range list {
		list[i] = agentserve.MemoryMessage{
			Speaker: boundText(m.Speaker, maxSpeaker),
			Text:    boundText(secret.MaskTokens(m.Text), maxRememberedText), CreatedAt: boundText(m.CreatedAt, maxSpeaker),
		}
	}
	return agentserve.Memory{RoomID: o.Room, Query: query, Count: len(list), Messages: list}, nil
}

// remembered returns the messages that the service remembers; ok is false if it returns
// none.
func (p *parentBridge) remembered(ctx context.Context, o taskOrigin, query string,
	limit int,
) (list []agentserve.MemoryMessage, ok bool, err error) {
	if p.service == nil {
		return nil, false, nil
	}
	raw, err := p.ask(ctx, o, map[string]any{"op": "memory", "query": query, "limit": limit})
	if err != nil {
		p.logger.Debug("the parent's service remembers nothing", "session", o.Session, "err", err)
		return nil, false, err
	}
	var said struct {
		Messages []agentserve.MemoryMessage `json:"messages"`
	}
	if jsonx.Unmarshal([]byte(resultText(raw)), &said) != nil || said.Messages == nil {
		return nil, false, nil
	}
	return said.Messages, true, nil
}

// said searches all messages of the room and returns the newest limit ones that contain the
// query; ok is false if the room has no messages.
func (p *parentBridge) said(ctx context.Context, o taskOrigin, query string,
	limit int,
) (list []agentserve.MemoryMessage, ok bool, err error) {
	owner := session.Owner{Principal: o.Creator, Session: o.Room}
	if err := owner.Check(); err != nil {
		return nil, false, err
	}
	list = []agentserve.MemoryMessage{}
	for after := int64(0); ; {
		some, err := p.rooms.List(ctx, owner, after, roomPage)
		if err != nil {
			return nil, false, err
		}
		for _, m := range some {
			after = m.Seq
			if mentions(m.Text, query) {
				list = append(list, agentserve.MemoryMessage{Speaker: m.Role, Text: m.Text, CreatedAt: m.Time.UTC().Format(time.RFC3339)})
			}
		}
		list = slices.Delete(list, 0, max(0, len(list)-limit))
		ok = ok || len(some) > 0
		if len(some) < roomPage {
			return list, ok, nil
		}
	}
}

// mentions reports whether a text contains the query outside of credentials.
func mentions(text, query string) bool {
	return strings.Contains(strings.ToLower(secret.MaskTokens(text)), strings.ToLower(query))
}

// ask calls the service, or fails with unavailable if it is missing.
func (p *parentBridge) ask(ctx context.Context, o taskOrigin, question map[string]any) (json.RawMessage, error) {
	if p.service == nil {
		return nil, capability.Errorf(capability.CodeUnavailable, "task.parent",
			"no service answers for the parent").With("parent_context_unavailable", "set agents.parent")
	}
	question["sessionId"], question["threadId"], question["roomId"] = o.Session, o.Thread, o.Room
	raw, err := jsonx.Marshal(question)
	if err != nil {
		return nil, err
	}
	return p.service(ctx, o, raw)
}

// parseCharacter parses {"character": …}, whose bio is a text or a list of texts. ok is false
// if the character is malformed or has no name.
func parseCharacter(raw json.RawMessage) (c agents.Character, ok bool) {
	var said struct {
		Character *struct {
			Name   string    `json:"name"`
			Bio    jsonx.Raw `json:"bio"`
			Topics []string  `json:"topics"`
		} `json:"character"`
	}
	if jsonx.Unmarshal([]byte(resultText(raw)), &said) != nil || said.Character == nil || said.Character.Name == "" {
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

// resultText returns the text of a result: the result itself if it is a string, its MCP
// content, text or output, the same of a service's result member, otherwise its JSON.
func resultText(raw json.RawMessage) string {
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

// boundLines bounds a list of texts. The result is never null on the wire.
func boundLines(list []string) []string {
	out := []string{}
	for _, text := range list[:min(len(list), maxBioLines)] {
		out = append(out, boundText(text, maxBioLine))
	}
	return out
}

func boundText(s string, n int) string {
	return text.FitRunes(strings.ToValidUTF8(s, "\uFFFD"), n)
}
