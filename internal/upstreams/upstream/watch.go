package upstream

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// upstream is one added server.
type upstream struct {
	reg     *Registry
	record  record.Record
	added   time.Time
	damaged string
	key     capability.ProviderKey
	http    *http.Client // nil for programs
	breaker callBreaker
	tokens  *oauthclient.Source // nil without OAuth
	calls   atomic.Int64
	view    atomic.Pointer[view]

	wake   chan struct{}
	dead   chan struct{} // closed when the watcher has ended
	cancel context.CancelFunc

	// changing makes a change of the pins and its publication one step; it is taken
	// before mu, and never while the upstream is asked.
	changing sync.Mutex
	pins     ingest.PinSet
	listings map[ingest.Kind]*ingest.Listing
	// completed reports that it had completions when it was connected last.
	completed bool

	mu       sync.Mutex
	state    capability.Availability
	server   Server
	current  *conn            // the main connection while it is up
	attempt  *attempt         // at the main connection; nil while it is up
	conns    map[string]*conn // the others
	trash    []*conn          // lost, and to be closed
	dirty    map[ingest.Kind]bool
	restart  bool
	gone     bool      // removed, or the registry has ended
	next     time.Time // when it is tried again
	exits    []time.Time
	failures int // in a row, to connect
	stderr   string
	listed   map[ingest.Kind]string        // why a list could not be read
	ttl      map[ingest.Kind]time.Duration // for how long a list holds, as the upstream says
	synced   time.Time
	subs     map[string]*subscription
}

// attempt is what calls wait for while disconnected.
type attempt struct {
	done chan struct{}
	err  error
}

func (r *Registry) newUpstream(s Saved) (*upstream, error) {
	if s.Record.Kind == "" { // a damaged one
		s.Record.Kind = record.KindMCP
	}
	u := &upstream{
		reg: r, record: s.Record, added: s.Added, damaged: s.Damaged, key: capability.NewProviderKey("ext", s.Record.Kind, s.Record.Name),
		wake: make(chan struct{}, 1), dead: make(chan struct{}),
		pins: make(ingest.PinSet, len(s.Pins)), listings: make(map[ingest.Kind]*ingest.Listing),
		attempt: &attempt{done: make(chan struct{})}, conns: make(map[string]*conn), dirty: make(map[ingest.Kind]bool),
		listed: make(map[ingest.Kind]string), ttl: make(map[ingest.Kind]time.Duration), subs: make(map[string]*subscription),
	}
	// What it declared before is there until we know better.
	u.state = capability.Availability{
		State: capability.StateDegraded, Reason: "it has not been reached yet since this server started",
		Since: r.cfg.Now(),
	}
	if s.Record.Disabled {
		u.state = capability.Availability{State: capability.StateUnavailable, Reason: "it is disabled", Since: r.cfg.Now()}
	}
	if s.Damaged != "" {
		u.state.Reason = "its record cannot be read; remove it and add it again"
	}
	for _, p := range s.Pins {
		u.pins[ingest.PinKey{Kind: p.Kind, Name: p.Name}] = ingest.ReadPin(p)
	}
	if u.record.URL != "" {
		var err error
		if u.http, err = newHTTP(&u.record); err != nil {
			return nil, err
		}
		if err := u.openTokens(); err != nil {
			return nil, err
		}
	}
	u.view.Store(new(view))
	return u, nil
}

// stopped reports whether nothing may be started. Caller holds mu.
func (u *upstream) stopped() bool {
	return u.record.Disabled || u.gone || u.failed()
}

// failed reports whether it waits for an operator. Caller holds mu.
func (u *upstream) failed() bool { return len(u.exits) >= maxExits }

// watch keeps the main connection until ctx ends; c is one that is up already.
func (u *upstream) watch(ctx context.Context, c *conn) {
	defer func() {
		u.mu.Lock()
		u.gone = true // nothing is begun any more
		u.mu.Unlock()
		u.closeAll()
	}()
	for { // what is connected is closed by serve, also when ctx has ended already
		if c == nil {
			if c = u.connect(ctx); c == nil {
				return
			}
		}
		u.serve(ctx, c)
		c = nil
	}
}

// connect tries until there is a connection, and the lists have been read over it;
// nil when ctx has ended.
func (u *upstream) connect(ctx context.Context) *conn {
	for {
		if !u.pause(ctx) {
			return nil
		}
		c, err := u.try(ctx)
		if ctx.Err() != nil {
			if c != nil {
				u.close(c)
			}
			u.answer(u.unavailable())
			return nil
		}
		if err == nil {
			u.up(ctx, c)
			for _, kind := range ingest.Kinds() { // what else there is need not be waited for
				if kind != ingest.Tool {
					u.changed(kind)
				}
			}
			return c
		}
		u.lost(ctx, err)
		u.answer(u.unavailable())
	}
}

// try makes the connection and reads the lists.
func (u *upstream) try(ctx context.Context) (*conn, error) {
	c, err := u.dial("")
	if err != nil {
		return nil, err
	}
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if c.server, err = c.client.Connect(connecting); err != nil {
		u.noteErrors(c)
		u.close(c)
		return nil, u.unreachable(err)
	}
	close(c.ready)
	u.refresh(ctx, c, []ingest.Kind{ingest.Tool}) // before any call: it may have come back as another
	return c, nil
}

func (u *upstream) noteErrors(c *conn) {
	text := c.client.Stderr()
	if text == "" {
		return
	}
	text = tail(u.masked(text))
	u.mu.Lock()
	u.stderr = text
	u.mu.Unlock()
}

// pause waits until it may be tried again; false when ctx has ended. Who calls may
// shorten the pause before an address, not before a program: it would be started at
// the pace of the calls.
func (u *upstream) pause(ctx context.Context) bool {
	for {
		u.restarted()
		u.mu.Lock()
		stopped, wait := u.stopped(), u.next.Sub(u.reg.cfg.Now())
		degraded := u.state.State == capability.StateDegraded
		left := u.state.Since.Add(u.reg.cfg.Degraded).Sub(u.reg.cfg.Now())
		u.mu.Unlock()
		if degraded && left <= 0 {
			u.set(capability.StateUnavailable, "")
			continue
		}
		if !stopped && wait <= 0 {
			return ctx.Err() == nil
		}
		if stopped {
			u.answer(u.unavailable())
			wait = time.Hour
		}
		if degraded {
			wait = min(wait, left)
		}
		timer := time.NewTimer(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
		case <-u.wake:
			u.sweep()
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

// restarted handles an operator's request to try again.
func (u *upstream) restarted() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.restart
	if was {
		u.restart, u.exits, u.failures, u.next = false, nil, 0, time.Time{}
	}
	return was
}

// up reports that the main connection is there.
func (u *upstream) up(ctx context.Context, c *conn) {
	u.mu.Lock()
	again := u.failures > 0
	u.failures, u.next = 0, time.Time{}
	u.server, u.current = c.server, c
	c.used = u.reg.cfg.Now()
	u.mu.Unlock()
	u.breaker.reset()
	u.set(capability.StateReady, "")
	u.answer(nil)
	if again {
		u.reg.record(ctx, audit.UpstreamRecovered, &u.record, capability.Principal{}, audit.OutcomeSuccess)
	}
	u.resubscribe(c)
}

// answer ends the waiting of calls. A failed attempt is followed by another one.
func (u *upstream) answer(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.attempt
	if a == nil || u.restart { // a caller that waits for a restart receives that error, not of an attempt from before
		return
	}
	a.err = err
	close(a.done)
	if u.attempt = nil; err != nil {
		u.attempt = &attempt{done: make(chan struct{})}
	}
}

// lost records the loss of the main connection and the time of the next attempt.
func (u *upstream) lost(ctx context.Context, err error) {
	now := u.reg.cfg.Now()
	e := capability.AsError(err)
	reason := "it is not reachable: " + e.Message
	u.mu.Lock()
	first := u.failures == 0
	u.failures++
	pause := min(u.reg.cfg.FirstPause<<min(u.failures-1, 10), maxRetryDelay)
	u.next = now.Add(time.Duration(float64(pause) * (0.9 + 0.2*rand.Float64()))) // keeps many apart
	if u.current = nil; u.attempt == nil {
		u.attempt = &attempt{done: make(chan struct{})}
	}
	if u.record.URL == "" && e.Reason != reasonSecretMissing && e.Reason != reasonTooManyConnections {
		u.exits = append(slices.DeleteFunc(u.exits, func(t time.Time) bool { return now.Sub(t) > exitInterval }), now)
	}
	failed := u.failed()
	u.mu.Unlock()
	if first {
		u.reg.cfg.Logger.Warn("an upstream is lost", "upstream", u.record.Name, "err", err, "cause", e.Err)
		u.reg.record(ctx, audit.UpstreamFailed, &u.record, capability.Principal{}, audit.OutcomeFailure,
			audit.Attr{Key: "cause", Value: e.Message})
	}
	switch {
	case failed:
		u.set(capability.StateUnavailable, "it ended "+strconv.Itoa(maxExits)+" times within "+exitInterval.String()+
			" and is not started again; see its errors with: junctor upstreams show "+u.record.Name+", then: junctor upstreams restart "+
			u.record.Name)
		u.reg.record(ctx, audit.UpstreamFailed, &u.record, capability.Principal{}, audit.OutcomeFailure,
			audit.Attr{Key: "cause", Value: "given up"})
	case e.Reason == reasonSecretMissing || e.Reason == oauthclient.ReasonRefused || e.Reason == oauthclient.ReasonLogin:
		u.set(capability.StateUnauthorized, e.Message)
	default:
		u.set(capability.StateDegraded, reason)
	}
}

// set publishes a state, where it is another one. A loss is degraded for a while, with
// what was known last still listed, and then unavailable: one change for those who
// watch the lists, however often it is tried in between.
func (u *upstream) set(state capability.State, reason string) {
	u.mu.Lock()
	now := u.state
	switch {
	case state == capability.StateDegraded && now.State != capability.StateReady:
		state = now.State // it was lost before, and its time runs since then
		if state == capability.StateUnauthorized {
			state = capability.StateUnavailable
		}
	case state == capability.StateUnavailable && reason == "":
		reason = now.Reason
	}
	since := now.Since
	if state != now.State {
		since = u.reg.cfg.Now()
	}
	u.state = capability.Availability{State: state, Reason: reason, Since: since}
	changed := state != now.State
	u.mu.Unlock()
	if changed {
		u.show()
	}
}

// main waits for the main connection, where one is being made.
func (u *upstream) main(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	for {
		u.mu.Lock()
		c, a := u.current, u.attempt
		soon := time.Until(u.next) < awaitTimeout
		if c != nil {
			c.busy++
			u.mu.Unlock()
			return c, nil
		}
		stopped := u.stopped()
		if u.record.URL != "" && !stopped && !soon {
			u.next = time.Time{} // an address may be asked at the pace of the calls: they share the answer
			soon = true
		}
		u.mu.Unlock()
		if stopped || !soon || a == nil {
			return nil, u.unavailable()
		}
		u.poke()
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
		case <-u.dead:
			return nil, u.unavailable()
		case <-ctx.Done():
			return nil, u.unavailable()
		}
	}
}
