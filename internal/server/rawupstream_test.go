package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// What a definition and a result may hold outside the schema, and that must arrive as
// it is.
const (
	rawArguments = `{"z":1.10,"n":9007199254740993,"huge":1e400,"a":"\u0000 é \ud800","m":{"b":1,"a":2}}`
	rawResult    = `"content":[{"type":"odd","n":9007199254740993,"z":1.10,"text":"\ud800"},{"type":"text","text":"a","annotations":{"priority":1.10}}],"structuredContent":{"z":1.10,"n":9007199254740993,"a":{"y":1,"x":2}},"later":[1e400]`
	rawMeta      = `"a/b":{"n":9007199254740993,"z":1.10}`
)

var rawMembers = []string{
	`"title":"Raw ☂"`, `"icons":[{"src":"https://a.example/i.png"}]`,
	`"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"n":{"const":9007199254740993}},"properties":{"z":{"type":"number","default":1.10},"a":{}}}`,
	`"outputSchema":{"type":"object","x-odd":9007199254740993}`, `"annotations":{"readOnlyHint":true,"title":"R","odd":[1.10]}`,
}

// rawUpstream is an MCP server written by hand: what it gets and sends are bytes.
type rawUpstream struct {
	modern bool
	calls  chan string   // the params of calls
	ends   chan struct{} // a call was withdrawn
	asked  chan string   // answers to questions
}

func newRawUpstream(modern bool) *rawUpstream {
	return &rawUpstream{modern: modern, calls: make(chan string, 64), ends: make(chan struct{}, 8), asked: make(chan string, 8)}
}

type rawMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
}

// answer is the result of a request; "" for a notification, or comes later.
func (u *rawUpstream) answer(m *rawMessage) string {
	tail := ""
	if u.modern {
		tail = `,"resultType":"complete","ttlMs":60000,"cacheScope":"private"`
	}
	switch m.Method {
	case "server/discover":
		if u.modern {
			return `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":60000,"cacheScope":"private"}`
		}
		return ""
	case "initialize":
		return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`
	case "tools/list":
		tool := func(name, rest string) string {
			return `{"name":"` + name + `",` + rest + `,"_meta":{` + rawMeta + `}}`
		}
		plain := `"inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}`
		return `{"tools":[` + tool("raw", strings.Join(rawMembers, ",")) + "," + tool("slow", plain) + "," + tool("ask", plain) + "," +
			tool("steps", plain) + `]` + tail + `}`
	case "tools/call":
		u.calls <- string(m.Params)
		return `{` + rawResult + `,"_meta":{` + rawMeta + `}` + strings.ReplaceAll(tail, `,"ttlMs":60000,"cacheScope":"private"`, "") + `}`
	case "ping":
		return "{}"
	}
	return ""
}

func (u *rawUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var m rawMessage
	if err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var p struct {
		Name      string
		Meta      struct{ ProgressToken json.RawMessage } `json:"_meta"`
		Responses json.RawMessage                         `json:"inputResponses"`
	}
	_ = json.Unmarshal(m.Params, &p)
	event := func(line string) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\n", line)
		_ = http.NewResponseController(w).Flush()
	}
	respond := func(result string) string {
		return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`
	}
	complete := map[bool]string{true: `,"resultType":"complete"`}[u.modern]
	switch {
	case m.Method == "":
		u.asked <- string(m.Result)
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "notifications/cancelled":
		u.ends <- struct{}{}
		w.WriteHeader(http.StatusAccepted)
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "tools/call" && p.Name == "slow":
		u.calls <- string(m.Params)
		<-r.Context().Done()
		if u.modern {
			u.ends <- struct{}{}
		}
	case m.Method == "tools/call" && p.Name == "steps":
		for i := range 3 {
			event(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":3}}`,
				p.Meta.ProgressToken, i+1))
		}
		event(respond(`{"content":[]` + complete + `}`))
	case m.Method == "tools/call" && p.Name == "ask" && u.modern && p.Responses == nil:
		event(respond(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"Which?","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"theirs"}`))
	case m.Method == "tools/call" && p.Name == "ask" && u.modern:
		event(respond(`{"content":[],"structuredContent":` + string(p.Responses) + complete + `}`))
	case m.Method == "tools/call" && p.Name == "ask":
		event(`{"jsonrpc":"2.0","id":"theirs","method":"elicitation/create","params":{"message":"Which?","requestedSchema":{"type":"object","properties":{}}}}`)
		select {
		case answer := <-u.asked:
			event(respond(`{"content":[],"structuredContent":{"k":` + answer + `}}`))
		case <-r.Context().Done():
		}
	default:
		result := u.answer(&m)
		w.Header().Set("Content-Type", "application/json")
		if m.Method == "initialize" {
			w.Header().Set("Mcp-Session-Id", "raw")
		}
		if result == "" {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
			return
		}
		_, _ = io.WriteString(w, respond(result))
	}
}

// rawStdio is the same over standard input and output, as a process of its own.
func rawStdio() error {
	u := newRawUpstream(false)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m rawMessage
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return err
		}
		if len(m.ID) == 0 || m.Method == "" {
			continue
		}
		if result := u.answer(&m); result != "" {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		} else {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", m.ID)
		}
		select {
		case <-u.calls:
		default:
		}
	}
	return in.Err()
}

func (u *rawUpstream) start(t *testing.T) string {
	t.Helper()
	web := httptest.NewServer(u)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	return web.URL
}

func heardOf[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatalf("%s did not come within a minute", what)
	}
	return v
}
