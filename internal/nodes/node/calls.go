package node

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// call is one running call.
type call struct {
	id     string
	epoch  int64
	reply  string // subject of its frames
	node   *Node
	stream bool
	cancel context.CancelFunc

	// Guarded by the lock of Node.credit.
	window      int64
	outstanding int64 // sent and not credited

	mu   sync.Mutex // held while a frame is sent, so that they are in order
	seq  uint64
	over bool
}

// called starts a call in a goroutine, or answers why not. A call of another epoch is
// ignored. It runs on the session's goroutine and does not block.
func (s *session) called(ctx context.Context, m messaging.Message) {
	w, err := wire.Decode[wire.Call](m.Data)
	prefix := strings.TrimSuffix(wire.SubjectReply(s.cfg.ID, "", ""), "..")
	if wrong := messaging.CheckReply(m, prefix); wrong != nil {
		s.cfg.Logger.Warn("a call without a place for its answer", "node", s.cfg.ID, "err", wrong)
		return
	}
	if err != nil {
		// Its id is the last token of the reply subject.
		s.cfg.Logger.Warn("a malformed call", "node", s.cfg.ID, "err", err)
		id := m.Reply[strings.LastIndexByte(m.Reply, '.')+1:]
		c := &call{id: id, epoch: s.Epoch(), reply: m.Reply, node: s.Node}
		c.fail(ctx, err, "", false)
		return
	}
	if epoch := s.Epoch(); w.Epoch != epoch {
		s.mu.Lock()
		s.status.Stale++
		s.mu.Unlock()
		if w.Epoch > epoch && epoch != 0 {
			s.beat.Reset(0) // another process may have taken over; the gateway reports that on a heartbeat
		}
		return
	}
	c := &call{id: w.CallID, epoch: w.Epoch, reply: m.Reply, node: s.Node, stream: w.Stream}
	if c.stream {
		c.window = int64(w.Window)
		if c.window == 0 {
			c.window = int64(s.windowOf())
		}
	}
	own, cancel := context.WithCancel(ctx)
	c.cancel = cancel
	if err := s.enter(c); err != nil {
		cancel()
		if !errors.Is(err, errTwice) {
			c.fail(ctx, err, w.Function, w.IdempotencyKey != "")
		}
		return
	}
	go func() { // ends with the call; Run waits for it
		defer s.busy.Done()
		defer cancel()
		s.carry(own, ctx, c, w)
	}()
}

func (n *Node) windowOf() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reply.Window > 0 {
		return n.reply.Window
	}
	return wire.DefaultWindow
}

var errTwice = cmp.Errorf(cmp.ReasonParams, "there is a call of this id")

// enter adds a call to the running ones. Errors: errTwice for a repeated id; node_overloaded
// while draining, or if calls or streams are at their limit.
func (s *session) enter(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.calls[c.id]; twice {
		return errTwice
	}
	busy := func(format string, args ...any) error {
		err := cmp.Errorf(cmp.ReasonOverloaded, format, args...)
		err.RetryAfter = time.Second
		return err
	}
	switch {
	case s.drains:
		return busy("Node '%s' is draining and takes no new calls.", s.cfg.ID)
	case len(s.calls) >= s.cfg.MaxConcurrent+s.cfg.Queue:
		return busy("Execution queue is full on node '%s'. Please retry later.", s.cfg.ID)
	}
	if c.stream {
		streams := 0
		for _, other := range s.calls {
			if other.stream {
				streams++
			}
		}
		if streams >= MaxStreams {
			return busy("Node '%s' cannot accept new stream workload: %d streams are open, which is the limit.", s.cfg.ID, streams)
		}
	}
	s.calls[c.id] = c
	s.busy.Add(1)
	return nil
}

// carry runs a call and sends its last frame. session outlives the call's own context ctx.
func (n *Node) carry(ctx, session context.Context, c *call, w *wire.Call) {
	ack := time.AfterFunc(AckDelay, func() { c.ack(session) })
	defer ack.Stop()
	began := n.cfg.Now()
	out, err := n.execute(ctx, c, w)
	if err == nil {
		err = n.finish(ctx, session, c, out)
	}
	took := n.cfg.Now().Sub(began)
	if err != nil {
		c.fail(session, err, w.Function, w.IdempotencyKey != "")
	}
	n.forget(c)
	if n.cfg.Called != nil {
		r := Record{CallID: c.id, Function: w.Function, Caller: w.Caller, Trace: w.Trace.Parent, Began: began, Took: took}
		if f, ok := n.cfg.Functions.Get(w.Function); ok {
			r.Effect = f.Entry(false).Effect
		}
		if err != nil {
			r.Outcome = cmp.FromError(err, "", "", false).Code
		}
		n.cfg.Called(session, r)
	}
}

func (n *Node) execute(ctx context.Context, c *call, w *wire.Call) (functions.Outcome, error) {
	timeout := time.Duration(w.DeadlineMS) * time.Millisecond
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	args, err := n.arguments(ctx, w)
	if err != nil {
		return functions.Outcome{}, err
	}
	return n.cfg.Executor.Do(ctx, functions.Request{
		ID: c.id, Function: w.Function, Args: args, Timeout: timeout, Caller: w.Caller.ID, Key: w.IdempotencyKey,
		Stream: c.stream, Emit: c.emit,
	})
}

// finish sends the last frame of a successful call.
func (n *Node) finish(ctx, session context.Context, c *call, out functions.Outcome) error {
	exec := out.Took.Milliseconds()
	if out.Streamed {
		return c.send(session, &wire.Frame{Type: wire.FrameDone, Chunks: out.Chunks, Bytes: out.Bytes, ExecMS: exec})
	}
	value, err := n.outgoing(ctx, out.Value, n.inline(), "result")
	if err != nil {
		return err
	}
	return c.send(session, &wire.Frame{Type: wire.FrameResult, Value: value, ExecMS: exec})
}

// emit sends one chunk when the windows have room for it.
func (c *call) emit(ctx context.Context, chunk json.RawMessage) error {
	value, err := c.node.outgoing(ctx, chunk, wire.MaxChunk, "chunk")
	if err != nil {
		return err
	}
	if err := c.node.credit.take(ctx, c, int64(len(value))); err != nil {
		return err
	}
	return c.send(ctx, &wire.Frame{Type: wire.FrameChunk, Value: value})
}

// ack sends that the call was accepted, unless another frame was sent already.
func (c *call) ack(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seq == 0 && !c.over {
		_ = c.publish(ctx, &wire.Frame{Type: wire.FrameAck}) // the sequence numbers show the gap
	}
}

// fail sends the last frame of a failed call.
func (c *call) fail(ctx context.Context, err error, function string, idempotent bool) {
	w := cmp.FromError(err, c.node.cfg.ID, function, idempotent)
	sent := c.send(ctx, &wire.Frame{Type: wire.FrameError, Error: w})
	if sent != nil { // the details may be too large
		w.Details = nil
		sent = c.send(ctx, &wire.Frame{Type: wire.FrameError, Error: w})
	}
	if sent != nil {
		c.node.cfg.Logger.Debug("the end of a call was not sent", "node", c.node.cfg.ID, "call", c.id, "err", sent)
	}
}

// send sends the next frame. After the last frame of a call it sends nothing more.
func (c *call) send(ctx context.Context, f *wire.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return cmp.Errorf(cmp.ReasonCancelled, "the call has ended")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.publish(ctx, f)
}

// publish must be called with the lock held.
func (c *call) publish(ctx context.Context, f *wire.Frame) error {
	f.CallID, f.Epoch, f.Seq = c.id, c.epoch, c.seq
	data, err := wire.Encode(f)
	if err != nil {
		return err
	}
	c.seq++ // a frame that cannot be sent is a gap, which the gateway detects
	c.over = f.Last()
	if err := c.node.conn.Publish(ctx, messaging.Message{Subject: c.reply, Data: data}); err != nil {
		return cmp.Errorf(cmp.ReasonConnection, "the answer could not be sent: the session with the gateway is broken")
	}
	return nil
}

func (n *Node) forget(c *call) {
	n.mu.Lock()
	if n.calls[c.id] == c {
		delete(n.calls, c.id)
	}
	n.mu.Unlock()
	n.credit.forget(c)
}

// cancelCalls cancels the calls for which those returns true.
func (n *Node) cancelCalls(those func(*call) bool, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.calls {
		if those(c) {
			n.cfg.Logger.Debug("call cancelled", "node", n.cfg.ID, "call", c.id, "reason", why)
			c.cancel()
		}
	}
}

// grant returns to the windows what the reader of a stream has consumed.
func (n *Node) grant(id string, bytes int64) {
	n.mu.Lock()
	c := n.calls[id]
	n.mu.Unlock()
	if c != nil {
		n.credit.give(c, bytes)
	}
}
