package coordinator

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Level states how much is done without asking.
type Level string

// The levels.
const (
	Autonomous Level = "autonomous"
	Confirm    Level = "confirm" // answers and ends wait until the user approves them
	Notify     Level = "notify"  // everything is told and nothing is done
)

// Level is how a thread is supervised: as it says itself, else as all are.
func (c *Coordinator) Level(threadID string) Level {
	c.mu.Lock()
	defer c.mu.Unlock()
	if th := c.threads[threadID]; th != nil {
		if l := Level(row.Meta(th.row.Metadata, metaLevel)); l == Autonomous || l == Confirm || l == Notify {
			return l
		}
	}
	return c.level
}

// SetLevel changes how a thread is supervised, which is kept with it, or with "" how all
// are that say nothing themselves, which is not. Level "" takes a thread's own back.
// What waits to be confirmed goes on waiting. invalid_input (unknown_level).
func (c *Coordinator) SetLevel(ctx context.Context, threadID string, l Level) error {
	if l != Autonomous && l != Confirm && l != Notify && (l != "" || threadID == "") {
		return capability.Errorf(capability.CodeInvalidInput, "task.supervise", "there is no level %.40q: autonomous, confirm, notify",
			l).With("unknown_level", "")
	}
	if threadID != "" {
		if err := c.setMeta(ctx, threadID, metaLevel, string(l)); err != nil {
			return err
		}
	} else {
		c.mu.Lock()
		c.level = l
		c.mu.Unlock()
	}
	c.tell(Event{Type: "supervision_changed", ThreadID: threadID, Data: map[string]Level{"level": l}})
	return nil
}

// Pause holds decisions about turns while the user's words are being thought about: for
// 30 s at most, or until Resume.
func (c *Coordinator) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if c.paused == nil {
		c.paused = make(chan struct{})
		c.tellLocked(Event{Type: "coordinator_paused"})
	} else {
		c.resume.Stop()
	}
	c.resume = time.AfterFunc(pauseTimeout, c.Resume)
}

// Resume ends a pause.
func (c *Coordinator) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused == nil {
		return
	}
	close(c.paused)
	c.paused = nil
	c.resume.Stop()
	c.tellLocked(Event{Type: "coordinator_resumed"})
}

// kept is what a pending decision is about.
type kept struct {
	Event   string          `json:"event"`
	Blocker *detect.Blocker `json:"blocker,omitempty"`
}

// pend keeps a decision until the user has confirmed it.
func (t *task) pend(event, content string, b *detect.Blocker, a directive.Answer) {
	p := row.PendingDecision{
		SessionID: t.id, ThreadID: t.thread, PromptText: text.LastRunes(content, 4000), RecentOutput: text.LastRunes(t.lines(50), 8000),
		LLMDecision: document(a), TaskContext: document(kept{event, b}), CreatedAt: row.At(t.c.cfg.Now()),
	}
	if err := t.c.cfg.Registry.PutPending(t.c.ctx, p); err != nil {
		t.c.cfg.Logger.Error("a decision that waits could not be kept", "session", t.id, "err", err)
		t.escalate(row.SessionBlocked, content, directive.Answer{Reasoning: "What was decided could not be kept."})
		return
	}
	t.pending = "-"
	if b != nil {
		t.pending = b.Fingerprint
	}
	t.waiting = t.c.cfg.Now()
	t.update(func(s *row.Session) {
		if s.Status.Live() {
			s.Status = row.SessionBlocked
		}
	})
	t.c.tell(t.event("pending_confirmation", p))
}

// expire takes back what waits for a yes: what it was about is over.
func (t *task) expire() {
	if t.pending == "" {
		return
	}
	t.pending = ""
	p, err := t.c.cfg.Registry.TakePending(t.c.ctx, t.id, false)
	if err != nil {
		return // another caller has just taken it
	}
	t.c.tell(t.event("confirmation_expired", p))
}

// Confirm carries out what waits for a session, or with override something else; or,
// where it is not approved, leaves the session to its user. Of two who confirm, one does.
//
// Its errors: not_found (nothing waits), conflict (session_gone: resume first;
// dialog_gone: the screen shows another one), and those of ctx.
func (c *Coordinator) Confirm(ctx context.Context, session string, approved bool, override *directive.Answer) error {
	c.mu.Lock()
	t := c.tasks[session]
	c.mu.Unlock()
	if t != nil {
		err := t.do(ctx, func() error { return t.confirm(approved, override) })
		select {
		case <-t.done: // it ended meanwhile: what waits, waits for one who resumes it
		default:
			return err
		}
		if capability.AsError(err).Reason != threads.ReasonGone {
			return err
		}
	}
	if approved {
		if _, ok, err := c.cfg.Registry.PeekPending(ctx, session); err != nil || ok {
			if err == nil {
				err = gone(session)
			}
			return err
		}
	}
	p, err := c.cfg.Registry.TakePending(ctx, session, false)
	if err == nil {
		c.tell(Event{Type: "confirmation_rejected", SessionID: session, ThreadID: p.ThreadID})
	}
	return err
}

func (t *task) confirm(approved bool, override *directive.Answer) error {
	p, err := t.c.cfg.Registry.TakePending(t.c.ctx, t.id, approved)
	if err != nil {
		return err
	}
	t.pending = ""
	if !approved {
		t.record(row.Decision{EventType: "confirmation", PromptText: p.PromptText, Decision: row.Ignore, Reasoning: "Somebody rejected it."})
		t.c.tell(t.event("confirmation_rejected", nil))
		return nil
	}
	var a directive.Answer
	var about kept
	if err := jsonx.Unmarshal(p.LLMDecision, &a); err != nil {
		return capability.Wrap(capability.CodeInternal, "task.confirm", "what was decided cannot be read", err)
	}
	if len(p.TaskContext) > 0 {
		if err := jsonx.Unmarshal(p.TaskContext, &about); err != nil {
			return capability.Wrap(capability.CodeInternal, "task.confirm", "what it is about cannot be read", err)
		}
	}
	if override != nil {
		a.Action, a.Response, a.UseKeys, a.Keys, a.Reasoning = "respond", override.Response, override.UseKeys, override.Keys, "Somebody said so."
	}
	if about.Blocker != nil {
		if term, err := t.c.cfg.Sessions.Terminal(t.id); err != nil || !t.open(term, about.Blocker) {
			t.c.tell(t.event("confirmation_expired", p))
			return capability.Errorf(capability.CodeConflict, "task.confirm", "the screen of %q no longer shows that dialog",
				t.id).With("dialog_gone", "look at the session")
		}
	}
	t.c.tell(t.event("confirmation_approved", a))
	t.act(about.Event, p.PromptText, about.Blocker, a)
	return nil
}
