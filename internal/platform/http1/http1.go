// Package http1 sends small requests over plain HTTP/1.1 (RFC 9112) in the goroutine of
// the caller. The transport of net/http gives every connection two goroutines, and a
// request passes through both: these wake-ups cost more than everything else in a call to
// a server on the same machine (docs/performance.md). Requests that the package does not
// send, such as those over TLS or with a large body, go to that transport, so that a
// [Transport] can replace one anywhere. The package valyala/fasthttp is not used because
// it takes no context and would be a second HTTP stack.
package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Transport is an [http.RoundTripper] that passes the requests it does not send itself to
// Rest. It dials with Rest's DialContext, respects its MaxResponseHeaderBytes and
// IdleConnTimeout, and keeps up to 256 idle connections per host. It is safe for concurrent
// use and must not be copied.
type Transport struct {
	// Rest must have a DialContext and no proxy.
	Rest *http.Transport

	mu    sync.Mutex
	idle  map[string][]*conn // by host:port, the latest last
	sweep *time.Timer        // nil while nothing is idle
}

// conn is one connection, used by one request at a time.
type conn struct {
	net.Conn
	address string
	in      *bufio.Reader
	out     *bufio.Writer
	head    int64 // bytes that may still be read of a response's head; below 0 while no head is read
	since   time.Time
}

// errHead is the error for a response whose head exceeds the limit.
var errHead = errors.New("http1: the head of the answer is too large")

// Read bounds the bytes read while a response's head is read, because http.ReadResponse does not.
func (c *conn) Read(b []byte) (int, error) {
	if c.head >= 0 {
		if c.head == 0 {
			return 0, errHead
		}
		b = b[:min(int64(len(b)), c.head)]
	}
	n, err := c.Conn.Read(b)
	if c.head >= 0 {
		c.head -= int64(n)
	}
	return n, err
}

// RoundTrip implements [http.RoundTripper]. The caller must close the response's body. The
// connection is reused if the body was read to its end.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "http" || req.ContentLength < 0 || req.ContentLength > maxBody || req.Method == http.MethodConnect || !canLook ||
		t.Rest.DialContext == nil {
		return t.Rest.RoundTrip(req)
	}
	resp, err := t.roundTrip(req)
	if req.Body != nil { // the interface requires it, even after an error
		_ = req.Body.Close()
	}
	return resp, err
}

// roundTrip sends the request over an idle or new connection, which is closed when the request's
// context ends.
func (t *Transport) roundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	c, err := t.take(ctx, req)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	resp, err := c.exchange(req, t.Rest.MaxResponseHeaderBytes)
	if err != nil {
		stop()
		c.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	again := !resp.Close && !req.Close && resp.StatusCode != http.StatusSwitchingProtocols
	if resp.Body == http.NoBody {
		if again && stop() {
			t.keep(c)
		} else {
			c.Close()
		}
		return resp, nil
	}
	resp.Body = &body{ReadCloser: resp.Body, ctx: ctx, t: t, c: c, stop: stop, again: again}
	return resp, nil
}

// exchange writes the request and reads the head of its response, skipping interim responses.
func (c *conn) exchange(req *http.Request, limit int64) (*http.Response, error) {
	err := req.Write(c.out)
	if err == nil {
		err = c.out.Flush()
	}
	// A server that rejects a request may respond and close before it was written completely.
	for range maxInterim {
		c.head = limit
		resp, failed := http.ReadResponse(c.in, req)
		c.head = -1
		switch {
		case failed != nil && err != nil:
			return nil, fmt.Errorf("the request could not be sent: %w", err)
		case errors.Is(failed, io.ErrUnexpectedEOF), errors.Is(failed, io.EOF):
			return nil, fmt.Errorf("the connection ended before the answer: %w", failed)
		case failed != nil:
			return nil, failed
		case resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols:
			return resp, nil
		}
	}
	return nil, errors.New("http1: the server says again and again that the answer is still to come")
}

// body is a response's body. Its connection becomes idle once the body was read to its end.
type body struct {
	io.ReadCloser
	ctx   context.Context // of the request
	t     *Transport
	c     *conn
	stop  func() bool
	again bool
	over  error
}

func (b *body) Read(p []byte) (int, error) {
	if b.over != nil {
		return 0, b.over
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		if !errors.Is(err, io.EOF) && b.ctx.Err() != nil {
			err = context.Cause(b.ctx)
		}
		b.end(err)
	}
	return n, err
}

// Close closes the connection if the body was not read to its end, because reading the rest could
// take forever.
func (b *body) Close() error {
	if b.over == nil {
		b.end(http.ErrBodyReadAfterClose)
	}
	return nil
}

// end keeps the connection if err is io.EOF and it may be reused, else closes it.
func (b *body) end(err error) {
	b.over = err
	if b.stop() && errors.Is(err, io.EOF) && b.again {
		b.t.keep(b.c)
	} else {
		b.c.Close()
	}
}

// take returns an idle connection that its server has not closed and will not close now, or dials a new one.
func (t *Transport) take(ctx context.Context, req *http.Request) (*conn, error) {
	address := req.URL.Host
	if req.URL.Port() == "" {
		address = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	for {
		c := t.last(address)
		if c == nil {
			break
		}
		if time.Since(c.since) < reuseTimeout && quiet(c.Conn) {
			return c, nil
		}
		c.Close()
	}
	got, err := t.Rest.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: got, address: address, head: -1}
	c.in, c.out = bufio.NewReader(c), bufio.NewWriter(c)
	return c, nil
}

// last removes and returns the idle connection of an address that was used last, or nil.
func (t *Transport) last(address string) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.idle[address]
	if len(all) == 0 {
		return nil
	}
	c := all[len(all)-1]
	all[len(all)-1] = nil
	t.idle[address] = all[:len(all)-1]
	return c
}

// keep stores a connection for further requests. It closes one with unread bytes, which do not
// belong to any request, and one beyond maxIdle.
func (t *Transport) keep(c *conn) {
	if c.in.Buffered() > 0 {
		c.Close()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle[c.address]) >= maxIdle {
		c.Close()
		return
	}
	if t.idle == nil {
		t.idle = make(map[string][]*conn)
	}
	c.since = time.Now()
	t.idle[c.address] = append(t.idle[c.address], c)
	if t.sweep == nil && t.Rest.IdleConnTimeout > 0 {
		t.sweep = time.AfterFunc(t.Rest.IdleConnTimeout, t.old)
	}
}

// old closes connections idle for IdleConnTimeout, and schedules itself while others are idle.
func (t *Transport) old() {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := time.Now().Add(-t.Rest.IdleConnTimeout)
	for address, all := range t.idle {
		n := 0
		for n < len(all) && !all[n].since.After(before) {
			all[n].Close()
			n++
		}
		if n == len(all) {
			delete(t.idle, address)
		} else {
			t.idle[address] = append([]*conn(nil), all[n:]...)
		}
	}
	if t.sweep = nil; len(t.idle) > 0 {
		t.sweep = time.AfterFunc(t.Rest.IdleConnTimeout/2, t.old)
	}
}

// CloseIdleConnections closes the connections that no request uses, including those of Rest.
func (t *Transport) CloseIdleConnections() {
	t.Rest.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, all := range t.idle {
		for _, c := range all {
			c.Close()
		}
	}
	t.idle = nil
	if t.sweep != nil {
		t.sweep.Stop()
		t.sweep = nil
	}
}
