// The taskfixture command is an MCP server with the tools that the tasks scenarios of
// the conformance suite call. It knows nothing of tasks: its tools take their time,
// fail and ask, and the plane in front of it makes tasks of that.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"
)

// callDelay is longer than the plane waits before it makes a task of a call.
const callDelay = 500 * time.Millisecond

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func ask(ctx context.Context, req *mcp.CallToolRequest, what string) (string, error) {
	answer, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: what, RequestedSchema: map[string]any{
		"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}, "confirm": map[string]any{"type": "boolean"}},
	}})
	if err != nil {
		return "", err
	}
	return fmt.Sprint(answer.Action, " ", answer.Content), nil
}

// listed is a list of tools with what the SDK's type has no member for.
type listed struct {
	mcp.ResultBase
	data json.RawMessage
}

// MarshalJSON returns the list as it is.
func (l *listed) MarshalJSON() ([]byte, error) { return l.data, nil }

// markedList states which tools run as tasks or not at all.
func markedList(list *mcp.ListToolsResult, only map[string]bool) (mcp.Result, error) {
	data, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	tools, _ := doc["tools"].([]any)
	for _, t := range tools {
		if tool, ok := t.(map[string]any); ok && only[fmt.Sprint(tool["name"])] {
			tool["execution"] = map[string]any{"taskSupport": "required"}
		}
	}
	data, err = json.Marshal(doc)
	return &listed{data: data}, err
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "task-fixture", Version: "1"}, nil)
	type greeting struct {
		Name string `json:"name,omitempty"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "greet"}, func(_ context.Context, _ *mcp.CallToolRequest, in greeting) (*mcp.CallToolResult, any,
		error,
	) {
		return text("Hello, %s!", in.Name), nil, nil
	})
	type work struct {
		Seconds float64 `json:"seconds"`
		Label   string  `json:"label,omitempty"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "slow_compute"}, func(ctx context.Context, _ *mcp.CallToolRequest, in work) (*mcp.CallToolResult, any,
		error,
	) {
		if err := sleep(ctx, time.Duration(in.Seconds*float64(time.Second))); err != nil {
			return nil, nil, err
		}
		return text("computed %s", in.Label), nil, nil
	})
	only := make(map[string]bool)
	raw := func(name string, required bool, do mcp.ToolHandler) {
		only[name] = required
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, do)
	}
	raw("failing_job", true, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := sleep(ctx, callDelay); err != nil {
			return nil, err
		}
		out := text("this job always fails")
		out.IsError = true
		return out, nil
	})
	raw("protocol_error_job", false, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := sleep(ctx, callDelay); err != nil {
			return nil, err
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the job broke the protocol"}
	})
	raw("confirm_delete", false, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := sleep(ctx, callDelay); err != nil {
			return nil, err
		}
		answer, err := ask(ctx, req, "Delete it?")
		if err != nil {
			return nil, err
		}
		return text("deletion: %s", answer), nil
	})
	raw("multi_input", false, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := sleep(ctx, callDelay); err != nil {
			return nil, err
		}
		answers := make([]string, 2)
		both, ctx := errgroup.WithContext(ctx)
		for i := range answers {
			both.Go(func() (err error) {
				answers[i], err = ask(ctx, req, fmt.Sprintf("Question %d?", i+1))
				return err
			})
		}
		if err := both.Wait(); err != nil {
			return nil, err
		}
		return text("answers: %v", answers), nil
	})
	raw("test_tool_with_task", true, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, err := ask(ctx, req, "What is your name?")
		if err != nil {
			return nil, err
		}
		if err := sleep(ctx, callDelay); err != nil {
			return nil, err
		}
		return text("for %s", answer), nil
	})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, req)
			if list, ok := result.(*mcp.ListToolsResult); ok && err == nil {
				return markedList(list, only)
			}
			return result, err
		}
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	log.Fatal(http.ListenAndServe(os.Args[1], handler)) //nolint:gosec // a test on loopback
}
