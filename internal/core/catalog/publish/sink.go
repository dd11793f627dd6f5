package publish

import (
	"context"
	"sync"
	"sync/atomic"
)

// Sink takes telemetry. Put must not block and is called from many goroutines.
type Sink interface{ Put(Telemetry) }

// Recent is a sink that keeps the last 1,024 events, for the API. The zero value is
// ready.
type Recent struct {
	mu     sync.Mutex
	events [maxRecent]Telemetry
	n      uint64 // ever put
}

const maxRecent = 1024

// Put keeps the event.
func (r *Recent) Put(e Telemetry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[r.n%maxRecent] = e
	r.n++
}

// List returns the events of a name, oldest first; "" is all.
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

// Queue is a sink in front of a slow one: what does not fit is dropped and counted.
type Queue struct {
	events  chan Telemetry
	dropped atomic.Uint64
}

// NewQueue returns a queue of at most size events. The caller must run [Queue.Run].
func NewQueue(size int) *Queue { return &Queue{events: make(chan Telemetry, size)} }

// Put queues the event, or drops it.
func (q *Queue) Put(e Telemetry) {
	select {
	case q.events <- e:
	default:
		q.dropped.Add(1)
	}
}

// Dropped is how many events did not fit.
func (q *Queue) Dropped() uint64 { return q.dropped.Load() }

// Run hands the events to out, one after the other, until ctx ends.
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
