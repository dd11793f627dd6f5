package mcpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// answer handles a request that may take long, and returns its outcome. For a modern
// client it first opens the returned state and continues the call that the state names.
func (s *Surface) answer(ctx context.Context, r *http.Request, c caller, m *mcpwire.Message, x *exchange.Exchange) exchange.Outcome {
	if !x.Era.Modern {
		return s.carry(ctx, c, m, x.Era, voice{heard: x.ProgressFunc(), ask: x.Ask})
	}
	if f := checkResponses(m.Params.Responses); f != nil {
		return exchange.Outcome{Fault: f}
	}
	x.Relay = &capability.Relay{Capabilities: c.abilities.raw, Responses: m.Params.Responses}
	if m.Params.State != nil {
		st, ok := s.sealer.Open(m.Params.State, c.digest(), callDigest(m))
		if !ok {
			return exchange.Outcome{Fault: staleState()}
		}
		switch st.Kind {
		case stateParked:
			return s.resume(r, c, m, x, st)
		case stateConsent:
			x.Relay.Responses = nil
			if out, over := s.consented(ctx, c, m, x.Era, st); over {
				return out
			}
		case stateRelayed:
			c.pinned = capability.ID(st.Of)
			x.Relay.State = json.RawMessage(st.Inner)
		}
	}
	if m.Method == "tools/call" && s.listOf(c).onlyTask[m.Params.Name] && (s.cfg.Tasks == nil || !declaresTasks(c.abilities.raw)) {
		return exchange.Outcome{Fault: needsTasks()}
	}
	if c.abilities.any() || s.mayTask(c, m) {
		return s.answerAsking(r, c, m, x)
	}
	return s.carry(ctx, c, m, x.Era, voice{heard: x.ProgressFunc(), relay: x.Relay})
}

// carry handles one request. Calls to v's members are serial, and none of them happens
// after carry has returned.
func (s *Surface) carry(ctx context.Context, c caller, m *mcpwire.Message, e mcpwire.Era, v voice) exchange.Outcome {
	switch m.Method {
	case "tools/call":
		return s.call(ctx, c, m, e, v)
	case "prompts/get":
		return s.getPrompt(ctx, c, m, e, v)
	case "resources/read":
		return s.readResource(ctx, c, m, e, v)
	case "completion/complete":
		return s.complete(ctx, c, m, e)
	}
	return exchange.Outcome{Fault: unknownMethod(m.Method)}
}

// carryApart is carry for a goroutine of the surface. It turns a panic into a failed call,
// because a panic there would otherwise end the server.
func (s *Surface) carryApart(ctx context.Context, c caller, m *mcpwire.Message, e mcpwire.Era, v voice, p *parked) (out exchange.Outcome) {
	defer func() {
		broken := recover()
		if broken == nil {
			return
		}
		s.cfg.Logger.Error("a call broke", "method", m.Method, "panic", broken, "stack", string(debug.Stack()))
		p.ended(invoke.Reply{}, capability.Errorf(capability.CodeInternal, "mcp", "the server made a mistake in this call"))
		out = exchange.Outcome{Fault: &mcpwire.Fault{
			Status: http.StatusInternalServerError, Code: jsonrpc.CodeInternal,
			Message: "the server made a mistake in this call",
		}}
	}()
	return s.carry(ctx, c, m, e, v)
}

func unknownMethod(method string) *mcpwire.Fault {
	return &mcpwire.Fault{Status: http.StatusNotFound, Code: jsonrpc.CodeMethodNotFound, Message: "there is no method " + method}
}

// call handles tools/call.
func (s *Surface) call(ctx context.Context, c caller, m *mcpwire.Message, e mcpwire.Era, v voice) exchange.Outcome {
	p := &m.Params
	if !p.Named {
		return exchange.Outcome{Fault: mcpwire.InvalidParams("params.name must be a string")}
	}
	if p.Arguments != nil && p.Arguments[0] != '{' {
		if string(p.Arguments) != "null" {
			return exchange.Outcome{Fault: mcpwire.InvalidParams("params.arguments must be an object")}
		}
		p.Arguments = nil
	}
	inv := c.invocation()
	inv.Input = p.Arguments
	if c.pinned != "" {
		if _, arguments, err := s.target(c, p); err == nil {
			inv.Input = arguments // the provider does not accept a selector as an argument in this round either
		}
		inv.Target = capability.Target{Capability: c.pinned}
	} else {
		target, arguments, err := s.target(c, p)
		if err != nil {
			return s.failed(ctx, p, e, invoke.Reply{}, err)
		}
		inv.Target, inv.Input = target, arguments
	}
	reply, out, err := s.invoke(ctx, c, m, v, inv)
	switch {
	case out != nil:
		return *out
	case err != nil:
		if out, ok := urlFirst(c, e, err); ok {
			return out
		}
		return s.failed(ctx, p, e, reply, s.forbidden(c, p.Name, inv.Target, err))
	}
	return s.succeeded(ctx, c, p, e, reply)
}

// forbidden returns err, or, if a rule hides a tool that was listed to the caller before, an error that a
// model can act on. It may not mistake that for a wrong name, and look for another way.
func (s *Surface) forbidden(c caller, name string, target capability.Target, err error) error {
	failure := capability.AsError(err)
	if failure.Code != capability.CodeUnknownCapability || failure.Reason != "" || failure.Target != target.String() ||
		!s.leases.Shown(c.lease(), name) {
		return err
	}
	return capability.Errorf(capability.CodeUnknownCapability, "mcp", "a rule of this server forbids %q, which was permitted before", name).
		With(capability.ReasonRetracted, "do not repeat the call: do something else, or ask the user, who can permit it")
}

// target returns the target that a tool's name has for the caller, and the arguments
// without the selector.
func (s *Surface) target(c caller, p *mcpwire.Params) (capability.Target, json.RawMessage, error) {
	if action := s.ownName(c, p.Name); action != nil {
		return capability.Target{Action: action.Canonical}, p.Arguments, nil
	}
	agent, _, err := s.cfg.Engine.Agent(c.invocation())
	if err != nil {
		return capability.Target{}, nil, err
	}
	named, err := s.leases.Resolve(c.lease(), agent, c.view.spelling(), p.Name)
	if err != nil {
		if capability.CodeOf(err) == capability.CodeUnknownCapability {
			if action := s.appTool(c, p.Name); action != nil {
				return capability.Target{Action: action.Canonical}, p.Arguments, nil
			}
		}
		return capability.Target{}, nil, err
	}
	arguments, selector := p.Arguments, capability.Selector(nil)
	if named.Action != nil {
		if arguments, selector, err = named.Action.CutSelector(arguments); err != nil {
			return capability.Target{}, nil, err
		}
	}
	return capability.Target{Action: named.Canonical, Select: selector}, arguments, nil
}

// invoke runs the call through the engine. If the call requires an approval that the caller
// itself may give, invoke requests it from the caller. For a modern client that ends this
// round of the call, and out is set.
func (s *Surface) invoke(ctx context.Context, c caller, m *mcpwire.Message, v voice,
	inv capability.Invocation,
) (reply invoke.Reply, out *exchange.Outcome, err error) {
	inv.Progress, inv.Ask, inv.Relay = v.heard, v.ask, v.relay
	m.Params.Meta.PassOn(&inv, m.Traceparent)
	if v.began != nil {
		inv.ID, inv.Keep = s.cfg.Engine.NewID(), new(tasks.Keeper)
		v.began(inv)
		defer func() { v.ended(reply, err) }()
	}
	reply, err = s.cfg.Engine.Invoke(ctx, inv)
	failure := capability.AsError(err)
	if failure == nil || failure.Code != capability.CodeApprovalRequired {
		return reply, nil, err
	}
	if failure.Reason == capability.ReasonInputRequired {
		if v.relay != nil && len(reply.Result) > 0 {
			if asked, ok := s.relayed(c, m, reply.Capability, reply.Result); ok {
				return reply, &asked, nil
			}
		}
		return reply, nil, err
	}
	approval, _ := failure.Details["approval"].(string)
	if failure.Details["channel"] != string(policy.ChannelClient) || approval == "" || !c.abilities.form {
		if v.began == nil && s.approvalWait(c.who.ID) > 0 && approval != "" { // else the call becomes a task
			reply, err = s.hold(ctx, c.who, v, inv, approval, reply, err)
		}
		return reply, nil, err
	}
	if v.relay != nil {
		asked := s.question(confirmation(failure), requestState{Kind: stateConsent, Who: c.digest(), Call: callDigest(m), Of: approval})
		return reply, &asked, nil
	}
	if v.ask == nil {
		return reply, nil, err
	}
	answer, askErr := v.ask(ctx, confirmation(failure))
	if askErr != nil {
		return reply, nil, err // it may still be approved elsewhere, as the text explains
	}
	if err := s.decide(ctx, c, approval, answer); err != nil {
		return reply, nil, err
	}
	inv.ID = "" // it is another call
	reply, err = s.cfg.Engine.Invoke(ctx, inv)
	return reply, nil, err
}

// decide answers an approval with the decision of the person at the client.
func (s *Surface) decide(ctx context.Context, c caller, approval string, answer json.RawMessage) error {
	decision := decisionOf(answer)
	if _, _, err := s.cfg.Policy.Answer(ctx, c.who, approval, decision); err != nil {
		return err
	}
	if decision == policy.DecideDeny {
		return capability.Errorf(capability.CodeDenied, "mcp", "the person at this client said no (%s)", approval).
			With("confirmation_rejected", "do something else").Detail("approval", approval)
	}
	return nil
}

// consented processes the answer that a modern client sends; over reports whether the call
// ends with it. Without an answer the call continues, and the question is sent again.
func (s *Surface) consented(ctx context.Context, c caller, m *mcpwire.Message, e mcpwire.Era,
	st requestState,
) (out exchange.Outcome, over bool) {
	answer := responseTo(m.Params.Responses)
	if answer == nil {
		return exchange.Outcome{}, false
	}
	if err := s.decide(ctx, c, st.Of, answer); err != nil {
		return s.failed(ctx, &m.Params, e, invoke.Reply{}, err), true
	}
	return exchange.Outcome{}, false
}

// invocation returns an invocation by this caller, without a target.
func (c caller) invocation() capability.Invocation {
	return capability.Invocation{
		Surface: "mcp", Client: c.client, Principal: c.who, Session: c.session, Audience: capability.AudienceAgent, Within: c.view.Within(),
	}
}

// unknownTool returns the same error for a tool that is absent and one that is hidden.
func unknownTool(name string) *mcpwire.Fault { return mcpwire.InvalidParams("unknown tool %q", name) }

// succeeded converts the result of a call to that of tools/call. A result above maxResult
// is stored and replaced with a link if possible. A result that is not JSON, or not the
// object that the tool declares, becomes a failure.
func (s *Surface) succeeded(ctx context.Context, c caller, p *mcpwire.Params, e mcpwire.Era, reply invoke.Reply) exchange.Outcome {
	value := bytes.TrimSpace(reply.Result)
	if len(value) == 0 {
		value = []byte("null")
	}
	switch {
	case len(value) > maxResult:
		if out, ok := s.tooLarge(ctx, c, e, reply, value, s.listOf(c).output[p.Name]); ok {
			return out
		}
		return s.failed(ctx, p, e, reply, capability.Errorf(capability.CodeTooLarge, "mcp",
			"the call was carried out, but its result has %d bytes and an answer holds %d at most", len(value), maxResult).
			With("output_limit", "ask for a smaller part of it"))
	case returnsMCP(reply.Provider):
		s.remember(c, reply)
		if dst, ok := appendUpstreamResult(make([]byte, 0, len(value)+len(value)/8+320), value, e, invocationMeta(reply)); ok {
			return exchange.Outcome{Result: dst}
		}
		return s.failed(ctx, p, e, reply, capability.Errorf(capability.CodeFailed, "mcp",
			"the upstream's answer is not a result").With("output_schema_violation", ""))
	case !jsontext.Value(value).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)):
		s.cfg.Logger.Error("a provider answered with something that is not JSON", "inv", reply.Invocation, "cap", string(reply.Capability))
		return s.failed(ctx, p, e, reply, capability.Errorf(capability.CodeFailed, "mcp",
			"the provider's answer is not JSON").With("output_schema_violation", ""))
	case value[0] != '{' && s.listOf(c).output[p.Name]:
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
	return exchange.Outcome{Result: e.AppendClosing(dst, invocationMeta(reply))}
}

// failed converts an error to the protocol's form: a protocol error, no answer, or a
// result that a model can act on.
func (s *Surface) failed(ctx context.Context, p *mcpwire.Params, e mcpwire.Era, reply invoke.Reply, err error) exchange.Outcome {
	failure := capability.AsError(err)
	if out, ok := s.ownWords(p, e, reply, failure); ok {
		return out
	}
	switch failure.Code {
	case capability.CodeUnknownCapability:
		if failure.Reason != capability.ReasonRetracted { // a model can act on that one
			f := unknownTool(p.Name)
			if n := s.missing(); n > 0 {
				f.Message += ": " + missingText(n)
			}
			return exchange.Outcome{Fault: f}
		}
	case capability.CodeDenied:
		if failure.Reason == invoke.ReasonScope {
			effect, _ := failure.Details["effect"].(string)
			return exchange.Outcome{
				Narrow: capability.Effect(effect),
				Fault:  &mcpwire.Fault{Status: http.StatusForbidden, Code: codeRefused, Message: failure.Message},
			}
		}
	case capability.CodeInternal:
		f := &mcpwire.Fault{Status: http.StatusOK, Code: jsonrpc.CodeInternal, Message: failure.Message}
		if reply.Invocation != "" && !strings.Contains(f.Message, reply.Invocation) {
			f.Message += "; the incident is " + reply.Invocation
		}
		return exchange.Outcome{Fault: f}
	case capability.CodeCancelled:
		// The call was canceled by the client itself, or by the end of its modern request. An
		// operator may cancel too, and then the client must be notified.
		if cause := context.Cause(ctx); errors.Is(cause, errWithdrawn) || (e.Modern && cause != nil) {
			return exchange.Outcome{Silent: true}
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
		note = jsonx.AppendString([]byte(`{"code":`), string(failure.Code))
		note = append(note, '}')
	}
	dst := append([]byte(nil), `{"content":[{"type":"text","text":`...)
	dst = jsonx.AppendString(dst, text)
	dst = append(dst, `}],"isError":true`...)
	own := append([]byte(`"junctor/error":`), note...)
	if inv := invocationMeta(reply); inv != nil {
		own = append(append(own, ','), inv...)
	}
	return exchange.Outcome{Result: e.AppendClosing(dst, own)}
}

// ownWords returns an upstream's own description of its failure: a result with isError,
// unchanged, or the protocol error that clients act on.
func (s *Surface) ownWords(p *mcpwire.Params, e mcpwire.Era, reply invoke.Reply, failure *capability.Error) (exchange.Outcome, bool) {
	if out, ok := upstreamFault(e, failure); ok && out.Fault.Code == mcpwire.CodeMissingCapability {
		return out, true
	}
	if !returnsMCP(reply.Provider) || len(reply.Result) == 0 || len(reply.Result) > maxResult {
		return exchange.Outcome{}, false
	}
	var dst []byte
	var ok bool
	switch failure.Reason {
	case capability.ReasonToolError:
		dst, ok = appendUpstreamResult(nil, reply.Result, e, invocationMeta(reply))
	case capability.ReasonOutputSchema: // the text is returned, without the part that violates the schema
		dst, ok = appendUpstreamResult(nil, reply.Result, e, invocationMeta(reply), "structuredContent", "isError")
		dst = append(dst[:len(dst)-1], `,"isError":true}`...)
	}
	return exchange.Outcome{Result: dst}, ok
}

// invocationMeta lets an answer be found in the audit.
func invocationMeta(reply invoke.Reply) []byte {
	if reply.Invocation == "" {
		return nil
	}
	return jsonx.AppendString([]byte(`"junctor/invocation":`), reply.Invocation)
}

// appendText appends the JSON value as the text of a content block.
func appendText(dst []byte, value json.RawMessage) []byte {
	if out, err := jsontext.AppendQuote(dst, []byte(value)); err == nil {
		return out
	}
	return jsonx.AppendString(dst, strings.ToValidUTF8(string(value), "\uFFFD"))
}
