package verbs

import (
	"context"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// own returns a copy of cfg whose Agents, Registry and Launcher show only sessions and threads
// of a principal. Others appear as not found.
func own(cfg Config, by capability.Principal) Config {
	if cfg.Agents != nil {
		cfg.Agents = ownAgents{cfg.Agents, by.ID}
	}
	if cfg.Registry != nil {
		cfg.Registry = ownThreads{cfg.Registry, by.ID}
		if cfg.Launcher != nil {
			cfg.Launcher = ownLauncher{cfg.Launcher, cfg.Registry}
		}
	}
	return cfg
}

type ownAgents struct {
	Agents
	by string
}

func (o ownAgents) List() []agents.Info {
	return slices.DeleteFunc(o.Agents.List(), func(i agents.Info) bool { return i.Owner != o.by })
}

func (o ownAgents) Get(id string) (agents.Info, sessions.Live, error) {
	if !slices.ContainsFunc(o.List(), func(i agents.Info) bool { return i.ID == id }) {
		return agents.Info{}, nil, SessionNotFound.Errorf("none of your sessions has the id %.60q", id)
	}
	return o.Agents.Get(id)
}

type ownThreads struct {
	Registry
	by string
}

func none(thread string) error {
	return ThreadNotFound.Errorf("there is no thread %.60q of yours", thread)
}

func (o ownThreads) List(ctx context.Context, f threads.Filter) ([]threads.Summary, error) {
	f.AgentID = o.by
	return o.Registry.List(ctx, f)
}

func (o ownThreads) Count(ctx context.Context, f threads.Filter) (int, error) {
	f.AgentID = o.by
	return o.Registry.Count(ctx, f)
}

func (o ownThreads) Find(ctx context.Context, search, _ string) (threads.Summary, error) {
	return o.Registry.Find(ctx, search, o.by)
}

func (o ownThreads) Lessons(ctx context.Context, _ string) ([]threads.Lesson, error) {
	return o.Registry.Lessons(ctx, o.by)
}

func (o ownThreads) Detail(ctx context.Context, thread string, s threads.Selection) (threads.Detail, error) {
	d, err := o.Registry.Detail(ctx, thread, s)
	if err == nil && d.AgentID != o.by {
		return threads.Detail{}, none(thread)
	}
	return d, err
}

func (o ownThreads) Session(ctx context.Context, id string) (row.Session, error) {
	s, err := o.Registry.Session(ctx, id)
	if err == nil && s.AgentID != o.by {
		return row.Session{}, SessionNotFound.Errorf("none of your sessions has the id %.60q", id)
	}
	return s, err
}

func (o ownThreads) Share(ctx context.Context, thread string, roots threads.ShareRoots) (threads.Shared, error) {
	if _, err := o.Detail(ctx, thread, threads.Selection{Fields: []threads.Field{}}); err != nil {
		return threads.Shared{}, err
	}
	return o.Registry.Share(ctx, thread, roots)
}

func (o ownThreads) Pending(ctx context.Context) ([]row.PendingDecision, error) {
	list, err := o.Registry.Pending(ctx)
	return slices.DeleteFunc(list, func(p row.PendingDecision) bool {
		_, hidden := o.Session(ctx, p.SessionID)
		return hidden != nil
	}), err
}

type ownLauncher struct {
	Launcher
	threads Registry // limited to the principal
}

func (o ownLauncher) Control(ctx context.Context, by capability.Principal, c launch.Control) (launch.Controlled, error) {
	if _, err := o.threads.Detail(ctx, c.ThreadID, threads.Selection{Fields: []threads.Field{}}); err != nil {
		return launch.Controlled{}, err
	}
	return o.Launcher.Control(ctx, by, c)
}
