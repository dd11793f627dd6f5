// Package agentverbs has the eight verbs about task agents and their tasks (task-agents,
// sections 7.1 to 7.8): begin a task, start, tell, list and stop agents, control, look
// back at and show tasks. A verb finds out what is meant, calls the part that does it, and
// says in words what came of it; no verb keeps a thing or decides about one.
package agentverbs

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/framework"
	"github.com/junctor-run/junctor/internal/task/agents"
	"github.com/junctor-run/junctor/internal/task/choice"
	"github.com/junctor-run/junctor/internal/task/history"
	"github.com/junctor-run/junctor/internal/task/launch"
	"github.com/junctor-run/junctor/internal/task/sessions"
	"github.com/junctor-run/junctor/internal/task/threads"
	"github.com/junctor-run/junctor/internal/task/threads/row"
	"github.com/junctor-run/junctor/internal/task/threads/share"
	"github.com/junctor-run/junctor/internal/task/verbs/utterance"
	"github.com/junctor-run/junctor/internal/task/verbs/verb"
	"github.com/junctor-run/junctor/internal/workspace"
)

// Launcher begins and controls the work of threads; it is package launch's.
type Launcher interface {
	Create(ctx context.Context, by capability.Principal, t launch.Task) (launch.Created, error)
	Control(ctx context.Context, by capability.Principal, c launch.Control) (launch.Controlled, error)
	// Track has the coordinator look after a session that runs already, as a task of its own.
	Track(ctx context.Context, by capability.Principal, session, task, label string) (threadID string, err error)
}

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

// Registry is what is used of threads.Registry.
type Registry interface {
	List(ctx context.Context, f threads.Filter) ([]threads.Summary, error)
	Count(ctx context.Context, f threads.Filter) (int, error)
	Find(ctx context.Context, search string) (threads.Summary, error)
	Detail(ctx context.Context, thread string, s threads.Selection) (threads.Detail, error)
	Session(ctx context.Context, id string) (row.Session, error)
	Pending(ctx context.Context) ([]row.PendingDecision, error)
	Share(ctx context.Context, thread string, roots share.Roots) (threads.Shared, error)
}

// Choice says which program does a task.
type Choice interface {
	State(ctx context.Context, t choice.Task) choice.State
	// Fixed is the program that does every task, "" where the best is chosen for each.
	Fixed() framework.Name
}

// History is what is used of history.File.
type History interface {
	Lessons() []history.Entry
	LastRepo() string
}

// Model is what is used of a language model.
type Model interface {
	Ask(ctx context.Context, small bool, prompt string) (string, error)
}

// Config is what the verbs work with. Without Launcher, Agents or Registry the verbs that
// need them answer SERVICE_UNAVAILABLE; without Model no brief is written, without History
// there are no lessons and no last repository. Choice, Now and Talks are required.
type Config struct {
	Launcher Launcher
	Agents   Agents
	Registry Registry
	Choice   Choice
	History  History
	Model    Model
	// Workspaces lists the places with a repository, the newest first; nil: there are none, and
	// no task may have a repository.
	Workspaces func() []workspace.Workspace
	Roots      share.Roots // what may be shown
	Talks      *verb.Talks
	Now        func() time.Time
}

// Verbs are the verbs.
type Verbs struct{ cfg Config }

// New makes the verbs.
func New(cfg Config) *Verbs { return &Verbs{cfg} }

// Do is one verb. What it could not do is in its result and is its error as well.
type Do = func(ctx context.Context, c verb.Call, params json.RawMessage) (verb.Result, error)

// Table is every verb by its name.
func (v *Verbs) Table() map[verb.Name]Do {
	needs := func(there bool, do Do) Do {
		if there {
			return do
		}
		return func(context.Context, verb.Call, json.RawMessage) (verb.Result, error) {
			return verb.Fail(verb.ServiceUnavailable.Errorf("task agents do not run on this server"), nil)
		}
	}
	launcher, live, registry := v.cfg.Launcher != nil, v.cfg.Agents != nil, v.cfg.Registry != nil
	return map[verb.Name]Do{
		verb.CreateTask:  needs(launcher, v.create),
		verb.SpawnAgent:  needs(live, v.spawn),
		verb.SendToAgent: needs(live, v.send),
		verb.ListAgents:  needs(live && registry, v.list),
		verb.StopAgent:   needs(live, v.stop),
		verb.TaskControl: needs(launcher && registry, v.control),
		verb.TaskHistory: needs(registry, v.history),
		verb.TaskShare:   needs(registry, v.share),
	}
}

// session is the one that is meant: by its id, else the conversation's, else the newest
// that runs.
func (v *Verbs) session(c verb.Call, id string) (Terminal, error) {
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
	return nil, verb.NoSession.Errorf("no agent is running")
}

// program is a framework by any of its names; "" is none.
func program(name string) (framework.Name, error) {
	if name == "" {
		return "", nil
	}
	n, ok := framework.Normalise(name)
	if !ok {
		return "", verb.AgentNotInstalled.Errorf("there is no agent type %.60q", name)
	}
	return n, nil
}

// pick is the program for a task: the fixed one, else the one that was asked for; in place of
// a shell, or of Pi, the best that can reason where the task is written for a reader
// (task-agents, section 7.1). "" leaves the choice to the launcher.
func (v *Verbs) pick(ctx context.Context, wanted framework.Name, t choice.Task) framework.Name {
	if fixed := v.cfg.Choice.Fixed(); fixed != "" {
		wanted = fixed
	}
	if wanted != framework.Shell && wanted != framework.Pi || !utterance.Prose(t.Text) {
		return wanted
	}
	state := v.cfg.Choice.State(ctx, t)
	reasons := func(f choice.Framework) bool { return f.ID != framework.Shell && f.ID != framework.Pi && f.Usable() }
	best := choice.Framework{}
	for _, f := range state.Frameworks {
		if reasons(f) && (best.ID == "" || f.ID == state.Preferred.ID || f.Score > best.Score && best.ID != state.Preferred.ID) {
			best = f
		}
	}
	if best.ID == "" {
		return wanted // nothing else can be used
	}
	return best.ID
}
