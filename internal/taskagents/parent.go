package taskagents

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/agentserve"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// openParent returns the bridge to the parent service and the character that are configured.
func (s *Service) openParent() *parentBridge {
	own := s.cfg.Agents.Character
	p := &parentBridge{rooms: s.cfg.Rooms, character: agents.Character{Name: own.Name, Topics: own.Topics}, logger: s.logger}
	if own.Bio != "" {
		p.character.Bio = []string{own.Bio}
	}
	if s.cfg.Agents.Parent != "" {
		p.service = s.parentService
	}
	return p
}

// parentService calls the target of agents.parent with the rights of the task's creator. If
// policy requires an approval for the call, it fails with denied, reason parent_needs_approval.
func (s *Service) parentService(ctx context.Context, o taskOrigin, question json.RawMessage) (json.RawMessage, error) {
	by, err := s.cfg.Standing(o.Creator)
	if err != nil {
		return nil, err
	}
	target, err := capability.ParseTarget(s.cfg.Agents.Parent)
	if err != nil {
		return nil, err
	}
	if target.Member.Kind == "service" { // an endpoint's service has positional arguments
		question = json.RawMessage(`{"args":[` + string(question) + `]}`)
	}
	call := capability.Invocation{
		Surface: "agents", Principal: by, Session: o.Session, Target: target, Input: question, Timeout: decisionTimeout,
		Audience: capability.AudienceInternal,
	}
	if p := s.cfg.Engine.Plan(ctx, call); p.Err == nil && p.Verdict.Consent != "" { // an approval for each question is not practical
		return nil, capability.Errorf(capability.CodeDenied, "task.parent", "%s may ask %s only with an approval each time", by.ID, target).
			With("parent_needs_approval", "permit it by a policy")
	}
	reply, err := s.cfg.Engine.Invoke(ctx, call)
	return reply.Result, err
}

// origin returns the creator, thread and conversation of a session's task. The session's
// thread names them; a session without thread belongs to its own creator and room. If the
// registry cannot be read, or does not have the session although thread is set, origin returns
// the error and an origin without creator.
func (c *taskThreads) origin(ctx context.Context, session, thread, creator, room string) (taskOrigin, error) {
	o := taskOrigin{Session: session, Creator: creator, Room: room}
	if s, err := c.registry.Session(ctx, session); err == nil {
		thread = s.ThreadID
	} else if capability.CodeOf(err) != capability.CodeNotFound || thread != "" { // its creator is unknown
		return taskOrigin{Session: session}, err
	}
	if thread == "" {
		return o, nil
	}
	d, err := c.registry.Detail(ctx, thread, threads.Selection{Fields: []threads.Field{}})
	o.Thread, o.Creator, o.Room = thread, d.AgentID, cmp.Or(d.RoomID, row.Meta(d.Metadata, row.OriginSession))
	var told struct {
		Messages []string `json:"originMessages"`
	}
	if jsonx.Unmarshal(d.Metadata, &told) == nil {
		o.Said = told.Messages
	}
	return o, err
}

// deciding implements coordinator.Parent with the bridge.
type deciding struct {
	parent *parentBridge
	c      *taskThreads
}

// Decide implements coordinator.Parent.
func (d deciding) Decide(ctx context.Context, q coordinator.Question) (string, error) {
	o, err := d.c.origin(ctx, q.SessionID, q.ThreadID, "", "")
	if err != nil {
		return "", err
	}
	return d.parent.decide(ctx, o, q.Event, q.Prompt)
}

// Alive implements agentserve.Agents: it reports whether the session has a parent context.
func (t *taskAgents) Alive(session string) bool {
	_, ok := t.Parent(session)
	return ok
}

// ParentContext implements agentserve.Agents.
func (t *taskAgents) ParentContext(ctx context.Context, session string) (agents.ParentContext, bool) {
	doc, o, ok := t.asked(ctx, session)
	if !ok {
		return doc, false
	}
	if who, room := t.threads.parent.context(ctx, o); who != nil || room != nil {
		doc.Character, doc.Room = who, room
	}
	return doc, true
}

// Memory implements agentserve.Agents.
func (t *taskAgents) Memory(ctx context.Context, session, query string, limit int) (agentserve.Memory, bool, error) {
	_, o, ok := t.asked(ctx, session)
	if !ok {
		return agentserve.Memory{}, false, nil
	}
	m, err := t.threads.parent.memory(ctx, o, query, limit)
	return m, true, err
}

// asked returns the parent context of a session and the origin of its task. ok is false if
// the session is unknown. An origin that cannot be read is logged and has no creator.
func (t *taskAgents) asked(ctx context.Context, session string) (doc agents.ParentContext, o taskOrigin, ok bool) {
	if doc, ok = t.Parent(session); !ok {
		return doc, o, false
	}
	o, err := t.threads.origin(ctx, session, doc.ThreadID, doc.Creator, doc.RoomID)
	if err != nil {
		t.threads.follower.logger.Debug("a session's program is not told of its room", "session", session, "err", err)
	}
	return doc, o, true
}
