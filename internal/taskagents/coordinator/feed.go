package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Share records a decision that an agent reported by a hook or the API instead of in the text
// of its turn, and shares it with the other sessions of its thread. A text that is not a new
// decision is ignored. Share does not wait for the session, which may be busy with another
// decision. A decision of a session that is not registered yet is held until it is, because its
// program may run before.
func (c *Coordinator) Share(session, text string) {
	c.mu.Lock()
	t := c.tasks[session]
	if t == nil {
		c.early = append(c.early, early{session, text, c.cfg.Now()})
		if n := len(c.early) - maxHeld; n > 0 {
			c.cfg.Logger.Warn("decisions of unknown sessions dropped", "number", n)
			c.early = c.early[n:]
		}
	}
	c.mu.Unlock()
	if t != nil {
		t.post(text)
	}
}

// early is a decision of a session that is not registered yet.
type early struct {
	session, text string
	at            time.Time
}

// takeEarly returns the held decisions of a session and drops those that are too old. Caller
// holds mu.
func (c *Coordinator) takeEarly(session string) (texts []string) {
	c.early = slices.DeleteFunc(c.early, func(e early) bool {
		late := c.cfg.Now().Sub(e.at) > heldTTL
		if e.session == session && !late {
			texts = append(texts, e.text)
		}
		return e.session == session || late
	})
	return texts
}

// SetContext stores brief, the plan that the sessions of a thread share, in the thread's
// metadata.
func (c *Coordinator) SetContext(ctx context.Context, threadID, brief string) error {
	return c.setMeta(ctx, threadID, metaBrief, brief)
}

// setMeta stores a member of a thread's metadata in the registry and in the cached row.
func (c *Coordinator) setMeta(ctx context.Context, threadID, key, value string) error {
	m, err := c.cfg.Registry.UpdateThread(ctx, threadID, func(t *row.Thread) { t.Metadata = row.WithMeta(t.Metadata, key, value) })
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if th := c.threads[threadID]; th != nil {
		th.row = m.Thread
	}
	return nil
}

// Keys of metadata that the coordinator reads or writes.
const (
	metaBrief  = row.Brief                // of a thread
	metaLevel  = row.Supervision          // of a thread
	metaRounds = "verificationRetryCount" // of a session
	metaPreset = "approvalPreset"         // of a session
	metaReason = "reason"                 // of a session: why it ended
)

// Event is a notification to the coordinator's subscribers.
type Event struct {
	Type      string    `json:"type"`
	SessionID string    `json:"sessionId,omitzero"`
	ThreadID  string    `json:"threadId,omitzero"`
	Timestamp time.Time `json:"timestamp"`
	Data      any       `json:"data,omitempty"`
}

// Subscribe returns a channel with every event from now on. The channel is closed when end is
// called, when the coordinator closes, and when the subscriber has limit unread events and
// another arrives.
func (c *Coordinator) Subscribe(limit int) (events <-chan Event, end func()) {
	ch := make(chan Event, max(1, limit))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		close(ch)
		return ch, func() {}
	}
	c.hearers[ch] = true
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.hearers[ch] {
			delete(c.hearers, ch)
			close(ch)
		}
	}
}

func (c *Coordinator) tell(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.Timestamp = c.cfg.Now().UTC()
	for ch := range c.hearers {
		select {
		case ch <- e:
		default:
			delete(c.hearers, ch)
			close(ch)
		}
	}
}

// say sends a message to the user by Chat, if there is one. A failure is logged.
func (c *Coordinator) say(t row.Thread, session, text string) {
	if c.cfg.Chat == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, reportTimeout)
	defer cancel()
	if err := c.cfg.Chat.Say(ctx, t, session, text); err != nil {
		c.cfg.Logger.Warn("the user could not be told", "thread", t.ID, "session", session, "err", err)
	}
}

// say sends a message about the task to the user.
func (t *task) say(text string) {
	t.c.mu.Lock()
	th := row.Thread{ID: t.thread}
	if known := t.c.threads[t.thread]; known != nil {
		th = known.row
	}
	t.c.mu.Unlock()
	t.c.say(th, t.id, text)
}

func gone(session string) error {
	return capability.Errorf(capability.CodeConflict, "task.coordinate", "the session %q is not running", session).With(threads.ReasonGone,
		"resume first")
}

// document returns v as JSON, or nil if it cannot be encoded.
func document(v any) json.RawMessage {
	raw, err := jsonx.Marshal(v)
	if err != nil {
		return nil
	}
	return raw
}
