package publish

import (
	"context"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// Notice reports that the agent catalog of a context changed.
type Notice struct {
	Generation uint64 `json:"generation"`
	Etag       string `json:"etag"`
}

// Contexts notifies subscribers when the agent catalog of their context changed: at
// most four times a second each, within 250 ms of the change, and always with the final
// state. Subscribers whose contexts cannot differ share one compilation. It is safe for
// concurrent use; the caller must run [Contexts.Run].
type Contexts struct {
	compiler *compile.Compiler
	wake     chan struct{}

	mu    sync.Mutex
	subs  map[*subscriber]struct{}
	first time.Time // time of the oldest pending change, or zero
	due   time.Time // when the subscribers are checked
}

type subscriber struct {
	ctx   *capability.Context
	out   chan Notice // capacity 1: a new notice replaces an unread one
	sent  string      // etag of the last notice; "" until Subscribe returns
	next  time.Time   // not before
	owing bool        // the catalog changed, and its notice waits for next
}

// NewContexts returns a Contexts without subscribers.
func NewContexts(c *compile.Compiler) *Contexts {
	return &Contexts{compiler: c, wake: make(chan struct{}, 1), subs: make(map[*subscriber]struct{})}
}

// Subscribe returns the generation and etag of the context's current catalog, and a channel of
// later notices. A subscriber that reads slowly receives only the latest notice. The channel
// is closed when ctx ends. c must have passed its Check and must not change. With more than
// 10,000 subscribers Subscribe fails with overloaded.
func (n *Contexts) Subscribe(ctx context.Context, c *capability.Context) (Notice, <-chan Notice, error) {
	s := &subscriber{ctx: c, out: make(chan Notice, 1)}
	n.mu.Lock()
	if len(n.subs) >= maxSubscribers {
		n.mu.Unlock()
		return Notice{}, nil, capability.Errorf(capability.CodeOverloaded, "catalog.watch",
			"there are %d subscribers to the catalog; more are not taken", maxSubscribers)
	}
	n.subs[s] = struct{}{}
	n.mu.Unlock()
	a := n.compiler.Compile(c)
	n.mu.Lock()
	s.sent = a.Etag() // from here on notifyDue includes the subscriber
	n.mu.Unlock()
	if n.compiler.Compile(c).Etag() != a.Etag() {
		n.Changed(false) // otherwise changes in between would be lost
	}
	context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.subs, s)
		close(s.out)
	})
	return Notice{a.Snapshot().Generation, a.Etag()}, s.out, nil
}

// Changed schedules a check of all subscribers after a change of the catalog. flap means that
// only availability changed. Changed does not block.
func (n *Contexts) Changed(flap bool) {
	hold := changeDelay
	if flap {
		hold = flapDelay
	}
	now := time.Now()
	n.mu.Lock()
	if n.first.IsZero() {
		n.first, n.due = now, now
	}
	if due := now.Add(hold); due.After(n.due) {
		n.due = due
	}
	if latest := n.first.Add(maxHoldDelay); n.due.After(latest) {
		n.due = latest
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Run sends the notices until ctx ends.
func (n *Contexts) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := n.notifyDue(time.Now())
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(time.Until(next), 0))
		}
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-timer.C:
		}
	}
}

// notifyDue compiles the catalogs of the subscribers that are due, sends them their notices, and
// returns the time of the next check, or the zero time if none is pending.
func (n *Contexts) notifyDue(now time.Time) time.Time {
	n.mu.Lock()
	look := !n.first.IsZero() && !now.Before(n.due)
	if look {
		n.first = time.Time{}
	}
	var list []*subscriber
	for s := range n.subs {
		if s.sent != "" && (look || s.owing && !now.Before(s.next)) {
			list = append(list, s)
		}
	}
	n.mu.Unlock()
	agents := make([]*compile.Agent, len(list))
	for i, s := range list {
		agents[i] = n.compiler.Compile(s.ctx) // equal contexts are compiled once
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, s := range list {
		if _, there := n.subs[s]; there {
			s.notify(now, agents[i])
		}
	}
	next := time.Time{}
	if !n.first.IsZero() {
		next = n.due
	}
	for s := range n.subs {
		if s.owing && (next.IsZero() || s.next.Before(next)) {
			next = s.next
		}
	}
	return next
}

// notify sends a notice if the etag differs from the last one sent. Before s.next it only
// records that a notice is owed.
func (s *subscriber) notify(now time.Time, a *compile.Agent) {
	if s.owing = a.Etag() != s.sent; !s.owing || now.Before(s.next) {
		return
	}
	select {
	case <-s.out: // drop the unread notice, which is outdated
	default:
	}
	s.out <- Notice{a.Snapshot().Generation, a.Etag()}
	s.sent, s.next, s.owing = a.Etag(), now.Add(noticeInterval), false
}
