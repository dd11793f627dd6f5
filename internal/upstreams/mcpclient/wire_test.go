package mcpclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
)

// strange is JSON that every careless layer changes.
const strange = `{"z":9007199254740993,"a":1.10,"big":1e400,"nul":"\u0000","half":"\ud800","x":{"b":1,"a":[ 1 , 2 ]},"":null,"slash":"\/"}`

func TestBytesSurvive(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		for _, form := range []string{"JSON", "events"} {
			t.Run(era+" "+form, func(t *testing.T) {
				got := make(chan string, 1)
				s := newRaw(t, era, func(x call) bool {
					if x.method != "tools/call" {
						return false
					}
					got <- x.params
					if form == "JSON" {
						x.result(strange)
						return true
					}
					say := x.events()
					say(": hello\r\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":%s,\"result\":%s}\n\n", x.id, strange)
					return true
				})
				g := s.client(t)
				params := `{"name":"t","arguments":` + strange + `}`
				out, err := g.Call(t.Context(), mcpclient.Request{Method: "tools/call", Name: "t", Params: json.RawMessage(" " + params + "\n")})
				if err != nil || string(out) != strange {
					t.Errorf("%s\n%s, %v\nwant no error, string(out) = %v", out, strange, err, strange)
				}
				sent := await(t, "call", got)
				if era == "legacy" && sent != params || !strings.HasPrefix(sent, params[:len(params)-1]) {
					t.Errorf(`sent %s; want not (era == "legacy" && sent != params), sent beginning with params[:len(params)-1]`, sent)
				}
			})
		}
	}
	t.Run("stdio", func(t *testing.T) {
		g := &rig{}
		newClient(t, g, program(t, "plain"))
		g.connect(t)
		out, err := g.Call(t.Context(), mcpclient.Request{
			Method: "tools/call",
			Params: json.RawMessage("{\"name\":\"echo\",\r\n\"arguments\":" + strange + "}"),
		})
		if want := `{"content":[],"params":{"name":"echo",  "arguments":` + strange + `}}`; err != nil || string(out) != want {
			t.Errorf("%s\n%s, %v\nwant no error, string(out) = %v", out, want, err, want)
		}
	})
}

func TestWhatAModernRequestSays(t *testing.T) {
	got := make(chan call, 8)
	s := newRaw(t, "modern", func(x call) bool {
		if x.method != "tools/call" {
			return false
		}
		got <- x
		x.result(`{}`)
		return true
	})
	g := s.client(t, func(c *mcpclient.Config) {
		c.Sampling = true
		c.Header = func(context.Context) (http.Header, error) {
			return http.Header{"Authorization": {"Bearer s3"}, "Mcp-Method": {"forged"}}, nil
		}
	})
	r := mcpclient.Request{
		Method: "tools/call", Name: " grün", Params: json.RawMessage(`{"name":" grün","_meta":{"evil":1},"requestState":"mine"}`),
		Meta:     json.RawMessage(`{"traceparent":"00-1","io.modelcontextprotocol/clientInfo":{"name":"forged"},"io.modelcontextprotocol/logLevel":"debug","progressToken":"theirs","foreign/x":1.10}`),
		Headers:  http.Header{"Mcp-Param-Region": {"eu"}, "Mcp-Param-City": {"Köln"}, "X-Other": {"no"}},
		Progress: func(capability.Chunk) {},
		Ask:      func(context.Context, capability.Question) (json.RawMessage, error) { return nil, errors.New("no") },
	}
	if _, err := g.Call(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	x := await(t, "call", got)
	want := `{"name":" grün","_meta":{"traceparent":"00-1","foreign/x":1.10,"progressToken":` + x.id +
		`,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"junctor","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"sampling":{}}}}`
	if x.params != want {
		t.Errorf("%s\n%s\nwant x.params = %v", x.params, want, want)
	}
	for name, want := range map[string]string{
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?IGdyw7xu?=", "Mcp-Param-Region": "eu",
		"Mcp-Param-City": "=?base64?S8O2bG4=?=", "X-Other": "", "Authorization": "Bearer s3", "Mcp-Session-Id": "",
		"Accept": "application/json, text/event-stream",
	} {
		if got := x.r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}

	r.Relay = &capability.Relay{
		Capabilities: json.RawMessage(`{"roots":{},"elicitation":{"form":{"x":1.0}},"extensions":{}}`),
		Responses:    json.RawMessage(`{"k":{"action":"accept"}}`), State: json.RawMessage(`"\ud800"`),
	}
	r.Meta, r.Progress = nil, nil
	if _, err := g.Call(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	x = await(t, "call", got)
	if !strings.HasPrefix(x.params, `{"name":" grün","inputResponses":{"k":{"action":"accept"}},"requestState":"\ud800","_meta":{"io.`) ||
		!strings.Contains(x.params, `clientCapabilities":{"elicitation":{"form":{"x":1.0}}}`) {
		t.Errorf("%s", x.params)
	}
	if _, err := g.Call(t.Context(), mcpclient.Request{
		Method: "tools/call",
		Params: json.RawMessage(`{"a":1,"a":2}`),
	}); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("duplicate members went out: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
}

func TestRoundsOfQuestions(t *testing.T) {
	ask := `{"resultType":"input_required","inputRequests":{"b":{"method":"elicitation/create","params":{"n":1}},"a\n":{"method":"elicitation/create"}},"requestState":"s1"}`
	for name, tt := range map[string]struct {
		serve func(n int, x call)
		says  string
		code  capability.Code
	}{
		"answered": {func(n int, x call) {
			if n == 1 {
				x.result(ask)
				return
			}
			if !strings.Contains(x.params, `"inputResponses":{"b":{"action":"accept","i":1},"a\n":{"action":"accept","i":2}},"requestState":"s1"`) {
				x.fault(200, `{"code":1,"message":"bad round"}`)
				return
			}
			x.result(`{"resultType":"complete","ok":1}`)
		}, `"ok":1`, ""},
		"never content": {func(_ int, x call) { x.result(ask) }, "", capability.CodeFailed},
		"sampling is not offered": {func(_ int, x call) {
			x.result(`{"resultType":"input_required","inputRequests":{"b":{"method":"sampling/createMessage"}}}`)
		}, "", capability.CodeFailed},
		"unknown kind": {func(_ int, x call) { x.result(`{"resultType":"task"}`) }, "", capability.CodeFailed},
		"too many": {func(_ int, x call) {
			x.result(`{"resultType":"input_required","inputRequests":{` + strings.TrimSuffix(func() (s string) {
				for i := range 20 {
					s += `"` + string(rune('a'+i)) + `":{"method":"elicitation/create"},`
				}
				return s
			}(), ",") + `}}`)
		}, "", capability.CodeFailed},
		"no object": {func(_ int, x call) { x.result(`[1]`) }, "", capability.CodeFailed},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			s := newRaw(t, "modern", func(x call) bool {
				if x.method != "tools/call" {
					return false
				}
				n++
				tt.serve(n, x)
				return true
			})
			g := s.client(t)
			r := tool("x", `{}`)
			i := 0
			r.Ask = func(context.Context, capability.Question) (json.RawMessage, error) {
				i++
				return json.RawMessage(`{"action":"accept","i":` + string(rune('0'+i%10)) + `}`), nil
			}
			out, err := g.Call(t.Context(), r)
			if capability.CodeOf(err) != tt.code {
				t.Errorf("%v; want capability.CodeOf(err) = %v", err, tt.code)
			}
			mustContain(t, out, tt.says)
			if n > 8 {
				t.Errorf("%d rounds; want n at most 8", n)
			}
		})
	}
}

func TestQuestionsOfALegacyServer(t *testing.T) {
	answers := make(chan string, 8)
	s := newRaw(t, "legacy", func(x call) bool {
		switch {
		case x.method == "" && len(x.body) > 0:
			answers <- string(x.body)
			x.w.WriteHeader(http.StatusAccepted)
			return true
		case x.method != "tools/call":
			return false
		}
		say := x.events()
		for _, q := range []string{
			`"id":"e","method":"elicitation/create","params":{"message":"m"}`,
			`"id":2,"method":"sampling/createMessage","params":{}`, `"id":3,"method":"roots/list"`, `"id":4,"method":"ping"`,
			`"id":5,"method":"no/such"`,
		} {
			say("data: {\"jsonrpc\":\"2.0\",%s}\n\n", q)
		}
		say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1.10}}\n\n")
		seen := make(map[string]bool)
		for len(seen) < 5 {
			select {
			case a := <-answers:
				seen[a] = true
			case <-x.r.Context().Done():
				return true
			}
		}
		all, _ := json.Marshal(seen)
		say("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"answers\":%s}}\n\n", x.id, all)
		return true
	})
	g := s.client(t, func(c *mcpclient.Config) { c.Roots = []string{"/srv/a b"} })
	r := tool("x", `{}`)
	r.Ask = func(context.Context, capability.Question) (json.RawMessage, error) {
		return json.RawMessage(`{"action":"accept","n":9007199254740993}`), nil
	}
	var logs []capability.Chunk
	r.Progress = func(c capability.Chunk) { logs = append(logs, c) }
	out, err := g.Call(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Answers map[string]bool }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"jsonrpc":"2.0","id":"e","result":{"action":"accept","n":9007199254740993}}`,
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"the method is not offered here"}}`,
		`{"jsonrpc":"2.0","id":3,"result":{"roots":[{"uri":"file:///srv/a%20b","name":"a b"}]}}`,
		`{"jsonrpc":"2.0","id":4,"result":{}}`,
		`{"jsonrpc":"2.0","id":5,"error":{"code":-32601,"message":"the method is not offered here"}}`,
	} {
		if !got.Answers[want] {
			t.Errorf("no %s in %s", want, out)
		}
	}
	if len(logs) != 1 || logs[0].Stage != capability.StageLog || string(logs[0].Data) != `{"level":"info","data":1.10}` {
		t.Errorf("%+v; want len(logs) = 1, logs[0].Stage = capability.StageLog, string(logs[0].Data) = "+
			`"{\"level\":\"info\",\"data\":1.10}"`, logs)
	}
}
