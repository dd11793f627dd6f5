package stdiobridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// take handles one line. Messages that change the session are handled before the next
// line is read; others run concurrently.
func (b *bridge) take(ctx context.Context, body []byte) {
	m, err := peek(body)
	if err != nil {
		b.fail(nil, jsonrpc.CodeParse, err.Error(), "")
		return
	}
	switch {
	case m.method == "initialize" && !m.modern:
		b.session.open(ctx, &m)
	case m.method == "notifications/initialized" && !m.modern:
		b.session.ready(ctx, &m)
	case m.method == "notifications/cancelled":
		b.withdraw(ctx, &m)
	case m.id == nil && !m.batch && (m.modern || b.session.current().id == ""):
		// The server ignores notifications without a session.
	default:
		b.start(ctx, &m)
	}
}

// start runs one request in a goroutine. If maxWaiting requests wait already, it answers
// with an error.
func (b *bridge) start(ctx context.Context, m *message) {
	select {
	case b.waiting <- struct{}{}:
	default:
		b.fail(m.id, codeOverloaded, fmt.Sprintf("%d requests wait already; try again when some are answered", maxWaiting), "")
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	// A response does not count as running: the calls that wait for it may use all slots.
	f := &flight{modern: m.modern, endless: m.response || m.method == "subscriptions/listen", cancel: cancel, written: make(chan struct{})}
	id := key(m.id)
	if m.id != nil {
		b.mu.Lock()
		b.flights[id] = f
		b.mu.Unlock()
	}
	b.work.Go(func() {
		defer func() { <-b.waiting }()
		defer cancel()
		if m.id != nil {
			defer func() {
				b.mu.Lock()
				if b.flights[id] == f {
					delete(b.flights, id)
				}
				b.mu.Unlock()
			}()
		}
		if !f.endless {
			select {
			case b.running <- struct{}{}:
				defer func() { <-b.running }()
			case <-ctx.Done():
				return
			}
		}
		b.exchange(ctx, m, f)
	})
}

// withdraw cancels the request that a notification names: a modern one by closing it, as that
// protocol requires; a legacy one by forwarding the notification after the request was sent.
func (b *bridge) withdraw(ctx context.Context, m *message) {
	b.mu.Lock()
	f := b.flights[key(m.cancels)]
	if f != nil {
		f.withdrawn = true
	}
	b.mu.Unlock()
	switch {
	case f == nil:
	case f.modern:
		f.cancel()
	default:
		b.work.Go(func() {
			select {
			case <-f.written:
			case <-ctx.Done():
				return
			}
			resp, err := b.post(ctx, m, b.session.current(), nil)
			if err == nil {
				resp.Body.Close()
			}
		})
	}
}

// exchange sends a request and forwards the response. If the server no longer has the
// session, exchange opens it again, once. A failure is answered with an error unless the
// request was cancelled.
func (b *bridge) exchange(ctx context.Context, m *message, f *flight) {
	at := binding{}
	if !m.modern {
		at = b.session.current()
	}
	resp, err := b.post(ctx, m, at, f)
	if err == nil && resp.StatusCode == http.StatusNotFound && at.id != "" {
		resp.Body.Close()
		if at, err = b.session.renew(ctx, at); err == nil {
			resp, err = b.post(ctx, m, at, f)
		}
	}
	if err == nil {
		defer resp.Body.Close()
		var answered bool
		if answered, err = b.forward(resp, m); err == nil && (answered || m.id == nil) {
			return
		}
		if err == nil {
			err = errNoAnswer
		}
	}
	b.mu.Lock()
	withdrawn := f != nil && f.withdrawn
	b.mu.Unlock()
	if !withdrawn && ctx.Err() == nil {
		b.report(m.id, err)
	}
}

var errNoAnswer = errors.New("the server ended the exchange without an answer")

// refusedError is an HTTP answer that is not an MCP message.
type refusedError struct{ status int }

func (e *refusedError) Error() string {
	return fmt.Sprintf("the server answered with status %d", e.status)
}

// unreachableError is a request that did not reach the server.
type unreachableError struct{ cause error }

func (e *unreachableError) Error() string { return e.cause.Error() }
func (e *unreachableError) Unwrap() error { return e.cause }

// report answers a request that failed in transport, with a remedy.
func (b *bridge) report(id json.RawMessage, err error) {
	if r, ok := errors.AsType[*refusedError](err); ok {
		if r.status == http.StatusUnauthorized {
			b.fail(id, codeUnauthenticated, "the server refuses the token",
				"give a valid one with --token or JUNCTOR_TOKEN; junctor tokens create makes one")
			return
		}
		b.fail(id, codeBroken, r.Error(), "")
		return
	}
	if _, ok := errors.AsType[*unreachableError](err); ok {
		b.fail(id, codeUnreachable, "no junctor server answers at "+b.cfg.URL, "start it with: junctor serve")
		return
	}
	b.fail(id, codeBroken, "the connection to the server broke before the answer; whether the call was carried out is not known", "")
}

// post sends one message. If f is not nil, its written is closed when the request was
// sent or failed.
func (b *bridge) post(ctx context.Context, m *message, at binding, f *flight) (*http.Response, error) {
	if f != nil {
		var once sync.Once
		left := func() {
			once.Do(func() {
				select {
				case <-f.written:
				default:
					close(f.written)
				}
			})
		}
		defer left() // also if sending failed
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { left() }})
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(m.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if m.modern {
		m.modernHeaders(req.Header)
	}
	return b.do(req, at)
}

func (b *bridge) do(req *http.Request, at binding) (*http.Response, error) {
	req.Header.Set("Authorization", "Bearer "+b.cfg.Token.Reveal())
	if at.id != "" {
		req.Header.Set(mcpwire.HeaderSession, at.id)
		req.Header.Set(mcpwire.HeaderVersion, at.version)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, &unreachableError{err}
	}
	return resp, nil
}

// forward writes the messages of an HTTP response to the client, and reports whether the
// response to m was among them.
func (b *bridge) forward(resp *http.Response, m *message) (answered bool, err error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return false, &refusedError{resp.StatusCode}
	case resp.StatusCode == http.StatusAccepted, resp.StatusCode == http.StatusNoContent:
		return false, nil
	case kind == "text/event-stream" && resp.StatusCode == http.StatusOK:
		err := events(resp.Body, func(data []byte) {
			answered = answered || m.batch || answers(data, m.id)
			b.write(data)
		})
		return answered, err
	case kind != "application/json":
		return false, &refusedError{resp.StatusCode}
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return false, err
	case len(data) > maxAnswer || !json.Valid(data):
		return false, &refusedError{resp.StatusCode}
	case m.batch || answers(data, m.id):
		b.write(data)
		return true, nil
	}
	return b.readdress(data, resp.StatusCode, m.id)
}

// readdress forwards an error response without an id with the id of its request. The
// server sends such errors if it rejects a request before reading the id.
func (b *bridge) readdress(data []byte, status int, id json.RawMessage) (bool, error) {
	var refusal struct {
		Error json.RawMessage `json:"error"`
		RPC   string          `json:"jsonrpc"`
	}
	if json.Unmarshal(data, &refusal) != nil || refusal.RPC == "" || refusal.Error == nil {
		return false, &refusedError{status}
	}
	if id == nil {
		return false, nil
	}
	b.write(jsonrpc.AppendError(nil, id, refusal.Error))
	return true, nil
}
