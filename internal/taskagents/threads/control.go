package threads

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Control is what people do to a thread.
type Control string

// The controls. Pause and Stop say what is wanted; stopping the sessions is the caller's,
// and the status follows as they end. Resume takes that back, so that a session may be
// registered; it is what continuing needs too.
const (
	Pause   Control = "pause"
	Stop    Control = "stop"
	Resume  Control = "resume"
	Archive Control = "archive"
	Reopen  Control = "reopen"
)

// Control does c to a thread; note goes into its event. What is done already is done
// again without an event, but resuming always has one. An archived thread takes no
// control but Reopen, and keeps its status whatever its sessions do: wrong_state.
func (r *Registry) Control(ctx context.Context, thread string, c Control, note string) (Moved, error) {
	return r.change(ctx, thread, func(w *work) error {
		t := &w.g.Thread
		archived := t.Status == row.ThreadArchived
		was := row.Meta(t.Metadata, row.ControlState)
		set := func(state, event string) error {
			if archived {
				return wrongState("reopen it first", "the thread is archived")
			}
			if state != was || state == "" {
				t.Metadata = row.WithMeta(t.Metadata, row.ControlState, state)
				w.event(event, "", note, nil)
			}
			return nil
		}
		switch c {
		case Pause:
			return set(row.Paused, row.TaskPaused)
		case Stop:
			return set(row.Halted, row.TaskStopped)
		case Resume:
			return set("", row.TaskResumed)
		case Archive:
			if !archived {
				t.Status, t.ArchivedAt = row.ThreadArchived, w.now
				w.event(row.TaskArchived, "", note, nil)
			}
			return nil
		case Reopen:
			if archived {
				t.Status, t.ArchivedAt = row.ThreadOpen, time.Time{} // what follows from its sessions comes next
				w.event(row.TaskReopened, "", note, nil)
			}
			return nil
		}
		return capability.Errorf(capability.CodeInvalidInput, "threads", "there is no operation %q: pause, stop, resume, archive, reopen",
			c).With("invalid_operation", "")
	})
}

// Interrupted is a thread whose sessions a restart has ended.
type Interrupted struct {
	Moved
	// Resumable are the sessions among them that have a resume token.
	Resumable []row.Session
}

// Restart marks this gateway's sessions that were active, blocked or tool_running when the
// process ended as interrupted, and cancels the validations of their threads. Pending
// decisions stay, and nothing is started. It must run before the gateway registers sessions,
// and may be repeated after a failure.
func (r *Registry) Restart(ctx context.Context) ([]Interrupted, error) {
	live, err := r.store.Live(ctx)
	if err != nil {
		return nil, err
	}
	var out []Interrupted
	seen := make(map[string]bool)
	for _, s := range live {
		if seen[s.ThreadID] || row.Meta(s.Metadata, row.Gateway) != r.gateway {
			continue
		}
		seen[s.ThreadID] = true
		one, err := r.interrupt(ctx, s.ThreadID)
		if err != nil {
			return out, err
		}
		out = append(out, one)
	}
	return out, nil
}

func (r *Registry) interrupt(ctx context.Context, thread string) (out Interrupted, err error) {
	out.Moved, err = r.change(ctx, thread, func(w *work) error {
		out.Resumable = nil
		for i := range w.g.Sessions {
			s := &w.g.Sessions[i]
			was := s.Status
			if !was.Live() || was == row.SessionWaiting || row.Meta(s.Metadata, row.Gateway) != r.gateway {
				continue
			}
			s.Status, s.StoppedAt = row.SessionInterrupted, row.At(w.now)
			w.event(row.SessionInterrupt, s.SessionID, "the server was restarted", fromTo{string(was), string(s.Status)})
			if row.Meta(s.Metadata, row.ResumeToken) != "" {
				out.Resumable = append(out.Resumable, *s)
			}
		}
		for i := range w.g.Jobs {
			w.endJob(&w.g.Jobs[i], row.JobCanceled, "the server was restarted")
		}
		return nil
	})
	return out, err
}
