package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// Request is one call to one node.
type Request struct {
	Node           string // for Do, "" means any node that offers the function
	Function       string
	Arguments      cmp.Arguments
	Stream         bool
	IdempotencyKey string // the node runs calls with one key once, so Do may repeat the call
	Caller         wire.Caller
	Trace          string // traceparent
	// Chunk receives the chunks of a stream in order; its error cancels the call. If nil,
	// they are collected into a list. A chunk {"$asset":…} is not resolved.
	Chunk func(value json.RawMessage) error
	// Progress receives the node's progress; it may be nil.
	Progress func(fraction float64, message string)
}

// Result is the result of a call.
type Result struct {
	// Value is the result, or for a stream without Chunk the list of its chunks. A value
	// {"$asset":…} is not resolved.
	Value  json.RawMessage
	Node   string // the last node to which the call was sent, or ""
	Chunks int
	Bytes  int64
	Exec   time.Duration // on the node
	Tries  int           // of Do: number of nodes to which the call was sent
}

// Call sends a call to the node r.Node and waits for its end. The deadline is ctx's, or
// DefaultTimeout. Errors: node_not_found, function_not_found, node_overloaded, node_lost,
// timeout, cancelled, connection_failed, execution_failed and those of the node.
func (g *Gateway) Call(ctx context.Context, r Request) (Result, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	n, ok := g.table.Get(r.Node)
	if !ok {
		return Result{}, notFound(r.Node)
	}
	result, _, err := g.attempt(ctx, &n, r)
	result.Tries = 1
	return result, err
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

// attempt makes one call to one node. reached is false if it provably did not start.
func (g *Gateway) attempt(ctx context.Context, n *fleet.Node, r Request) (result Result, reached bool, err error) {
	result.Node = n.ID
	window := 0
	if r.Stream {
		var leave func()
		if window, leave, err = g.openStream(n.ID); err != nil {
			g.breaker.abandon(n.ID, r.Function)
			return result, false, err
		}
		defer leave()
	}
	end := g.table.Begin(n.ID, n.Epoch, r.Function)
	if end == nil {
		g.breaker.abandon(n.ID, r.Function)
		return result, false, cmp.Errorf(cmp.ReasonNodeNotFound, "the node %s has just gone", n.ID)
	}
	c := g.enlist(n, r.Stream, window)
	defer g.delist(c)
	result, reached, err = g.carry(ctx, c, n, r, window)
	result.Node = n.ID
	latency := 0.0
	if err == nil {
		latency = float64(time.Since(c.began)-result.Exec) / float64(time.Millisecond)
	}
	if end(latency) {
		g.look()
	}
	g.breaker.count(n.ID, r.Function, err)
	return result, reached, err
}

// enlist registers a call so that it receives its frames. The id is unique across gateways.
func (g *Gateway) enlist(n *fleet.Node, stream bool, window int) *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made++
	c := newCall(g.instance[:8]+"-"+strconv.FormatUint(g.made, 36), n.ID, n.Epoch, stream, window)
	c.reply = wire.SubjectReply(c.node, g.instance, c.id)
	g.calls[c.id] = c
	return c
}

func (g *Gateway) delist(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.calls, c.id)
}

// carry publishes the call and waits for its result. If the message had no subscriber and
// the node has just joined, it is sent again after a pause, because not all servers of a
// cluster may have the subscription yet. reached is the second result.
func (g *Gateway) carry(ctx context.Context, c *call, n *fleet.Node, r Request, window int) (Result, bool, error) {
	deadline, _ := ctx.Deadline()
	out := wire.Call{
		Epoch: c.epoch, CallID: c.id, Function: r.Function, Args: r.Arguments.Args, Kwargs: r.Arguments.Kwargs, Stream: r.Stream, Window: window,
		DeadlineMS: min(max(time.Until(deadline).Milliseconds(), 1), time.Hour.Milliseconds()), IdempotencyKey: r.IdempotencyKey,
		Caller: r.Caller, Trace: wire.Trace{Parent: r.Trace},
	}
	data, err := g.encode(ctx, &out, r)
	if err != nil {
		return Result{}, false, err
	}
	m := messaging.Message{Subject: wire.SubjectCall(c.node), Reply: c.reply, Data: data}
	// Between attempts for a node that has just joined.
	pauses := []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond}
	for {
		if err := g.conn.Publish(ctx, m); err != nil {
			if ctx.Err() != nil {
				return Result{}, false, interrupted(ctx, c)
			}
			return Result{}, false, cmp.Errorf(cmp.ReasonConnection, "the call could not be sent to %s", c.node)
		}
		result, noSubscriber, reached, err := g.await(ctx, c, r, window)
		if !noSubscriber {
			return result, reached, err
		}
		if !n.New() || len(pauses) == 0 || pause.For(ctx, pauses[0]) != nil {
			g.change(ctx, func() []fleet.Event { return g.table.Absent(c.node, c.epoch, 0) })
			return Result{}, false, cmp.Errorf(cmp.ReasonNodeNotFound, "the node %s has no session at the moment", c.node)
		}
		pauses = pauses[1:]
		c.again()
	}
}

// encode encodes a call. Arguments that are too large are stored as an asset.
func (g *Gateway) encode(ctx context.Context, out *wire.Call, r Request) ([]byte, error) {
	data, err := wire.Encode(out)
	if capability.CodeOf(err) != capability.CodeTooLarge || g.cfg.PutAsset == nil {
		return data, err
	}
	arguments, err := json.Marshal(r.Arguments)
	if err != nil {
		return nil, cmp.Errorf(cmp.ReasonEncoding, "the arguments are not JSON")
	}
	if len(arguments) > cmp.MaxAsset {
		return nil, cmp.Errorf(cmp.ReasonTooLarge, "the arguments have %d bytes; the limit is %d", len(arguments), cmp.MaxAsset)
	}
	asset, err := g.cfg.PutAsset(ctx, r.Caller.ID, arguments)
	if err != nil {
		return nil, err
	}
	out.Args, out.Kwargs, out.Arguments = nil, nil, cmp.AssetValue(asset)
	return wire.Encode(out)
}

// interrupted returns the error of a call whose caller's context ended: timeout or cancelled.
func interrupted(ctx context.Context, c *call) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return cmp.Errorf(cmp.ReasonTimeout, "the node %s did not answer in time", c.node)
	}
	return cmp.Errorf(cmp.ReasonCancelled, "the call was cancelled")
}

// await handles the frames of a call until the last one or the end of the call. noSubscriber is
// true if the message had no subscriber. reached is false if the first frame was a refusal.
func (g *Gateway) await(ctx context.Context, c *call, r Request, window int) (result Result, noSubscriber, reached bool, err error) {
	f := follower{g: g, c: c, r: r, credit: credit{window: window}}
	for {
		data, noSubscriber, err := c.next(ctx)
		switch {
		case noSubscriber:
			return f.result, true, false, nil
		case err != nil && ctx.Err() != nil:
			g.cancel(ctx, c, "the caller is gone")
			return f.result, false, true, interrupted(ctx, c)
		case err != nil:
			g.cancel(ctx, c, capability.AsError(err).Reason)
			return f.result, false, true, err
		}
		done, err := f.take(ctx, data)
		if err != nil {
			return f.result, false, f.began || !f.refused, err
		}
		if done {
			return f.result, false, true, nil
		}
	}
}

// follower assembles the frames of one call.
type follower struct {
	g        *Gateway
	c        *call
	r        Request
	sequence wire.Sequence
	credit   credit
	result   Result
	list     []json.RawMessage
	began    bool // the call has started on the node
	refused  bool // the node was overloaded
}

func (f *follower) take(ctx context.Context, data []byte) (done bool, err error) {
	g, c := f.g, f.c
	frame, err := wire.Decode[wire.Frame](data)
	if err != nil {
		g.cancel(ctx, c, "a frame cannot be read")
		e := cmp.Errorf(cmp.ReasonConnection, "the node %s sent what is not a frame: %s", c.node, capability.AsError(err).Message)
		e.Code = capability.CodeFailed
		return false, e
	}
	if frame.CallID != c.id || frame.Epoch != c.epoch {
		return false, nil // of an earlier session
	}
	fresh, err := f.sequence.Take(frame)
	if err != nil {
		g.cancel(ctx, c, "frames were lost")
		return false, err
	}
	if !fresh {
		return false, nil
	}
	switch frame.Type {
	case wire.FrameProgress:
		f.began = true
		if f.r.Progress != nil && frame.Fraction != nil {
			f.r.Progress(*frame.Fraction, frame.Message)
		}
	case wire.FrameChunk:
		f.began = true
		return false, f.chunk(ctx, frame.Value)
	case wire.FrameResult:
		f.result.Value, f.result.Exec = frame.Value, time.Duration(frame.ExecMS)*time.Millisecond
		return true, nil
	case wire.FrameDone:
		f.result.Exec = time.Duration(frame.ExecMS) * time.Millisecond
		if f.r.Chunk == nil {
			f.result.Value = list(f.list)
		}
		return true, nil
	case wire.FrameError:
		f.refused = frame.Error.Code == cmp.ReasonOverloaded
		return false, frame.Error.Capability()
	}
	return false, nil
}

func (f *follower) chunk(ctx context.Context, value json.RawMessage) error {
	g, c := f.g, f.c
	f.result.Chunks++
	f.result.Bytes += int64(len(value))
	switch {
	case ctx.Err() != nil:
		g.cancel(ctx, c, "the caller is gone")
		return interrupted(ctx, c)
	case f.r.Chunk != nil:
		if err := f.r.Chunk(value); err != nil {
			g.cancel(ctx, c, "the reader is gone")
			return err
		}
	case f.result.Bytes > maxCollected:
		g.cancel(ctx, c, "too much")
		return cmp.Errorf(cmp.ReasonTooLarge, "the chunks have more than %d bytes together", maxCollected)
	default:
		f.list = append(f.list, value)
	}
	// Credit is given only after the reader has consumed the chunk, so that a slow reader
	// slows its own stream only.
	if n := f.credit.take(int64(len(value)), g.late(c.node)); n > 0 {
		g.control(ctx, c.node, wire.Control{Epoch: c.epoch, Type: wire.ControlCredit, CallID: c.id, Bytes: n})
	}
	return nil
}

// list returns a JSON array of values, each with its original bytes.
func list(values []json.RawMessage) json.RawMessage {
	size := 2 + len(values)
	for _, v := range values {
		size += len(v)
	}
	out := append(make([]byte, 0, size), '[')
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}

// cancel sends a node the cancellation of a call.
func (g *Gateway) cancel(ctx context.Context, c *call, why string) {
	g.control(ctx, c.node, wire.Control{Epoch: c.epoch, Type: wire.ControlCancel, CallID: c.id, Reason: why})
}

// reply hands a frame to the call that the subject names; the call's follower decodes it. A
// frame from another node, or for a call that has ended, is ignored.
func (g *Gateway) reply(ctx context.Context, m messaging.Message) {
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	if g.passed(id) {
		return
	}
	noSubscriber := messaging.IsNobody(m)
	if strings.HasPrefix(id, probePrefix) {
		if noSubscriber {
			g.absent(ctx, nodeOf(m), id)
		}
		return
	}
	g.mu.Lock()
	c := g.calls[id]
	g.mu.Unlock()
	switch {
	case c == nil || m.Subject != c.reply:
	case noSubscriber:
		c.unheard()
	default:
		c.push(m.Data)
	}
}
