package upstream

import (
	"context"
	"sync"

	"github.com/junctor-run/junctor/capability"
)

// Limits of subscriptions.
const (
	maxSubscribed = 1000 // addresses of one upstream
	maxListeners  = 1000 // of one address
)

// subscription is one address with subscribers.
type subscription struct {
	listeners map[int]func()
	next      int
	made      chan struct{} // closed when the upstream has answered
	err       error
}

// Subscribe calls updated whenever the resource changes, until the caller calls stop. The
// subscribers of one address share one subscription at the upstream, which is renewed
// after a reconnect. updated is called from a goroutine of the connection and must not
// block. Errors: not_found, unavailable, overloaded, and those of the upstream.
func (r *Registry) Subscribe(ctx context.Context, upstream, uri string, updated func()) (stop func(), err error) {
	u, err := r.get(upstream)
	if err != nil {
		return nil, err
	}
	c, err := u.main(ctx)
	if err != nil {
		return nil, err
	}
	defer u.release(c)
	if !c.client.Has("resources.subscribe") {
		return nil, capability.Errorf(capability.CodeUnavailable, "subscribe", "%s does not tell of changes of its resources",
			upstream).With("not_supported", "read it again instead")
	}
	u.mu.Lock()
	s := u.subs[uri]
	fresh := s == nil
	switch {
	case fresh && len(u.subs) >= maxSubscribed, !fresh && len(s.listeners) >= maxListeners:
		u.mu.Unlock()
		return nil, capability.Errorf(capability.CodeOverloaded, "subscribe",
			"there are too many subscriptions at %s: %d addresses, %d listeners of each are the most", upstream, maxSubscribed, maxListeners).
			With("too_many_subscriptions", "end some of them")
	case fresh:
		s = &subscription{listeners: make(map[int]func()), made: make(chan struct{})}
		u.subs[uri] = s
	}
	id := s.next
	s.next++
	s.listeners[id] = updated
	u.mu.Unlock()
	leave := sync.OnceFunc(func() { u.leave(uri, s, id) })
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
		if u.subs[uri] == s {
			delete(u.subs, uri)
		}
		u.mu.Unlock()
		return nil, s.err
	}
	return leave, nil
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
func (u *upstream) leave(uri string, s *subscription, id int) {
	u.mu.Lock()
	delete(s.listeners, id)
	last := len(s.listeners) == 0 && u.subs[uri] == s
	if last {
		delete(u.subs, uri)
	}
	c := u.current
	u.mu.Unlock()
	if last && c != nil {
		// later notifications are ignored
		u.background(func(ctx context.Context) { _ = u.subscribe(ctx, c, "resources/unsubscribe", uri) })
	}
}

// resubscribe renews the subscriptions on a new connection in the background, and notifies
// all listeners.
func (u *upstream) resubscribe(c *conn) {
	u.mu.Lock()
	uris := make([]string, 0, len(u.subs))
	for uri := range u.subs {
		uris = append(uris, uri)
	}
	u.mu.Unlock()
	if len(uris) == 0 {
		return
	}
	u.background(func(ctx context.Context) {
		for _, uri := range uris {
			if err := u.subscribe(ctx, c, "resources/subscribe", uri); err != nil {
				u.reg.cfg.Logger.Warn("a subscription could not be made again", "upstream", u.record.Name, "err", err)
			}
			u.updated(uri) // it may have changed in the meantime
		}
	})
}

// updated notifies the listeners of a changed resource.
func (u *upstream) updated(uri string) {
	u.mu.Lock()
	var listeners []func()
	if s := u.subs[uri]; s != nil {
		for _, f := range s.listeners {
			listeners = append(listeners, f)
		}
	}
	u.mu.Unlock()
	for _, f := range listeners {
		f()
	}
}
