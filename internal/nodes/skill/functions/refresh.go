package functions

import (
	"context"
	"sync"
	"time"
)

// Refresher tells a gateway of changes to a table: those within Debounce together,
// each revision at most once, one at a time. What fails is the session's to try
// again: it knows the revision that the gateway has.
type Refresher struct {
	functions *Registry
	send      func(ctx context.Context, revision uint64) error

	sending sync.Mutex // held while send runs

	mu     sync.Mutex
	told   uint64
	timer  *time.Timer
	closed bool
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// NewRefresher watches a table; send must return once the gateway has acknowledged
// the revision or one that is newer. A table has at most one Refresher.
func NewRefresher(functions *Registry, send func(ctx context.Context, revision uint64) error) *Refresher {
	f := &Refresher{functions: functions, send: send}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	functions.mu.Lock()
	f.told, functions.changed = functions.revision, f.notice
	functions.mu.Unlock()
	return f
}

func (f *Refresher) notice() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.timer != nil {
		return
	}
	f.done.Add(1)
	f.timer = time.AfterFunc(DebounceDelay, func() {
		defer f.done.Done()
		f.mu.Lock()
		f.timer = nil
		f.mu.Unlock()
		_ = f.Flush(f.ctx) // the session looks after what failed
	})
}

// Flush tells the newest revision now, unless the gateway has it, and returns when
// that was acknowledged or failed.
func (f *Refresher) Flush(ctx context.Context) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	revision := f.functions.Revision()
	f.mu.Lock()
	known := f.told >= revision
	f.mu.Unlock()
	if known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, RefreshTimeout)
	defer cancel()
	if err := f.send(ctx, revision); err != nil {
		return err
	}
	f.mu.Lock()
	f.told = max(f.told, revision)
	f.mu.Unlock()
	return nil
}

// Close stops telling and waits for what is being told.
func (f *Refresher) Close() {
	f.functions.mu.Lock()
	f.functions.changed = nil
	f.functions.mu.Unlock()
	f.mu.Lock()
	f.closed = true
	if f.timer != nil && f.timer.Stop() {
		f.done.Done()
	}
	f.mu.Unlock()
	f.cancel()
	f.done.Wait()
}
