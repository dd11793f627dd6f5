package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// DefaultTimeout is the time of a call whose caller names none.
const DefaultTimeout = 300 * time.Second

// maxFrames bounds the frames of one call that wait for its reader: what a window
// admits, and a few. A node that sends more is cut off.
const maxFrames = 4096

// maxCollected bounds the chunks of a stream that are collected (spec/README,
// section 10: one result in the engine).
const maxCollected = 16 << 20

// Request is one call to one node.
type Request struct {
	Node           string
	Function       string
	Arguments      cmp.Arguments
	Stream         bool
	IdempotencyKey string
	Caller         wire.Caller
	Trace          string // traceparent
	// Chunk hears the chunks of a stream, in order; its error cancels the call. nil
	// collects them into a list.
	Chunk func(value json.RawMessage) error
	// Progress hears what the node says of how far it is; may be nil.
	Progress func(fraction float64, message string)
}

// Result is what came of it.
type Result struct {
	Value  json.RawMessage // of a stream without Chunk, the list
	Node   string
	Chunks int
	Bytes  int64
	Exec   time.Duration // on the node
}

// call is one under way.
type call struct {
	id     string
	node   string
	epoch  int64
	frames chan *wire.Frame
	failed chan *capability.Error // says at most one thing
}

// fail ends a call from outside; only the first reason counts.
func (c *call) fail(err *capability.Error) {
	select {
	case c.failed <- err:
	default:
	}
}

// Call carries a call to a node that has been chosen and waits for its end. Its
// deadline is ctx's, or DefaultTimeout. Errors are those of nodes-and-cmp, section
// 21: node_not_found, function_not_found, node_overloaded, node_lost, timeout,
// cancelled, connection_failed, execution_failed and what the node says.
func (g *Gateway) Call(ctx context.Context, r Request) (Result, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	n, ok := g.table.Get(r.Node)
	if !ok {
		return Result{}, cmp.Errorf(cmp.ReasonNodeNotFound, "there is no node %q", r.Node)
	}
	if r.Stream {
		leave, err := g.openStream(r.Node)
		if err != nil {
			return Result{}, err
		}
		defer leave()
	}
	end := g.table.Begin(r.Node, n.Epoch, r.Function)
	if end == nil {
		return Result{}, cmp.Errorf(cmp.ReasonNodeLost, "the node %s has just gone", r.Node)
	}
	began := time.Now()
	c := &call{
		id: strings.ToLower(rand.Text()), node: r.Node, epoch: n.Epoch,
		frames: make(chan *wire.Frame, maxFrames), failed: make(chan *capability.Error, 1),
	}
	g.mu.Lock()
	g.calls[c.id] = c
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.calls, c.id)
		g.mu.Unlock()
	}()
	result, err := g.carry(ctx, c, r)
	latency := 0.0
	if err == nil {
		latency = float64(time.Since(began)-result.Exec) / float64(time.Millisecond)
	}
	if end(latency) {
		g.look()
	}
	result.Node = r.Node
	return result, err
}

// openStream takes a place among the streams.
func (g *Gateway) openStream(node string) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.total >= g.cfg.TotalStreams:
		return nil, cmp.Errorf(cmp.ReasonOverloaded, "Gateway stream capacity exceeded. active=%d, limit=%d", g.total, g.cfg.TotalStreams)
	case g.streams[node] >= g.cfg.NodeStreams:
		return nil, cmp.Errorf(cmp.ReasonOverloaded, "Node '%s' cannot accept new stream workload: %d streams are open", node, g.streams[node])
	}
	g.total++
	g.streams[node]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.total--
		if g.streams[node]--; g.streams[node] == 0 {
			delete(g.streams, node)
		}
	}, nil
}

func (g *Gateway) carry(ctx context.Context, c *call, r Request) (Result, error) {
	deadline, _ := ctx.Deadline()
	out := wire.Call{
		Epoch: c.epoch, CallID: c.id, Function: r.Function, Args: r.Arguments.Args, Kwargs: r.Arguments.Kwargs, Stream: r.Stream,
		DeadlineMS: max(time.Until(deadline).Milliseconds(), 1), IdempotencyKey: r.IdempotencyKey, Caller: r.Caller, Trace: wire.Trace{Parent: r.Trace},
	}
	if r.Stream {
		out.Window = g.cfg.Window
	}
	data, err := wire.Encode(&out)
	if err != nil {
		return Result{}, err
	}
	err = g.conn.Publish(ctx, messaging.Message{Subject: wire.SubjectCall(c.node), Reply: wire.SubjectReply(c.node, g.instance, c.id), Data: data})
	if err != nil {
		return Result{}, cmp.Errorf(cmp.ReasonConnection, "the call could not be sent to %s", c.node)
	}
	return g.follow(ctx, c, r)
}

// follow takes the frames of a call until the last, or until it is over otherwise.
func (g *Gateway) follow(ctx context.Context, c *call, r Request) (Result, error) {
	var sequence wire.Sequence
	var result Result
	list := []json.RawMessage{}
	for {
		var f *wire.Frame
		select {
		case f = <-c.frames:
		case err := <-c.failed:
			if len(c.frames) > 0 { // what came before the end counts
				c.fail(err)
				f = <-c.frames
				break
			}
			g.cancel(ctx, c, err.Reason)
			return result, err
		case <-ctx.Done():
			g.cancel(ctx, c, "the caller is gone")
			if ctx.Err() == context.DeadlineExceeded {
				return result, cmp.Errorf(cmp.ReasonTimeout, "the node %s did not answer in time", c.node)
			}
			return result, cmp.Errorf(cmp.ReasonCancelled, "the call was cancelled")
		}
		fresh, err := sequence.Take(f)
		if err != nil {
			g.cancel(ctx, c, "frames were lost")
			return result, err
		}
		if !fresh {
			continue
		}
		switch f.Type {
		case wire.FrameProgress:
			if r.Progress != nil && f.Fraction != nil {
				r.Progress(*f.Fraction, f.Message)
			}
		case wire.FrameChunk:
			result.Chunks++
			result.Bytes += int64(len(f.Value))
			if r.Chunk == nil {
				if result.Bytes > maxCollected {
					g.cancel(ctx, c, "too much")
					return result, cmp.Errorf(cmp.ReasonTooLarge, "the chunks have more than %d bytes together", maxCollected)
				}
				list = append(list, f.Value)
			} else if err := r.Chunk(f.Value); err != nil {
				g.cancel(ctx, c, "the reader is gone")
				return result, err
			}
			// As the reader consumes, and not before: a slow one slows this stream alone.
			g.control(ctx, c.node, wire.Control{Epoch: c.epoch, Type: wire.ControlCredit, CallID: c.id, Bytes: int64(len(f.Value))})
		case wire.FrameResult:
			result.Value, result.Exec = f.Value, time.Duration(f.ExecMS)*time.Millisecond
			return result, nil
		case wire.FrameDone:
			result.Exec = time.Duration(f.ExecMS) * time.Millisecond
			if r.Chunk == nil {
				value, err := json.Marshal(list)
				if err != nil {
					return result, cmp.Errorf(cmp.ReasonEncoding, "the chunks are no JSON")
				}
				result.Value = value
			}
			return result, nil
		case wire.FrameError:
			return result, f.Error.Capability()
		}
	}
}

// cancel tells a node that nobody waits for a call any more.
func (g *Gateway) cancel(ctx context.Context, c *call, why string) {
	g.control(ctx, c.node, wire.Control{Epoch: c.epoch, Type: wire.ControlCancel, CallID: c.id, Reason: why})
}

// reply hands a frame to its call. One from another node than was asked, of another
// epoch, or for a call that is over, is nobody's.
func (g *Gateway) reply(_ context.Context, m messaging.Message) {
	f, err := wire.Decode[wire.Frame](m.Data)
	if err != nil {
		g.cfg.Logger.Debug("a frame that is none", "node", nodeOf(m), "err", err)
		return
	}
	g.mu.Lock()
	c := g.calls[f.CallID]
	g.mu.Unlock()
	if c == nil || c.node != nodeOf(m) || c.epoch != f.Epoch {
		return
	}
	select {
	case c.frames <- f:
	default: // it does not hold to its window
		c.fail(cmp.Errorf(cmp.ReasonOverloaded, "the node %s sent more than it may", c.node))
	}
}

// failNode fails what a node that is gone will not answer (N11).
func (g *Gateway) failNode(node string, of func(epoch int64) bool) {
	g.failThose(cmp.Errorf(cmp.ReasonNodeLost, "the node %s was lost while the call ran", node), func(c *call) bool { return c.node == node && of(c.epoch) })
}

func (g *Gateway) failAll(err *capability.Error) {
	g.failThose(err, func(*call) bool { return true })
}

func (g *Gateway) failThose(err *capability.Error, those func(*call) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		if those(c) {
			c.fail(err)
		}
	}
}
