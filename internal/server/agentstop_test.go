package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// /stop ends a run while its model answers and while its tool works: the request to the model and the
// call end with it.
func TestStopEndsWhatTheAgentDoes(t *testing.T) {
	t.Parallel()
	for name, tool := range map[string]bool{"while the model answers": false, "while a tool works": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, over := make(chan struct{}), make(chan struct{})
			var once sync.Once
			work := func(ctx context.Context) {
				once.Do(func() {
					close(begun)
					<-ctx.Done()
					close(over)
				})
			}
			model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					t.Errorf("the request to the model: got %v, want no error", err)
				}
				w.Header().Set("Content-Type", "text/event-stream")
				delta := `{"content":"I begin. "}`
				if tool {
					delta = `{"tool_calls":[{"index":0,"id":"c1","function":{"name":"far__wait","arguments":"{}"}}]}`
				}
				fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":%s}]}\n\n", delta)
				w.(http.Flusher).Flush()
				if !tool {
					work(r.Context())
				}
				io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n")
			}))
			t.Cleanup(model.Close)
			s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
			s.AddTool(&mcp.Tool{
				Name: "wait", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
			}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				work(ctx)
				return nil, ctx.Err()
			})
			web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
			t.Cleanup(web.Close)
			n := serve(t, openHome(t), "JUNCTOR_MODEL_URL="+model.URL+"/v1", "JUNCTOR_MODEL_NAME=tiny")
			if a := n.request(t, http.MethodPost, "/api/v1/upstreams", n.token(t, "admin"),
				fmt.Sprintf(`{"name":"far","url":%q,"private_network":true,"hints_trusted":true}`, web.URL)); a.status != http.StatusCreated {
				t.Fatalf("upstream: got %d %s, want it added", a.status, a.body)
			}
			said := make(chan error, 1)
			go func() {
				said <- n.admin.Do(t.Context(), http.MethodPost, "/api/v1/chat/messages", map[string]any{"session": "s1", "text": "go"}, nil)
			}()
			select {
			case <-begun:
			case err := <-said:
				t.Fatalf("the message: got %v before the work has begun, want it to wait", err)
			}
			n.tell(t, "s1", "/stop")
			<-over
			<-said
			var list struct{ Runs []agentRun }
			if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/agent/runs?session=s1", nil, &list); err != nil || len(list.Runs) != 1 {
				t.Fatalf("runs: got %+v and %v, want one", list, err)
			}
			if got := n.ended(t, list.Runs[0].ID); got.State != "cancelled" {
				t.Errorf("the run: got %+v, want it cancelled", got)
			}
			n.verify(t)
		})
	}
}
