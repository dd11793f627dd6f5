package sandbox

import (
	"fmt"
	"strings"
	"sync"
)

// Output is the captured part of one stream.
type Output struct {
	Head, Tail []byte
	Omitted    int64 // bytes dropped between Head and Tail
}

// Truncated reports whether anything was dropped.
func (o Output) Truncated() bool { return o.Omitted > 0 }

// Bytes joins head and tail. If bytes were dropped, a line between them gives their number.
func (o Output) Bytes() []byte {
	if o.Omitted == 0 {
		return append(o.Head[:len(o.Head):len(o.Head)], o.Tail...)
	}
	marker := fmt.Sprintf("\n[… %d bytes of output omitted …]\n", o.Omitted)
	joined := make([]byte, 0, len(o.Head)+len(marker)+len(o.Tail))
	joined = append(append(joined, o.Head...), marker...)
	return append(joined, o.Tail...)
}

// Text is Bytes as valid UTF-8; each run of other bytes becomes one U+FFFD.
func (o Output) Text() string { return strings.ToValidUTF8(string(o.Bytes()), "\uFFFD") }

// capture stores the first half and the last half of its limit. The tail is a
// ring, so that memory is bounded for any amount of output.
type capture struct {
	mu      sync.Mutex
	headMax int
	tailMax int
	head    []byte
	ring    []byte
	next    int // index of the oldest byte of the ring, once it is full
	total   int64

	// flood is called once, when the output exceeds floodFactor times the limit.
	flood func()
}

// floodFactor is the multiple of the limit at which a writing program is stopped.
const floodFactor = 16

func newCapture(limit int) *capture {
	return &capture{headMax: limit - limit/2, tailMax: limit / 2}
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	c.total += int64(n)
	if c.flood != nil && c.total > floodFactor*int64(c.headMax+c.tailMax) {
		go c.flood() // because flood acquires locks itself
		c.flood = nil
	}
	if room := c.headMax - len(c.head); room > 0 {
		take := min(room, len(p))
		c.head, p = append(c.head, p[:take]...), p[take:]
	}
	if len(p) > c.tailMax {
		p = p[len(p)-c.tailMax:]
		c.ring, c.next = c.ring[:0], 0
	}
	if room := c.tailMax - len(c.ring); room > 0 {
		take := min(room, len(p))
		c.ring, p = append(c.ring, p[:take]...), p[take:]
	}
	for len(p) > 0 {
		k := copy(c.ring[c.next:], p)
		c.next, p = (c.next+k)%len(c.ring), p[k:]
	}
	return n, nil
}

func (c *capture) output() Output {
	c.mu.Lock()
	defer c.mu.Unlock()
	tail := make([]byte, 0, len(c.ring))
	tail = append(append(tail, c.ring[c.next:]...), c.ring[:c.next]...)
	return Output{Head: c.head, Tail: tail, Omitted: c.total - int64(len(c.head)) - int64(len(tail))}
}
