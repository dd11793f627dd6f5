package upstream

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// asker passes questions on under the upstream's name, so that none can be taken for
// ours; nil if no user can be asked. Samples spend the caller's model: they are
// passed on only where the record says so.
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

// outcome is the user's decision: accept, decline or cancel; never what they said.
func outcome(answer json.RawMessage) string {
	var action string
	if jsonx.Unmarshal(memberOf(answer, "action"), &action) != nil || action != "accept" && action != "decline" && action != "cancel" {
		return "answered"
	}
	return action
}

// named puts the upstream's name before the message of a question.
func (p *provider) named(params json.RawMessage) (json.RawMessage, error) {
	var out []byte
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

// question is a question of the upstream as it may be put to a caller.
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
		// A caller's directories go only to a server that is trusted with its model.
		if p.record.Sampling == record.Forward {
			return params, nil
		}
	}
	// Whatever comes to be asked some day does not go to a client by itself.
	return nil, capability.Errorf(capability.CodeFailed, "execute", "%s asks for something that is not offered here: %.64q", p.record.Name,
		method).With("upstream_error", "")
}

// asks is an input_required result whose questions are those that may be put.
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
		fault = capability.Wrap(capability.CodeFailed, "execute", p.record.Name+" asks in a form that is none", err).With("upstream_error", "")
	}
	if fault != nil {
		return nil, fault
	}
	at := cap(result) - cap(requests)
	return append(append(append([]byte(nil), result[:at]...), append(out, '}')...), result[at+len(requests):]...), nil
}
