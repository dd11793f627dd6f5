package verbs

// This file has the four verbs about running agents: start, send, list and stop. The
// coordinator supervises the work of agents that have a task.

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
)

// Agents starts agents' programs and gives access to running ones. Package agents implements
// it.
type Agents interface {
	Spawn(ctx context.Context, by capability.Principal, req agents.Request) (agents.Info, error)
	List() []agents.Info // the oldest first
	// Terminal returns a session that runs or ended recently. It fails with not_found, reason
	// session_not_found.
	Terminal(id string) (Terminal, error)
}

// Terminal is one session, with or without a terminal.
type Terminal interface {
	Info() sessions.Info
	Send(ctx context.Context, text string, atOnce bool) (sessions.Outcome, error)
	Keys(ctx context.Context, names []string) error
	Choose(ctx context.Context, fingerprint, label string) error
	Stop(force bool)
}

// agentRegistry is the part of threads.Registry that the verbs about agents use.
type agentRegistry interface {
	List(ctx context.Context, f threads.Filter) ([]threads.Summary, error)
	Pending(ctx context.Context) ([]row.PendingDecision, error)
}

// agentLauncher starts supervised work. Package launch implements it.
type agentLauncher interface {
	Create(ctx context.Context, by capability.Principal, t launch.Task) (launch.Created, error)
	// Track creates a task for a running session, which the coordinator then supervises, and
	// sends the task to it.
	Track(ctx context.Context, by capability.Principal, session, task, label string) (threadID string, err error)
}

// Tasks is the part of the verbs about tasks that the verbs about agents use.
type Tasks interface {
	// Create runs CREATE_TASK.
	Create(ctx context.Context, c Call, params json.RawMessage) (Result, error)
	// Pick returns the program for a task, or "" to leave the choice to the launcher.
	Pick(ctx context.Context, wanted programs.Name, t choice.Task) programs.Name
}

// agentConfig holds the dependencies of the verbs. If Agents or Registry is nil, the verbs that
// need it fail with SERVICE_UNAVAILABLE. If Launcher is nil, agents are started and prompted
// without a supervised task. Tasks, State and Talks are required.
type agentConfig struct {
	Agents   Agents
	Registry agentRegistry
	Launcher agentLauncher
	Tasks    Tasks
	State    func(ctx context.Context, t choice.Task) choice.State // of the programs
	// Workspaces lists the workspaces, the newest first; may be nil.
	Workspaces func() []workspace.Workspace
	Talks      *Talks
}

// agentVerbs implements the verbs about agents.
type agentVerbs struct{ cfg agentConfig }

// newAgentVerbs returns the verbs about agents.
func newAgentVerbs(cfg agentConfig) *agentVerbs { return &agentVerbs{cfg} }

// Table returns the verbs by name.
func (v *agentVerbs) Table() map[Name]Do {
	live := v.cfg.Agents != nil
	return map[Name]Do{
		SpawnAgent:  Needs(live, v.spawn),
		SendToAgent: Needs(live, v.send),
		ListAgents:  Needs(live && v.cfg.Registry != nil, v.list),
		StopAgent:   Needs(live, v.stop),
	}
}

// session returns the session with the given id. If id is "", it returns the last session of
// the call's conversation if that is live, otherwise the newest live session; without one it
// fails with NO_SESSION.
func (v *agentVerbs) session(c Call, id string) (Terminal, error) {
	if id != "" {
		return v.cfg.Agents.Terminal(id)
	}
	if last := v.cfg.Talks.Last(c).SessionID; last != "" {
		if t, err := v.cfg.Agents.Terminal(last); err == nil && t.Info().Live() {
			return t, nil
		}
	}
	for _, i := range slices.Backward(v.cfg.Agents.List()) {
		if i.Live() {
			return v.cfg.Agents.Terminal(i.ID)
		}
	}
	return nil, NoSession.Errorf("no agent is running")
}
