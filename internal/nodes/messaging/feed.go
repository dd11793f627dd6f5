package messaging

import (
	"context"
	"iter"
	"sync"
)

// feedPending limits the events that wait for one slow reader.
const feedPending = 1024

// Feed sends events to any number of readers, for implementations of the bus. A publisher
// never waits: a slow reader gets the event Lost in place of those it missed. Lost must be
// set. Feed is safe for concurrent use and has no goroutine.
type Feed[T any] struct {
	Lost T

	mu      sync.Mutex
	readers map[*feedReader[T]]struct{}
	closed  bool
	end     error
}

type feedReader[T any] struct {
	wake    chan struct{} // holds one token if there are events to read
	pending []T
}

func (r *feedReader[T]) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Publish sends v to every reader.
func (f *Feed[T]) Publish(v T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	for r := range f.readers {
		if len(r.pending) >= feedPending {
			r.pending = append(r.pending[:0], f.Lost)
		}
		r.pending = append(r.pending, v)
		r.signal()
	}
}

// Close ends every reader after the published events, with err if that is not nil. Only
// the first call has an effect.
func (f *Feed[T]) Close(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed, f.end = true, err
	for r := range f.readers {
		r.signal()
	}
}

// Read yields first and then the events published after the call. It ends with the error
// of ctx, or when the feed is closed.
func (f *Feed[T]) Read(ctx context.Context, first ...T) iter.Seq2[T, error] {
	r := &feedReader[T]{wake: make(chan struct{}, 1), pending: first}
	f.mu.Lock()
	if f.readers == nil {
		f.readers = make(map[*feedReader[T]]struct{})
	}
	f.readers[r] = struct{}{}
	f.mu.Unlock()
	forget := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.readers, r)
	}
	stop := context.AfterFunc(ctx, forget)
	return func(yield func(T, error) bool) {
		defer stop()
		defer forget()
		var none T
		for {
			f.mu.Lock()
			batch, closed, end := r.pending, f.closed, f.end
			r.pending = nil
			f.mu.Unlock()
			for _, v := range batch {
				if !yield(v, nil) {
					return
				}
			}
			if err := ctx.Err(); err != nil {
				yield(none, err)
				return
			}
			if len(batch) > 0 {
				continue
			}
			if closed {
				if end != nil {
					yield(none, end)
				}
				return
			}
			select {
			case <-r.wake:
			case <-ctx.Done():
			}
		}
	}
}
