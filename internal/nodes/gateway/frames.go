package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// envelope is the largest size in bytes of a frame without its value.
const envelope = 256

// call is one running call with its received frames, which its follower decodes.
type call struct {
	id    string
	node  string
	epoch int64
	reply string // the subject of its frames
	// limit is the number of bytes that may wait: the window, a result, and envelopes.
	limit  int
	stream bool
	began  time.Time

	wake chan struct{} // capacity 1: something has changed

	mu           sync.Mutex
	frames       [][]byte
	head         int // number of frames already taken
	bytes        int
	first        [2][]byte // initial storage of frames; most calls have no more
	err          *capability.Error
	noSubscriber bool // the bus reports that the call had no subscriber
	heard        time.Time
	asked        bool // a probe for the node was sent
}

func newCall(id, node string, epoch int64, stream bool, window int) *call {
	c := &call{
		id: id, node: node, epoch: epoch, stream: stream, limit: max(window, wire.DefaultWindow) + wire.MaxChunk + wire.MaxInline,
		wake: make(chan struct{}, 1), began: time.Now(),
	}
	c.frames = c.first[:0]
	return c
}

func (c *call) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// push adds a frame. If the node exceeds the call's limit, the call fails.
func (c *call) push(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	if c.err != nil {
		return
	}
	waiting := len(c.frames) - c.head
	if waiting >= maxFrames || c.bytes+len(data) > c.limit+envelope*waiting {
		c.err = cmp.Errorf(cmp.ReasonOverloaded, "the node %s sent more than it may: %d frames of %d bytes wait for their reader", c.node,
			waiting, c.bytes)
		c.signal()
		return
	}
	if c.head > 0 && len(c.frames) == cap(c.frames) { // make room before growing
		n := copy(c.frames, c.frames[c.head:])
		clear(c.frames[n:])
		c.frames, c.head = c.frames[:n], 0
	}
	c.frames = append(c.frames, data)
	c.bytes += len(data)
	c.signal()
}

// fail ends a call with an error, after the frames received before. Only the first error counts.
func (c *call) fail(err *capability.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.signal()
}

// unheard records that the call's message had no subscriber.
func (c *call) unheard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noSubscriber = true
	c.signal()
}

// again clears the record of unheard before the call is sent once more.
func (c *call) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noSubscriber = false
}

// next returns the next frame, or the reason for its absence. noSubscriber is true when the call
// had no subscriber.
func (c *call) next(ctx context.Context) (data []byte, noSubscriber bool, err error) {
	for {
		c.mu.Lock()
		switch {
		case c.head < len(c.frames):
			data, c.frames[c.head] = c.frames[c.head], nil
			c.head++
			c.bytes -= len(data)
			if c.head == len(c.frames) {
				c.frames, c.head = c.frames[:0], 0
			}
			c.mu.Unlock()
			return data, false, nil
		case c.noSubscriber:
			c.mu.Unlock()
			return nil, true, nil
		case c.err != nil:
			err = c.err
			c.mu.Unlock()
			return nil, false, err
		}
		c.mu.Unlock()
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// silence returns the time since the last frame, whether there ever was one, and whether a
// probe was sent.
func (c *call) silence(now time.Time) (d time.Duration, ever, asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard.IsZero() {
		return now.Sub(c.began), false, c.asked
	}
	return now.Sub(c.heard), true, c.asked
}

// attend fails streams that were silent for Config.Idle, and probes the nodes of calls that
// have received no frame, until ctx ends.
func (g *Gateway) attend(ctx context.Context) error {
	for {
		if err := pause.For(ctx, attendInterval); err != nil {
			return err
		}
		now := time.Now()
		var ask []*call
		g.mu.Lock()
		for _, c := range g.calls {
			d, ever, asked := c.silence(now)
			switch {
			case c.stream && d >= g.cfg.Idle:
				c.fail(cmp.Errorf(cmp.ReasonTimeout, "the stream from %s has had nothing for %s", c.node, g.cfg.Idle))
			case !ever && !asked && d >= firstFrameTimeout:
				ask = append(ask, c)
			}
		}
		g.mu.Unlock()
		for _, c := range ask {
			c.mu.Lock()
			c.asked = true
			c.mu.Unlock()
			g.probe(ctx, c.node, c.epoch)
		}
	}
}

// failNode fails the calls to a lost node in the epochs for which of returns true.
func (g *Gateway) failNode(node string, of func(epoch int64) bool) {
	g.failThose(cmp.Errorf(cmp.ReasonNodeLost, "the node %s was lost while the call ran", node),
		func(c *call) bool { return c.node == node && of(c.epoch) })
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
