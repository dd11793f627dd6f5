package extensions

import (
	"context"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/runner"
)

// published counts the changes of extensions that the catalog has received, so that the
// author of a change can wait for it.
type published struct {
	mu                   sync.Mutex
	made, read, finished uint64
	more                 chan struct{} // closed when finished increases; nil if no caller waits
}

// change counts a change. The returned function waits until the catalog has received
// it, ctx ends or publishTimeout passes.
func (p *published) change() (wait func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	mine := p.made
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		for {
			p.mu.Lock()
			if p.finished >= mine {
				p.mu.Unlock()
				return
			}
			if p.more == nil {
				p.more = make(chan struct{})
			}
			more := p.more
			p.mu.Unlock()
			select {
			case <-more:
			case <-ctx.Done():
				return
			}
		}
	}
}

// reading records that all changes until now are part of the batch being built.
func (p *published) reading() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = p.made
}

// done records that the catalog has received the batch of the last reading, and wakes
// the waiting callers.
func (p *published) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = p.read
	if p.more != nil {
		close(p.more)
		p.more = nil
	}
}

// extensionSource is the catalog's source of extensions.
type extensionSource struct {
	*runner.Source
	published *published
}

// Run implements capability.Source.
func (s extensionSource) Run(ctx context.Context, publish func(capability.Batch) error) error {
	return s.Source.Run(ctx, func(b capability.Batch) error {
		defer s.published.done() // also after a refused batch
		return publish(b)
	})
}
