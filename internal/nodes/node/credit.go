package node

import (
	"context"
	"sync"
)

// credit counts the bytes of all streams that were sent and not yet consumed.
type credit struct {
	mu      sync.Mutex
	total   int64
	changed chan struct{} // closed and replaced when bytes become free
}

// take waits until n more bytes of a stream may be sent, and counts them. A stream may
// exceed its window by one chunk; all streams together never exceed MaxOutstanding.
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

// give subtracts what the reader has consumed, at most what was sent.
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

// forget subtracts the outstanding bytes of a stream that has ended.
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
