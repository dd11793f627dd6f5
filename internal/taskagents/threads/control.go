package threads

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Control is an operation of a user on a thread.
type Control string

// The controls. Pause and Stop only mark the thread; the caller stops the sessions, and the status
// follows when they end. Resume removes the mark, so that sessions can be registered again, also
// to continue a thread.
const (
	Pause   Control = "pause"
	Stop    Control = "stop"
	Resume  Control = "resume"
	Archive Control = "archive"
	Reopen  Control = "reopen"
)

// Control applies c to a thread and writes an event with note. A repeated control has no event,
// except Resume. Errors: conflict, reason wrong_state, for controls of an archived thread other
// than Archive and Reopen; invalid_input, reason invalid_operation.
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
				t.Status, t.ArchivedAt = row.ThreadOpen, time.Time{} // the status by its sessions is derived afterwards
				w.event(row.TaskReopened, "", note, nil)
			}
			return nil
		}
		return capability.Errorf(capability.CodeInvalidInput, "threads", "there is no operation %q: pause, stop, resume, archive, reopen",
			c).With("invalid_operation", "")
	})
}

// Interrupted is a thread whose sessions were ended by a restart.
type Interrupted struct {
	Moved
	// Resumable holds the interrupted sessions that have a resume token.
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

// interrupt marks the sessions of this gateway in one thread as interrupted, except waiting ones,
// and cancels the thread's validations.
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
