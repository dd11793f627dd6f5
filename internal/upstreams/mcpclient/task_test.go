package mcpclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

// taskServer returns a legacy server with one tool, which only runs as a task.
func taskServer(t *testing.T, states ...string) (s *raw, seen *atomic.Value) {
	seen = &atomic.Value{}
	seen.Store("")
	looks := atomic.Int32{}
	state := func(n int32) string {
		return fmt.Sprintf(`"taskId":"t-1","createdAt":"2026-01-01T00:00:00Z","ttl":60000,"pollInterval":1,"status":%q`, states[min(int(n), len(states)-1)])
	}
	return newRaw(t, "legacy", func(x call) bool {
		switch x.method {
		case "tools/call":
			if !strings.Contains(x.params, `"task":{}`) {
				x.fault(200, `{"code":-32601,"message":"this tool runs as a task"}`)
				return true
			}
			x.result(`{"task":{` + state(looks.Add(1)-1) + `}}`)
		case "tasks/get":
			x.result(`{` + state(looks.Add(1)-1) + `}`)
		case "tasks/result":
			x.result(`{"content":[{"type":"text","text":"done"}],"_meta":{"x":1.50}}`)
		case "tasks/cancel":
		default:
			return false
		}
		seen.Store(seen.Load().(string) + " " + x.method)
		return true
	}), seen
}

func TestToolThatRequiresATaskIsCalled(t *testing.T) {
	s, seen := taskServer(t, "working", "working", "completed")
	g := s.client(t)
	r := tool("x", "{}")
	if out, err := g.Call(t.Context(), r); err == nil {
		t.Errorf("Call without a task = %s, want the server's error", out)
	}
	r.Task = true
	out, err := g.Call(t.Context(), r)
	if want := `{"content":[{"type":"text","text":"done"}],"_meta":{"x":1.50}}`; err != nil || string(out) != want {
		t.Errorf("Call = %s, %v, want %s", out, err, want)
	}
	if got, want := seen.Load(), " tools/call tasks/get tasks/get tasks/result"; got != want {
		t.Errorf("requests: got %q, want %q", got, want)
	}
}

func TestHostileTasksEndTheirCall(t *testing.T) {
	for _, tt := range []struct{ name, task string }{
		{"no id", `{"status":"working"}`},
		{"an id that is a number", `{"taskId":1,"status":"working"}`},
		{"a long id", `{"taskId":"` + strings.Repeat("x", 1000) + `","status":"working"}`},
		{"an unknown state", `{"taskId":"t","status":"asleep"}`},
		{"no state", `{"taskId":"t"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newRaw(t, "legacy", func(x call) bool {
				if x.method != "tools/call" {
					return false
				}
				x.result(`{"task":` + tt.task + `}`)
				return true
			})
			r := tool("x", "{}")
			r.Task = true
			_, err := s.client(t).Call(t.Context(), r)
			if capability.CodeOf(err) != capability.CodeFailed {
				t.Errorf("Call = %v, want the code failed", err)
			}
		})
	}
}

func TestTaskIsCancelledWithItsCall(t *testing.T) {
	cancelled := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	s := newRaw(t, "legacy", func(x call) bool {
		switch x.method {
		case "tools/call":
			x.result(`{"task":{"taskId":"t-1","status":"working","pollInterval":1}}`)
		case "tasks/get":
			cancel()
			x.result(`{"taskId":"t-1","status":"working","pollInterval":30000}`)
		case "tasks/cancel":
			cancelled <- x.params
			x.result(`{"taskId":"t-1","status":"cancelled"}`)
		default:
			return false
		}
		return true
	})
	r := tool("x", "{}")
	r.Task = true
	if _, err := s.client(t).Call(ctx, r); capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("Call = %v, want the code cancelled", err)
	}
	if got := await(t, "cancellation", cancelled); !strings.Contains(got, `"taskId":"t-1"`) {
		t.Errorf("tasks/cancel: got %s, want the id of the task", got)
	}
}

func TestTaskThatRequiresInputAsks(t *testing.T) {
	s := newRaw(t, "legacy", nil)
	answered := make(chan string, 1)
	s.serve = func(x call) bool {
		switch x.method {
		case "tools/call":
			x.result(`{"task":{"taskId":"t-1","status":"input_required"}}`)
		case "tasks/result":
			say := x.events()
			say("data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"elicitation/create\",\"params\":{\"message\":\"name?\"}}\n\n")
			select {
			case <-answered:
			case <-x.r.Context().Done():
			}
			say("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", x.id)
		case "":
			if strings.Contains(string(x.body), `"id":"q"`) {
				answered <- string(x.body)
				x.w.WriteHeader(202)
				return true
			}
			return false
		default:
			return false
		}
		return true
	}
	r := tool("x", "{}")
	r.Task = true
	asked := 0
	r.Ask = func(_ context.Context, q capability.Question) (json.RawMessage, error) {
		if asked++; q.Method != "elicitation/create" {
			return nil, errors.New("another question")
		}
		return json.RawMessage(`{"action":"decline"}`), nil
	}
	if out, err := s.client(t).Call(t.Context(), r); err != nil || string(out) != `{"content":[]}` || asked != 1 {
		t.Errorf("Call = %s, %v after %d questions, want the result after one question", out, err, asked)
	}
}
