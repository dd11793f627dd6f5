package publish

import (
	"context"
	"sync"
	"sync/atomic"
)

// Sink receives telemetry. Put must not block and may be called concurrently.
type Sink interface{ Put(Telemetry) }

// Recent is a sink that stores the last 1,024 events, for the API. The zero value is ready
// to use.
type Recent struct {
	mu     sync.Mutex
	events [maxRecent]Telemetry
	n      uint64 // number of events ever stored
}

// Put stores the event and drops the oldest if the ring is full.
func (r *Recent) Put(e Telemetry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[r.n%maxRecent] = e
	r.n++
}

// List returns the stored events with that name, oldest first. If name is "", it returns all.
func (r *Recent) List(name string) []Telemetry {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Telemetry{}
	for i := r.n - min(r.n, maxRecent); i < r.n; i++ {
		if e := r.events[i%maxRecent]; name == "" || e.Event == name {
			out = append(out, e)
		}
	}
	return out
}

// Queue is a bounded buffer in front of a slow consumer. Events that do not fit are dropped
// and counted.
type Queue struct {
	events  chan Telemetry
	dropped atomic.Uint64
}

// NewQueue returns a queue of at most size events. The caller must run [Queue.Run].
func NewQueue(size int) *Queue { return &Queue{events: make(chan Telemetry, size)} }

// Put queues the event, or drops it if the queue is full.
func (q *Queue) Put(e Telemetry) {
	select {
	case q.events <- e:
	default:
		q.dropped.Add(1)
	}
}

// Dropped returns the number of dropped events.
func (q *Queue) Dropped() uint64 { return q.dropped.Load() }

// Run calls out with each event, one after the other, until ctx ends.
func (q *Queue) Run(ctx context.Context, out func(Telemetry)) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-q.events:
			out(e)
		}
	}
}
