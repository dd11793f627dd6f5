package sessions

import (
	"context"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// Exchange holds the texts that wait for the program of one session, and wakes goroutines that wait
// for a change of it. Sessions of both modes use it.
type Exchange struct {
	id    string
	ctx   context.Context //nolint:containedctx // ends with the program
	mu    *sync.Mutex     // of the session
	texts chan *Text      // to be sent, in order

	changed chan struct{} // closed at the next change; nil if no goroutine waits; mu guards it
}

// Text is a text that waits to be sent.
type Text struct {
	Ctx     context.Context //nolint:containedctx // of the caller that waits
	Content string
	AtOnce  bool // send it although the program is busy
	First   bool // it is the first task

	outcome Outcome
	err     error
	done    chan struct{}
}

// NewExchange returns the exchange of a session whose state mu guards. ctx ends with the program.
func NewExchange(ctx context.Context, id string, mu *sync.Mutex) *Exchange {
	return &Exchange{id: id, ctx: ctx, mu: mu, texts: make(chan *Text, MaxQueued)}
}

// Waiting returns the number of texts that wait.
func (x *Exchange) Waiting() int { return len(x.texts) }

// Send queues a text, unless blocked, which is called with the mutex held, returns an error. It
// returns when the text was sent or refused. Its own errors are the first of [Session.Send].
func (x *Exchange) Send(ctx context.Context, text string, atOnce bool, blocked func() error) (Outcome, error) {
	const op = "tasks.send"
	switch {
	case text == "":
		return NotSent, capability.Errorf(capability.CodeInvalidInput, op, "the text to send is empty").With("no_input", "")
	case len(text) > MaxMessage:
		return NotSent, capability.Errorf(capability.CodeTooLarge, op, "a message may have %d MiB at most", MaxMessage>>20)
	}
	x.mu.Lock()
	err := blocked()
	x.mu.Unlock()
	if err != nil {
		return NotSent, err
	}
	t := &Text{Ctx: ctx, Content: text, AtOnce: atOnce, outcome: NotSent, done: make(chan struct{})}
	select {
	case <-x.ctx.Done():
		return NotSent, x.Ended()
	case x.texts <- t:
	default:
		return NotSent, capability.Errorf(capability.CodeOverloaded, op, "%d messages wait for this session already",
			MaxQueued).With("too_many_messages", "wait until it has worked some off")
	}
	select {
	case <-t.done:
		return t.outcome, t.err
	case <-x.ctx.Done():
		return NotSent, x.Ended()
	}
}

// Deliver passes the texts to submit, one after the other, until the program ends.
func (x *Exchange) Deliver(submit func(*Text) (Outcome, error)) {
	for {
		select {
		case <-x.ctx.Done():
			return
		case t := <-x.texts:
			t.outcome, t.err = submit(t)
			close(t.done)
		}
	}
}

// Notify wakes goroutines in Await. The caller holds the mutex.
func (x *Exchange) Notify() {
	if x.changed != nil {
		close(x.changed)
		x.changed = nil
	}
}

// Await waits until holds, which is called with the mutex held, returns true. It returns false after
// limit, unless that is 0, and an error if ctx or the session ends.
func (x *Exchange) Await(ctx context.Context, limit time.Duration, holds func() bool) (bool, error) {
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	for {
		x.mu.Lock()
		if holds() {
			x.mu.Unlock()
			return true, nil
		}
		if x.changed == nil {
			x.changed = make(chan struct{})
		}
		changed := x.changed
		x.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			return false, nil
		case <-x.ctx.Done():
			return false, x.Ended()
		case <-ctx.Done():
			if x.ctx.Err() != nil {
				return false, x.Ended()
			}
			return false, capability.AsError(ctx.Err())
		}
	}
}

// Ended returns the error for a session that has ended: unavailable, reason session_ended.
func (x *Exchange) Ended() error {
	return capability.Errorf(capability.CodeUnavailable, "tasks.send", "session %s has ended", x.id).With(ReasonEnded, "")
}

// Blocked returns an error if a program with this state takes no text, because it waits for a login
// or an answer. The hints name the commands for that.
func (m Mask) Blocked(s detect.Status, login, answer string) error {
	switch s.State {
	case detect.Authenticating:
		return capability.Errorf(capability.CodeConflict, "tasks.send", "the program waits for a sign-in").With(ReasonBlocked, login)
	case detect.Blocked:
		e := capability.Errorf(capability.CodeConflict, "tasks.send", "the program waits for an answer: %s", m.Text(s.Blocker.Prompt))
		return e.With(ReasonBlocked, answer).Detail("blocker", m.blocker(s.Blocker))
	}
	return nil
}
