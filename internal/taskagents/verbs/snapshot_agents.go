package verbs

import (
	"context"

	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
)

// Snapshot returns the input of [Context]. message is the user's current message, or "". The
// lists of missing dependencies are empty.
func (v *agentVerbs) Snapshot(ctx context.Context, message string) (s Snapshot, err error) {
	if v.cfg.Workspaces != nil {
		for _, w := range v.cfg.Workspaces() {
			if w.Mode != workspace.Folder {
				s.Workspaces = append(s.Workspaces, Workspace{ID: w.ID, Label: w.Label, Repo: w.Repo.URL, Branch: w.Branch})
			}
		}
	}
	if v.cfg.Agents != nil {
		for _, i := range v.cfg.Agents.List() {
			if !i.Live() {
				continue
			}
			one := Session{ID: i.ID, Label: i.Name, AgentType: i.AgentType, Status: shown(i.Status)}
			if i.Blocker != nil {
				one.Asks = i.Blocker.Prompt
			}
			s.Sessions = append(s.Sessions, one)
		}
	}
	if v.cfg.State != nil {
		state := v.cfg.State(ctx, choice.Task{Text: message})
		s.Frameworks, s.Preferred = state.Frameworks, state.Preferred
	}
	s.Message = message
	if v.cfg.Registry == nil {
		return s, nil
	}
	tasks, err := v.cfg.Registry.List(ctx, threads.Filter{Statuses: Unfinished(), Limit: maxTasks})
	if err != nil {
		return s, err
	}
	for _, t := range tasks {
		s.Tasks = append(s.Tasks, Task{ID: t.ID, Title: t.Title, Status: string(t.Status)})
	}
	waiting, err := v.cfg.Registry.Pending(ctx)
	for _, p := range waiting {
		s.Confirmations = append(s.Confirmations, Confirmation{SessionID: p.SessionID, Prompt: p.PromptText})
	}
	return s, err
}
