package upstream

import (
	"context"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// subject is what a subscription is about: an address on one connection.
type subject struct{ key, uri string }

// subscription is one address with subscribers.
type subscription struct {
	listeners map[int]func()
	next      int
	made      chan struct{} // closed when the upstream has answered
	err       error

	// conn carries it and stays busy for it, so that an idle one is not closed. It changes when the
	// connection is made again. Guarded by upstream.mu.
	conn *conn
}

// Subscribe calls updated whenever the resource changes on the connection of the caller, until
// the caller calls stop. The subscribers of one address on one connection share a subscription at
// the upstream, which is renewed after a reconnect. updated is called from a goroutine of the
// connection and must not block. Errors: not_found, unavailable, overloaded, and those of the upstream.
func (r *Registry) Subscribe(ctx context.Context, by Caller, upstream, uri string, updated func()) (stop func(), err error) {
	u, err := r.get(upstream)
	if err != nil {
		return nil, err
	}
	about := subject{u.keyOf(by), uri}
	c, err := u.connection(ctx, about.key)
	if err != nil {
		return nil, err
	}
	defer u.release(c)
	if !c.client.Has("resources.subscribe") {
		return nil, capability.Errorf(capability.CodeUnavailable, "subscribe", "%s does not report changes of its resources",
			upstream).With("not_supported", "read it again instead")
	}
	u.mu.Lock()
	s := u.subs[about]
	fresh := s == nil
	switch {
	case fresh && len(u.subs) >= maxSubscribed, !fresh && len(s.listeners) >= maxListeners:
		u.mu.Unlock()
		return nil, capability.Errorf(capability.CodeOverloaded, "subscribe",
			"there are too many subscriptions at %s: %d addresses, %d listeners of each are the most", upstream, maxSubscribed, maxListeners).
			With("too_many_subscriptions", "end some of them")
	case fresh:
		s = &subscription{listeners: make(map[int]func()), made: make(chan struct{})}
		s.move(c)
		u.subs[about] = s
	}
	id := s.next
	s.next++
	s.listeners[id] = updated
	u.mu.Unlock()
	leave := sync.OnceFunc(func() { u.leave(about, s, id) })
	if fresh {
		// Others may wait for it, so it does not end with the first subscriber.
		s.err = u.subscribe(context.WithoutCancel(ctx), c, "resources/subscribe", uri)
		close(s.made)
		if s.err == nil && ctx.Err() != nil {
			leave()
			return nil, capability.AsError(ctx.Err())
		}
	} else {
		select {
		case <-s.made:
		case <-ctx.Done():
			leave()
			return nil, capability.AsError(ctx.Err())
		}
	}
	if s.err != nil {
		u.mu.Lock()
		if u.subs[about] == s {
			delete(u.subs, about)
			s.move(nil)
		}
		u.mu.Unlock()
		return nil, s.err
	}
	return leave, nil
}

// move makes c the connection that carries the subscription; nil: none does. The caller holds
// the upstream's mu.
func (s *subscription) move(c *conn) {
	if s.conn != nil {
		s.conn.busy--
	}
	if s.conn = c; c != nil {
		c.busy++
	}
}

func (u *upstream) subscribe(ctx context.Context, c *conn, method, uri string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	_, err := c.client.Call(ctx, Request{
		Method: method, Params: append(appendString([]byte(`{"uri":`), uri), '}'), Name: uri,
		Idle: dialTimeout,
	})
	return err
}

// leave removes one listener, and ends the subscription with the last one.
func (u *upstream) leave(about subject, s *subscription, id int) {
	u.mu.Lock()
	delete(s.listeners, id)
	c := s.conn
	last := len(s.listeners) == 0 && u.subs[about] == s
	if last {
		delete(u.subs, about)
		if c != nil {
			c.busy++ // until the upstream has answered
		}
		s.move(nil)
	}
	u.mu.Unlock()
	if !last || c == nil {
		return
	}
	// Later notifications are ignored.
	if !u.background(func(ctx context.Context) {
		_ = u.subscribe(ctx, c, "resources/unsubscribe", about.uri)
		u.release(c)
	}) {
		u.release(c)
	}
}

// renew makes the subscriptions of a connection's key on that connection, and notifies all
// listeners.
func (u *upstream) renew(ctx context.Context, c *conn) {
	u.mu.Lock()
	var uris []string
	for about, s := range u.subs {
		if about.key == c.key && s.conn != c {
			uris = append(uris, about.uri)
			s.move(c)
		}
	}
	u.mu.Unlock()
	for _, uri := range uris {
		if err := u.subscribe(ctx, c, "resources/subscribe", uri); err != nil {
			u.reg.cfg.Logger.Warn("a subscription could not be made again", "upstream", u.record.Name, "err", err)
		}
		u.updated(c.key, uri) // it may have changed in the meantime
	}
}

// revive connects again for the subscriptions of callers whose own connections were lost. The
// watcher does it for the main connection.
func (u *upstream) revive() {
	u.mu.Lock()
	var keys []string
	for key := range u.orphans() {
		if !u.reviving[key] {
			u.reviving[key] = true
			keys = append(keys, key)
		}
	}
	u.mu.Unlock()
	for _, key := range keys {
		if !u.background(func(ctx context.Context) { u.reviveOne(ctx, key) }) {
			u.mu.Lock()
			delete(u.reviving, key)
			u.mu.Unlock()
		}
	}
}

// orphans returns the keys of own connections that were lost with subscriptions. The caller
// holds mu.
func (u *upstream) orphans() map[string]bool {
	keys := make(map[string]bool)
	for about, s := range u.subs {
		if about.key != "" && s.conn != nil && s.conn.lost {
			keys[about.key] = true
		}
	}
	return keys
}

// reviveOne tries until the subscriptions of a key have a connection, or are not needed.
func (u *upstream) reviveOne(ctx context.Context, key string) {
	for pause := u.reg.cfg.FirstPause; ; pause = min(2*pause, maxRetryDelay) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		u.mu.Lock()
		if ctx.Err() != nil || u.gone || !u.orphans()[key] {
			delete(u.reviving, key)
			u.mu.Unlock()
			return
		}
		u.mu.Unlock()
		if c, err := u.connection(ctx, key); err == nil {
			u.renew(ctx, c)
			u.release(c)
		}
	}
}

// updated notifies the listeners of a resource that changed on the connection of a key.
func (u *upstream) updated(key, uri string) {
	u.mu.Lock()
	var listeners []func()
	if s := u.subs[subject{key, uri}]; s != nil {
		for _, f := range s.listeners {
			listeners = append(listeners, f)
		}
	}
	u.mu.Unlock()
	for _, f := range listeners {
		f()
	}
}
