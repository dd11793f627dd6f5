package channels

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// queue stores a message, which then leaves by itself. It does nothing if its key is in use. A long
// text becomes several messages, of which the last one has the buttons; it is stored after the
// others. about is the approval that the messages show, or "".
func (h *Hub) queue(ctx context.Context, r Ref, op Op, about string) error {
	c := h.connection(r)
	if c == nil {
		return NotFound(r)
	}
	pieces := []string{op.Text}
	limit := c.kind.MaxText
	if c.kind.Escapes && !op.Markdown {
		limit /= 2
	}
	if about != "" {
		limit -= maxOutcome
	}
	if op.Verb == VerbSend && op.Text != "" {
		pieces = Split(op.Text, limit)
	}
	now := h.cfg.Now().UTC()
	for i, piece := range pieces {
		one := op
		one.Text, one.At = piece, now
		if one.More = i < len(pieces)-1; one.More {
			one.Buttons, one.Key = nil, fmt.Sprintf("%s#%d", op.Key, i)
		}
		s := Send{Ref: r, Op: one, About: about, State: SendPending, Created: now}
		c.mu.Lock()
		full := c.unsent >= maxUnsent
		c.mu.Unlock()
		if full {
			return capability.Errorf(capability.CodeOverloaded, "channel.send", "%d messages of %s wait already", maxUnsent, r)
		}
		s, created, err := h.cfg.Store.CreateSend(ctx, s)
		if err != nil {
			return err
		}
		if created {
			c.enqueue(s)
		}
	}
	return nil
}

// enqueue lets a stored send leave once it is its turn.
func (c *connection) enqueue(s Send) {
	c.mu.Lock()
	ctx := c.life
	if ctx == nil {
		c.left = append(c.left, s)
		c.mu.Unlock()
		return
	}
	c.unsent++
	c.mu.Unlock()
	c.outbound.add(s.Op.lane(), func() {
		defer func() {
			c.mu.Lock()
			c.unsent--
			c.mu.Unlock()
		}()
		c.leave(ctx, s)
	})
}

// flushed waits until what is being sent in a conversation is stored, for at most flushTimeout.
func (c *connection) flushed(ctx context.Context, conversation string) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	c.outbound.add(conversation, cancel)
	<-ctx.Done()
}

// leave sends a stored message, as often as its service did not take it, until ctx ends.
func (c *connection) leave(ctx context.Context, s Send) {
	if s.State == SendBegun && !c.repeatable(&s) { // by a process that ended
		s.State, s.Error = SendUnknown, DeliveryUnknown(nil)
		c.end(ctx, s)
		return
	}
	for delay := firstDelay; ; delay = min(2*delay, backoffDelay) {
		c.connected(ctx)
		if ctx.Err() != nil || c.pace(ctx, &s.Op) != nil {
			return // the next process sends it
		}
		if c.hub.cfg.Now().Sub(s.Created) > sendTTL {
			s.State, s.Error = SendFailed, capability.Errorf(capability.CodeTimeout, "channel.send", "the service took no message for %s", sendTTL)
			c.end(ctx, s)
			return
		}
		s.State = SendBegun
		if c.hub.cfg.Store.SaveSend(ctx, s, c.hub.cfg.Now()) != nil {
			_ = pause.For(ctx, delay)
			continue
		}
		id, err := c.channel.Do(ctx, s.Op)
		again := c.judge(ctx, &s, id, err)
		if again < 0 {
			if ctx.Err() == nil || s.State == SendDone {
				c.end(ctx, s)
			}
			return
		}
		if s.State == SendPending {
			_ = c.hub.cfg.Store.SaveSend(context.WithoutCancel(ctx), s, c.hub.cfg.Now()) // otherwise it counts as begun, which is safe
		}
		_ = pause.For(ctx, max(again, delay))
	}
}

// repeatable reports whether an operation may be repeated although it may have been carried out.
func (c *connection) repeatable(s *Send) bool {
	return s.Op.Verb != VerbSend || c.hub.cfg.Now().Sub(s.Created) < c.kind.OnceTTL
}

// judge sets the state of a send after an attempt. It returns the pause after which it may be
// repeated, or less than 0 if it must not be.
func (c *connection) judge(ctx context.Context, s *Send, id string, err error) (again time.Duration) {
	e := capability.AsError(err)
	switch {
	case e == nil:
		s.State, s.ServiceID = SendDone, id
		return -1
	case e.Code == capability.CodeOverloaded:
		c.mu.Lock()
		c.paused = c.hub.cfg.Now().Add(e.RetryAfter)
		c.mu.Unlock()
		s.State = SendPending
		return 0
	case e.Code == capability.CodeUnavailable, e.Code == capability.CodeUnauthenticated:
		s.State = SendPending
		return e.RetryAfter
	case e.Reason == ReasonDeliveryUnknown || ctx.Err() != nil:
		if c.repeatable(s) {
			return 0
		}
		s.State, s.Error = SendUnknown, DeliveryUnknown(err)
		return -1
	}
	s.State, s.Error = SendFailed, e
	return -1
}

// end stores the end of a send and reports one that was not delivered.
func (c *connection) end(ctx context.Context, s Send) {
	if err := c.hub.cfg.Store.SaveSend(context.WithoutCancel(ctx), s, c.hub.cfg.Now()); err != nil {
		c.hub.cfg.Logger.Error("the end of a send cannot be stored", "channel", c.account.String(), "err", err)
	}
	if s.State == SendDone {
		if s.About != "" {
			c.hub.settle(ctx, s.About) // it may have been decided meanwhile
		}
		return
	}
	c.hub.record(ctx, audit.ChannelUndelivered, c.account.Ref, "", s.Error, audit.Attr{Key: "key", Value: s.Op.Key},
		audit.Attr{Key: "conversation", Value: s.Op.Conversation})
	c.hub.cfg.Logger.Warn("a message was not delivered", "channel", c.account.String(), "key", s.Op.Key, "cause", s.Error.Message)
	c.hub.cfg.Publish("channel.undelivered", map[string]any{
		"channel": c.account.String(), "conversation": s.Op.Conversation, "reason": s.Error.Reason,
	})
}

// pace waits until the service's limits permit an operation.
func (c *connection) pace(ctx context.Context, op *Op) error {
	for {
		now := c.hub.cfg.Now()
		c.mu.Lock()
		until := c.paused
		if next := c.next[op.Conversation]; next.After(until) {
			until = next
		}
		if !until.After(now) {
			if len(c.next) >= maxPaced {
				for key, at := range c.next {
					if !at.After(now) {
						delete(c.next, key)
					}
				}
			}
			gap := c.kind.Pause
			if c.kind.Group(op.Conversation) {
				gap = c.kind.GroupPause
			}
			if gap > 0 {
				c.next[op.Conversation] = now.Add(gap)
			}
		}
		c.mu.Unlock()
		if !until.After(now) {
			return c.limit.Wait(ctx)
		}
		if err := pause.For(ctx, until.Sub(now)); err != nil {
			return err
		}
	}
}

// send sends a message for a call and waits for its end. With a key that is in use it returns the
// outcome of the earlier send. Errors: unavailable if nothing was sent; those of [Channel].
func (c *connection) send(ctx context.Context, op Op) (id string, err error) {
	op.At = c.hub.cfg.Now().UTC()
	s := Send{Ref: c.account.Ref, Op: op, State: SendBegun, Created: op.At}
	s, created, err := c.hub.cfg.Store.CreateSend(ctx, s)
	switch {
	case err != nil:
		return "", err
	case !created && s.State == SendDone:
		return s.ServiceID, nil
	case !created && s.Error != nil:
		return "", s.Error
	case !created:
		return "", capability.Errorf(capability.CodeConflict, "channel.send", "the message with this key is being sent")
	}
	if _, state := c.shown(); state.State != capability.StateReady {
		return "", c.drop(ctx, s, c.away(state))
	}
	var taken atomic.Bool // by its turn, or by the end of ctx before
	done := make(chan struct{})
	c.outbound.add(op.lane(), func() {
		if taken.CompareAndSwap(false, true) {
			id, err = c.once(ctx, s)
			close(done)
		}
	})
	select {
	case <-done:
	case <-ctx.Done():
		if taken.CompareAndSwap(false, true) {
			return "", c.drop(ctx, s, capability.AsError(context.Cause(ctx)))
		}
		<-done
	}
	return id, err
}

// drop removes a send that did not begin, and returns the error.
func (c *connection) drop(ctx context.Context, s Send, e *capability.Error) error {
	if err := c.hub.cfg.Store.DropSend(context.WithoutCancel(ctx), s.ID); err != nil {
		c.hub.cfg.Logger.Error("a send cannot be dropped", "channel", c.account.String(), "err", err)
	}
	return e
}

func (c *connection) away(state capability.Availability) *capability.Error {
	return capability.Errorf(capability.CodeUnavailable, "channel.send", "%s is not connected: %s", c.account.Ref, state.Reason)
}

// once makes one attempt for a call; it repeats only what the rate limit of the service refused, and
// what the service recognises.
func (c *connection) once(ctx context.Context, s Send) (string, error) {
	for {
		c.mu.Lock()
		left, state := c.paused.Sub(c.hub.cfg.Now()), c.state
		c.mu.Unlock()
		if left > limitTimeout {
			e := capability.Errorf(capability.CodeOverloaded, "channel.send", "the service takes no message for %s", left.Round(time.Second)).
				With("rate_limited", "")
			e.RetryAfter = left
			return "", c.drop(ctx, s, e)
		}
		if state.State != capability.StateReady {
			return "", c.drop(ctx, s, c.away(state))
		}
		if err := c.pace(ctx, &s.Op); err != nil {
			return "", c.drop(ctx, s, capability.AsError(err))
		}
		id, err := c.channel.Do(ctx, s.Op)
		e := capability.AsError(err)
		switch again := c.judge(ctx, &s, id, err); {
		case again < 0:
			c.end(ctx, s)
			if s.Error != nil {
				return "", s.Error
			}
			return s.ServiceID, nil
		case s.State != SendPending:
			if pause.For(ctx, firstDelay) != nil {
				return "", c.drop(ctx, s, capability.AsError(ctx.Err()))
			}
		case e.Code != capability.CodeOverloaded:
			return "", c.drop(ctx, s, capability.Wrap(capability.CodeUnavailable, "channel.send", e.Message, err))
		}
		s.State = SendBegun
	}
}
