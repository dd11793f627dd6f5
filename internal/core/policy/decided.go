package policy

import (
	"context"
	"sync"
	"time"
)

// decidedPollInterval is how often a waiting caller reads an approval that another server of the
// same store may have decided.
const decidedPollInterval = 5 * time.Second

// decisions notifies those who wait for the decision of an approval. The zero value is ready.
type decisions struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next decision; nil if nothing waits
}

func (d *decisions) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next == nil {
		d.next = make(chan struct{})
	}
	return d.next
}

func (d *decisions) notify() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next != nil {
		close(d.next)
		d.next = nil
	}
}

// Decided waits until an approval is not pending and returns it. It returns the cause of ctx if
// that ends first.
func (p *Policy) Decided(ctx context.Context, id string) (Approval, error) {
	tick := time.NewTicker(decidedPollInterval)
	defer tick.Stop()
	for {
		decision := p.decisions.wait()
		a, err := p.Approval(ctx, id)
		if err != nil || a.State != ApprovalPending {
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
