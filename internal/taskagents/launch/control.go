package launch

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Control performs an operation on a thread. It returns when the programs that it starts run;
// programs that it stops may end later.
//
// Its errors: invalid_input (invalid_operation, missing_instruction, unknown_agent_type),
// not_found (thread_not_found), conflict (wrong_state; nothing_to_resume), and, if no program
// could be started, the error of the first.
func (l *Launcher) Control(ctx context.Context, by capability.Principal, c Control) (Controlled, error) {
	if l.cfg.Changed != nil {
		defer l.cfg.Changed(c.ThreadID)
	}
	switch c.Operation {
	case Pause, Stop:
		return l.halt(ctx, c)
	case Resume, Continue:
		return l.goOn(ctx, by, c)
	case Archive, Reopen:
		m, err := l.cfg.Registry.Control(ctx, c.ThreadID, threads.Control(c.Operation), c.Note)
		return Controlled{ThreadID: c.ThreadID, Action: c.Operation, Status: m.Thread.Status}, err
	}
	return Controlled{}, capability.Errorf(capability.CodeInvalidInput, "tasks.control", "there is no operation %.40q", c.Operation).
		With("invalid_operation", "operations are pause, stop, resume, continue, archive and reopen")
}

// halt pauses or stops a thread and stops its live sessions. The sessions keep the data to
// resume them.
func (l *Launcher) halt(ctx context.Context, c Control) (Controlled, error) {
	m, err := l.cfg.Registry.Control(ctx, c.ThreadID, threads.Control(c.Operation), c.Note)
	if err != nil {
		return Controlled{}, err
	}
	defer l.coordinator.Conclude(c.ThreadID) // without live sessions no session's end would report it
	out := Controlled{ThreadID: c.ThreadID, Action: c.Operation, Status: m.Thread.Status}
	for _, s := range m.Sessions {
		if s.Status.Live() {
			l.cfg.Agents.Stop(s.SessionID, false)
			out.Stopped = append(out.Stopped, s.SessionID)
		}
	}
	return out, nil
}

// goOn resumes or continues a thread. Continue sends the instruction to the newest live
// session or, if none is live, starts the newest ended session again with it. Resume starts
// every session that has not completed, and the parts without session. Programs run with the
// rights of the thread's creator.
func (l *Launcher) goOn(ctx context.Context, by capability.Principal, c Control) (Controlled, error) {
	const op = "tasks.control"
	out := Controlled{ThreadID: c.ThreadID, Action: c.Operation}
	name := programs.Name("")
	if c.AgentType != "" {
		ok := false
		if name, ok = programs.Normalise(c.AgentType); !ok {
			return out, capability.Errorf(capability.CodeInvalidInput, op, "there is no agent type %.60q",
				c.AgentType).With(programs.ReasonUnknownAgent, agentTypes)
		}
	}
	if c.Operation == Continue && strings.TrimSpace(c.Instruction) == "" {
		return out, capability.Errorf(capability.CodeInvalidInput, op, "continuing needs an instruction").With("missing_instruction",
			"say what is to be done, or resume")
	}
	d, err := l.cfg.Registry.Detail(ctx, c.ThreadID, startFields())
	if err != nil {
		return out, err
	}
	live, rest := sorted(d.Sessions)
	if c.Session != "" {
		other := func(s row.Session) bool { return s.SessionID != c.Session }
		live, rest = slices.DeleteFunc(live, other), slices.DeleteFunc(rest, other)
	}
	if c.Operation == Continue && len(live) > 0 {
		s := live[len(live)-1]
		out.Status = d.Status
		out.Agents = []Started{{
			SessionID: s.SessionID, AgentType: programs.Name(s.Framework), Workdir: s.Workdir, Label: s.Label,
			Status: string(s.Status),
		}}
		return out, l.cfg.Agents.Send(ctx, s.SessionID, c.Instruction)
	}
	if c.Operation == Continue && len(rest) > 0 {
		rest = rest[len(rest)-1:]
	} else {
		rest = slices.DeleteFunc(rest, func(s row.Session) bool { return s.Status == row.SessionCompleted })
	}
	waiting := slices.DeleteFunc(unassigned(d), func(n row.Node) bool { return n.Status != row.NodeReady && n.Status != row.NodeFailed })
	if len(rest) == 0 && len(waiting) == 0 && d.Status != row.ThreadArchived { // Registry.Control refuses an archived thread
		return out, capability.Errorf(capability.CodeConflict, op, "nothing of the thread %q is left undone",
			c.ThreadID).With("nothing_to_resume", "continue it with an instruction")
	}
	defer l.coordinator.Conclude(c.ThreadID)
	defer l.starts(c.ThreadID)()
	if _, err := l.cfg.Registry.Control(ctx, c.ThreadID, threads.Resume, c.Note); err != nil {
		return out, err
	}
	// The thread keeps its creator's rights if another caller continues it.
	if by.ID != d.AgentID {
		if by, err = l.cfg.Standing(d.AgentID); err != nil {
			return out, err
		}
	}
	if out.Task, err = l.handle(ctx, by, d.Thread); err != nil {
		return out, err
	}
	for _, n := range waiting {
		if n.Status == row.NodeFailed {
			if _, err := l.cfg.Registry.SetNode(ctx, d.ID, n.ID, row.NodePlanned); err != nil {
				return out, err
			}
		}
	}
	out.Agents = make([]Started, len(rest))
	var group sync.WaitGroup
	for i, old := range rest {
		group.Go(func() { out.Agents[i] = l.again(ctx, by, d, old, name, c) })
	}
	group.Wait()
	if len(waiting) > 0 {
		out.Agents = append(out.Agents, l.start(ctx, by, d.ID, c.Wait)...)
	}
	now, err := l.cfg.Registry.Detail(ctx, c.ThreadID, threads.Selection{Fields: []threads.Field{}})
	out.Status = now.Status
	if err == nil && !begun(out.Agents) {
		if len(live) == 0 {
			l.giveUp(ctx, c.ThreadID, "nothing of it could be started again")
		}
		err = out.Agents[0].Error
	}
	return out, err
}

// starts marks that parts of a thread are being started (see Starting) until done is called.
func (l *Launcher) starts(thread string) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starting[thread]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.starting[thread]--; l.starting[thread] == 0 {
			delete(l.starting, thread)
		}
	}
}

// Starting implements coordinator.Config.Starting.
func (l *Launcher) Starting(thread string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starting[thread] > 0
}

// sorted divides sessions into live ones and others, in their order. It leaves out sessions
// that were replaced.
func sorted(list []row.Session) (live, rest []row.Session) {
	for _, s := range list {
		switch {
		case row.Meta(s.Metadata, row.ReplacedBy) != "":
		case s.Status.Live():
			live = append(live, s)
		default:
			rest = append(rest, s)
		}
	}
	return live, rest
}

// again starts and registers a session in place of an ended one. It resumes the old
// conversation if the program is the same, accepted the task, and reported a resume token;
// otherwise it starts with the task.
func (l *Launcher) again(ctx context.Context, by capability.Principal, d threads.Detail, old row.Session, name programs.Name,
	c Control,
) Started {
	out := Started{Label: old.Label, AgentType: programs.Name(old.Framework), Workdir: old.Workdir, Status: "failed"}
	if name == "" {
		name = programs.Name(old.Framework)
	}
	req := agents.Request{}
	// A program that never received the task has no conversation to resume.
	took := old.TaskDelivered || row.Meta(old.Metadata, row.StartOver) != ""
	if token := row.Meta(old.Metadata, row.ResumeToken); token != "" && string(name) == old.Framework && took {
		req.ResumeToken = token
	}
	req.Task = goingOn(old, name, req.ResumeToken != "", c)
	i, err := l.spawnWhenFree(ctx, d, c.Wait, func() (agents.Info, error) { return l.replace(ctx, by, d.Thread, old, name, req) })
	if err == nil {
		s := l.session(d.Thread, nodeOf(d, old), i, Place{ID: row.Meta(old.Metadata, metaWorkspace)})
		s.OriginalTask, s.Repo, s.Label = old.OriginalTask, old.Repo, old.Label
		if req.ResumeToken != "" {
			s.Metadata = row.WithMeta(s.Metadata, row.StartOver, goingOn(old, name, false, c))
		}
		err = l.register(ctx, threads.Registration{ThreadID: d.ID, Session: s, Replaces: []string{old.SessionID}})
	}
	if err != nil {
		out.Error = asError(err)
		return out
	}
	out.SessionID, out.AgentType, out.Status = i.ID, i.AdapterType, string(i.Status)
	return out
}

// goingOn returns the prompt for a session that continues old. remembers reports that the
// program resumes the conversation, so that the task is not repeated. A shell gets only the
// instruction or the task, because it executes every line as a command.
func goingOn(old row.Session, name programs.Name, remembers bool, c Control) string {
	if name == programs.Shell {
		return cmp.Or(strings.TrimSpace(c.Instruction), old.OriginalTask)
	}
	var b strings.Builder
	switch {
	case remembers && c.Operation == Resume:
		b.WriteString("You were interrupted. Go on where you stopped.")
		if old.OriginalTask != "" { // a program that was killed may have lost the beginning of the conversation
			b.WriteString("\n\nIf you do not know the task any more, it is:\n\n> " + strings.ReplaceAll(old.OriginalTask, "\n", "\n> "))
		}
	case !remembers:
		b.WriteString(old.OriginalTask)
		if old.TaskDelivered {
			b.WriteString("\n\nThis was begun before, in the same folder, and interrupted: look at what is there first, and do not start over.")
		}
		if old.CompletionSummary != "" {
			b.WriteString("\n\nIt had come to this:\n" + quoted(old.CompletionSummary))
		}
	}
	for _, text := range []string{c.Instruction, c.Note} {
		if strings.TrimSpace(text) != "" {
			b.WriteString("\n\n" + strings.TrimSpace(text))
		}
	}
	return strings.TrimSpace(b.String())
}

func nodeOf(d threads.Detail, s row.Session) row.Node {
	for _, n := range d.Nodes {
		if n.AssignedSessionID == s.SessionID {
			return n
		}
	}
	return row.Node{ID: row.Meta(s.Metadata, "taskNodeId"), AssignedLabel: s.Label, Repo: s.Repo}
}

// replace starts a program in the folder and with the preset of the session old.
func (l *Launcher) replace(ctx context.Context, by capability.Principal, t row.Thread, old row.Session, name programs.Name,
	req agents.Request,
) (agents.Info, error) {
	if preset := row.Meta(old.Metadata, metaPreset); preset != "" {
		t.Metadata = row.WithMeta(t.Metadata, metaPreset, preset)
	}
	switch mode := row.Meta(old.Metadata, metaMode); {
	case string(name) != old.Framework: // the other program may not have that mode
	case mode != "":
		t.Metadata = row.WithMeta(t.Metadata, metaMode, mode)
	case req.ResumeToken != "": // of a version that started all programs in a terminal
		t.Metadata = row.WithMeta(t.Metadata, metaMode, string(sessions.InPTY))
	}
	n := row.Node{ID: row.Meta(old.Metadata, "taskNodeId"), AssignedLabel: old.Label, Repo: old.Repo, Workdir: old.Workdir}
	return l.spawn(ctx, by, t, n, Place{ID: row.Meta(old.Metadata, metaWorkspace), Path: old.Workdir}, name, req)
}

// Next implements coordinator.Fleet. It returns the usable program with the highest score that
// is not in failed.
func (l *Launcher) Next(ctx context.Context, task string, failed []programs.Name) (programs.Name, bool) {
	state := l.cfg.Chooser.State(ctx, choice.Task{Text: task, Workdir: true})
	var best *choice.Framework
	for i := range state.Frameworks {
		f := &state.Frameworks[i]
		if !f.Usable() || slices.Contains(failed, f.ID) || best != nil && best.Score >= f.Score {
			continue
		}
		best = f
	}
	if best == nil {
		return "", false
	}
	return best.ID, true
}

// Rest implements coordinator.Fleet.
func (l *Launcher) Rest(ctx context.Context, name programs.Name, c choice.CoolDown) error {
	return l.cfg.Chooser.Rest(ctx, name, c)
}

// Spawn implements coordinator.Fleet.
func (l *Launcher) Spawn(ctx context.Context, old row.Session, name programs.Name, task string) (string, error) {
	d, err := l.cfg.Registry.Detail(ctx, old.ThreadID, threads.Selection{Fields: []threads.Field{}})
	if err != nil {
		return "", err
	}
	by, err := l.cfg.Standing(d.AgentID)
	if err != nil {
		return "", err
	}
	i, err := l.replace(ctx, by, d.Thread, old, name, agents.Request{Task: task})
	return i.ID, err
}

// Begin implements coordinator.Config.Begin. It waits for slots, and marks the ready parts as
// failed if the thread's creator has no rights any more.
func (l *Launcher) Begin(ctx context.Context, thread string) {
	defer l.starts(thread)()
	d, err := l.cfg.Registry.Detail(ctx, thread, startFields())
	if err != nil {
		return // the coordinator reads the thread again and logs the error
	}
	by, err := l.cfg.Standing(d.AgentID)
	if err == nil {
		l.start(ctx, by, thread, true)
		return
	}
	for _, n := range unassigned(d) {
		if n.Status == row.NodeReady {
			l.fail(ctx, thread, n, err)
		}
	}
}

// Recover calls settle for the closed threads whose end an earlier server process did not
// report, and pauses those that had only parts left to start. It returns the threads that can be
// resumed: the paused ones, those for which settle returns true, and open threads without
// sessions. Call it after the registry's Restart.
func (l *Launcher) Recover(ctx context.Context, settle func(threads.Moved) (resumable bool)) (left []row.Thread, err error) {
	list, err := l.cfg.Registry.List(ctx, threads.Filter{
		Statuses: []row.ThreadStatus{row.ThreadOpen, row.ThreadActive, row.ThreadDone, row.ThreadFailed, row.ThreadInterrupted},
		Limit:    maxSettled,
	})
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		// A thread whose end was reported is settled, even if no answer arrived in time.
		if row.Meta(s.Metadata, metaGateway) != l.cfg.Gateway || threads.Told(s.Thread, s.SessionCount) {
			continue
		}
		d, err := l.cfg.Registry.Detail(ctx, s.ID, startFields())
		if err != nil {
			return left, err
		}
		live, _ := sorted(d.Sessions)
		switch {
		case d.Status == row.ThreadOpen && len(d.Sessions) == 0:
			left = append(left, d.Thread)
		case d.Status == row.ThreadActive && len(live) == 0 && !l.Starting(d.ID):
			m, err := l.cfg.Registry.Control(ctx, d.ID, threads.Pause, "the server was restarted")
			if err != nil {
				return left, err
			}
			left = append(left, m.Thread)
		case d.Status.Closed() && settle(threads.Moved{Thread: d.Thread, Sessions: d.Sessions, Nodes: d.Nodes}):
			left = append(left, d.Thread)
		}
	}
	return left, nil
}
