package verbs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Do runs one verb. A failure is in both the result and the error.
type Do = func(ctx context.Context, c Call, params json.RawMessage) (Result, error)

// Needs returns do if there is true, otherwise a verb that fails with SERVICE_UNAVAILABLE.
func Needs(there bool, do Do) Do {
	if there {
		return do
	}
	return func(context.Context, Call, json.RawMessage) (Result, error) {
		return Fail(ServiceUnavailable.Errorf("what this needs does not run on this server"), nil)
	}
}

// Program returns the canonical name of a program; "" for "" and auto. An unknown name fails
// with AGENT_NOT_INSTALLED.
func Program(name string) (programs.Name, error) {
	if name == "" || name == "auto" {
		return "", nil
	}
	n, ok := programs.Normalise(name)
	if !ok {
		return "", AgentNotInstalled.Errorf("there is no agent type %.60q", name)
	}
	return n, nil
}

// Summary is a task in the lists of verbs.
type Summary struct {
	ThreadID  string           `json:"threadId"`
	Title     string           `json:"title"`
	Kind      row.ThreadKind   `json:"kind"`
	Status    row.ThreadStatus `json:"status"`
	Request   string           `json:"originalRequest"`
	Summary   string           `json:"summary,omitempty"`
	Repo      string           `json:"repo,omitempty"`
	Workdir   string           `json:"workdir,omitempty"`
	SessionID string           `json:"latestSessionId,omitempty"`
	Sessions  int              `json:"sessionCount"`
	Created   time.Time        `json:"createdAt"`
	Active    row.Millis       `json:"latestActivityAt"`
}

// Summaries converts tasks and cuts their requests and summaries.
func Summaries(list []threads.Summary) []Summary {
	out := []Summary{}
	for _, s := range list {
		out = append(out, Summary{
			s.ID, s.Title, s.Kind, s.Status, text.Line(s.OriginalRequest, MaxListedText), text.Line(s.Summary, MaxListedText), s.LatestRepo,
			s.LatestWorkdir,
			s.LatestSessionID, s.SessionCount, s.CreatedAt, s.LatestActivityAt,
		})
	}
	return out
}

// Unfinished returns the statuses of open, active and waiting tasks.
func Unfinished() []row.ThreadStatus {
	return []row.ThreadStatus{row.ThreadOpen, row.ThreadActive, row.ThreadWaiting, row.ThreadBlocked, row.ThreadValidating}
}
