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
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
)

func startFields() threads.Selection {
	return threads.Selection{Fields: []threads.Field{
		threads.FieldNodes, threads.FieldDependencies, threads.FieldSessions,
		threads.FieldMailbox,
	}}
}

// start starts the ready parts of a thread concurrently and independently. It returns the
// state of each part that had no session before. wait is Control.Wait.
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

// unassigned returns the parts of a plan that have no session.
func unassigned(d threads.Detail) []row.Node {
	return slices.DeleteFunc(slices.Clone(d.Nodes), func(n row.Node) bool { return n.Kind != row.ExecutionNode || n.AssignedSessionID != "" })
}

// started returns the state of a part that this call does not start.
func started(n row.Node) Started {
	return Started{SessionID: n.AssignedSessionID, Label: n.AssignedLabel, AgentType: programs.Name(n.AgentType), Status: string(n.Status)}
}

// begun reports whether a part was started or may still start, or no part failed. It also
// adjusts list: if some part runs, errors of ready parts are removed, because they wait for a
// slot ([Launcher.Begin]); if none runs, all parts are marked failed, because nothing can start
// them any more.
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

// part starts one part, or returns its state if another caller starts or has started it. A
// part that got no slot, or whose thread was stopped meanwhile, stays ready; after another
// failure it is marked failed, unless ctx has ended.
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
	if full(err) || capability.AsError(err).Reason == threads.ReasonState { // no slot, or a client has stopped the thread
		return out
	}
	out.Status = "failed"
	if ctx.Err() == nil { // otherwise the next reader of the thread starts it
		l.fail(ctx, thread, n, err)
	}
	return out
}

// fail logs that a part could not be started and marks it failed in the registry.
func (l *Launcher) fail(ctx context.Context, thread string, n row.Node, why error) {
	l.cfg.Logger.Warn("a part of a task could not be started", "thread", thread, "part", n.AssignedLabel, "err", why)
	if _, err := l.cfg.Registry.SetNode(context.WithoutCancel(ctx), thread, n.ID, row.NodeFailed); err != nil {
		l.cfg.Logger.Error("a part that could not be started is still ready", "thread", thread, "node", n.ID, "err", err)
	}
}

// claim reserves a part for its caller until done is called. mine is false if another caller
// has reserved it.
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

// begin selects program and folder of a part, starts its session, registers it and marks the
// messages in its prompt as delivered.
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
	if len(place.Conflicts) > 0 && name != programs.Shell {
		text = conflicted(place.Conflicts) + "\n\nThen: " + text
	}
	i, err := l.spawnWhenFree(ctx, d, wait, func() (agents.Info, error) {
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

// spawnWhenFree calls spawn again while no slot is free, and stops the thread's completed sessions to
// free some. It gives up after slotTimeout, or at once if it has nothing to stop; with wait, only
// when the thread is paused or stopped, or ctx ends. It returns the last result of spawn.
func (l *Launcher) spawnWhenFree(ctx context.Context, d threads.Detail, wait bool, spawn func() (agents.Info, error)) (agents.Info, error) {
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

// full reports whether err means that the maximal number of sessions runs.
func full(err error) bool {
	return err != nil && capability.AsError(err).Reason == sessions.ReasonTooMany
}

// release stops the completed sessions of a thread, which otherwise stay for a moment so that
// a client can continue them. It reports whether there were any. Sessions with keepAlive stay.
func (l *Launcher) release(d threads.Detail) (some bool) {
	for _, s := range d.Sessions {
		var said struct {
			Keep bool `json:"keepAlive"` // requested by the client
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

// register registers a session with the coordinator. If that fails, it stops the session.
func (l *Launcher) register(ctx context.Context, in threads.Registration) error {
	_, err := l.coordinator.Register(ctx, in)
	if err != nil {
		l.cfg.Agents.Stop(in.Session.SessionID, true)
	}
	return err
}

// program returns the program of a part: the requested one, otherwise the chooser's preferred
// one. It fails with unavailable, reason agent_not_installed, if that is not usable.
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

// place returns the folder of a part: its worktree of a user's checkout, its given one, the thread's clone if it is the only part,
// otherwise a new worktree beside the clone. Without repository and folder the path is "".
func (l *Launcher) place(ctx context.Context, d threads.Detail, n row.Node) (Place, error) {
	if c, ok := checkoutOf(d.Thread); ok {
		return l.partPlace(ctx, d, n, c)
	}
	if n.Repo == "" || n.Workdir != "" {
		return Place{Path: n.Workdir}, nil
	}
	clone, err := l.clone(ctx, d.ID, n.Repo, row.Meta(d.Metadata, metaBase), d.Title)
	if err != nil || len(d.Nodes) == 2 {
		return clone, err
	}
	w, err := l.cfg.Workspaces.Provision(ctx, workspace.Request{Parent: clone.ID, Role: "part", Slug: n.AssignedLabel})
	return placeOf(w), err
}

// clone returns the clone of a thread. The first call creates it and stores its id in the
// thread.
func (l *Launcher) clone(ctx context.Context, thread, repo, base, label string) (Place, error) {
	l.places.Lock()
	defer l.places.Unlock()
	d, err := l.cfg.Registry.Detail(ctx, thread, threads.Selection{Fields: []threads.Field{}})
	if err != nil {
		return Place{}, err
	}
	if id := row.Meta(d.Metadata, metaWorkspace); id != "" {
		w, err := l.cfg.Workspaces.Get(id)
		return placeOf(w), err
	}
	w, err := l.cfg.Workspaces.Provision(ctx, workspace.Request{Repo: repo, BaseBranch: base, Role: "task", Slug: label})
	if err != nil {
		return Place{}, err
	}
	_, err = l.cfg.Registry.UpdateThread(ctx, thread, func(t *row.Thread) { t.Metadata = row.WithMeta(t.Metadata, metaWorkspace, w.ID) })
	return placeOf(w), err
}

// instructions returns the prompt of a part (its task, its pending messages and the summaries
// of the parts that it depends on) and the ids of the messages. A shell gets only its task,
// because it executes every line as a command.
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

// quoted returns an agent's text, cut and fenced, as data for another agent.
func quoted(s string) string { return decide.Fence(text.ShortenRunes(s, maxResult)) }

// spawn starts a program for a part of a thread. It uses Task and ResumeToken of req and sets
// the other fields from the thread, the part and the place.
func (l *Launcher) spawn(ctx context.Context, by capability.Principal, t row.Thread, n row.Node, p Place, name programs.Name,
	req agents.Request,
) (agents.Info, error) {
	label := cmp.Or(n.AssignedLabel, t.Title)
	meta, err := row.WithMember(nil, "keepAliveAfterComplete", true)
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
	c, ok := checkoutOf(t)
	req.Trusted = ok && c.Here && req.Workdir == c.Source.Path
	req.Memory, req.Preset = row.Meta(t.Metadata, metaMemory), programs.Preset(row.Meta(t.Metadata, metaPreset))
	req.Mode = sessions.Mode(row.Meta(t.Metadata, metaMode))
	return l.cfg.Agents.Spawn(ctx, by, req)
}

// session returns the registry's row of a session that was started for part n.
func (l *Launcher) session(t row.Thread, n row.Node, i agents.Info, p Place) row.Session {
	s := row.Session{
		SessionID: i.ID, AgentID: t.AgentID, Framework: string(i.AdapterType), Label: n.AssignedLabel, OriginalTask: n.Instructions,
		Workdir: i.Workdir, Repo: n.Repo,
	}
	for key, value := range map[string]string{
		row.ResumeToken: i.ResumeToken, metaWorkspace: p.ID, metaPreset: string(i.Preset), metaMode: string(i.Mode),
		"taskNodeId": n.ID,
	} {
		s.Metadata = row.WithMeta(s.Metadata, key, value)
	}
	var said struct {
		Keep bool `json:"keepAliveAfterComplete"`
	}
	if len(t.Metadata) > 0 && json.Unmarshal(t.Metadata, &said) == nil && said.Keep {
		if meta, err := row.WithMember(s.Metadata, "keepAlive", true); err == nil {
			s.Metadata = meta
		}
	}
	return s
}
