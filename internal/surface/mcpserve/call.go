package mcpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/invoke"
	"github.com/junctor-run/junctor/internal/jsonx"
)

// maxResult is the largest result that is put into an answer: more would not fit
// into what a model can read.
const maxResult = 1 << 20

// outcome is the end of a call; exactly one of its members is set.
type outcome struct {
	result []byte
	fault  *fault
	silent bool // the client withdrew it: nothing more is sent
}

// call carries out tools/call. progress may be nil; it is called serially, and
// not after call has returned.
func (s *Surface) call(ctx context.Context, c caller, p *params, e era, progress func(capability.Chunk)) outcome {
	if !p.named {
		return outcome{fault: invalidParams("params.name must be a string")}
	}
	if p.arguments != nil && p.arguments[0] != '{' {
		if string(p.arguments) != "null" {
			return outcome{fault: invalidParams("params.arguments must be an object")}
		}
		p.arguments = nil
	}
	inv := c.invocation()
	agent, _, err := s.cfg.Engine.Agent(inv)
	if err != nil {
		return s.failed(ctx, p, e, invoke.Reply{}, err)
	}
	named, err := s.leases.Resolve(c.lease(), agent, spelling(), p.name)
	if err != nil {
		return s.failed(ctx, p, e, invoke.Reply{}, err)
	}
	arguments, selector := p.arguments, capability.Selector(nil)
	if named.Action != nil {
		if arguments, selector, err = named.Action.CutSelector(arguments); err != nil {
			return s.failed(ctx, p, e, invoke.Reply{}, err)
		}
	}
	inv.Target = capability.Target{Action: named.Canonical, Select: selector}
	inv.Input, inv.Progress = arguments, progress
	reply, err := s.cfg.Engine.Invoke(ctx, inv)
	if err != nil {
		return s.failed(ctx, p, e, reply, err)
	}
	return s.succeeded(ctx, c, p, e, reply)
}

// invocation is a call of this caller, without its target.
func (c caller) invocation() capability.Invocation {
	return capability.Invocation{
		Surface: "mcp", Client: c.client, Principal: c.who, Session: c.session, Audience: capability.AudienceAgent,
	}
}

// unknownTool is the one answer for a tool that is absent or invisible.
func unknownTool(name string) *fault { return invalidParams("unknown tool %q", name) }

func (s *Surface) succeeded(ctx context.Context, c caller, p *params, e era, reply invoke.Reply) outcome {
	value := bytes.TrimSpace(reply.Result)
	if len(value) == 0 {
		value = []byte("null")
	}
	switch {
	case len(value) > maxResult:
		return s.failed(ctx, p, e, reply, capability.Errorf(capability.CodeTooLarge, "mcp",
			"the call was carried out, but its result has %d bytes and an answer holds %d at most", len(value), maxResult).
			With("output_limit", "ask for a smaller part of it"))
	case !jsontext.Value(value).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)):
		s.cfg.Logger.Error("a provider answered with something that is not JSON", "inv", reply.Invocation, "cap", string(reply.Capability))
		return s.failed(ctx, p, e, reply, capability.Errorf(capability.CodeFailed, "mcp", "the provider's answer is not JSON").With("output_schema_violation", ""))
	case value[0] != '{' && s.listOf(c).output[p.name]:
		return s.failed(ctx, p, e, reply, capability.Errorf(capability.CodeFailed, "mcp",
			"the call was carried out, but its result is not the object that the tool promises: %.200s", value).With("output_schema_violation", ""))
	}
	dst := make([]byte, 0, 2*len(value)+len(value)/8+320)
	dst = append(dst, `{"content":[{"type":"text","text":`...)
	dst = appendText(dst, value)
	dst = append(dst, `}]`...)
	if value[0] == '{' {
		dst = append(dst, `,"structuredContent":`...)
		dst = append(dst, value...)
	}
	return outcome{result: e.appendClosing(dst, invocationMeta(reply))}
}

// failed turns an error into what the protocol has for it (spec/README section
// 4): a protocol error, silence, or a result that a model can act on.
func (s *Surface) failed(ctx context.Context, p *params, e era, reply invoke.Reply, err error) outcome {
	failure := capability.AsError(err)
	switch failure.Code {
	case capability.CodeUnknownCapability:
		if failure.Reason != "capability_retracted" { // a model can act on that one
			return outcome{fault: unknownTool(p.name)}
		}
	case capability.CodeInternal:
		f := &fault{status: http.StatusOK, code: codeInternal, message: failure.Message}
		if reply.Invocation != "" && !strings.Contains(f.message, reply.Invocation) {
			f.message += "; the incident is " + reply.Invocation
		}
		return outcome{fault: f}
	case capability.CodeCancelled:
		// Withdrawn by the client itself, or by the end of its modern request. An
		// operator may cancel too; the client must then hear of it.
		if cause := context.Cause(ctx); errors.Is(cause, errWithdrawn) || (e.modern && cause != nil) {
			return outcome{silent: true}
		}
	}
	text := failure.Message
	if failure.Hint != "" {
		text += "\n" + failure.Hint
	}
	about := map[string]any{"code": failure.Code}
	if failure.Reason != "" {
		about["reason"] = failure.Reason
	}
	if len(failure.Details) > 0 {
		about["details"] = failure.Details
	}
	if failure.RetryAfter > 0 {
		about["retry_after_ms"] = failure.RetryAfter.Milliseconds()
	}
	note, encodeErr := jsonx.Marshal(about)
	if encodeErr != nil {
		note = appendString([]byte(`{"code":`), string(failure.Code))
		note = append(note, '}')
	}
	dst := append([]byte(nil), `{"content":[{"type":"text","text":`...)
	dst = appendString(dst, text)
	dst = append(dst, `}],"isError":true`...)
	own := append([]byte(`"junctor/error":`), note...)
	if inv := invocationMeta(reply); inv != nil {
		own = append(append(own, ','), inv...)
	}
	return outcome{result: e.appendClosing(dst, own)}
}

// invocationMeta lets an answer be found in the audit.
func invocationMeta(reply invoke.Reply) []byte {
	if reply.Invocation == "" {
		return nil
	}
	return appendString([]byte(`"junctor/invocation":`), reply.Invocation)
}

// appendText appends the JSON value as the text of a content block.
func appendText(dst []byte, value json.RawMessage) []byte {
	if out, err := jsontext.AppendQuote(dst, []byte(value)); err == nil {
		return out
	}
	return appendString(dst, strings.ToValidUTF8(string(value), "\uFFFD"))
}
