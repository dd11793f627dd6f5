package mcpclient

import (
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// receive handles a message that arrived on the stream of ex, or on a shared stream if ex is nil.
func receive(lk link, ex *exchange, m message) {
	k := lk.shared()
	switch {
	case m.response():
		k.answered(ex, m)
	case m.id == nil:
		k.notified(ex, m)
	default:
		if ex == nil || ex.call == nil {
			ex = k.flight.only()
		}
		serve(lk, ex, m)
	}
}

// answered ends the exchange that a response belongs to. On its own stream an exchange accepts only
// its own response, or an error without an id, with which a server reports an unreadable request.
func (k *conn) answered(ex *exchange, m message) {
	id, err := strconv.ParseInt(string(m.id), 10, 64)
	if ex == nil {
		if err == nil {
			ex = k.flight.get(id)
		} else if m.id == nil && m.fault != nil {
			ex = k.flight.sole()
		}
	} else if id != ex.id && (m.id != nil || m.fault == nil) {
		ex = nil
	}
	if ex == nil {
		k.c.log.Debug("an answer to nothing that was asked", "server", k.c.cfg.Name)
		return
	}
	ex.end(answer{result: m.result, fault: m.fault})
}

func (k *conn) notified(ex *exchange, m message) {
	switch m.method {
	case "notifications/progress":
		token, err := strconv.ParseInt(string(member(m.params, "progressToken")), 10, 64)
		if err != nil {
			return
		}
		if ex == nil {
			ex = k.flight.get(token)
		}
		if ex != nil && ex.id == token {
			ex.tell(m)
		}
	case "notifications/message":
		if ex == nil {
			ex = k.flight.only()
		}
		if ex != nil {
			ex.tell(m)
		}
	case "notifications/cancelled":
		k.withdrawn(member(m.params, "requestId"))
	case "notifications/subscriptions/acknowledged":
		id, err := strconv.ParseInt(string(member(member(m.params, "_meta"), mcpwire.MetaPrefix+"subscriptionId")), 10, 64)
		if ex != nil {
			id, err = ex.id, nil
		}
		if err == nil {
			k.listener.acknowledged(id, m.params)
		}
	case "notifications/tools/list_changed":
		k.c.changed(Tools)
	case "notifications/prompts/list_changed":
		k.c.changed(Prompts)
	case "notifications/resources/list_changed":
		k.c.changed(Resources, Templates)
	case "notifications/resources/updated":
		if uri, ok := jsonx.Text(member(m.params, "uri")); ok && k.c.cfg.Updated != nil {
			k.c.cfg.Updated(uri)
		}
	}
}

// serve answers a request of the server in a goroutine, so that the stream is read meanwhile. ex is
// the call that it belongs to, or nil. Beyond maxQuestions open requests it sends no answer.
func serve(lk link, ex *exchange, m message) {
	k := lk.shared()
	ctx, cancel := context.WithCancel(k.ctx)
	if !k.question(m.id, cancel) {
		cancel()
		k.c.log.Debug("a server asks too much at a time", "server", k.c.cfg.Name, "method", m.method)
		return
	}
	over := func() bool { return true }
	if ex != nil {
		over = context.AfterFunc(ex.ctx, cancel)
	}
	k.c.spawn(func() {
		defer cancel()
		defer over()
		body := k.respond(ctx, ex, m)
		withdrawn := ctx.Err() != nil
		k.withdrawn(m.id)
		if !withdrawn {
			k.reply(lk, body)
		}
	})
}

func (k *conn) reply(lk link, body []byte) {
	ctx, cancel := context.WithTimeout(k.ctx, noteTimeout)
	defer cancel()
	if err := lk.post(ctx, body); err != nil {
		k.c.log.Debug("an answer to the server was lost", "server", k.c.cfg.Name, "err", err)
	}
}

// question records an open request of the server; false if the id is in use or there are too many.
func (k *conn) question(id json.RawMessage, cancel context.CancelFunc) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, twice := k.questions[string(id)]; twice || len(k.questions) >= maxQuestions {
		return false
	}
	k.questions[string(id)] = cancel
	return true
}

// withdrawn removes an open request of the server and cancels its handler.
func (k *conn) withdrawn(id json.RawMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if cancel, ok := k.questions[string(id)]; ok {
		cancel()
		delete(k.questions, string(id))
	}
}

func (k *conn) respond(ctx context.Context, ex *exchange, m message) []byte {
	switch m.method {
	case "ping":
		return jsonrpc.AppendResult(nil, m.id, json.RawMessage("{}"))
	case "roots/list":
		return jsonrpc.AppendResult(nil, m.id, k.c.roots())
	case "sampling/createMessage":
		if !k.c.cfg.Sampling {
			break
		}
		fallthrough
	case "elicitation/create":
		return k.ask(ctx, ex, m)
	}
	return jsonrpc.AppendFault(nil, m.id, jsonrpc.CodeMethodNotFound, "the method is not offered here", nil)
}

// ask forwards a question of the server to the caller of ex and returns the response. A
// question that belongs to no call, or is too large, is an error.
func (k *conn) ask(ctx context.Context, ex *exchange, m message) []byte {
	if ex == nil {
		return jsonrpc.AppendFault(nil, m.id, jsonrpc.CodeMethodNotFound, "the request does not belong to exactly one call in flight", nil)
	}
	if len(m.params) > maxQuestion {
		return jsonrpc.AppendFault(nil, m.id, jsonrpc.CodeInvalidParams, "a question may have 1 MiB at most", nil)
	}
	if ex.call.Ask != nil {
		params := m.params
		if params == nil {
			params = json.RawMessage("{}")
		}
		if ex.questions.Add(1) > maxRounds*maxQuestions {
			return jsonrpc.AppendFault(nil, m.id, jsonrpc.CodeInternal, "the call has asked enough", nil)
		}
		result, err := ex.ponder(ctx, capability.Question{Method: m.method, Params: params})
		if err == nil && isObject(result) {
			return jsonrpc.AppendResult(nil, m.id, result)
		}
		k.c.log.Debug("a question of the server got no answer", "server", k.c.cfg.Name, "method", m.method, "err", err)
	}
	// The session declares the ability to answer for all callers. For a caller that
	// cannot, the server receives a cancelled question.
	if m.method == "elicitation/create" {
		return jsonrpc.AppendResult(nil, m.id, json.RawMessage(`{"action":"cancel"}`))
	}
	return jsonrpc.AppendFault(nil, m.id, -1, "this client does not serve the method", nil)
}

// ponder asks the caller. Meanwhile the idle time of the call does not count.
func (ex *exchange) ponder(ctx context.Context, q capability.Question) (json.RawMessage, error) {
	ex.asking.Add(1)
	defer func() {
		ex.asking.Add(-1)
		select {
		case ex.asked <- struct{}{}:
		default:
		}
	}()
	return ex.call.Ask(ctx, q)
}

// roots returns the result of roots/list: the operator's directories, never the caller's.
func (c *Client) roots() json.RawMessage {
	out := []byte(`{"roots":[`)
	for i, dir := range c.cfg.Roots {
		if i > 0 {
			out = append(out, ',')
		}
		uri := url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}
		out = jsonx.AppendString(append(out, `{"uri":`...), uri.String())
		out = jsonx.AppendString(append(out, `,"name":`...), filepath.Base(dir))
		out = append(out, '}')
	}
	return append(out, "]}"...)
}

func (c *Client) changed(lists ...List) {
	if c.cfg.Changed == nil {
		return
	}
	for _, l := range lists {
		c.cfg.Changed(l)
	}
}
