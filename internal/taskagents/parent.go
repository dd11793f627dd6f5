package taskagents

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/parent"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// decisionTime is how long a service may think; its caller may end that sooner.
const decisionTime = 30 * time.Second

// openParent makes what answers for whoever agents work for.
func (s *Service) openParent() *parent.Parent {
	cfg := parent.Config{
		Rooms: s.cfg.Rooms, Character: parent.Character{Name: s.cfg.Agents.Character.Name, Topics: s.cfg.Agents.Character.Topics}, Logger: s.logger,
	}
	if bio := s.cfg.Agents.Character.Bio; bio != "" {
		cfg.Character.Bio = []string{bio}
	}
	if s.cfg.Agents.Parent != "" {
		cfg.Service = s.parentService
	}
	return parent.New(cfg)
}

// parentService calls what agents.parent names, as whoever made the task.
func (s *Service) parentService(ctx context.Context, o parent.Origin, question json.RawMessage) (json.RawMessage, error) {
	by, err := s.cfg.Standing(o.Creator)
	if err != nil {
		return nil, err
	}
	target, err := capability.ParseTarget(s.cfg.Agents.Parent)
	if err != nil {
		return nil, err
	}
	if target.Member.Kind == "service" { // of an endpoint's module: its arguments have places
		question = json.RawMessage(`{"args":[` + string(question) + `]}`)
	}
	call := capability.Invocation{
		Surface: "agents", Principal: by, Session: o.Session, Target: target, Input: question, Timeout: decisionTime, Audience: capability.AudienceInternal,
	}
	if p := s.cfg.Engine.Plan(ctx, call); p.Err == nil && p.Verdict.Consent != "" { // nobody wants to approve each question
		return nil, capability.Errorf(capability.CodeDenied, "task.parent", "%s may ask %s only with an approval each time", by.ID, target).
			With("parent_needs_approval", "permit it by a policy")
	}
	reply, err := s.cfg.Engine.Invoke(ctx, call)
	return reply.Result, err
}

// origin is where the task of a session comes from. A thread says who made it and in which
// conversation; a session without one is its maker's.
func (c *taskThreads) origin(ctx context.Context, session, thread, creator, room string) (parent.Origin, error) {
	o := parent.Origin{Session: session, Creator: creator, Room: room}
	if s, err := c.registry.Session(ctx, session); err == nil {
		thread = s.ThreadID
	} else if capability.CodeOf(err) != capability.CodeNotFound || thread != "" { // nobody has said whose that is
		return parent.Origin{Session: session}, err
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

// deciding is the service as the coordinator asks it.
type deciding struct {
	*parent.Parent
	c *taskThreads
}

// Decide implements coordinator.Parent.
func (d deciding) Decide(ctx context.Context, q coordinator.Question) (string, error) {
	o, err := d.c.origin(ctx, q.SessionID, q.ThreadID, "", "")
	if err != nil {
		return "", err
	}
	return d.Parent.Decide(ctx, o, q.Event, q.Prompt)
}

// Alive implements agentserve.Agents.
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
	if who, room := t.threads.parent.Context(ctx, o); who != nil || room != nil {
		doc.Character, doc.Room = who, room
	}
	return doc, true
}

// Memory implements agentserve.Agents.
func (t *taskAgents) Memory(ctx context.Context, session, query string, limit int) (parent.Memory, bool, error) {
	_, o, ok := t.asked(ctx, session)
	if !ok {
		return parent.Memory{}, false, nil
	}
	m, err := t.threads.parent.Memory(ctx, o, query, limit)
	return m, true, err
}

// asked is what is known of a session whose program asks, and where its task comes from.
func (t *taskAgents) asked(ctx context.Context, session string) (doc agents.ParentContext, o parent.Origin, ok bool) {
	if doc, ok = t.Parent(session); !ok {
		return doc, o, false
	}
	o, err := t.threads.origin(ctx, session, doc.ThreadID, doc.Creator, doc.RoomID)
	if err != nil {
		t.threads.follower.logger.Debug("a session's program is not told of its room", "session", session, "err", err)
	}
	return doc, o, true
}
