package node

import (
	"context"
	"sync"
)

// credit counts the bytes of all streams that are on their way.
type credit struct {
	mu      sync.Mutex
	total   int64
	changed chan struct{} // closed and replaced whenever there is more room
}

// take waits until a stream, and all of them together, may have something more on
// the way, and counts it. A stream stops when what is out reaches its window, so
// that one chunk may pass it; all together never pass theirs.
func (k *credit) take(ctx context.Context, c *call, n int64) error {
	for {
		k.mu.Lock()
		if c.outstanding < c.window && k.total+n <= MaxOutstanding {
			c.outstanding += n
			k.total += n
			k.mu.Unlock()
			return nil
		}
		changed := k.changed
		k.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// give takes back what the reader has consumed; more than was sent is not believed.
func (k *credit) give(c *call, n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n = min(n, c.outstanding)
	if n <= 0 {
		return
	}
	c.outstanding -= n
	k.free(n)
}

// forget frees what a stream that has ended still had on the way.
func (k *credit) forget(c *call) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.outstanding > 0 {
		k.free(c.outstanding)
		c.outstanding = 0
	}
}

// free must be called with the lock held.
func (k *credit) free(n int64) {
	k.total -= n
	close(k.changed)
	k.changed = make(chan struct{})
}
