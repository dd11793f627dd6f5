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

// Level is the degree of supervision: how much the coordinator does without asking.
type Level string

// The levels.
const (
	Autonomous Level = "autonomous"
	Confirm    Level = "confirm" // answers and ends wait until the user approves them
	Notify     Level = "notify"  // the user is notified and nothing is answered
)

// Level returns the level of a thread: the one in its metadata, otherwise the default. The metadata
// of a thread without supervised sessions is read from the registry.
func (c *Coordinator) Level(threadID string) Level {
	c.mu.Lock()
	level := c.level
	th := c.threads[threadID]
	var metadata []byte
	if th != nil {
		metadata = th.row.Metadata
	}
	c.mu.Unlock()
	if th == nil && threadID != "" {
		if d, err := c.cfg.Registry.Detail(c.ctx, threadID, threads.Selection{Fields: []threads.Field{threads.FieldPending}}); err == nil {
			metadata = d.Metadata
		}
	}
	if l := Level(row.Meta(metadata, metaLevel)); l == Autonomous || l == Confirm || l == Notify {
		return l
	}
	return level
}

// SetLevel stores the level of a thread in its metadata; level "" removes it. If threadID is
// "", it sets the default level in memory. Decisions that wait for confirmation keep waiting.
// Errors: invalid_input (unknown_level), and those of the registry.
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

// kept is the stored context of a pending decision: its event and dialog.
type kept struct {
	Event   string          `json:"event"`
	Blocker *detect.Blocker `json:"blocker,omitempty"`
}

// pend stores a decision until the user confirms it and marks the session blocked. If it
// cannot be stored, the user is asked instead.
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

// expire discards the pending decision of the session, if any, because its dialog or turn is
// over.
func (t *task) expire() {
	if t.pending == "" {
		return
	}
	t.pending = ""
	p, err := t.c.cfg.Registry.TakePending(t.c.ctx, t.id, false)
	if err != nil {
		return // Confirm has just taken it
	}
	t.c.tell(t.event("confirmation_expired", p))
}

// Confirm carries out the pending decision of a session, or the answer override if it is not
// nil. If approved is false, it only discards the decision. Of two concurrent calls one
// succeeds.
//
// Its errors: not_found (no decision is pending), conflict (session_gone: resume first;
// dialog_gone: the screen shows another one), and timeout if ctx ends.
func (c *Coordinator) Confirm(ctx context.Context, session string, approved bool, override *directive.Answer) error {
	c.mu.Lock()
	t := c.tasks[session]
	c.mu.Unlock()
	if t != nil {
		err := t.do(ctx, func() error { return t.confirm(approved, override) })
		select {
		case <-t.done: // the session ended meanwhile; its decision waits until it is resumed
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

// confirm is Confirm on the task's goroutine.
func (t *task) confirm(approved bool, override *directive.Answer) error {
	p, err := t.c.cfg.Registry.TakePending(t.c.ctx, t.id, approved)
	if err != nil {
		return err
	}
	t.pending = ""
	if !approved {
		t.record(row.Decision{EventType: "confirmation", PromptText: p.PromptText, Decision: row.Ignore, Reasoning: "A person rejected it."})
		t.c.tell(t.event("confirmation_rejected", nil))
		t.waiting = time.Time{}
		if i, err := t.c.cfg.Sessions.Terminal(t.id); err != nil || i.Info().Status != detect.Blocked { // otherwise its dialog is still open
			t.update(func(s *row.Session) {
				if s.Status.Live() {
					s.Status = row.SessionActive
				}
			})
		}
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
		a.Action, a.Reasoning = "respond", "A person answered it."
		a.Response, a.UseKeys, a.Keys = override.Response, override.UseKeys, override.Keys
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

// refusedText is sent to a program whose turn ended because the user refused what it asked for.
const refusedText = "The user refused that. Go on without it, or say what you need it for."

// Denied notifies the coordinator that the user is about to refuse what a session asks for. If the
// program ends its turn because of that, it receives a text with which it goes on, so that the task
// neither hangs nor asks again.
func (c *Coordinator) Denied(ctx context.Context, session string) {
	c.mu.Lock()
	t := c.tasks[session]
	c.mu.Unlock()
	if t == nil {
		return
	}
	_ = t.do(ctx, func() error { t.denied = true; return nil }) // of a session that has ended nothing is left to do
}
