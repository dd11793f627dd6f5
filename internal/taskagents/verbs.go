package taskagents

import (
	"context"
	"path/filepath"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
)

// openVerbs creates t.verbs. It requires t.threads and t.settings.
func (s *Service) openVerbs(t *taskAgents) {
	v := t.settings.Now()
	cfg := verbs.Config{
		Launcher: t.threads.launcher, Agents: t, Registry: t.threads.registry, Choice: t.chooser,
		Roots: threads.ShareRoots{Allowed: s.agentRoots(), Resolve: filepath.EvalSymlinks}, Policy: verbs.Parse(v.RolePolicy, v.ConnectorPolicy),
		Now: time.Now,
	}
	if s.cfg.Model != nil {
		cfg.Model = coordinatorModel{s.cfg.Model}
	}
	if s.folders.missing == nil {
		cfg.Workspaces = s.folders.Manager
	}
	t.verbs = verbs.New(cfg)
}

// Text is a resource that agents read. Readers need the permission for Action.
type Text struct {
	URI                      string // junctor://…
	Name, Title, Description string
	Action                   capability.Action
	Read                     func(ctx context.Context, by capability.Principal) (string, error)
}

// Outlook returns what the task agents of a principal do, as a text; "" if they do nothing.
func (s *Service) Outlook(ctx context.Context, by capability.Principal) (string, error) {
	return s.workers.verbs.Outlook(ctx, by)
}

// Texts returns the resources for agents that delegate tasks to other agents.
func (s *Service) Texts() []Text {
	return []Text{
		{
			URI: "junctor://task-agents/context", Name: "task-agents-context", Title: "Task agents now", Action: "task-agent.list",
			Description: "The agents that you have at work, their tasks and workspaces, what waits for a yes, and which programs there are.",
			Read: func(ctx context.Context, by capability.Principal) (string, error) {
				return s.workers.verbs.Context(ctx, by)
			},
		},
		{
			URI: "junctor://task-agents/examples", Name: "task-agents-examples", Title: "How to delegate", Action: "task-agent.list",
			Description: "Examples of calls that give work to task agents.",
			Read: func(ctx context.Context, by capability.Principal) (string, error) {
				return s.workers.verbs.Examples(ctx, by)
			},
		},
	}
}
