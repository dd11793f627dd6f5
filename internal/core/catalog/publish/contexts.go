package publish

import (
	"context"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// Delays of notices. A change waits for others until there were none for a moment, but
// no longer than maxHoldDelay. A change that is only a flap waits long enough that a return
// within 100 ms does not cause a notice.
const (
	changeDelay    = 50 * time.Millisecond
	flapDelay      = 110 * time.Millisecond
	maxHoldDelay   = 200 * time.Millisecond
	noticeInterval = 250 * time.Millisecond // between two notices to one subscriber

	maxSubscribers = 10_000
)

// Notice reports that the agent catalog of a context is another than before.
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
	first time.Time // the oldest change that was not looked at; zero: none
	due   time.Time // when to look
}

type subscriber struct {
	ctx   *capability.Context
	out   chan Notice // of one: the latest replaces what was not taken
	sent  string      // etag last told; "" while it subscribes
	next  time.Time   // not before
	owing bool        // it changed, and next has not come
}

// NewContexts returns a Contexts without subscribers.
func NewContexts(c *compile.Compiler) *Contexts {
	return &Contexts{compiler: c, wake: make(chan struct{}, 1), subs: make(map[*subscriber]struct{})}
}

// Subscribe returns what the context's catalog is now, and a channel of what it
// becomes. Who takes notices slowly is told the latest only. The channel is closed
// when ctx ends. The context must have passed its Check and not change. More than
// 10,000 subscribers are refused.
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
	s.sent = a.Etag() // until here it is passed over
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

// Changed reports that the catalog changed; flap that it did in availability alone.
// It does not wait.
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
		next := n.tell(time.Now())
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

// tell looks at the subscribers if it is time to, and returns when it will be; zero
// when nothing is awaited.
func (n *Contexts) tell(now time.Time) time.Time {
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
			s.tell(now, agents[i])
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

func (s *subscriber) tell(now time.Time, a *compile.Agent) {
	if s.owing = a.Etag() != s.sent; !s.owing || now.Before(s.next) {
		return
	}
	select {
	case <-s.out: // not taken, and no longer true
	default:
	}
	s.out <- Notice{a.Snapshot().Generation, a.Etag()}
	s.sent, s.next, s.owing = a.Etag(), now.Add(noticeInterval), false
}
