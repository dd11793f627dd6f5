package a2a

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// link is the way to an agent: one interface, of one version and binding.
type link struct {
	agent *Agent
	at    endpoint
	base  *url.URL
}

func (a *Agent) link(at endpoint) (*link, error) {
	u, err := url.Parse(at.URL)
	if err != nil || !a.reachable(at.URL) {
		return nil, capability.Errorf(capability.CodeUnavailable, "upstream",
			"the agent's address may not be connected to").With("address_denied", "")
	}
	return &link{agent: a, at: at, base: u}, nil
}

// verb is one method as each way of speaking has it.
type verb struct {
	rpc, legacy  string
	method, path string // of HTTP+JSON; path follows the task, where there is one
	task         bool   // it answers with a task
}

func sending(stream bool) verb {
	if stream {
		return verb{rpc: "SendStreamingMessage", legacy: "message/stream", method: http.MethodPost, path: "message:stream"}
	}
	return verb{rpc: "SendMessage", legacy: "message/send", method: http.MethodPost, path: "message:send"}
}

// send sends a message and yields what comes back. Without a stream the agent answers
// at once and is asked again.
func (l *link) send(ctx context.Context, m *a2awire.Message, stream bool) iter.Seq2[*a2awire.Event, error] {
	params := map[string]any{"message": m}
	if l.at.Protocol == version03 {
		params["message"] = m.V03()
		if !stream {
			params["configuration"] = map[string]any{"blocking": false}
		}
	} else if !stream {
		params["configuration"] = map[string]any{"returnImmediately": true}
	}
	return l.do(ctx, sending(stream), "", params)
}

// named does something with a task.
func (l *link) named(ctx context.Context, v verb, id string) iter.Seq2[*a2awire.Event, error] {
	return l.do(ctx, v, id, map[string]any{"id": id})
}

// do makes one request and yields what comes back. Code unavailable reports that no byte
// of it reached the agent.
func (l *link) do(ctx context.Context, v verb, id string, params map[string]any) iter.Seq2[*a2awire.Event, error] {
	return func(yield func(*a2awire.Event, error) bool) {
		res, err := l.post(ctx, v, id, params)
		if err != nil {
			yield(nil, err)
			return
		}
		defer res.Body.Close()
		rest := l.at.Binding == bindingREST
		one := func(data []byte) (*a2awire.Event, error) {
			decode := decodeReply
			if rest {
				decode = decodePlain
			}
			raw, err := decode(data)
			if err != nil {
				return nil, err
			}
			if v.task {
				return decodeTask(l.at.Protocol, raw)
			}
			return decodeEvent(l.at.Protocol, raw)
		}
		kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
		if kind != "text/event-stream" || res.StatusCode/100 != 2 {
			body, err := readAll(res.Body, MaxAnswer)
			if err == nil && res.StatusCode/100 != 2 {
				err = statusError(res.StatusCode, body)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			yield(one(body))
			return
		}
		for data, err := range events(res.Body) {
			if err != nil {
				yield(nil, err)
				return
			}
			if e, err := one(data); !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// statusError is an answer that is not A2A, or an error in either form of it.
func statusError(code int, body []byte) error {
	var r struct {
		Error *fault `json:"error"`
	}
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return capability.Errorf(capability.CodeFailed, "upstream", "the agent does not take our credentials: status %d",
			code).With("unauthenticated", "see that its credentials are right")
	case jsonx.Unmarshal(body, &r) == nil && r.Error != nil && r.Error.Message != "":
		return refusal(r.Error)
	}
	return capability.Errorf(capability.CodeFailed, "upstream", "the agent answers with status %d", code).With(reasonUpstream, "")
}

func (l *link) post(ctx context.Context, v verb, id string, params map[string]any) (*http.Response, error) {
	to, method := l.base, http.MethodPost
	var doc any
	if l.at.Binding == bindingREST {
		to, method = l.path(v, id), v.method
		if id == "" {
			doc = params
		}
	} else {
		name := v.rpc
		if l.at.Protocol == version03 {
			name = v.legacy
		} else if l.at.Tenant != "" {
			params["tenant"] = l.at.Tenant
		}
		doc = map[string]any{"jsonrpc": "2.0", "id": strconv.FormatInt(l.agent.ids.Add(1), 10), "method": name, "params": params}
	}
	var body io.Reader = http.NoBody
	if doc != nil {
		data, err := jsonx.Marshal(doc)
		if err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "upstream", "the input cannot be sent", err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), body)
	if err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, "upstream", "the agent's address cannot be used", err)
	}
	secret, err := l.agent.credentials(ctx, l.base)
	if err != nil {
		return nil, err
	}
	for name, values := range secret {
		req.Header[name] = values
	}
	if doc != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("A2A-Version", l.at.Protocol)
	res, err := l.agent.http.Do(req)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			res.Body.Close()
		}
		return nil, capability.AsError(ctx.Err())
	case err != nil:
		return nil, unreached(err)
	}
	return res, nil
}

// path is where HTTP+JSON has a verb; a tenant comes before it (A2A 1.0).
func (l *link) path(v verb, id string) *url.URL {
	u := *l.base
	add := func(segment string) { u = *u.JoinPath(segment) }
	if l.at.Tenant != "" {
		add(url.PathEscape(l.at.Tenant))
	}
	if id != "" {
		add("tasks")
		add(url.PathEscape(id) + v.path)
	} else {
		add(v.path)
	}
	return &u
}

// unreached is the error of a request without an answer: unavailable where no byte of
// it went out, for then it can be sent again.
func unreached(err error) error {
	if e, ok := errors.AsType[*capability.Error](err); ok {
		return e
	}
	code := capability.CodeFailed
	if _, ok := errors.AsType[*dialError](err); ok {
		code = capability.CodeUnavailable
	}
	return capability.Wrap(code, "upstream", "the agent cannot be reached", err).With(reasonConnection, "")
}
