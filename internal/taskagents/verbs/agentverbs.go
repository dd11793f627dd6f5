package verbs

// This file has the four verbs about agents that run: start one, tell it something, list
// them, stop them. Whose work is looked after, and how, is the coordinator's.

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

// Agents starts agents' programs and knows those that run; it is package agents'.
type Agents interface {
	Spawn(ctx context.Context, by capability.Principal, req agents.Request) (agents.Info, error)
	List() []agents.Info // the oldest first
	// Terminal is a session that runs or has ended lately: not_found, session_not_found.
	Terminal(id string) (Terminal, error)
}

// Terminal is one session, in a terminal or not.
type Terminal interface {
	Info() sessions.Info
	Send(ctx context.Context, text string, atOnce bool) (sessions.Outcome, error)
	Keys(ctx context.Context, names []string) error
	Choose(ctx context.Context, fingerprint, label string) error
	Stop(force bool)
}

// agentRegistry is what is used of threads.Registry.
type agentRegistry interface {
	List(ctx context.Context, f threads.Filter) ([]threads.Summary, error)
	Pending(ctx context.Context) ([]row.PendingDecision, error)
}

// agentLauncher begins work that is looked after; it is package launch's.
type agentLauncher interface {
	Create(ctx context.Context, by capability.Principal, t launch.Task) (launch.Created, error)
	// Track has the coordinator look after a session that runs already, as a task of its own,
	// and tells it what to do.
	Track(ctx context.Context, by capability.Principal, session, task, label string) (threadID string, err error)
}

// Tasks are the verbs about tasks.
type Tasks interface {
	// Create is CREATE_TASK.
	Create(ctx context.Context, c Call, params json.RawMessage) (Result, error)
	// Pick is the program for a task, "" where any will do.
	Pick(ctx context.Context, wanted programs.Name, t choice.Task) programs.Name
}

// agentConfig is what the verbs work with. Without Agents or Registry the verbs that need them
// answer SERVICE_UNAVAILABLE; without Launcher the messages to agents are not followed up here.
// Tasks, State and Talks are required.
type agentConfig struct {
	Agents   Agents
	Registry agentRegistry
	Launcher agentLauncher
	Tasks    Tasks
	State    func(ctx context.Context, t choice.Task) choice.State // of the programs
	// Workspaces lists the places with a repository, the newest first; may be nil.
	Workspaces func() []workspace.Workspace
	Talks      *Talks
}

// agentVerbs are the verbs.
type agentVerbs struct{ cfg agentConfig }

// newAgentVerbs makes the verbs.
func newAgentVerbs(cfg agentConfig) *agentVerbs { return &agentVerbs{cfg} }

// Table is every verb by its name.
func (v *agentVerbs) Table() map[Name]Do {
	live := v.cfg.Agents != nil
	return map[Name]Do{
		SpawnAgent:  Needs(live, v.spawn),
		SendToAgent: Needs(live, v.send),
		ListAgents:  Needs(live && v.cfg.Registry != nil, v.list),
		StopAgent:   Needs(live, v.stop),
	}
}

// session is the one that is meant: by its id, else the conversation's, else the newest
// that runs.
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
