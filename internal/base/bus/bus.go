// Package bus distributes events within one process. An event is a notice and never the only
// copy of a fact: a subscriber that misses one reads the state that it is about.
//
// There is one ring of recent events, and every subscriber is a cursor into it. So a
// publisher never waits, an idle subscriber costs nothing, and a subscriber that falls too
// far behind receives a [Resync] event instead of slowing the publisher.
package bus

import (
	"context"
	"encoding/json"
	"iter"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Limits.
const (
	defaultReplay = 1000
	defaultLag    = 1 << 20
	maxRingBytes  = 16 << 20 // of all events stored for replay
	maxData       = 64 << 10
)

// Resync is the type of the event that replaces events which a subscriber lost. The
// subscriber must read the state again. Its id is that of the newest lost event.
const Resync = "resync"

// Event is one notice. Type is noun.past_verb, such as "catalog.changed".
type Event struct {
	ID   uint64          `json:"id"` // increasing in this process, from 1
	Type string          `json:"type"`
	At   time.Time       `json:"at"`
	Data json.RawMessage `json:"data,omitempty"` // shared; must not be changed
}

// Config configures a Bus. The zero value means all defaults.
type Config struct {
	// Replay is the number of recent events that are stored; 0 means 1,000.
	Replay int
	// Lag is the number of bytes of data by which a subscriber that has caught up once may
	// fall behind before it receives a Resync; 0 means 1 MiB.
	Lag int
}

// Bus is an in-memory event bus. Create it with New; it is safe for concurrent
// use and needs no goroutine.
type Bus struct {
	cfg Config

	mu      sync.Mutex
	ring    []kept // oldest first
	latest  uint64
	written int64         // bytes ever published
	wake    chan struct{} // closed and replaced at every event
	closed  bool
}

type kept struct {
	Event
	before int64 // Bus.written before this event
}

// New returns a bus without events.
func New(cfg Config) *Bus {
	if cfg.Replay <= 0 {
		cfg.Replay = defaultReplay
	}
	if cfg.Lag <= 0 {
		cfg.Lag = defaultLag
	}
	return &Bus{cfg: cfg, wake: make(chan struct{})}
}

// Publish sends an event to every subscriber and returns its id, or 0 after Close. It never
// blocks. Data is copied. It must be one JSON value of at most 64 KiB, or nil; otherwise
// the event is published without data.
func (b *Bus) Publish(eventType string, data json.RawMessage) uint64 {
	if len(data) > maxData || !json.Valid(data) {
		data = nil
	}
	e := Event{Type: eventType, At: time.Now().UTC(), Data: append(json.RawMessage(nil), data...)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0
	}
	b.latest++
	e.ID = b.latest
	b.ring = append(b.ring, kept{e, b.written})
	b.written += size(e)
	drop := max(0, len(b.ring)-b.cfg.Replay)
	for b.written-b.ring[drop].before > maxRingBytes {
		drop++
	}
	clear(b.ring[:drop]) // the array is reused, so the dropped data must be released
	b.ring = b.ring[drop:]
	close(b.wake)
	b.wake = make(chan struct{})
	return e.ID
}

func size(e Event) int64 { return int64(len(e.Type)+len(e.Data)) + 64 }

// Latest returns the id of the newest event, or 0 if there was none yet. With this id,
// Subscribe yields only later events.
func (b *Bus) Latest() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.latest
}

// Subscribe yields the events after the given id, first the stored ones, then new ones as
// they are published. After 0 it replays all stored events. If events are lost, because
// the id is too old or of an earlier process, or the subscriber was too slow, it yields
// one event of type [Resync] instead. The sequence ends with one error: that of ctx, or
// unavailable when the bus closes. Leaving the loop ends it without an error.
func (b *Bus) Subscribe(ctx context.Context, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		c := cursor{bus: b, last: after, fresh: after == 0}
		for {
			if err := ctx.Err(); err != nil {
				yield(Event{}, err)
				return
			}
			e, wake, err := c.next()
			switch {
			case err != nil:
				yield(Event{}, err)
				return
			case wake == nil:
				if !yield(e, nil) {
					return
				}
				continue
			}
			select {
			case <-wake:
			case <-ctx.Done():
			}
		}
	}
}

// cursor is the position of one subscriber.
type cursor struct {
	bus   *Bus
	last  uint64 // id of the last event yielded
	fresh bool   // has received no event yet, so it cannot have lost one
	live  bool   // has caught up once, so that Lag applies
}

// next returns the next event, or a channel that is closed when there is one.
func (c *cursor) next() (Event, <-chan struct{}, error) {
	b := c.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.last == b.latest {
		c.live, c.fresh = true, false
		if b.closed {
			return Event{}, nil, capability.Errorf(capability.CodeUnavailable, "bus.subscribe", "the server is shutting down")
		}
		return Event{}, b.wake, nil
	}
	oldest := b.latest - uint64(len(b.ring)) + 1
	lost := c.last > b.latest || c.last+1 < oldest
	if c.fresh && lost {
		c.last, lost = oldest-1, false
	}
	c.fresh = false
	if !lost {
		k := b.ring[c.last+1-oldest]
		if !c.live || b.written-k.before <= int64(b.cfg.Lag) || k.ID == b.latest {
			c.last = k.ID
			return k.Event, nil, nil
		}
	}
	c.last, c.live = b.latest, true
	return Event{ID: b.latest, Type: Resync, At: time.Now().UTC()}, nil, nil
}

// Close ends every subscription after it has yielded the events published before. It may be
// called again.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.wake)
	}
}
