package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// httpLink is a streamable HTTP connection: each request is a POST with its own stream.
// With a legacy server there is a session; with a modern one requests are independent.
type httpLink struct {
	*conn
	session string // set by the handshake; "" before that
	once    sync.Once
	// opened is closed when the notification stream of a legacy session is open, does not
	// exist, or was waited for long enough.
	opened chan struct{}
	open   func()
}

func (c *Client) openHTTP() *httpLink {
	l := &httpLink{conn: c.newConn(), opened: make(chan struct{})}
	l.open = sync.OnceFunc(func() { close(l.opened) })
	return l
}

func (l *httpLink) shared() *conn { return l.conn }

// start posts a request of the client itself; calls use startHere.
func (l *httpLink) start(ctx context.Context, ex *exchange) {
	l.c.post(ctx, ex, func(ctx context.Context) { ex.end(l.do(ctx, ex)) })
}

// post runs do with a context that ends shortly after the exchange has its answer. If it
// ended at once, the HTTP connection could not be reused.
func (c *Client) post(ctx context.Context, ex *exchange, do func(context.Context)) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.spawn(func() {
		defer cancel()
		defer context.AfterFunc(ctx, func() {
			if !ex.ended.Load() {
				cancel()
			} else {
				time.AfterFunc(drainGrace, cancel)
			}
		})()
		defer context.AfterFunc(c.ctx, cancel)()
		do(httptrace.WithClientTrace(own, &httptrace.ClientTrace{WroteHeaders: func() { ex.sent.Store(true) }}))
	})
}

// do sends the request of an exchange and returns its answer. If an answer arrived on a
// stream, the exchange has it already and the returned one is ignored.
func (l *httpLink) do(ctx context.Context, ex *exchange) answer {
	resp, err := l.send(ctx, http.MethodPost, ex.body(), ex, "") //nolint:bodyclose // read does it
	if err != nil {
		return answer{err: err}
	}
	return l.read(ctx, ex, resp)
}

// read reads an HTTP response: it hands its messages to their exchanges, and returns the
// answer to initialize or the error.
func (l *httpLink) read(ctx context.Context, ex *exchange, resp *http.Response) answer {
	if resp.StatusCode/100 == 2 && kind(resp) == "text/event-stream" {
		return l.stream(ctx, ex, resp, answer{status: resp.StatusCode, session: resp.Header.Get(mcpwire.HeaderSession)})
	}
	defer l.drain(resp)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return l.refusal(resp)
	}
	a := answer{status: resp.StatusCode, session: resp.Header.Get(mcpwire.HeaderSession)}
	if kind(resp) == "application/json" {
		body, err := readBody(resp, maxAnswer)
		if err != nil {
			a.err = l.readError(err)
			return a
		}
		list, err := parseAll(body)
		if err != nil {
			a.err = l.c.nonsense("answered with something that is not JSON-RPC")
			return a
		}
		for _, m := range list {
			if m.response() && ex.out.method == "initialize" {
				a.result, a.fault = m.result, m.fault // returned together with the session
				return a
			}
			receive(l, ex, m)
		}
		if !ex.ended.Load() {
			a.err = l.c.nonsense("answered another question than was asked")
		}
		return a
	}
	a.err = l.c.nonsense("answered with a content type that MCP does not know")
	return a
}

// stream reads the response as events. If the stream of a legacy server breaks and its
// events have ids, stream resumes it.
func (l *httpLink) stream(ctx context.Context, ex *exchange, resp *http.Response, a answer) answer {
	in, last, tries := newEvents(resp.Body, maxAnswer), "", 0
	defer func() { l.drain(resp) }() // of the last response
	for {
		err := l.follow(ex, in, &a)
		if ex.ended.Load() || a.result != nil || a.fault != nil || ctx.Err() != nil {
			return a
		}
		if errors.Is(err, errTooLarge) {
			a.err = l.c.tooLarge(maxAnswer)
			return a
		}
		if in.lastID != last {
			last, tries = in.lastID, 0
		}
		if last == "" || l.server.Modern() || ex.out.version != "" || tries == maxResumes {
			a.err = errors.Join(errors.New("the stream ended before the answer"), err)
			return a
		}
		tries++
		delay := backoff(tries)
		if in.waits {
			delay = max(in.retry, minRetryDelay) // even if the server requests no delay
		}
		if pause.For(ctx, delay) != nil {
			return a
		}
		again, err := l.send(ctx, http.MethodGet, nil, nil, last)
		if err != nil {
			a.err = err
			if tries < maxResumes && ctx.Err() == nil {
				a.err = nil
				in = newEvents(strings.NewReader(""), maxAnswer)
				in.lastID = last
				continue
			}
			return a
		}
		l.drain(resp) // of the previous response
		resp = again
		if again.StatusCode != http.StatusOK || kind(again) != "text/event-stream" {
			a.err = errors.New("the stream could not be taken up again: HTTP " + strconv.Itoa(again.StatusCode))
			return a
		}
		next := newEvents(again.Body, maxAnswer)
		next.lastID, next.retry, next.waits = in.lastID, in.retry, in.waits
		in = next
	}
}

// follow handles the messages of a stream until its exchange has its answer or the stream
// ends. The answer to initialize is stored in a, together with its session.
func (l *httpLink) follow(ex *exchange, in *events, a *answer) error {
	for garbage := 0; ; {
		ev, err := in.next()
		if err != nil {
			return err
		}
		if !ev.isMessage() {
			continue
		}
		list, err := parseAll(ev.data)
		if err != nil {
			if garbage++; garbage <= maxGarbage { // limits the log lines
				l.c.log.Warn("an upstream sent an event that is not a message", "server", l.c.cfg.Name, "err", err)
			}
			continue
		}
		for _, m := range list {
			if m.response() && ex != nil && ex.out.method == "initialize" {
				a.result, a.fault = m.result, m.fault
				return nil
			}
			receive(l, ex, m)
		}
		if ex != nil && ex.ended.Load() {
			return nil
		}
	}
}

// send makes one HTTP request with the headers of the link. ex is its exchange, nil for
// notifications and streams.
func (l *httpLink) send(ctx context.Context, method string, body []byte, ex *exchange, resume string) (*http.Response, error) {
	return l.c.send(ctx, method, l.c.cfg.URL, body, func(h http.Header) {
		version := l.server.Version
		if ex != nil && ex.out.version != "" {
			version = ex.out.version
		}
		switch {
		case version >= mcpwire.Version20260728 && ex != nil:
			setStandard(h, version, ex.out.method, ex.out.name, ex.out.header)
		case version != "":
			h.Set(mcpwire.HeaderVersion, version)
		}
		if l.session != "" {
			h.Set(mcpwire.HeaderSession, l.session)
		}
		if resume != "" {
			h.Set(mcpwire.HeaderEvent, resume)
		}
	})
}

// send makes one HTTP request to the server at address.
func (c *Client) send(ctx context.Context, method, address string, body []byte, set func(http.Header)) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		in = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, in)
	if err != nil {
		return nil, err
	}
	if c.cfg.Header != nil {
		credentials, err := c.cfg.Header(ctx)
		if err != nil {
			return nil, c.noCredentials(err)
		}
		for key, values := range credentials {
			req.Header[http.CanonicalHeaderKey(key)] = values
		}
	}
	accept := "text/event-stream"
	if method == http.MethodPost {
		accept = "application/json, text/event-stream"
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", accept)
	set(req.Header)
	return c.cfg.HTTP.Do(req)
}

// post sends a message that has no response.
func (l *httpLink) post(ctx context.Context, body []byte) error {
	resp, err := l.send(ctx, http.MethodPost, body, nil, "")
	if err != nil {
		return err
	}
	defer l.drain(resp)
	if resp.StatusCode > 299 {
		return l.c.failure(l.refusal(resp), true)
	}
	return nil
}

// refusal reads a response with an error status.
func (l *httpLink) refusal(resp *http.Response) answer {
	a := answer{status: resp.StatusCode, wait: retryAfter(resp.Header)}
	if body, err := readBody(resp, maxRefusal); err == nil {
		if m, err := parse(body); err == nil {
			a.fault = m.fault
		}
	}
	if l.session != "" && (a.status == http.StatusNotFound || a.status == http.StatusBadRequest && a.fault != nil &&
		forgotten(a.fault.message)) {
		return answer{err: errSessionGone}
	}
	return a
}

// forgotten reports whether an error message means an unknown session, for servers that do
// not use status 404 for it.
func forgotten(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "session not found") || strings.Contains(message, "no valid session") ||
		strings.Contains(message, "server not initialized")
}

// close deletes the session, if the server still has it.
func (l *httpLink) close(gone bool) {
	l.once.Do(func() {
		defer l.stop()
		if gone || l.session == "" {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), noteTimeout)
		defer cancel()
		if resp, err := l.send(ctx, http.MethodDelete, nil, nil, ""); err == nil {
			resp.Body.Close()
		}
	})
}

func (l *httpLink) readError(err error) error {
	if errors.Is(err, errTooLarge) {
		return l.c.tooLarge(maxAnswer)
	}
	return err
}

// drain reads a little of the rest of a body and closes it, so that its connection can be reused.
func (l *httpLink) drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 16<<10)
	resp.Body.Close()
}

func kind(resp *http.Response) string {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return kind
}

func readBody(resp *http.Response, limit int64) (json.RawMessage, error) {
	if resp.ContentLength > limit {
		return nil, errTooLarge
	}
	var b bytes.Buffer
	if resp.ContentLength > 0 {
		b.Grow(int(min(resp.ContentLength, 1<<20)) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(resp.Body, limit+1)); err != nil {
		return nil, err
	}
	if int64(b.Len()) > limit {
		return nil, errTooLarge
	}
	return b.Bytes(), nil
}

// retryAfter returns the header's seconds, at most a minute; 0 without the header.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, 60)) * time.Second
}
