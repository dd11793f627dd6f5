package mcpserve

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// Tasks stores calls that take longer than a request.
type Tasks interface {
	Adopt(ctx context.Context, cancel context.CancelCauseFunc, inv capability.Invocation, o tasks.Options) (*tasks.Running, tasks.Task, error)
	Get(ctx context.Context, owner, id string) (tasks.Task, error)
	Answer(ctx context.Context, who capability.Principal, id, key string, answer json.RawMessage, docs ...json.RawMessage) (tasks.Task, error)
	Cancel(ctx context.Context, owner, id string) (tasks.Task, error)
	Seen(who capability.Principal)
}

const extensionTasks = "io.modelcontextprotocol/tasks"

// declaresTasks reports whether the request's client accepts tasks as answers.
func declaresTasks(capabilities json.RawMessage) bool {
	settings := mcpwire.At(capabilities, []string{"extensions", extensionTasks})
	return len(settings) > 0 && settings[0] == '{'
}

// needsTasks returns the error for a call of such a tool by a client without task support.
func needsTasks() *mcpwire.Fault {
	return &mcpwire.Fault{
		Status: http.StatusBadRequest, Code: mcpwire.CodeMissingCapability,
		Message: "this tool runs as a task: the client has to declare the extension " + extensionTasks,
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + extensionTasks + `":{}}}}`),
	}
}

// isTask reports whether a method is one of the extension's.
func isTask(method string) bool {
	switch method {
	case "tasks/get", "tasks/update", "tasks/cancel":
		return true
	}
	return false
}

// serveTask answers one of the extension's methods.
func (s *Surface) serveTask(ctx context.Context, c caller, m *mcpwire.Message, e mcpwire.Era) exchange.Outcome {
	if !declaresTasks(c.abilities.raw) {
		return exchange.Outcome{Fault: needsTasks()}
	}
	id, ok := jsonx.Text(mcpwire.At(m.Params.Raw, []string{"taskId"}))
	if !ok {
		return exchange.Outcome{Fault: mcpwire.InvalidParams("params.taskId must be a string")}
	}
	s.cfg.Tasks.Seen(c.who)
	t, err := s.cfg.Tasks.Get(ctx, c.who.ID, id)
	if err == nil && t.Surface != "mcp" && t.Kind != tasks.KindThread {
		err = capability.Errorf(capability.CodeNotFound, "tasks", "another door's") // results of other surfaces have another form
	}
	if err != nil {
		return taskFault(id, err)
	}
	done := exchange.Outcome{Result: e.AppendClosing([]byte(`{"_":0`), nil)}
	done.Result = append([]byte{'{'}, done.Result[len(`{"_":0,`):]...)
	switch m.Method {
	case "tasks/get":
		return exchange.Outcome{Result: s.appendTask(ctx, c, t, e, true)}
	case "tasks/cancel":
		if _, err := s.cfg.Tasks.Cancel(ctx, c.who.ID, id); err != nil && capability.CodeOf(err) != capability.CodeConflict {
			return taskFault(id, err)
		}
		return done
	}
	if f := checkResponses(m.Params.Responses); f != nil {
		return exchange.Outcome{Fault: f}
	}
	failed := exchange.Outcome{}
	if m.Params.Responses != nil {
		_ = jsonx.Members(m.Params.Responses, func(key string, value []byte) {
			// Unknown and answered keys are ignored (SEP-2663).
			_, err := s.cfg.Tasks.Answer(ctx, c.who, id, key, append(json.RawMessage(nil), value...))
			if code := capability.CodeOf(err); err != nil && code != capability.CodeConflict && code != capability.CodeNotFound {
				failed = taskFault(id, err)
			}
		})
	}
	if failed.Fault != nil {
		return failed
	}
	return done
}

// taskFault returns the error for a task, which is the same for a missing task and for one
// of another principal.
func taskFault(id string, err error) exchange.Outcome {
	failure := capability.AsError(err)
	switch failure.Code {
	case capability.CodeNotFound:
		return exchange.Outcome{Fault: mcpwire.InvalidParams("unknown task %q", id)}
	case capability.CodeInternal, capability.CodeFailed:
		return exchange.Outcome{Fault: &mcpwire.Fault{Status: http.StatusOK, Code: jsonrpc.CodeInternal, Message: failure.Message}}
	}
	return exchange.Outcome{Fault: &mcpwire.Fault{Status: http.StatusOK, Code: codeRefused, Message: failure.Message}}
}

// appendTask appends a task: detailed for tasks/get, else as the response of the call that
// became a task.
func (s *Surface) appendTask(ctx context.Context, c caller, t tasks.Task, e mcpwire.Era, detailed bool) []byte {
	status, result, fault := s.taskEnd(ctx, c, t, e)
	dst := []byte(`{"resultType":"task"`)
	if detailed {
		dst = []byte(`{"resultType":"complete"`)
	} else if status != "input_required" {
		status = "working" // a task that has ended since is reported by tasks/get
	}
	dst = jsonx.AppendString(append(dst, `,"taskId":`...), t.ID)
	dst = append(dst, `,"status":"`+status+`"`...)
	if t.Status != "" {
		dst = jsonx.AppendString(append(dst, `,"statusMessage":`...), t.Status)
	}
	dst = append(dst, `,"createdAt":"`+t.Created.UTC().Format(time.RFC3339Nano)+`","lastUpdatedAt":"`+
		t.Updated.UTC().Format(time.RFC3339Nano)+`","ttlMs":`...)
	dst = strconv.AppendInt(dst, max(0, t.Expires.Sub(t.Created).Milliseconds()), 10)
	dst = append(dst, `,"pollIntervalMs":`...)
	dst = strconv.AppendInt(dst, taskPollInterval.Milliseconds(), 10)
	if detailed {
		switch {
		case fault != nil:
			dst = append(dst, `,"error":{"code":`...)
			dst = strconv.AppendInt(dst, int64(fault.Code), 10)
			dst = jsonx.AppendString(append(dst, `,"message":`...), fault.Message)
			if fault.Data != nil {
				dst = append(append(dst, `,"data":`...), fault.Data...)
			}
			dst = append(dst, '}')
		case result != nil:
			dst = append(append(dst, `,"result":`...), result...)
		case status == "input_required":
			dst = append(append(dst, `,"inputRequests":`...), taskRequests(t)...)
		}
	}
	return s.closeAsking(dst)
}

func taskRequests(t tasks.Task) []byte {
	dst := []byte{'{'}
	for _, r := range t.Requests {
		value := append([]byte{'{'}, questionMembers(capability.Question{Method: r.Method, Params: r.Params})...)
		dst = jsonx.AppendMember(dst, r.Key, value)
	}
	return append(dst, '}')
}

// taskEnd returns a task's state in MCP, with its result or the protocol error with which
// it failed.
func (s *Surface) taskEnd(ctx context.Context, c caller, t tasks.Task, e mcpwire.Era) (status string, result []byte, f *mcpwire.Fault) {
	switch t.State {
	case tasks.InputRequired, tasks.Interrupted:
		return "input_required", nil, nil
	case tasks.Cancelled:
		return "cancelled", nil, nil
	case tasks.Completed, tasks.Failed, tasks.Rejected:
	default:
		return "working", nil, nil
	}
	reply := invoke.Reply{Invocation: t.Invocation, Provider: t.Provider, Result: t.Result}
	p := &mcpwire.Params{}
	var out exchange.Outcome
	if t.Error == nil {
		out = s.succeeded(ctx, c, p, e, reply)
	} else {
		if f := protocolError(t.Error); f != nil {
			return "failed", nil, f
		}
		out = s.failed(ctx, p, e, reply, t.Error)
	}
	if out.Fault != nil {
		return "failed", nil, out.Fault
	}
	return "completed", out.Result, nil
}

// protocolError returns the JSON-RPC error with which an upstream answered, or nil for
// any other failure.
func protocolError(failure *capability.Error) *mcpwire.Fault {
	if !strings.HasPrefix(failure.Reason, "upstream_") {
		return nil
	}
	switch code := failure.Details["code"].(type) {
	case int64:
		return &mcpwire.Fault{Code: int(code), Message: failure.Message}
	case float64: // out of the store
		return &mcpwire.Fault{Code: int(code), Message: failure.Message}
	}
	return nil
}
