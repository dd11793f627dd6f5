package mcpclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/pause"
)

// backoff returns how long to wait before attempt n, from 1: doubling, with jitter.
func backoff(n int) time.Duration {
	d := min(minListenDelay<<min(n-1, 8), maxListenDelay)
	return d/2 + rand.N(d/2+1)
}

// begin opens the notification stream, if the server has one.
func (l *httpLink) begin(renewed bool) {
	if l.server.Modern() {
		l.open()
		l.c.spawn(func() { l.c.listen(l) })
		return
	}
	time.AfterFunc(openTimeout, l.open)
	l.c.spawn(func() { l.standalone() })
	if renewed {
		l.c.spawn(func() { l.c.restore(l) })
	}
}

// standalone keeps the GET stream of a legacy session open until the link ends, the server has no
// such stream, or the session is lost, which starts its renewal. After a gap all lists count as
// changed, because notifications may have been lost.
func (l *httpLink) standalone() {
	last, gap := "", false
	for tries := 0; ; {
		began := time.Now()
		in, goOn := l.notices(last, gap)
		if !goOn || l.ctx.Err() != nil {
			return
		}
		if time.Since(began) > steadyInterval {
			tries = 0
		}
		tries++
		delay := backoff(tries)
		if in != nil {
			gap, last = true, in.lastID
			if in.waits {
				delay = max(delay, in.retry)
			}
		}
		if pause.For(l.ctx, delay) != nil {
			return
		}
	}
}

// notices opens the stream once and reads it to its end. goOn is false if the server has
// no such stream or has lost the session.
func (l *httpLink) notices(last string, gap bool) (in *events, goOn bool) {
	resp, err := l.send(httptrace.WithClientTrace(l.ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
		time.AfterFunc(openGrace, l.open)
	}}), http.MethodGet, nil, nil, last)
	l.open()
	if err != nil {
		return nil, true
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound && l.session != "":
		// Renewed now, so that the next call does not have to wait for it.
		l.c.spawn(func() { _, _ = l.c.renew(l.c.ctx, l) })
		return nil, false
	case undecided(resp.StatusCode) || resp.StatusCode == http.StatusConflict:
		return nil, true
	case resp.StatusCode != http.StatusOK || kind(resp) != "text/event-stream":
		return nil, false
	}
	if gap {
		l.c.changed(Lists()...)
	}
	in = newEvents(resp.Body, maxAnswer)
	in.lastID = last
	err = l.follow(nil, in, nil)
	l.c.log.Debug("the stream of notices ended", "server", l.c.cfg.Name, "err", err)
	return in, true
}

// listener is the state of a modern server's notification stream: the subscriptions that
// it was opened with, and those that the server accepted.
type listener struct {
	mu       sync.Mutex
	wake     chan struct{} // closed when the wanted subscriptions change
	id       int64         // of the open request
	wanted   []string
	taken    []string
	acked    bool
	stopped  error         // set if the server refuses the stream
	progress chan struct{} // closed when a field above changes
}

func (n *listener) init() {
	if n.wake == nil {
		n.wake, n.progress = make(chan struct{}), make(chan struct{})
	}
}

// step changes the state with f and wakes the waiting goroutines.
func (n *listener) step(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.init()
	f()
	close(n.progress)
	n.progress = make(chan struct{})
}

func (n *listener) again() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.init()
	close(n.wake)
	n.wake = make(chan struct{})
}

func (n *listener) acknowledged(id int64, params []byte) {
	n.step(func() {
		if id == n.id {
			n.acked, n.taken = true, texts(member(member(params, "notifications"), "resourceSubscriptions"))
		}
	})
}

// listen keeps subscriptions/listen open while there is something to subscribe to, until
// the link ends or the server refuses it.
func (c *Client) listen(lk link) {
	k := lk.shared()
	gap := false
	for tries := 0; k.ctx.Err() == nil; {
		c.mu.Lock()
		uris := make([]string, 0, len(c.watched))
		for uri := range c.watched {
			uris = append(uris, uri)
		}
		c.mu.Unlock()
		slices.Sort(uris)
		params, any := c.listenParams(k.server, uris)
		var wake <-chan struct{}
		id := c.ids.Add(1)
		k.listener.step(func() {
			k.listener.id, k.listener.wanted, k.listener.acked, k.listener.taken = id, uris, !any, nil
			wake = k.listener.wake
		})
		if c.outdated(uris) {
			continue
		}
		if !any {
			select {
			case <-wake:
			case <-k.ctx.Done():
			}
			continue
		}
		began := time.Now()
		a, woken := c.readNotices(lk, id, params, wake, gap)
		gap = true
		if woken {
			continue
		}
		if a.fault != nil && a.status != http.StatusTooManyRequests && a.status < 500 {
			c.log.Warn("an upstream refuses to announce changes", "server", c.cfg.Name, "code", a.fault.code, "message", cut(a.fault.message, 256))
			k.listener.step(func() { k.listener.stopped = c.answered(a.fault) })
			return
		}
		if time.Since(began) > steadyInterval {
			tries = 0
		}
		tries++
		if pause.For(k.ctx, backoff(tries)) != nil {
			return
		}
	}
}

// outdated reports whether the subscriptions have changed since uris was taken.
func (c *Client) outdated(uris []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(uris) != len(c.watched) {
		return true
	}
	return slices.ContainsFunc(uris, func(uri string) bool { _, ok := c.watched[uri]; return !ok })
}

// readNotices keeps one notification stream open until it ends, or (woken) the wanted
// subscriptions change. gap is set if notifications may have been missed before.
func (c *Client) readNotices(lk link, id int64, params []byte, wake <-chan struct{}, gap bool) (a answer, woken bool) {
	k := lk.shared()
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	ex := newExchange(ctx, id, outgoing{method: "subscriptions/listen", params: params}, nil)
	if err := k.flight.add(ex); err != nil {
		return answer{err: err}, false
	}
	defer k.flight.remove(ex)
	lk.start(ctx, ex)
	for {
		k.listener.mu.Lock()
		acked, changed := k.listener.acked, k.listener.progress
		k.listener.mu.Unlock()
		if acked && gap {
			gap = false
			c.changed(Lists()...)
		}
		select {
		case <-changed:
		case a = <-ex.answer:
			return a, false
		case <-wake:
			c.withdraw(lk, ex, "other subscriptions are wanted")
			return answer{}, true
		case <-ctx.Done():
			return answer{err: ctx.Err()}, false
		}
	}
}

// listenParams returns the parameters for all notifications that the server supports, and
// the subscriptions. any is false if there is nothing to request.
func (c *Client) listenParams(s Server, uris []string) (params []byte, any bool) {
	out := []byte(`{"notifications":{`)
	for _, l := range []List{Tools, Prompts, Resources} {
		if s.Has(string(l) + ".listChanged") {
			if any {
				out = append(out, ',')
			}
			out, any = append(out, `"`+string(l)+`ListChanged":true`...), true
		}
	}
	if len(uris) > 0 {
		if any {
			out = append(out, ',')
		}
		out, any = append(out, `"resourceSubscriptions":[`...), true
		for i, uri := range uris {
			if i > 0 {
				out = append(out, ',')
			}
			out = jsonx.AppendString(out, uri)
		}
		out = append(out, ']')
	}
	out = append(append(out, `},"_meta":`...), c.modernMeta(nil, 0, nil)...)
	return append(out, '}'), any
}

// watch adds or removes a subscription that is renewed with the session. More than
// maxWatched are overloaded.
func (c *Client) watch(uri string, on bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !on {
		delete(c.watched, uri)
		return nil
	}
	if _, known := c.watched[uri]; !known && len(c.watched) >= maxWatched {
		return capability.Errorf(capability.CodeOverloaded, op, "%d resources of %s are subscribed to already", maxWatched, c.cfg.Name)
	}
	c.watched[uri] = struct{}{}
	return nil
}

// subscribe subscribes or unsubscribes at a modern server, which has no method for that:
// the notification stream is opened again with the new subscriptions, and subscribe waits
// for the acknowledgement.
func (c *Client) subscribe(ctx context.Context, k *conn, uri string, on bool) error {
	if uri == "" {
		return capability.Errorf(capability.CodeInvalidInput, op, "a subscription needs a URI")
	}
	if err := c.watch(uri, on); err != nil {
		return err
	}
	k.listener.again()
	if !on {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for {
		n := &k.listener
		n.mu.Lock()
		n.init()
		asked, acked, taken, stopped, changed := slices.Contains(n.wanted, uri), n.acked, slices.Contains(n.taken, uri), n.stopped, n.progress
		n.mu.Unlock()
		switch {
		case asked && acked && taken:
			return nil
		case asked && acked, stopped != nil:
			_ = c.watch(uri, false)
			if stopped != nil {
				return stopped
			}
			return c.nonsense("does not announce changes of this resource")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			_ = c.watch(uri, false)
			return c.ended(ctx)
		case <-k.ctx.Done():
			return c.broken(errors.New("the connection ended"), true)
		}
	}
}

// restore sets the log level and the subscriptions again in a new legacy session.
func (c *Client) restore(lk link) {
	c.mu.Lock()
	level := c.level
	uris := make([]string, 0, len(c.watched))
	for uri := range c.watched {
		uris = append(uris, uri)
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(lk.shared().ctx, listTimeout)
	defer cancel()
	if level != nil {
		c.request(ctx, lk, outgoing{method: "logging/setLevel", params: level})
	}
	for _, uri := range uris {
		params := append(jsonx.AppendString([]byte(`{"uri":`), uri), '}')
		if a := c.request(ctx, lk, outgoing{method: "resources/subscribe", params: params, name: uri}); a.result == nil {
			c.log.Warn("a subscription could not be renewed", "server", c.cfg.Name, "uri", strings.ToValidUTF8(uri, ""))
		}
	}
}
