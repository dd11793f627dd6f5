package taskagents

import (
	"context"
	"log/slog"

	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/decide"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/secret"
)

// taskRecords adds the results of tasks to the history that later, similar tasks read.
type taskRecords struct {
	registry *threads.Registry
	history  *verbs.File
	scratch  *workspace.ScratchKeeper
	logger   *slog.Logger
}

// run handles coordinator events until ctx or events ends.
func (r taskRecords) run(ctx context.Context, events <-chan coordinator.Event) {
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			r.remember(ctx, e)
		case <-ctx.Done():
			return
		}
	}
}

// remember adds an event to the history. At the end of a swarm it instead releases the
// scratch folders of the swarm's sessions. Events of other types are ignored.
func (r taskRecords) remember(ctx context.Context, e coordinator.Event) {
	entry := verbs.Entry{SessionID: e.SessionID, Timestamp: e.Timestamp.UnixMilli()}
	switch e.Type {
	case "task_registered":
		entry.Type = verbs.Registered
	case "task_complete":
		entry.Type = verbs.Completed
	case "stopped":
		entry.Type = verbs.Stopped
	case "error":
		entry.Type = verbs.Failed
	case "decision_shared":
		entry.Type = verbs.KeyDecision
	case "swarm_complete":
		swarm, _ := e.Data.(decide.Swarm)
		for _, t := range swarm.Tasks { // their folders are not used any more
			if err := r.scratch.Release(t.SessionID); err != nil {
				r.logger.Warn("the folder of a session is still there", "session", t.SessionID, "err", err)
			}
		}
		return
	default:
		return
	}
	s, err := r.registry.Session(ctx, e.SessionID)
	if err != nil {
		return
	}
	entry.Label, entry.AgentType, entry.Repo, entry.Workdir = s.Label, s.Framework, s.Repo, s.Workdir
	switch data, _ := e.Data.(map[string]string); entry.Type {
	case verbs.Registered:
		entry.OriginalTask = secret.MaskTokens(s.OriginalTask)
	case verbs.KeyDecision:
		entry.Reasoning = secret.MaskTokens(data["text"])
	default:
		entry.CompletionSummary = secret.MaskTokens(s.CompletionSummary)
	}
	if err := r.history.Append(entry); err != nil {
		r.logger.Warn("the history of tasks has a gap", "err", err)
	}
}
