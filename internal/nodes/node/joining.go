package node

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// joinResult is the result of a request to join.
type joinResult struct {
	reply    *wire.JoinReply
	revision uint64
	err      error // the request could not be sent or answered
	final    bool  // a retry would fail too
}

// join sends a request to join in a goroutine, unless one is pending, the bus is
// disconnected or the node is leaving.
func (s *session) join(ctx context.Context, parts *sync.WaitGroup) {
	if s.joining || !s.there || s.drains {
		return
	}
	s.retry.Stop()
	s.joining = true
	s.set(func(st *Status) { st.State, st.Epoch = Registering, 0 })
	if err := s.subscribe(ctx, parts); err != nil {
		s.joins <- joinResult{err: err}
		return
	}
	last := s.last
	parts.Go(func() { s.joins <- s.ask(ctx, last) })
}

// ask sends the request to join with the complete declaration of the node, and waits for the
// reply, at most JoinTimeout.
func (n *Node) ask(ctx context.Context, last int64) joinResult {
	list, revision := n.cfg.Functions.List(false)
	j := &wire.Join{
		Proto: wire.Proto, NodeID: n.cfg.ID, Instance: n.instance, Software: n.cfg.Software, OS: runtime.GOOS, Arch: runtime.GOARCH,
		Labels: n.cfg.Labels, Location: n.cfg.Location, Functions: list, Revision: revision, Epoch: last, MaxConcurrent: n.cfg.MaxConcurrent,
		Accepting: true,
	}
	if n.cfg.HostStatus != nil {
		j.HostStatus = marshal(n.cfg.HostStatus())
	}
	data, err := wire.Encode(j)
	if capability.CodeOf(err) == capability.CodeTooLarge && j.HostStatus != nil {
		j.HostStatus = nil // it can be requested later
		data, err = wire.Encode(j)
	}
	if err != nil {
		return joinResult{err: capability.Wrap(capability.CodeOf(err), "node.join", "this node cannot be announced: "+
			capability.AsError(err).Message, err), final: true}
	}
	ctx, cancel := context.WithTimeout(ctx, JoinTimeout)
	defer cancel()
	answer, err := n.conn.Request(ctx, messaging.Message{Subject: wire.SubjectJoin(n.cfg.ID), Data: data})
	if err != nil {
		return joinResult{err: err}
	}
	reply, err := wire.Decode[wire.JoinReply](answer.Data)
	return joinResult{reply: reply, revision: revision, err: err}
}

// admitted handles the reply to a join: it begins the epoch, or schedules a retry. It
// returns an error if a retry would fail too.
func (s *session) admitted(ctx context.Context, r joinResult) error {
	s.joining = false
	switch {
	case r.final:
		return r.err
	case r.err != nil:
		s.again(r.err, 0)
		return nil
	case !r.reply.OK:
		e := r.reply.Error.Capability()
		if r.reply.Error.Details["reason"] == ReasonSuperseded {
			return s.superseded()
		}
		if permanent(r.reply.Error.Code) {
			return e.With(e.Reason, "see what the gateway says of this node: junctor nodes show "+s.cfg.ID)
		}
		s.again(e, e.RetryAfter)
		return nil
	}
	s.tries, s.last = 0, r.reply.Epoch
	now := s.cfg.Now()
	// Calls of earlier epochs are canceled, because the renewed session cannot deliver
	// their answers.
	s.cancelCalls(func(c *call) bool { return c.epoch != r.reply.Epoch }, "the session was renewed")
	s.mu.Lock()
	s.reply = *r.reply
	if t, err := time.Parse(time.RFC3339Nano, r.reply.ServerTime); err == nil {
		s.theirs, s.ours = t, now
	}
	s.mu.Unlock()
	s.set(func(st *Status) {
		st.State, st.Error, st.Epoch, st.Gateway, st.Accepting = s.stateOf(Connected), "", r.reply.Epoch, r.reply.Gateway, !s.drains
		st.RejectedLabels = slices.Clone(r.reply.RejectedLabels)
		st.Joins++
	})
	select {
	case <-s.joined:
	default:
		close(s.joined)
	}
	s.cfg.Logger.Info("joined", "node", s.cfg.ID, "epoch", r.reply.Epoch, "rejected_labels", r.reply.RejectedLabels)
	s.beat.Reset(0) // at once, so that the gateway receives load and revision
	return nil
}

// permanent reports whether a refusal would be the same on a retry.
func permanent(code string) bool {
	return slices.Contains([]string{cmp.ReasonDenied, cmp.ReasonVersion, cmp.ReasonParams, cmp.ReasonEncoding, cmp.ReasonTooLarge}, code)
}

// again schedules the next attempt.
func (s *session) again(why error, after time.Duration) {
	s.tries++
	s.cfg.Logger.Info("not let in yet", "node", s.cfg.ID, "try", s.tries, "err", why)
	s.set(func(st *Status) { st.Error = capability.AsError(why).Message })
	if s.there {
		s.retry.Reset(max(pause(s.tries), after))
	}
}

// update sends the current functions to the gateway and waits for the acknowledgement. It
// is the send function of the Refresher; a newer revision than the requested one is fine.
func (n *Node) update(ctx context.Context, _ uint64) error {
	epoch := n.Epoch()
	if epoch == 0 {
		return errNotJoined()
	}
	list, revision := n.cfg.Functions.List(false)
	data, err := wire.Encode(&wire.Update{Epoch: epoch, Revision: revision, Functions: list, Labels: n.cfg.Labels})
	if err != nil {
		return err
	}
	return n.request(ctx, wire.SubjectUpdate(n.cfg.ID), data)
}

// leave announces the end of the session. Errors are ignored.
func (n *Node) leave(ctx context.Context, l wire.Leave) {
	data, err := wire.Encode(&l)
	if err == nil {
		err = n.request(ctx, wire.SubjectLeave(n.cfg.ID), data)
	}
	if err != nil {
		n.cfg.Logger.Info("the gateway did not receive the goodbye", "node", n.cfg.ID, "err", err)
	}
}

// request sends a request that is answered with an Ack, and returns the Ack's error.
func (n *Node) request(ctx context.Context, subject string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, JoinTimeout)
	defer cancel()
	m, err := n.conn.Request(ctx, messaging.Message{Subject: subject, Data: data})
	if err != nil {
		return err
	}
	ack, err := wire.Decode[wire.Ack](m.Data)
	if err != nil {
		return err
	}
	if !ack.OK {
		return ack.Error.Capability()
	}
	return nil
}
