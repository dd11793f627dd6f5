package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
)

// sseLink is the transport of 2024-11-05: one stream for all messages of the server, and a
// URL of the session to which the client posts.
type sseLink struct {
	*conn
	address string
	body    io.Closer
	once    sync.Once
}

// openSSE opens the stream and waits for the session's URL, which must have the same
// origin, because credentials are sent to it.
func (c *Client) openSSE(ctx context.Context) (link, error) {
	l := &sseLink{conn: c.newConn()}
	over := context.AfterFunc(ctx, l.stop) // ends the attempt; disabled once the stream is open
	resp, err := c.send(l.ctx, http.MethodGet, c.cfg.URL, nil, func(http.Header) {})
	if err != nil {
		l.stop()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	fail := func(err error) (link, error) {
		l.stop()
		resp.Body.Close()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return fail(c.failure(answer{status: resp.StatusCode, wait: retryAfter(resp.Header)}, true))
	}
	in := newEvents(resp.Body, maxAnswer)
	ev, err := in.next()
	if err != nil || ev.name != "endpoint" || kind(resp) != "text/event-stream" {
		return fail(c.nonsense("does not speak HTTP+SSE"))
	}
	base, err := url.Parse(c.cfg.URL)
	if err != nil {
		return fail(err)
	}
	to, err := base.Parse(string(ev.data))
	if err != nil || to.Scheme != base.Scheme || to.Host != base.Host || to.User != nil {
		return fail(c.nonsense("wants to be written to at another origin"))
	}
	if !over() {
		return fail(ctx.Err())
	}
	l.address, l.body = to.String(), resp.Body
	c.spawn(func() { l.read(in) })
	return l, nil
}

func (l *sseLink) shared() *conn { return l.conn }

func (l *sseLink) begin(bool) { l.c.beginShared(l) }

func (l *sseLink) read(in *events) {
	defer l.body.Close()
	for garbage := 0; ; {
		ev, err := in.next()
		if err != nil {
			l.c.lost(l, fmt.Errorf("the stream ended: %w", err))
			return
		}
		if !ev.isMessage() {
			continue
		}
		list, err := parseAll(ev.data)
		if err != nil {
			if garbage++; garbage <= maxGarbage {
				l.c.log.Warn("an upstream sent an event that is not a message", "server", l.c.cfg.Name, "err", err)
			}
			continue
		}
		for _, m := range list {
			receive(l, nil, m)
		}
	}
}

// start posts the request; its answer arrives on the stream.
func (l *sseLink) start(ctx context.Context, ex *exchange) {
	l.c.post(ctx, ex, func(ctx context.Context) {
		if err := l.post(ctx, ex.body()); err != nil {
			ex.end(answer{err: err})
		}
	})
}

func (l *sseLink) post(ctx context.Context, body []byte) error {
	resp, err := l.c.send(ctx, http.MethodPost, l.address, body, func(http.Header) {})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 16<<10)
	if resp.StatusCode == http.StatusNotFound {
		err := errors.New("the server has forgotten the session")
		l.c.spawn(func() { l.c.lost(l, err) })
		return l.c.unreachable(err)
	}
	if resp.StatusCode > 299 {
		return l.c.failure(answer{status: resp.StatusCode, wait: retryAfter(resp.Header)}, true)
	}
	return nil
}

func (l *sseLink) close(bool) {
	l.once.Do(l.stop)
}
