package runner

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/junctor-run/junctor/capability"
)

// Running holds the current runs of all extensions. The zero value is ready to use and
// safe for concurrent use.
type Running struct {
	mu   sync.Mutex
	runs map[string]map[*one]bool // by extension
}

type one struct {
	cancel context.CancelFunc
	done   chan struct{}
	writer string      // the principal, if the run may leave files
	shared atomic.Bool // a run for another principal that may leave files was under way at the same time
}

// begin adds a run, until the caller calls end. Stop cancels the returned context. writer is the principal
// of a run that may leave files in the folder of the extension, or "".
func (r *Running) begin(ctx context.Context, extension, writer string) (_ context.Context, run *one, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	run = &one{cancel: cancel, done: make(chan struct{}), writer: writer}
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.runs[extension] {
		if writer != "" && other.writer != "" && other.writer != writer {
			other.shared.Store(true)
			run.shared.Store(true)
		}
	}
	if r.runs == nil {
		r.runs = make(map[string]map[*one]bool)
	}
	if r.runs[extension] == nil {
		r.runs[extension] = make(map[*one]bool)
	}
	r.runs[extension][run] = true
	return ctx, run, func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.runs[extension], run); len(r.runs[extension]) == 0 {
			delete(r.runs, extension)
		}
		close(run.done)
	}
}

// Stop cancels every run of an extension that has begun, and returns when all of them
// have ended, or with ctx's error.
func (r *Running) Stop(ctx context.Context, extension string) error {
	r.mu.Lock()
	var list []*one
	for run := range r.runs[extension] {
		run.cancel()
		list = append(list, run)
	}
	r.mu.Unlock()
	for _, run := range list {
		select {
		case <-run.done:
		case <-ctx.Done():
			return capability.AsError(ctx.Err())
		}
	}
	return nil
}
