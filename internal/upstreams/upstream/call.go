package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// Invoke implements capability.Provider. The Value of its Result is the raw MCP result of
// the method.
func (p *provider) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	return p.carry(ctx, c, "")
}

// carry makes a call or, if resume is set, continues one that an earlier process made. A
// call that the upstream did not receive is sent once more. While the breaker is open, the
// error is unavailable, reason circuit_open.
func (p *provider) carry(ctx context.Context, c capability.Call, resume string) (capability.Result, error) {
	if _, err := p.callable(c.Member); err != nil {
		return capability.Result{}, err
	}
	if wait, ok := p.breaker.admit(p.reg.cfg.Now()); !ok {
		e := capability.Errorf(capability.CodeUnavailable, "execute", "%s broke %d calls in a row; it gets none for a while", p.record.Name,
			breakAfter).
			With("circuit_open", "try again later, or: junctor mcp restart "+p.record.Name)
		e.RetryAfter = wait
		return capability.Result{}, e
	}
	t := p.track(&c, resume)
	raw, b, err := p.send(ctx, &c, t)
	if capability.CodeOf(err) == capability.CodeUnavailable && broke(err) && ctx.Err() == nil {
		raw, b, err = p.send(ctx, &c, t) // the upstream did not receive it; a new connection is being made
	}
	if p.breaker.report(err, p.reg.cfg.Now()) {
		p.reg.cfg.Logger.Warn("an upstream breaks calls and gets none for a while", "upstream", p.record.Name, "err", err)
	}
	needed := err != nil && capability.AsError(err).Reason == oauthclient.ReasonLogin
	if needed && p.logins == nil {
		e := capability.AsError(err) // the connection is up, but only a login makes it useful
		p.set(capability.Availability{State: capability.StateUnauthorized, Reason: e.Message, Login: e.Hint})
	}
	result := capability.Result{Value: raw, UpstreamCall: p.record.Name + "/" + t.id}
	if p.logins != nil && !needed {
		result.Login = c.Principal.Person()
	}
	if err != nil && (raw == nil || capability.AsError(err).Reason != capability.ReasonInputRequired) {
		return capability.Result{Login: result.Login}, err
	}
	judged, err := p.judge(b, result)
	judged.Login = result.Login
	return judged, err
}

func callerOf(c *capability.Call) Caller {
	return Caller{Principal: c.Principal.ID, Session: c.Session, For: c.Principal.OnBehalfOf}
}

// send makes the call on a connection and waits for its result. The code unavailable means
// that the upstream did not receive it.
func (p *provider) send(ctx context.Context, c *capability.Call, t *tracked) (json.RawMessage, *binding, error) {
	link, err := p.connection(ctx, p.keyOf(callerOf(c)))
	if err != nil {
		return nil, nil, err
	}
	defer p.release(link)
	// The definition may have changed while the call waited for the connection.
	b, err := p.callable(c.Member)
	if err != nil {
		return nil, nil, err
	}
	req, err := p.request(b, c)
	if err != nil {
		return nil, nil, err
	}
	req.Resume = t.resume
	if p.record.Kind == record.KindA2A {
		req.Keep = t.kept
	}
	raw, err := link.client.Call(ctx, req)
	p.mu.Lock()
	link.calls++
	p.mu.Unlock()
	return raw, b, p.opens(err)
}

// callable returns the definition of a member. Errors: unavailable, reason
// definition_gone; approval_required, reason pin_held, if a change waits for an approval.
func (p *provider) callable(m capability.Member) (*binding, error) {
	b := p.view.Load().bindings[m]
	switch {
	case b == nil:
		return nil, capability.Errorf(capability.CodeUnavailable, "execute", "%s does not offer this any more", p.record.Name).
			With("definition_gone", "list the catalog again")
	case b.held:
		return nil, capability.Errorf(capability.CodeApprovalRequired, "execute",
			"%s has changed its definition of %s %s, and the new one is not approved yet", p.record.Name, b.kind, b.name).
			With("pin_held", "an operator sees what has changed with: junctor mcp diff "+p.record.Name+
				", and takes it with: junctor mcp approve "+p.record.Name)
	}
	return b, nil
}

// request returns the request of a call: tools/call, prompts/get, resources/read or
// completion/complete. An address outside the resource or template is invalid_input.
func (p *provider) request(b *binding, c *capability.Call) (Request, error) {
	req := Request{Idle: p.record.Idle(), Ask: p.asker(c), Relay: c.Relay, Name: b.name, Meta: c.Meta}
	if c.Watched {
		req.Progress = c.Progress
	}
	switch b.kind {
	case string(ingest.Tool):
		req.Method, req.Definition = "tools/call", b.shown.Published
		req.Params = append(append(appendString([]byte(`{"name":`), b.name), `,"arguments":`...), orObject(c.Input)...)
		req.Params = append(req.Params, '}')
		req.Headers = headersOf(b.shown.Headers, c.Input)
	case string(ingest.Prompt):
		var in struct {
			Arguments jsontext.Value `json:"arguments"`
		}
		if err := decode(c.Input, &in); err != nil {
			return req, err
		}
		req.Method = "prompts/get"
		req.Params = appendString([]byte(`{"name":`), b.name)
		if len(in.Arguments) > 0 {
			req.Params = append(append(req.Params, `,"arguments":`...), in.Arguments...)
		}
		req.Params = append(req.Params, '}')
	case string(ingest.Resource), string(ingest.Template), kindRead:
		var in struct {
			URI string `json:"uri"`
		}
		if err := decode(c.Input, &in); err != nil {
			return req, err
		}
		if b.kind == string(ingest.Resource) && in.URI == "" {
			in.URI = b.name
		}
		if !b.fits(in.URI) {
			return req, capability.Errorf(capability.CodeInvalidInput, "execute", "the address is not one of %s", b.name).With("invalid_uri", "")
		}
		req.Method, req.Name = "resources/read", in.URI
		req.Params = append(appendString([]byte(`{"uri":`), in.URI), '}')
	default:
		if trimmed := bytes.TrimSpace(c.Input); len(trimmed) == 0 || trimmed[0] != '{' {
			return req, needObject()
		}
		req.Method, req.Name, req.Params = "completion/complete", "", c.Input
	}
	return req, nil
}

func orObject(input json.RawMessage) json.RawMessage {
	if len(input) == 0 {
		return json.RawMessage("{}")
	}
	return input
}

func needObject() error {
	return capability.Errorf(capability.CodeInvalidInput, "execute", "the input must be a JSON object")
}

func decode(input json.RawMessage, v any) error {
	if err := jsonx.Unmarshal(orObject(input), v); err != nil {
		return capability.Errorf(capability.CodeInvalidInput, "execute", "the input has another form: %w", err)
	}
	return nil
}

// headersOf returns the headers for the arguments that the definition requires as headers.
func headersOf(list []ingest.Header, input json.RawMessage) http.Header {
	if len(list) == 0 {
		return nil
	}
	out := make(http.Header)
	for _, h := range list {
		at := []byte(input)
		for _, name := range h.Path {
			at = memberOf(at, name)
		}
		if text, ok := primitive(at); ok {
			out.Set("Mcp-Param-"+h.Name, text)
		}
	}
	return out
}

func memberOf(object []byte, name string) (value []byte) {
	_ = members(object, func(found string, v []byte) {
		if found == name {
			value = v
		}
	})
	return value
}

// primitive returns the header form of a JSON string, boolean or integer; ok is false for
// other values.
func primitive(value []byte) (string, bool) {
	if len(value) == 0 {
		return "", false
	}
	switch value[0] {
	case '"':
		var s string
		err := jsonx.Unmarshal(value, &s)
		return s, err == nil
	case 't', 'f':
		return string(value), true
	case 'n', '{', '[':
		return "", false
	}
	const exact = 1<<53 - 1
	n, err := strconv.ParseInt(string(value), 10, 64)
	return strconv.FormatInt(n, 10), err == nil && n >= -exact && n <= exact
}

// judge returns the result with the error that it represents: input required, a tool's
// own error (failed, reason tool_error), or a tool result that violates the declared
// output schema (failed, reason output_schema_violation).
func (p *provider) judge(b *binding, r capability.Result) (capability.Result, error) {
	var content, structured []byte
	var kind, failed string
	err := members(r.Value, func(name string, value []byte) {
		switch name {
		case "resultType":
			kind = string(value)
		case "isError":
			failed = string(value)
		case "content":
			content = value
		case "structuredContent":
			structured = value
		}
	})
	switch {
	case err != nil:
		return capability.Result{}, capability.Wrap(capability.CodeFailed, "execute", p.record.Name+
			" answered with something that is not a result",
			err).With("upstream_error", "")
	case kind == `"input_required"`:
		if r.Value, err = p.asks(r.Value); err != nil {
			return capability.Result{}, err
		}
		return r, capability.InputRequired(p.key)
	case b.kind != string(ingest.Tool):
		return r, nil
	case failed == "true":
		text := firstText(content)
		if text == "" {
			text = "the tool failed and does not say why"
		}
		return r, capability.Errorf(capability.CodeFailed, "execute", "%s", text).With("tool_error", "")
	case b.output == nil:
		return r, nil
	}
	schema, err := b.output()
	if err != nil {
		return r, nil //nolint:nilerr // it compiled when it was published; without a schema nothing is rejected
	}
	why := "it has no structured content"
	if len(structured) > 0 {
		if err = schema.Check(structured); err == nil {
			return r, nil
		}
		why = strings.TrimPrefix(capability.AsError(err).Message, "the input ")
	}
	r.Value = marked(r.Value)
	return r, capability.Errorf(capability.CodeFailed, "execute", "the result of %s does not fit the output schema that it declares: %s",
		b.name, why).
		With("output_schema_violation", "this is a fault of the upstream; its text is in the result")
}

// marked returns the result with isError set to true; its other bytes are unchanged.
func marked(result json.RawMessage) json.RawMessage {
	var out []byte
	_ = members(result, func(name string, value []byte) {
		if name == "isError" && out == nil {
			at := cap(result) - cap(value)
			out = append(append(append(out, result[:at]...), "true"...), result[at+len(value):]...)
		}
	})
	if out != nil {
		return out
	}
	rest := bytes.TrimSpace(result)[1:]
	if trimmed := bytes.TrimLeft(rest, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '}' {
		return append([]byte(`{"isError":true`), rest...)
	}
	return append([]byte(`{"isError":true,`), rest...)
}

// firstText returns the first text block of a result's content.
func firstText(content []byte) string {
	var raw []json.RawMessage
	if json.Unmarshal(content, &raw) != nil {
		return ""
	}
	for _, item := range raw {
		var block struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if json.Unmarshal(item, &block) == nil && block.Type == "text" && block.Text != "" {
			return text.CutBytes(ingest.Shown(block.Text), maxErrorText)
		}
	}
	return ""
}

// members calls each for every member of an object in order, without validating UTF-8.
// value aliases doc.
func members(doc []byte, each func(name string, value []byte)) error {
	return jsonx.Members(doc, each)
}

// appendString appends a text as a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte { return jsonx.AppendString(dst, s) }
