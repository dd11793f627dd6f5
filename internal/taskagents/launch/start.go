package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/sessions"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/decide"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

const (
	maxResult       = 8000 // characters of what a part before has come to
	slotTimeout     = 15 * time.Second
	minSlotInterval = 200 * time.Millisecond // the first; each later one is after twice the time
	maxSlotInterval = 2 * time.Second
)

func startFields() threads.Selection {
	return threads.Selection{Fields: []threads.Field{
		threads.FieldNodes, threads.FieldDependencies, threads.FieldSessions,
		threads.FieldMailbox,
	}}
}

// start starts the parts of a thread that are ready, all at once: one that fails does not
// stop the others. It tells of every part that had no session yet. wait is Control's.
func (l *Launcher) start(ctx context.Context, by capability.Principal, thread string, wait bool) []Started {
	d, err := l.cfg.Registry.Detail(ctx, thread, startFields())
	if err != nil {
		return []Started{{Status: "failed", Error: asError(err)}}
	}
	list := unassigned(d)
	out := make([]Started, len(list))
	var group sync.WaitGroup
	for i, n := range list {
		if out[i] = started(n); n.Status == row.NodeReady {
			group.Go(func() { out[i] = l.part(ctx, by, thread, n, wait) })
		}
	}
	group.Wait()
	return out
}

// unassigned are the parts of a plan that have no session.
func unassigned(d threads.Detail) []row.Node {
	return slices.DeleteFunc(slices.Clone(d.Nodes), func(n row.Node) bool { return n.Kind != row.ExecutionNode || n.AssignedSessionID != "" })
}

func started(n row.Node) Started {
	return Started{SessionID: n.AssignedSessionID, Label: n.AssignedLabel, AgentType: programs.Name(n.AgentType), Status: string(n.Status)}
}

// begun reports whether something of a task was started, or is by another launcher, or nothing of
// it failed. Parts that found no place then wait for one ([Launcher.Begin]); where nothing was
// started, parts that wait for others wait in vain.
func begun(list []Started) bool {
	some := slices.ContainsFunc(list, func(s Started) bool {
		return s.SessionID != "" || s.Status == string(row.NodeReady) && s.Error == nil
	})
	var first *capability.Error
	for _, s := range list {
		first = cmp.Or(first, s.Error)
	}
	if first == nil {
		return true
	}
	for i := range list {
		switch s := &list[i]; {
		case !some:
			s.Status, s.Error = "failed", cmp.Or(s.Error, first)
		case s.Status == string(row.NodeReady):
			s.Error = nil
		}
	}
	return some
}

// part starts one part, or reports its state if another launcher starts it or has.
func (l *Launcher) part(ctx context.Context, by capability.Principal, thread string, n row.Node, wait bool) Started {
	done, mine := l.claim(n.ID)
	if !mine {
		return started(n)
	}
	defer done()
	d, err := l.cfg.Registry.Detail(ctx, thread, startFields())
	if err == nil {
		if at := slices.IndexFunc(d.Nodes, func(o row.Node) bool { return o.ID == n.ID }); at >= 0 {
			n = d.Nodes[at]
		}
		if n.Status != row.NodeReady || n.AssignedSessionID != "" {
			return started(n)
		}
		var i agents.Info
		if i, err = l.begin(ctx, by, d, n, wait); err == nil {
			return Started{SessionID: i.ID, Label: n.AssignedLabel, AgentType: i.AdapterType, Workdir: i.Workdir, Status: string(i.Status)}
		}
	}
	out := started(n)
	out.Error = asError(err)
	if full(err) || capability.AsError(err).Reason == threads.ReasonState { // a client has stopped the thread meanwhile
		return out
	}
	out.Status = "failed"
	if ctx.Err() == nil { // otherwise the next reader of the thread starts it
		l.fail(ctx, thread, n, err)
	}
	return out
}

// fail keeps that a part could not be started.
func (l *Launcher) fail(ctx context.Context, thread string, n row.Node, why error) {
	l.cfg.Logger.Warn("a part of a task could not be started", "thread", thread, "part", n.AssignedLabel, "err", why)
	if _, err := l.cfg.Registry.SetNode(context.WithoutCancel(ctx), thread, n.ID, row.NodeFailed); err != nil {
		l.cfg.Logger.Error("a part that could not be started is still ready", "thread", thread, "node", n.ID, "err", err)
	}
}

// claim takes a part to be started, which no other launcher may start until done.
func (l *Launcher) claim(node string) (done func(), mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parts[node] {
		return nil, false
	}
	l.parts[node] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.parts, node)
	}, true
}

func (l *Launcher) begin(ctx context.Context, by capability.Principal, d threads.Detail, n row.Node, wait bool) (agents.Info, error) {
	name, err := l.program(ctx, d, n)
	if err != nil {
		return agents.Info{}, err
	}
	place, err := l.place(ctx, d, n)
	if err != nil {
		return agents.Info{}, err
	}
	text, mail := instructions(d, n, name)
	i, err := l.room(ctx, d, wait, func() (agents.Info, error) {
		return l.spawn(ctx, by, d.Thread, n, place, name, agents.Request{Task: text})
	})
	if err != nil {
		return agents.Info{}, err
	}
	if err := l.register(ctx, threads.Registration{ThreadID: d.ID, Node: n.ID, Session: l.session(d.Thread, n, i, place)}); err != nil {
		return agents.Info{}, err
	}
	for _, m := range mail {
		if err := l.cfg.Registry.MoveMail(ctx, d.ID, m, row.MailDelivered, i.ID); err != nil {
			l.cfg.Logger.Warn("a message that an agent was given still counts as waiting", "thread", d.ID, "err", err)
		}
	}
	return i, nil
}

// room spawns once there is a place: it waits for those that sessions of the thread
// itself give up, for slotTimeout, and with wait for any.
func (l *Launcher) room(ctx context.Context, d threads.Detail, wait bool, spawn func() (agents.Info, error)) (agents.Info, error) {
	i, err := spawn()
	until, look := time.Now().Add(slotTimeout), minSlotInterval
	for ; full(err); i, err = spawn() {
		if own := l.release(d); !wait && (!own || time.Now().After(until)) {
			break
		}
		select {
		case <-time.After(look):
			look = min(2*look, maxSlotInterval)
		case <-ctx.Done():
			return agents.Info{}, ctx.Err()
		}
		if now, err := l.cfg.Registry.Detail(ctx, d.ID, threads.Selection{Fields: []threads.Field{threads.FieldSessions}}); err == nil {
			d = now
		}
		if d.Held() {
			break
		}
	}
	return i, err
}

// full reports that as many sessions run as may.
func full(err error) bool {
	return err != nil && capability.AsError(err).Reason == sessions.ReasonTooMany
}

// release ends the sessions of a thread that are done, which are kept for a moment in case
// a client goes on with them: the parts that waited for them need their places. It says
// whether there are any.
func (l *Launcher) release(d threads.Detail) (some bool) {
	for _, s := range d.Sessions {
		var said struct {
			Keep bool `json:"keepAlive"` // a client asked for it
		}
		if len(s.Metadata) > 0 && json.Unmarshal(s.Metadata, &said) != nil || said.Keep {
			continue
		}
		if s.Status == row.SessionCompleted {
			l.cfg.Agents.Stop(s.SessionID, false)
			some = true
		}
	}
	return some
}

// register hands a session to the coordinator; one that cannot be looked after is ended.
func (l *Launcher) register(ctx context.Context, in threads.Registration) error {
	_, err := l.coordinator.Register(ctx, in)
	if err != nil {
		l.cfg.Agents.Stop(in.Session.SessionID, true)
	}
	return err
}

// program is who does a part: who was asked for, else the best.
func (l *Launcher) program(ctx context.Context, d threads.Detail, n row.Node) (programs.Name, error) {
	if n.AgentType != "" {
		return programs.Name(n.AgentType), nil
	}
	state := l.cfg.Chooser.State(ctx, choice.Task{
		Text: n.Instructions, Repo: n.Repo != "", Workdir: n.Workdir != "", Criteria: string(d.AcceptanceCriteria) != "[]",
		Subtasks: len(d.Nodes) - 1, Kind: string(d.Kind),
	})
	for _, f := range state.Frameworks {
		if f.ID == state.Preferred.ID && f.Usable() {
			return f.ID, nil
		}
	}
	return "", capability.Errorf(capability.CodeUnavailable, op, "no program for agents can be used: %s", state.Preferred.Reason).
		With("agent_not_installed", "install and log in to one of "+programs.Scored()+"; junctor frameworks list says what is missing")
}

// place is where a part works. A thread has one clone; where it has several parts, each
// has a worktree beside it.
func (l *Launcher) place(ctx context.Context, d threads.Detail, n row.Node) (Place, error) {
	if n.Repo == "" || n.Workdir != "" {
		return Place{Path: n.Workdir}, nil
	}
	clone, err := l.clone(ctx, d.ID, n.Repo, row.Meta(d.Metadata, metaBase), d.Title)
	if err != nil || len(d.Nodes) == 2 {
		return clone, err
	}
	return l.cfg.Workspaces.Worktree(ctx, clone.ID, n.AssignedLabel)
}

// clone is the thread's own, made by the first that needs it.
func (l *Launcher) clone(ctx context.Context, thread, repo, base, label string) (Place, error) {
	l.places.Lock()
	defer l.places.Unlock()
	d, err := l.cfg.Registry.Detail(ctx, thread, threads.Selection{Fields: []threads.Field{}})
	if err != nil {
		return Place{}, err
	}
	if id := row.Meta(d.Metadata, metaWorkspace); id != "" {
		return l.cfg.Workspaces.Path(id)
	}
	place, err := l.cfg.Workspaces.Clone(ctx, repo, base, label)
	if err != nil {
		return Place{}, err
	}
	_, err = l.cfg.Registry.UpdateThread(ctx, thread, func(t *row.Thread) { t.Metadata = row.WithMeta(t.Metadata, metaWorkspace, place.ID) })
	return place, err
}

// instructions are what a part's agent is told: its task, what it was sent, and what the
// parts that it waited for have come to; and the messages among that. A shell is told its
// commands alone: it would carry out every other line as one.
func instructions(d threads.Detail, n row.Node, name programs.Name) (text string, mail []string) {
	if name == programs.Shell {
		return n.Instructions, nil
	}
	var b strings.Builder
	b.WriteString(n.Instructions)
	for _, m := range d.Mailbox {
		if m.NodeID == n.ID && m.DeliveryState == row.MailPending {
			b.WriteString("\n\n" + m.Body)
			mail = append(mail, m.ID)
		}
	}
	for _, dep := range d.Dependencies {
		if dep.ToNodeID != n.ID || dep.DependencyKind == row.ParentChild {
			continue
		}
		at := slices.IndexFunc(d.Nodes, func(o row.Node) bool { return o.ID == dep.FromNodeID })
		if at < 0 {
			continue
		}
		for _, s := range d.Sessions {
			if s.SessionID == d.Nodes[at].AssignedSessionID && s.CompletionSummary != "" {
				b.WriteString("\n\n" + s.Label + " has come to this, in " + s.Workdir + ":\n" + quoted(s.CompletionSummary))
			}
		}
	}
	return b.String(), mail
}

// quoted is what an agent said, as data for another one.
func quoted(s string) string { return decide.Fence(text.ShortenRunes(s, maxResult)) }

// spawn starts a program for a part of a thread. What is set in req stays.
func (l *Launcher) spawn(ctx context.Context, by capability.Principal, t row.Thread, n row.Node, p Place, name programs.Name,
	req agents.Request,
) (agents.Info, error) {
	label := cmp.Or(n.AssignedLabel, t.Title)
	meta, err := withMember(nil, "keepAliveAfterComplete", true)
	if err != nil {
		return agents.Info{}, err
	}
	for key, value := range map[string]string{
		"label": label, "threadId": t.ID, "taskNodeId": n.ID, "repo": n.Repo, "roomId": t.RoomID,
		"userId": t.OwnerUserID, metaWorkspace: p.ID,
	} {
		meta = row.WithMeta(meta, key, value)
	}
	req.AgentType, req.Workdir, req.Name, req.Metadata = string(name), cmp.Or(p.Path, n.Workdir), label, meta
	req.Memory, req.Preset = row.Meta(t.Metadata, metaMemory), programs.Preset(row.Meta(t.Metadata, metaPreset))
	return l.cfg.Agents.Spawn(ctx, by, req)
}

// session is a session as the registry keeps it.
func (l *Launcher) session(t row.Thread, n row.Node, i agents.Info, p Place) row.Session {
	s := row.Session{
		SessionID: i.ID, AgentID: t.AgentID, Framework: string(i.AdapterType), Label: n.AssignedLabel, OriginalTask: n.Instructions,
		Workdir: i.Workdir, Repo: n.Repo,
	}
	for key, value := range map[string]string{
		row.ResumeToken: i.ResumeToken, metaWorkspace: p.ID, metaPreset: string(i.Preset),
		"taskNodeId": n.ID,
	} {
		s.Metadata = row.WithMeta(s.Metadata, key, value)
	}
	var said struct {
		Keep bool `json:"keepAliveAfterComplete"`
	}
	if len(t.Metadata) > 0 && json.Unmarshal(t.Metadata, &said) == nil && said.Keep {
		if meta, err := withMember(s.Metadata, "keepAlive", true); err == nil {
			s.Metadata = meta
		}
	}
	return s
}
