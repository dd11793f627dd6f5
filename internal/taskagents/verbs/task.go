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

// Do is one verb. What it could not do is in its result and is its error as well.
type Do = func(ctx context.Context, c Call, params json.RawMessage) (Result, error)

// Needs is a verb that works only where its parts are there.
func Needs(there bool, do Do) Do {
	if there {
		return do
	}
	return func(context.Context, Call, json.RawMessage) (Result, error) {
		return Fail(ServiceUnavailable.Errorf("what this needs does not run on this server"), nil)
	}
}

// Program is a framework by any of its names; "" and auto name none.
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

// MaxLabel and MaxListedText are how many characters of a label, and of a request and a
// summary, are shown.
const (
	MaxLabel      = 60
	MaxListedText = 1_000
)

// Summary is a task as the verbs list it.
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

// Summaries are tasks with their requests and summaries cut.
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

// Unfinished are the statuses of tasks that are in progress or waited for.
func Unfinished() []row.ThreadStatus {
	return []row.ThreadStatus{row.ThreadOpen, row.ThreadActive, row.ThreadWaiting, row.ThreadBlocked, row.ThreadValidating}
}
