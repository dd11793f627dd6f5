package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// newLongCalls returns the address of a server of the revision 2025-11-25, written by hand: one tool reports
// progress in numbers with trailing zeros, and one only runs as a task.
func newLongCalls(t *testing.T) string {
	t.Helper()
	var looks atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name string
				Task json.RawMessage
				Meta struct {
					ProgressToken json.RawMessage `json:"progressToken"`
				} `json:"_meta"`
			}
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		result := func(text string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, text)
		}
		tool := func(name, more string) string {
			return `{"name":"` + name + `","description":"A tool.","inputSchema":{"type":"object"}` + more + `}`
		}
		switch m.Method {
		case "initialize":
			result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},` +
				`"serverInfo":{"name":"long","version":"1"}}`)
		case "tools/list":
			result(`{"tools":[` + tool("steps", "") + `,` + tool("slow", `,"execution":{"taskSupport":"required"}`) + `]}`)
		case "tasks/get":
			status := "working"
			if looks.Add(1) > 2 {
				status = "completed"
			}
			result(`{"taskId":"t-1","status":"` + status + `","createdAt":"2026-01-01T00:00:00Z","ttl":60000,"pollInterval":20}`)
		case "tasks/result":
			result(`{"content":[{"type":"text","text":"slowly"}]}`)
		case "tools/call":
			switch {
			case m.Params.Name == "slow" && m.Params.Task != nil:
				result(`{"task":{"taskId":"t-1","status":"working","createdAt":"2026-01-01T00:00:00Z","ttl":60000,"pollInterval":20}}`)
			case m.Params.Name == "steps":
				w.Header().Set("Content-Type", "text/event-stream")
				for _, n := range []string{"0.50", "1.50", "3.0"} {
					fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":"+
						"{\"progressToken\":%s,\"progress\":%s,\"total\":3.00}}\n\n", m.Params.Meta.ProgressToken, n)
				}
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"stepped\"}]}}\n\n", m.ID)
			default:
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"not so"}}`, m.ID)
			}
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// raw is a client whose transcript is the bytes that it received.
type raw struct {
	t                   *testing.T
	url, token, session string
}

func newRawClient(t *testing.T, url, token string) *raw {
	t.Helper()
	c := &raw{t: t, url: url, token: token}
	c.post("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`)
	return c
}

func (c *raw) post(method, params string) string {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url,
		strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`))
	ok(c.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+c.token)
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	resp, err := http.DefaultClient.Do(req)
	ok(c.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ok(c.t, err)
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	return string(body)
}

func TestLongCallsAreAsWithoutJunctor(t *testing.T) {
	w := newPlane(t, differentialConfig)
	url := newLongCalls(t)
	w.cli("upstreams", "add", "long", "--url", url, "--local")
	direct, through := newRawClient(t, url, ""), newRawClient(t, w.url+"/all", w.tok)

	numbers := regexp.MustCompile(`"(?:progress|total)":[0-9.]+`)
	steps := `{"name":"steps","_meta":{"progressToken":1}}`
	want := strings.Join(numbers.FindAllString(direct.post("tools/call", steps), -1), " ")
	if got := strings.Join(numbers.FindAllString(through.post("tools/call", steps), -1), " "); got != want || want == "" {
		t.Errorf("progress through junctor = %s, want as without it: %s", got, want)
	}

	// Directly a client makes a task of the call itself; junctor does it for clients that cannot.
	direct.post("tools/call", `{"name":"slow","task":{}}`)
	text := regexp.MustCompile(`"content":\[[^]]*\]`)
	want = text.FindString(direct.post("tasks/result", `{"taskId":"t-1"}`))
	if got := through.post("tools/call", `{"name":"slow"}`); text.FindString(got) != want || want == "" {
		t.Errorf("tool that requires a task through junctor = %s, want as without it: %s", got, want)
	}
}
