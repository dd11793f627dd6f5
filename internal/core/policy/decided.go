package policy

import (
	"context"
	"sync"
	"time"
)

// decisions notifies those who wait for the decision of an approval. The zero value is ready.
type decisions struct {
	mu      sync.Mutex
	next    chan struct{}  // closed by the next decision; nil if nothing waits
	running map[string]int // decisions that are not finished, by approval
}

func (d *decisions) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next == nil {
		d.next = make(chan struct{})
	}
	return d.next
}

// begin marks an approval as being decided until end is called, which notifies.
func (d *decisions) begin(id string) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running == nil {
		d.running = make(map[string]int)
	}
	d.running[id]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.running[id]--; d.running[id] == 0 {
			delete(d.running, id)
		}
		if d.next != nil {
			close(d.next)
			d.next = nil
		}
	}
}

// deciding reports whether a decision about the approval is not finished: it may be stored
// already, but not its grant.
func (d *decisions) deciding(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running[id] > 0
}

// Decided waits until an approval is decided, and its grant exists, and returns it. It returns the
// cause of ctx if that ends first.
func (p *Policy) Decided(ctx context.Context, id string) (Approval, error) {
	tick := time.NewTicker(decidedPollInterval)
	defer tick.Stop()
	for {
		decision := p.decisions.wait()
		a, err := p.Approval(ctx, id)
		if err != nil || a.State != ApprovalPending && !p.decisions.deciding(id) {
			return a, err
		}
		select {
		case <-decision:
		case <-tick.C:
		case <-ctx.Done():
			return Approval{}, context.Cause(ctx)
		}
	}
}
