package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// Call sends one request and returns the received bytes of the result object; a tool's
// isError is part of it. It does not connect: the owner calls Connect before the first
// call and after Config.Down.
//
// If a modern server asks questions first, Ask answers them, in at most eight rounds. With Relay,
// or without Ask, Call returns the result together with [capability.InputRequired].
//
// Errors: failed (upstream_error with the detail code; connection_failed if the answer was
// lost), invalid_input (upstream_invalid_params), unavailable (connection_failed,
// unauthenticated; the server did not receive the request), overloaded, timeout (of
// Request.Idle or ctx), cancelled, too_large (32 MiB, 16 MiB over stdio).
func (c *Client) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	if r.Params == nil {
		r.Params = json.RawMessage("{}")
	}
	lk, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	var responses, state json.RawMessage
	if r.Relay != nil {
		responses, state = r.Relay.Responses, r.Relay.State
	}
	for round := 1; ; round++ {
		k := lk.shared()
		if result, err, local := c.local(ctx, k, r); local {
			return result, err
		}
		a, sent, err := c.exchange(ctx, lk, &r, responses, state)
		if err != nil {
			return nil, err
		}
		if k.contradicted(a) {
			if _, err := c.renew(ctx, lk); err != nil {
				return nil, err
			}
			if lk, err = c.connected(ctx); err != nil {
				return nil, err
			}
			if k = lk.shared(); !k.server.Modern() {
				responses, state = nil, nil
			}
			if a, sent, err = c.exchange(ctx, lk, &r, responses, state); err != nil {
				return nil, err
			}
		}
		if a.result == nil {
			return nil, c.failure(a, sent)
		}
		if a.result[0] != '{' {
			return nil, c.nonsense("answered with a result that is not an object")
		}
		if !k.server.Modern() {
			c.remember(r)
			if task := member(a.result, "task"); r.Task && len(task) > 0 {
				return c.finishTask(ctx, r, task)
			}
			return a.result, nil
		}
		switch kind := resultType(a.result); {
		case kind == "" || kind == "complete":
			return a.result, nil
		case kind != "input_required":
			return nil, c.nonsense("answered with a kind of result that was not agreed on: %s", cut(kind, 64))
		case r.Relay != nil || r.Ask == nil:
			return a.result, capability.InputRequired(capability.ProviderKey(c.cfg.Name))
		case round == maxRounds:
			return nil, c.nonsense("asked %d times and was not content", maxRounds)
		}
		if responses, err = c.answerAll(ctx, r, member(a.result, "inputRequests"), round); err != nil {
			return nil, err
		}
		state = member(a.result, "requestState")
	}
}

// contradicted reports whether the server rejected the request because the session is
// unknown to it or it does not support the revision.
func (k *conn) contradicted(a answer) bool {
	switch {
	case errors.Is(a.err, errSessionGone):
		return true
	case a.fault == nil:
		return false
	case !k.server.Modern():
		return k.c.cfg.URL != "" && (a.fault.code == mcpwire.CodeUnsupportedVersion || a.fault.code == mcpwire.CodeHeaderMismatch ||
			a.fault.code == mcpwire.CodeSessionNotFound && strings.EqualFold(a.fault.message, "session not found"))
	}
	return k.c.cfg.URL != "" && a.fault.code == mcpwire.CodeUnsupportedVersion
}

// local handles methods that a modern server does not have: subscriptions and the log
// level. ok is false for other methods and for a legacy server.
func (c *Client) local(ctx context.Context, k *conn, r Request) (json.RawMessage, error, bool) {
	if !k.server.Modern() {
		return nil, nil, false
	}
	var err error
	switch r.Method {
	case "resources/subscribe", "resources/unsubscribe":
		err = c.subscribe(ctx, k, uriOf(r.Params), r.Method == "resources/subscribe")
	case "logging/setLevel":
		c.mu.Lock()
		c.level = bytes.Clone(r.Params)
		c.mu.Unlock()
	default:
		return nil, nil, false
	}
	if err != nil {
		return nil, err, true
	}
	return json.RawMessage("{}"), nil, true
}

// remember stores subscriptions and the log level, which are lost with a legacy session,
// for restore.
func (c *Client) remember(r Request) {
	switch r.Method {
	case "resources/subscribe", "resources/unsubscribe":
		_ = c.watch(uriOf(r.Params), r.Method == "resources/subscribe")
	case "logging/setLevel":
		c.mu.Lock()
		c.level = bytes.Clone(r.Params)
		c.mu.Unlock()
	}
}

func uriOf(params []byte) string {
	uri, _ := jsonx.Text(member(params, "uri"))
	return uri
}

// exchange sends the request once, waits for its answer and meanwhile forwards progress and log
// messages. An error ends the call; sent reports whether the server may have received the request.
func (c *Client) exchange(ctx context.Context, lk link, r *Request, responses, state json.RawMessage) (a answer, sent bool, err error) {
	k := lk.shared()
	ex := newExchange(ctx, c.ids.Add(1), outgoing{method: r.Method, name: r.Name, header: r.Headers}, r)
	defer func() { ex.leave() }()
	if ex.out.params, err = c.params(k, ex.id, r, responses, state); err != nil {
		return a, false, err
	}
	idle := r.Idle
	if idle <= 0 {
		idle = idleTimeout
	}
	defer k.flight.remove(ex)
	if h, ok := lk.(*httpLink); ok {
		// Most answers are one document, for which no goroutine is needed.
		if a, over := h.startHere(ctx, ex, idle); over {
			switch {
			case ctx.Err() != nil:
				c.withdraw(lk, ex, "the caller withdrew the request")
				return a, true, c.ended(ctx)
			case errors.Is(a.err, errIdle):
				c.withdraw(lk, ex, "no progress")
				return a, true, c.idled(idle)
			}
			ex.end(a)
			return <-ex.answer, ex.sent.Load(), nil
		}
	} else {
		ex.ctx, ex.leave = context.WithCancel(ctx)
		ex.events = make(chan message, maxNotices)
		if err := k.flight.add(ex); err != nil {
			return answer{err: err}, false, nil
		}
		lk.start(ex.ctx, ex)
	}
	timer := time.NewTimer(idle)
	defer timer.Stop()
	told := progress{}
	for {
		select {
		case m := <-ex.events:
			if told.pass(m, r.Progress) {
				timer.Reset(idle)
			}
		case <-ex.asked:
			timer.Reset(idle)
		case a = <-ex.answer:
			for len(ex.events) > 0 {
				told.pass(<-ex.events, r.Progress)
			}
			if a.result == nil && a.fault == nil && ctx.Err() != nil { // the exchange failed because the context ended
				c.withdraw(lk, ex, "the caller withdrew the request")
				return a, true, c.ended(ctx)
			}
			return a, ex.sent.Load(), nil
		case <-timer.C:
			if ex.asking.Load() > 0 {
				timer.Reset(idle)
				continue
			}
			c.withdraw(lk, ex, "no progress")
			return a, true, c.idled(idle)
		case <-ctx.Done():
			c.withdraw(lk, ex, "the caller withdrew the request")
			return a, true, c.ended(ctx)
		case <-c.ctx.Done():
			ex.end(answer{err: errClosing})
			return <-ex.answer, ex.sent.Load(), nil
		}
	}
}

func (c *Client) idled(idle time.Duration) error {
	return capability.Errorf(capability.CodeTimeout, op, "%s made no progress for %s", c.cfg.Name, idle).With(reasonIdle, "")
}

// withdraw sends the server a cancellation, unless it has answered. It does nothing on
// links on which closing the stream, which the context's end does, cancels the request.
func (c *Client) withdraw(lk link, ex *exchange, why string) {
	if ex.replied.Load() || !lk.shared().explicit {
		return
	}
	params := strconv.AppendInt([]byte(`{"requestId":`), ex.id, 10)
	params = append(jsonx.AppendString(append(params, `,"reason":`...), why), '}')
	c.spawn(func() {
		ctx, cancel := context.WithTimeout(lk.shared().ctx, noteTimeout)
		defer cancel()
		if err := lk.post(ctx, jsonrpc.AppendRequest(nil, nil, "notifications/cancelled", params)); err != nil {
			c.log.Debug("a cancellation was lost", "server", c.cfg.Name, "err", err)
		}
	})
}

// progress converts notifications to chunks.
type progress struct {
	last float64
	any  bool
}

// pass forwards a notification, and reports whether it was progress beyond the last one.
func (p *progress) pass(m message, to func(capability.Chunk)) bool {
	if m.method == "notifications/message" {
		if to != nil && m.params != nil {
			to(capability.Chunk{Stage: capability.StageLog, Data: m.params})
		}
		return false
	}
	c := capability.Chunk{Message: text(m.params, "message", 4<<10)}
	var err error
	if c.Progress, c.Literals[0], err = number(m.params, "progress"); err != nil || p.any && c.Progress <= p.last {
		return false
	}
	p.last, p.any = c.Progress, true
	c.Total, c.Literals[1], _ = number(m.params, "total")
	if to != nil {
		to(c)
	}
	return true
}

// number returns a number of an object, and its spelling unless that is longer than a number needs.
func number(object []byte, name string) (float64, string, error) {
	literal := string(member(object, name))
	n, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return 0, "", err
	}
	if len(literal) > maxLiteral {
		literal = ""
	}
	return n, literal, nil
}

// resultType returns the type of a modern result; "" means complete.
func resultType(result []byte) string {
	if !bytes.Contains(result, []byte(`"resultType"`)) {
		return ""
	}
	kind, _ := jsonx.Text(member(result, "resultType"))
	return kind
}

// answerAll asks the caller the questions of a result one after the other, and returns an
// object of the answers by the server's keys. Without questions it waits for a backoff.
func (c *Client) answerAll(ctx context.Context, r Request, requests json.RawMessage, round int) (json.RawMessage, error) {
	out := []byte{'{'}
	count := 0
	var failed error
	if len(requests) > 0 && requests[0] == '{' {
		_ = jsonx.Members(requests, func(key string, value []byte) {
			if failed != nil {
				return
			}
			if count++; count > maxQuestions || len(value) > maxQuestion {
				failed = c.nonsense("asks too much: %d questions of 1 MiB are the limit", maxQuestions)
				return
			}
			var result json.RawMessage
			if result, failed = c.answerOne(ctx, r, value); failed != nil {
				return
			}
			if count > 1 {
				out = append(out, ',')
			}
			out = append(append(jsonx.AppendString(out, key), ':'), result...)
		})
	}
	if failed != nil {
		return nil, failed
	}
	if count == 0 { // the server only needs more time
		if pause.For(ctx, backoff(round)) != nil {
			return nil, c.ended(ctx)
		}
		return nil, nil
	}
	return append(out, '}'), nil
}

func (c *Client) answerOne(ctx context.Context, r Request, question []byte) (json.RawMessage, error) {
	method, _ := jsonx.Text(member(question, "method"))
	if method != "elicitation/create" && (method != "sampling/createMessage" || !c.cfg.Sampling) {
		return nil, c.nonsense("asks for something that is not offered here: %s", cut(method, 64))
	}
	params := json.RawMessage(member(question, "params"))
	if params == nil {
		params = json.RawMessage("{}")
	}
	result, err := r.Ask(ctx, capability.Question{Method: method, Params: params})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, c.ended(ctx)
	case err != nil:
		return nil, err
	case !isObject(result):
		return nil, capability.Errorf(capability.CodeInternal, op, "a question of %s got an answer that is not a JSON object", c.cfg.Name)
	}
	return result, nil
}
