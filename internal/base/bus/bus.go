// Package bus tells the parts of one process, and through them people and
// agents, that something has happened. An event is a notice, never the only copy
// of a fact: a subscriber that misses one requests the state it was about.
//
// There is one ring of recent events, and every subscriber is a cursor into it.
// So a publisher never waits, a subscriber costs nothing while it is idle, and
// one that falls too far behind is asked to resync instead of slowing the publisher.
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
	maxRingBytes  = 16 << 20 // of all events kept for replay
	maxData       = 64 << 10
)

// Resync is the type of the event that stands for events a subscriber lost: what
// it knows may be out of date. Its id is that of the newest lost one.
const Resync = "resync"

// Event is one notice. Type is noun.past_verb, such as "catalog.changed".
type Event struct {
	ID   uint64          `json:"id"` // increasing in this process, from 1
	Type string          `json:"type"`
	At   time.Time       `json:"at"`
	Data json.RawMessage `json:"data,omitempty"` // shared; must not be changed
}

// Config tunes a Bus. The zero value is useful.
type Config struct {
	// Replay is how many recent events are kept; 0 means 1,000.
	Replay int
	// Lag is how many bytes of data a subscriber that has once caught up may
	// fall behind before it is asked to resync; 0 means 1 MiB.
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

// Publish tells every subscriber and returns the event's id; 0 after Close. It
// never blocks. Data is copied; it must be one JSON value of at most 64 KiB, or
// nil. Other data is left out: an event is a notice, and the notice still counts.
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
	clear(b.ring[:drop]) // the array is reused; the data must not be kept alive
	b.ring = b.ring[drop:]
	close(b.wake)
	b.wake = make(chan struct{})
	return e.ID
}

func size(e Event) int64 { return int64(len(e.Type)+len(e.Data)) + 64 }

// Latest returns the id of the newest event, 0 when there was none yet. Give it
// to Subscribe to receive only later ones.
func (b *Bus) Latest() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.latest
}

// Subscribe yields the events after the given id, first those that are kept,
// then those that come. After 0 everything kept is replayed. Where events are
// lost, because the id is too old, was given by an earlier process, or the
// subscriber was too slow, one event of type [Resync] takes their place. The
// sequence ends with one error: that of ctx, or unavailable when the bus closes.
// Breaking out of the loop ends it without one.
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

// cursor is one subscriber's place.
type cursor struct {
	bus   *Bus
	last  uint64 // id seen last
	fresh bool   // has seen nothing, so it cannot have lost anything
	live  bool   // has caught up once: from then on Lag counts
}

// next returns the next event, or the channel that will be closed when there is
// one.
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

// Close ends every subscription once it has seen what was published before.
// It may be called again.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.wake)
	}
}
