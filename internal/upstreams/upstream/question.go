package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// asker returns an Asker that forwards permitted questions to the caller under the
// upstream's name and records the outcome; nil if the caller cannot be asked. Sampling uses
// the caller's model and is forwarded only if the record allows it.
func (p *provider) asker(c *capability.Call) capability.Asker {
	if c.Ask == nil {
		return nil
	}
	return func(ctx context.Context, q capability.Question) (json.RawMessage, error) {
		var err error
		q.Params, err = p.question(q.Method, q.Params)
		var answer json.RawMessage
		if err == nil {
			answer, err = c.Ask(ctx, q)
		}
		attrs := []audit.Attr{{Key: "method", Value: q.Method}, {Key: "invocation", Value: c.Invocation}}
		if err != nil {
			attrs = append(attrs, audit.Attr{Key: "outcome", Value: string(capability.CodeOf(err))})
		} else {
			attrs = append(attrs, audit.Attr{Key: "outcome", Value: outcome(answer)})
		}
		p.reg.record(ctx, audit.UpstreamQuestionAnswered, &p.record, c.Principal, audit.OutcomeOf(err == nil), attrs...)
		return answer, err
	}
}

// outcome returns the user's decision (accept, decline or cancel) for the audit log, which
// must not contain the answer.
func outcome(answer json.RawMessage) string {
	var action string
	if jsonx.Unmarshal(memberOf(answer, "action"), &action) != nil || action != "accept" && action != "decline" && action != "cancel" {
		return "answered"
	}
	return action
}

// named returns the parameters of a question with the upstream's name before its message. A question that wants
// anything but a web address to be opened is refused.
func (p *provider) named(params json.RawMessage) (json.RawMessage, error) {
	var out []byte
	var asked struct {
		Mode string `json:"mode"`
		URL  string `json:"url"`
	}
	if err := jsonx.Unmarshal(params, &asked); err != nil { // a client may read what we do not
		return nil, capability.Wrap(capability.CodeInvalidInput, "execute", p.record.Name+" asks something that cannot be read", err).
			With("invalid_question", "")
	}
	if asked.Mode == "url" {
		if to, err := url.Parse(asked.URL); err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http" {
			return nil, capability.Errorf(capability.CodeInvalidInput, "execute", "%s asks for an address to be opened that is not a web address",
				p.record.Name).With("invalid_question", "")
		}
	}
	err := members(params, func(name string, value []byte) {
		var text string
		if name == "message" && out == nil && jsonx.Unmarshal(value, &text) == nil {
			at := cap(params) - cap(value)
			out = append(out, params[:at]...)
			out = append(appendString(out, "["+p.record.Name+"] "+text), params[at+len(value):]...)
		}
	})
	if err != nil || out == nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "execute", p.record.Name+" asks something without a message",
			err).With("invalid_question", "")
	}
	return out, nil
}

// opens returns an error of the upstream that lists URLs to be opened first with the
// upstream's name in their messages, because a person decides by them. Its list is removed
// unless each element is a request in the mode url for a web address.
func (p *provider) opens(err error) error {
	failure, ok := errors.AsType[*capability.Error](err)
	if !ok || failure.Details["code"] != int64(mcpwire.CodeURLElicitation) {
		return err
	}
	data, _ := failure.Details["data"].(json.RawMessage)
	delete(failure.Details, "data")
	var list struct {
		Elicitations []json.RawMessage `json:"elicitations"`
	}
	if jsonx.Unmarshal(data, &list) != nil || len(list.Elicitations) == 0 || len(list.Elicitations) > maxOpens {
		return err
	}
	out := []byte(`{"elicitations":[`)
	for i, request := range list.Elicitations {
		var asked struct {
			Mode string `json:"mode"`
		}
		if jsonx.Unmarshal(request, &asked) != nil || asked.Mode != "url" {
			return err
		}
		named, badly := p.named(request)
		if badly != nil {
			return err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, named...)
	}
	return failure.Detail("data", json.RawMessage(append(out, "]}"...)))
}

// question returns the parameters with which a question may be sent to a caller. Sampling
// that the record does not allow is denied; an unknown method is failed.
func (p *provider) question(method string, params json.RawMessage) (json.RawMessage, error) {
	switch method {
	case "elicitation/create":
		return p.named(params)
	case "sampling/createMessage":
		if p.record.Sampling != record.Forward {
			return nil, capability.Errorf(capability.CodeDenied, "execute", "%s may not ask for samples", p.record.Name).
				With("sampling_denied", "an operator allows it by adding the upstream with --sampling forward")
		}
		return params, nil
	case "roots/list":
		// Only a server that may use the caller's model may see its directories.
		if p.record.Sampling == record.Forward {
			return params, nil
		}
	}
	// Methods of later revisions are not forwarded.
	return nil, capability.Errorf(capability.CodeFailed, "execute", "%s asks for something that is not offered here: %.64q", p.record.Name,
		method).With("upstream_error", "")
}

// asks returns an input_required result whose questions are prepared by question. If one
// must not be sent, the error is that of question.
func (p *provider) asks(result json.RawMessage) (json.RawMessage, error) {
	requests := memberOf(result, "inputRequests")
	if len(requests) == 0 {
		return result, nil
	}
	out, fault := []byte{'{'}, error(nil)
	err := members(requests, func(name string, request []byte) {
		var method string
		_ = jsonx.Unmarshal(memberOf(request, "method"), &method)
		params := memberOf(request, "params")
		asked, err := p.question(method, params)
		if err != nil {
			fault = err
			return
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendString(out, name), ':')
		if params == nil {
			out = append(out, request...)
			return
		}
		at := cap(request) - cap(params)
		out = append(append(append(out, request[:at]...), asked...), request[at+len(params):]...)
	})
	if err != nil {
		fault = capability.Wrap(capability.CodeFailed, "execute", p.record.Name+" asks in an unknown form", err).With("upstream_error", "")
	}
	if fault != nil {
		return nil, fault
	}
	at := cap(result) - cap(requests)
	return append(append(append([]byte(nil), result[:at]...), append(out, '}')...), result[at+len(requests):]...), nil
}
