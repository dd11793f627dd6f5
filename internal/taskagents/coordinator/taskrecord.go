package coordinator

import (
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func (t *task) touch(now time.Time) {
	t.mu.Lock()
	t.active = now
	t.mu.Unlock()
}

// update changes the session's row in the registry, and then starts ready parts or reports the
// end of the thread.
func (t *task) update(f func(*row.Session)) {
	if m, err := t.change(f); err == nil {
		t.c.moved(m)
	}
}

// change changes the session's row in the registry, and stores the program's resume token with
// it. Unlike update, it leaves it to the caller to call moved. A failure is logged.
func (t *task) change(f func(*row.Session)) (threads.Moved, error) {
	token, refusals := "", []sessions.Refusal(nil)
	if term, err := t.c.cfg.Sessions.Terminal(t.id); err == nil {
		i := term.Info()
		token, refusals = i.ResumeToken, i.Refusals // programs report it late
	}
	m, err := t.c.retry(func() (threads.Moved, error) {
		return t.c.cfg.Registry.UpdateSession(t.c.ctx, t.id, func(s *row.Session) {
			f(s)
			if token != "" && row.Meta(s.Metadata, row.ResumeToken) != token {
				s.Metadata = row.WithMeta(s.Metadata, row.ResumeToken, token)
			}
			if meta, err := row.WithMember(s.Metadata, row.Refusals, refusals); err == nil && len(refusals) > 0 {
				s.Metadata = meta
			}
		})
	})
	if err != nil {
		t.c.cfg.Logger.Error("a session could not be kept", "session", t.id, "err", err)
		return m, err
	}
	if s, ok := m.Session(t.id); ok {
		t.row = s
	}
	return m, nil
}

// took applies a change of the thread to the cached row and handles its consequences.
func (t *task) took(m threads.Moved) {
	if s, ok := m.Session(t.id); ok {
		t.row = s
	}
	t.c.moved(m)
}

// retry calls f until it succeeds, for about 12 s, so that a short failure of the database
// does not leave a task active forever. It does not retry the errors conflict, not_found,
// invalid_input and too_large.
func (c *Coordinator) retry(f func() (threads.Moved, error)) (m threads.Moved, err error) {
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		m, err = f()
		if err == nil || pause > 4*time.Second {
			return m, err
		}
		switch capability.AsError(err).Code {
		case capability.CodeConflict, capability.CodeNotFound, capability.CodeInvalidInput, capability.CodeTooLarge:
			return m, err
		}
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return m, err
		}
	}
}

// stop ends the program.
func (t *task) stop(force bool) {
	if term, err := t.c.cfg.Sessions.Terminal(t.id); err == nil {
		term.Stop(force)
	}
}

func (t *task) event(kind string, data any) Event {
	return Event{Type: kind, SessionID: t.id, ThreadID: t.thread, Data: data}
}

// shell reports whether the program is a shell, which executes its input as commands.
func (t *task) shell() bool { return t.row.Framework == string(programs.Shell) }

func (t *task) name() string {
	if t.row.Label != "" {
		return t.row.Label
	}
	return t.id
}
