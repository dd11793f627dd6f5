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
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// upstream is one added server with its connections, pins and state.
type upstream struct {
	reg     *Registry
	record  record.Record
	added   time.Time
	damaged string
	// undecided is true if the record was stored before programs were confined.
	undecided bool
	key       capability.ProviderKey
	log       *outputLog
	http      *http.Client // nil for programs
	breaker   callBreaker
	tokens    *oauthclient.Source // nil without OAuth; without a login if each principal has its own
	logins    *logins             // nil unless each principal has its own login
	anonymous *http.Client        // for connections without a login
	calls     atomic.Int64
	view      atomic.Pointer[view]

	wake   chan struct{}
	dead   chan struct{} // closed when the watcher has ended
	cancel context.CancelFunc

	// changing makes a change of the pins and its publication one step. It is locked
	// before mu, and not held during requests to the upstream.
	changing sync.Mutex
	pins     ingest.PinSet
	listings map[ingest.Kind]*ingest.Listing
	// completed is true if it supported completions when it was connected last.
	completed bool
	// reads is true if it offered resources when it was connected last.
	reads bool

	mu       sync.Mutex
	state    capability.Availability
	server   Server
	current  *conn            // the main connection while it is up
	attempt  *attempt         // at the main connection; nil while it is up
	conns    map[string]*conn // the others
	trash    []*conn          // lost connections that must be closed
	dirty    map[ingest.Kind]bool
	restart  bool
	gone     bool      // it was removed, or the registry has ended
	next     time.Time // time of the next attempt to connect
	exits    []time.Time
	failures int // consecutive failures to connect
	stderr   string
	limit    string                        // the limit that its program went over last, or ""
	listed   map[ingest.Kind]string        // why a list could not be read
	ttl      map[ingest.Kind]time.Duration // TTL of each list, as the upstream declares
	synced   time.Time
	subs     map[subject]*subscription
	reviving map[string]bool // keys of connections that are being made again for their subscriptions
}

// attempt is an attempt to connect, for which calls wait.
type attempt struct {
	done chan struct{}
	err  error
}

func (r *Registry) newUpstream(s Saved) (*upstream, error) {
	if s.Record.Kind == "" { // a damaged one
		s.Record.Kind = record.KindMCP
	}
	u := &upstream{
		reg: r, record: s.Record, added: s.Added, damaged: s.Damaged, key: capability.NewProviderKey("ext", s.Record.Origin(), s.Record.Name),
		log:  r.logOf(s.Record.Name),
		wake: make(chan struct{}, 1), dead: make(chan struct{}),
		pins: make(ingest.PinSet, len(s.Pins)), listings: make(map[ingest.Kind]*ingest.Listing),
		attempt: &attempt{done: make(chan struct{})}, conns: make(map[string]*conn), dirty: make(map[ingest.Kind]bool),
		listed: make(map[ingest.Kind]string), ttl: make(map[ingest.Kind]time.Duration), subs: make(map[subject]*subscription),
		reviving: make(map[string]bool),
	}
	// The stored definitions are listed until the first connection.
	u.state = capability.Availability{
		State: capability.StateDegraded, Reason: "it has not been reached yet since this server started",
		Since: r.cfg.Now(),
	}
	if s.Record.Disabled {
		u.state = capability.Availability{State: capability.StateUnavailable, Reason: "it is disabled", Since: r.cfg.Now()}
	}
	if s.Damaged != "" {
		u.state.Reason = "its record cannot be used: " + s.Damaged + "; remove it and add it again"
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

// stopped reports whether no connection may be made. The caller holds mu.
func (u *upstream) stopped() bool {
	return u.record.Disabled || u.gone || u.failed()
}

// failed reports whether its program ended maxExits times, so that only an operator can
// restart it. The caller holds mu.
func (u *upstream) failed() bool { return len(u.exits) >= maxExits }

// watch keeps the main connection up until ctx ends, then closes all connections. c is an
// existing main connection, or nil.
func (u *upstream) watch(ctx context.Context, c *conn) {
	defer func() {
		u.mu.Lock()
		u.gone = true // no connection is made any more
		u.mu.Unlock()
		u.closeAll()
	}()
	for { // serve closes a connection, even if ctx has already ended
		if c == nil {
			if c = u.connect(ctx); c == nil {
				return
			}
		}
		u.serve(ctx, c)
		c = nil
	}
}

// connect tries until there is a connection over which the tools have been read, and
// returns it; nil if ctx has ended.
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
			for _, kind := range ingest.Kinds() { // the other lists are read later
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

// try connects and reads the list of tools.
func (u *upstream) try(ctx context.Context) (*conn, error) {
	c, err := u.dial("")
	if err != nil {
		return nil, err
	}
	connecting, cancel := context.WithTimeout(ctx, u.patience())
	defer cancel()
	c.server, err = c.client.Connect(connecting)
	if c.login.note(err); err != nil {
		u.noteErrors(c)
		u.close(c)
		return nil, u.unreachable(u.limited(c, err))
	}
	close(c.ready)
	u.refresh(ctx, c, []ingest.Kind{ingest.Tool}) // before any call, because its definitions may have changed
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

// pause waits until the next attempt; false if ctx has ended. Meanwhile it changes the
// state from degraded to unavailable when that time has come. Calls may shorten the pause
// for a URL, but not for a program, which would otherwise be started at the rate of calls.
func (u *upstream) pause(ctx context.Context) bool {
	for {
		u.restarted()
		u.mu.Lock()
		stopped, wait := u.stopped(), u.next.Sub(u.reg.cfg.Now())
		degraded := u.state.State == capability.StateDegraded
		left := u.state.Since.Add(u.reg.cfg.Degraded).Sub(u.reg.cfg.Now())
		u.mu.Unlock()
		if degraded && left <= 0 {
			u.set(capability.Availability{State: capability.StateUnavailable})
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

// restarted clears and returns an operator's request to restart; if there is one, failures
// and exits are reset.
func (u *upstream) restarted() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.restart
	if was {
		u.restart, u.exits, u.failures, u.next = false, nil, 0, time.Time{}
	}
	return was
}

// up records that the main connection is up, releases waiting calls and renews subscriptions.
func (u *upstream) up(ctx context.Context, c *conn) {
	u.mu.Lock()
	again := u.failures > 0
	u.failures, u.next = 0, time.Time{}
	u.server, u.current = c.server, c
	c.used = u.reg.cfg.Now()
	u.mu.Unlock()
	u.breaker.reset()
	u.note("connected")
	u.set(capability.Availability{State: capability.StateReady})
	u.answer(nil)
	if again {
		u.reg.record(ctx, audit.UpstreamRecovered, &u.record, capability.Principal{}, audit.OutcomeSuccess)
	}
	u.background(func(ctx context.Context) { u.renew(ctx, c) })
	u.revive()
}

// answer ends the current attempt with err for the calls that wait for it. After an error,
// a new attempt begins.
func (u *upstream) answer(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.attempt
	if a == nil || u.restart { // callers that wait for a restart must not receive the result of an earlier attempt
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
	u.next = now.Add(time.Duration(float64(pause) * (0.9 + 0.2*rand.Float64()))) // jitter
	if u.current = nil; u.attempt == nil {
		u.attempt = &attempt{done: make(chan struct{})}
	}
	if u.record.URL == "" && e.Reason != reasonSecretMissing && e.Reason != reasonTooManyConnections &&
		e.Reason != mcpclient.ReasonProgramMissing {
		u.exits = append(slices.DeleteFunc(u.exits, func(t time.Time) bool { return now.Sub(t) > exitInterval }), now)
	}
	failed := u.failed()
	u.mu.Unlock()
	u.noteFailure(err)
	if first {
		u.reg.cfg.Logger.Warn("an upstream is lost", "upstream", u.record.Name, "err", err, "cause", e.Err)
		u.reg.record(ctx, audit.UpstreamFailed, &u.record, capability.Principal{}, audit.OutcomeFailure,
			audit.Attr{Key: "cause", Value: e.Message})
	}
	switch {
	case failed:
		u.set(capability.Availability{
			State: capability.StateUnavailable, Reason: "it ended " + strconv.Itoa(maxExits) + " times within " + exitInterval.String() +
				" and is not started again; see what it wrote with: junctor mcp logs " + u.record.Name + ", then: junctor mcp restart " +
				u.record.Name,
		})
		u.reg.record(ctx, audit.UpstreamFailed, &u.record, capability.Principal{}, audit.OutcomeFailure,
			audit.Attr{Key: "cause", Value: "given up"})
	case e.Reason == oauthclient.ReasonLogin:
		u.set(capability.Availability{State: capability.StateUnauthorized, Reason: e.Message, Login: e.Hint})
	case e.Reason == reasonSecretMissing || e.Reason == oauthclient.ReasonRefused:
		u.set(capability.Availability{State: capability.StateUnauthorized, Reason: e.Message})
	default:
		u.set(capability.Availability{State: capability.StateDegraded, Reason: reason})
	}
}

// set sets the state, whose Since it fills in, and publishes it if it differs. A lost upstream is degraded for
// Config.Degraded, with its definitions still listed, and then unavailable. Further failed
// attempts do not change that, so that the lists change only once.
func (u *upstream) set(to capability.Availability) {
	u.mu.Lock()
	now := u.state
	switch {
	case to.State == capability.StateDegraded && now.State != capability.StateReady:
		to.State = now.State // it was lost earlier, and the time counts from then
		if to.State == capability.StateUnauthorized {
			to.State = capability.StateUnavailable
		}
	case to.State == capability.StateUnavailable && to.Reason == "":
		to.Reason = now.Reason
	}
	changed := to.State != now.State
	to.Since = now.Since
	if changed {
		to.Since = u.reg.cfg.Now()
	}
	u.state = to
	u.mu.Unlock()
	if changed {
		u.show()
		if publish := u.reg.cfg.Publish; publish != nil {
			publish("upstream.state", map[string]string{"upstream": u.record.Name, "state": string(to.State)})
		}
	}
}

// main returns the main connection, marked as busy; the caller calls release. While it is
// being made, main waits up to awaitTimeout; otherwise it returns unavailable.
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
			u.next = time.Time{} // a URL may be tried at once, because concurrent calls share the attempt
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
