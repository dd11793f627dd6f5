package launch_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// left is a registry with threads of an earlier server.
type left struct {
	launch.Registry
	list []threads.Summary
}

func (l left) Control(_ context.Context, id string, c threads.Control, _ string) (threads.Moved, error) {
	return threads.Moved{Thread: row.Thread{ID: string(c) + " " + id}}, nil
}

func (l left) List(context.Context, threads.Filter) ([]threads.Summary, error) { return l.list, nil }

func (l left) Detail(_ context.Context, id string, _ threads.Selection) (threads.Detail, error) {
	at := slices.IndexFunc(l.list, func(s threads.Summary) bool { return s.ID == id })
	d := threads.Detail{Summary: l.list[at]}
	if id == "at-work" {
		d.Sessions = []row.Session{{Status: row.SessionActive}}
	}
	return d, nil
}

// TestWhatAnEarlierServerLeft: only what is this gateway's, and whose end was not reported,
// is looked at and can be resumed. What was given up and told is not begun again.
func TestWhatAnEarlierServerLeft(t *testing.T) {
	t.Parallel()
	closed := time.UnixMilli(1_700_000_000_000)
	thread := func(id, gateway string, status row.ThreadStatus, told bool) threads.Summary {
		th := row.Thread{ID: id, Status: status, ClosedAt: closed, Metadata: row.WithMeta(nil, "gateway", gateway)}
		if told {
			th.Metadata = row.WithMeta(th.Metadata, row.ToldEnd, fmt.Sprintf("%d/1", closed.UnixMilli()))
		}
		return threads.Summary{Thread: th, SessionCount: 1}
	}
	l := launch.New(launch.Config{Gateway: "here", Registry: left{list: []threads.Summary{
		thread("cut", "here", row.ThreadInterrupted, false),
		thread("given-up", "here", row.ThreadInterrupted, true),
		thread("done", "here", row.ThreadDone, true),
		thread("elsewhere", "there", row.ThreadInterrupted, false),
		thread("without-sessions", "here", row.ThreadOpen, false),
		thread("a-part-was-ready", "here", row.ThreadActive, false),
		thread("at-work", "here", row.ThreadActive, false),
	}}})
	var settled []string
	list, err := l.Recover(t.Context(), func(m threads.Moved) bool {
		settled = append(settled, m.Thread.ID)
		return true
	})
	var ids []string
	for _, th := range list {
		ids = append(ids, th.ID)
	}
	if err != nil || !slices.Equal(settled, []string{"cut"}) || !slices.Equal(ids, []string{"cut", "without-sessions", "pause a-part-was-ready"}) {
		t.Errorf(`settled %v, left %v, %v; want no error, settled = []string{"cut"}, ids = []string{"cut", "without-sessions", "pause a-part-was-ready"}`,
			settled, ids, err)
	}
}
