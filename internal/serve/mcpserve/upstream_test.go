package mcpserve

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// upstream is a provider of kind mcp: what it returns is a result of MCP.
type upstream struct {
	name   string // "": up
	mu     sync.Mutex
	inputs []string
	metas  []string
	relays []*capability.Relay
	ended  chan error
	ready  chan struct{} // lets askslow go on
}

func (u *upstream) Key() capability.ProviderKey {
	return capability.ProviderKey("ext:mcp:" + cmp.Or(u.name, "up"))
}

func (u *upstream) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	u.mu.Lock()
	u.inputs = append(u.inputs, string(c.Input))
	u.metas = append(u.metas, string(c.Meta))
	u.relays = append(u.relays, c.Relay)
	u.mu.Unlock()
	value := func(s string) (capability.Result, error) { return capability.Result{Value: json.RawMessage(s)}, nil }
	switch c.Member.Name {
	case "raw":
		return value(`{"content":[{"type":"odd","n":9007199254740993}],"structuredContent":{"z":1.10,"a":` + string(c.Input) +
			`},"later":true,"_meta":{"x/y":1,"io.modelcontextprotocol/serverInfo":{"name":"posing"},"junctor/invocation":"posing"},"resultType":"complete"}`)
	case "says no":
		return capability.Result{Value: json.RawMessage(`{"content":[{"type":"text","text":"no such file"}],"isError":true}`)},
			capability.Errorf(capability.CodeFailed, "up", "no such file").With("tool_error", "")
	case "ask", "askslow":
		if c.Member.Name == "askslow" {
			<-u.ready
		}
		if c.Ask == nil {
			return value(`{"content":[{"type":"text","text":"nobody to ask"}]}`)
		}
		answer, err := c.Ask(ctx, capability.Question{
			Method: "elicitation/create",
			Params: json.RawMessage(`{"message":"Which?","requestedSchema":{"type":"object","properties":{}}}`),
		})
		if err != nil {
			u.ended <- err
			return capability.Result{}, err
		}
		return value(`{"content":[],"structuredContent":{"got":` + string(answer) + `}}`)
	case "relay":
		if c.Relay != nil && c.Relay.Responses != nil {
			return value(`{"content":[],"structuredContent":{"responses":` + string(c.Relay.Responses) + `,"state":` + string(c.Relay.State) + `}}`)
		}
		return capability.Result{Value: json.RawMessage(`{"resultType":"input_required","inputRequests":{"k1":{"method":"elicitation/create","params":{"n":9007199254740993}}},"requestState":"theirs"}`)},
			capability.InputRequired(u.Key())
	case "log":
		c.Progress(capability.Chunk{Stage: capability.StageLog, Data: json.RawMessage(`{"level":"debug","data":1}`)})
		c.Progress(capability.Chunk{Stage: capability.StageLog, Data: json.RawMessage(`{"level":"error","data":2}`)})
		return value(`{"content":[]}`)
	case "missing":
		return capability.Result{}, capability.Errorf(capability.CodeFailed, "up", "sampling is needed").With("upstream_error", "").
			Detail("code", int64(-32021)).Detail("data", json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`))
	case "opens":
		return capability.Result{}, capability.Errorf(capability.CodeFailed, "up", "open it first").With("upstream_error", "").
			Detail("code", int64(-32042)).Detail("data", json.RawMessage(`{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://up.example/a","message":"[up] Log in"}]}`))
	case "greet":
		return value(`{"messages":[],"description":` + string(c.Input) + `}`)
	case "file:///a", "file:///{name}":
		return value(`{"contents":[{"uri":"x","text":"` + strings.ReplaceAll(string(c.Input), `"`, `'`) + `"}],"ttlMs":7,"cacheScope":"public"}`)
	case "link":
		return value(`{"content":[{"type":"resource_link","name":"a","uri":"linked:a"},{"type":"resource_link","uri":"listed:l"},` +
			`{"type":"resource_link","uri":"secret:x"},{"type":"resource_link","uri":"junctor://calls/mine2"},{"type":"text","text":"linked:b"}]}`)
	case "read":
		var in struct{ URI string }
		err := json.Unmarshal(c.Input, &in)
		return capability.Result{Value: json.RawMessage(`{"contents":[{"uri":"x","text":"text of ` + in.URI + `"}]}`)}, err
	case "complete":
		return value(`{"completion":{"values":["v"],"total":9007199254740993},"of":` + string(c.Input) + `}`)
	}
	return value(`{"content":[]}`)
}

func (u *upstream) batch(extension string, tools ...capability.Contribution) capability.Batch {
	m := capability.Module{
		Extension: extension, ID: extension, Name: extension, Label: strings.TrimPrefix(extension, "mcp."), Origin: "mcp",
		Contributions: tools,
	}
	for i := range m.Contributions {
		m.Contributions[i].Provider = u.Key()
		m.Contributions[i].Member.Module = extension
	}
	return capability.Batch{Source: "upstream/" + extension, Modules: []capability.Module{m}, Providers: []capability.Provider{u}}
}

// declared is a tool as an upstream declares it.
func declared(name, rest string) capability.Contribution {
	id := strings.ReplaceAll(name, " ", "-")
	return capability.Contribution{
		ID: id, Kind: "capability.agent-tool", Tool: name, Effect: capability.EffectRead, Member: capability.Member{Kind: "tool", Name: name},
		InputSchema: json.RawMessage(`{"type":"object"}`), Definition: json.RawMessage(`{"name":"` + name + `","inputSchema":{"type":"object"}` +
			rest + `}`),
	}
}

func thing(kind, as, name, definition string) capability.Contribution {
	return capability.Contribution{
		ID: kind + "." + strings.NewReplacer("/", "", ":", "", "{", "", "}", "").Replace(name), Kind: as,
		Tool: map[bool]string{true: name}[kind == kindPrompt], Effect: capability.EffectRead,
		Visibility: capability.VisibleNone, Member: capability.Member{Kind: kind, Name: name}, Definition: json.RawMessage(definition),
	}
}

func newUpstreamStack(t *testing.T, opts stackOptions) (*stack, *upstream) {
	t.Helper()
	st := newStack(t, opts)
	u := &upstream{ended: make(chan error, 32), ready: make(chan struct{})}
	marked := declared("marked", "")
	marked.Definition = json.RawMessage(`{"name":"marked","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}}`)
	write := declared("write", "")
	write.Effect = capability.EffectWrite
	completion := thing(kindCompletion, "capability.rpc", "complete", "")
	completion.Definition = nil
	st.offer(u.batch("mcp.up",
		declared("raw", `,"title":"Raw","icons":[{"src":"x"}],"outputSchema":{"type":"object","$defs":{"n":{"const":9007199254740993}}},"annotations":{"readOnlyHint":true,"odd":1},"_meta":{"x":1,"io.modelcontextprotocol/serverInfo":1,"junctor/provider":"posing"}`),
		declared("says no", ""), declared("ask", ""), declared("askslow", ""), declared("relay", ""), declared("log", ""),
		declared("missing", ""), declared("opens", ""), marked, write,
		thing(kindPrompt, "capability.interaction", "greet", `{"name":"greet","arguments":[{"name":"who"}]}`),
		thing(kindResource, "capability.context-augmenter", "file:///a", `{"uri":"file:///a","name":"a"}`),
		thing(kindTemplate, "capability.context-augmenter", "file:///{name}", `{"uriTemplate":"file:///{name}","name":"any"}`),
		completion,
	))
	return st, u
}

// asModern is a modern request whose client declares the abilities.
func (st *stack) asModern(token, method, name, rest, able string, headers ...string) reply {
	st.t.Helper()
	body := strings.Replace(modernBody(method, rest), `clientCapabilities":{}`, `clientCapabilities":`+able, 1)
	h := []string{mcpwire.HeaderVersion, mcpwire.Version20260728, mcpwire.HeaderMethod, method}
	if name != "" {
		h = append(h, mcpwire.HeaderName, name)
	}
	return st.do("POST", token, body, append(h, headers...)...)
}

func wants(t *testing.T, body string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(body, p) {
			t.Errorf("%s\nis not in\n%s\nwant body with %v", p, body, p)
		}
	}
}

func TestDefinitionsAndResultsPassAsBytes(t *testing.T) {
	st, u := newUpstreamStack(t, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20251125)
	for name, list := range map[string]string{
		"modern": st.modern(st.agent, "tools/list", "", "").body,
		"legacy": st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, mcpwire.HeaderSession, id).body,
	} {
		wants(t, list, `"icons":[{"src":"x"}]`, `"$defs":{"n":{"const":9007199254740993}}`,
			`"annotations":{"odd":1,"readOnlyHint":true,"destructiveHint":false}`, `"x":1,"junctor/action"`)
		if strings.Contains(list, "posing") || strings.Contains(list, `"io.modelcontextprotocol/serverInfo":1`) {
			t.Errorf(`%s: an upstream poses as us: %s; want list without "posing", list without "\"io.modelcontextprotocol/serverInfo\":1"`,
				name, list)
		}
	}
	input := `{"b":9007199254740993,"a":"\u0000\ud800"}`
	for name, r := range map[string]reply{
		"modern": st.modern(st.agent, "tools/call", "raw", `"name":"raw","arguments":`+input+`,`),
		"legacy": st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"raw","arguments":`+input+`}}`,
			mcpwire.HeaderSession, id),
	} {
		wants(t, r.body, `"content":[{"type":"odd","n":9007199254740993}],"structuredContent":{"z":1.10,"a":`+input+`},"later":true`, `"x/y":1`,
			`"junctor/invocation":"run_`)
		if strings.Contains(r.body, "posing") || (name == "modern") != strings.Contains(r.body, `"resultType":"complete"`) {
			t.Errorf(`%s: %s; want r.body without "posing", (name == "modern") = strings.Contains(r.body, `+
				"`\"resultType\":\"complete\"`)", name, r.body)
		}
	}
	no := st.modern(st.agent, "tools/call", "says_no", `"name":"says_no",`)
	wants(t, no.body, `"content":[{"type":"text","text":"no such file"}],"isError":true`)
	if u.inputs[0] != input {
		t.Errorf("the upstream got %s; want u.inputs[0] = %v", u.inputs[0], input)
	}
}

func TestPromptsResourcesAndCompletion(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{})
	st.offer((&upstream{}).batch("mcp.other", thing(kindPrompt, "capability.interaction", "hidden", `{"name":"hidden"}`)))
	id := st.open(st.agent, mcpwire.Version20251125)
	legacy := func(method, params string) string {
		return st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`}}`, mcpwire.HeaderSession, id).body
	}
	wants(t, st.modern(st.agent, "prompts/list", "", "").body, `"prompts":[{"name":"greet","arguments":[{"name":"who"}],"_meta":`,
		`"cacheScope":"private"`)
	wants(t, legacy("resources/list", ""), `"resources":[{"uri":"file:///a","name":"a","_meta":`)
	wants(t, legacy("resources/templates/list", ""), `"resourceTemplates":[{"uriTemplate":"file:///{name}"`)
	wants(t, legacy("prompts/get", `"name":"greet","arguments":{"who":"you"}`), `"description":{"arguments":{"who":"you"}}`)
	wants(t, st.modern(st.agent, "resources/read", "file:///a", `"uri":"file:///a",`).body, `{'uri':'file:///a'}`, `"ttlMs":7`,
		`"cacheScope":"private"`)
	wants(t, legacy("resources/read", `"uri":"file:///b"`), `{'uri':'file:///b'}`)
	wants(t, legacy("resources/read", `"uri":"other://b"`), `-32002`)
	wants(t, st.modern(st.agent, "resources/read", "other://b", `"uri":"other://b",`).body, `-32602`, `"uri":"other://b"`)
	wants(t, legacy("prompts/get", `"name":"nobody"`), `-32602`)
	wants(t, legacy("completion/complete", `"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":"y"}`),
		`"total":9007199254740993`, `"ref":{"type":"ref/prompt","name":"greet"}`)
	wants(t, legacy("completion/complete", `"ref":{"type":"ref/prompt","name":"other"},"argument":{"name":"who","value":"y"}`), `-32602`)
	wants(t, legacy("completion/complete", `"ref":{"type":"ref/prompt","name":"hidden"},"argument":{"name":"who","value":"y"}`), `"values":[]`)
}

func TestMarkedArgumentsAreComparedWithTheirHeaders(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{})
	call := func(arguments string, headers ...string) reply {
		return st.modern(st.agent, "tools/call", "marked", `"name":"marked","arguments":`+arguments+`,`, headers...)
	}
	for name, tt := range map[string]struct {
		r    reply
		want int
	}{
		"equal":     {call(`{"region":"eu","n":42}`, "Mcp-Param-Region", "eu", "Mcp-Param-N", "42.0"), 200},
		"wrapped":   {call(`{"region":"é"}`, "Mcp-Param-Region", "=?base64?w6k=?="), 200},
		"absent":    {call(`{}`), 200},
		"missing":   {call(`{"region":"eu"}`), 400},
		"other":     {call(`{"region":"eu"}`, "Mcp-Param-Region", "us"), 400},
		"for none":  {call(`{"region":null}`, "Mcp-Param-Region", "us"), 400},
		"no base64": {call(`{"region":"eu"}`, "Mcp-Param-Region", "=?base64?*?="), 400},
	} {
		if tt.r.status != tt.want || tt.want == 400 && !strings.Contains(tt.r.body, "-32020") {
			t.Errorf(`%s: %d %s; want tt.r.status = %v, not (tt.want == 400 && !strings.Contains(tt.r.body, "-32020"))`,
				name, tt.r.status, tt.r.body, tt.want)
		}
	}
}

func TestAnUpstreamsNeedOfAnAbilityReachesModernClients(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{})
	r := st.modern(st.agent, "tools/call", "missing", `"name":"missing",`)
	if r.status != 400 {
		t.Errorf("r.status = %v, want %v", r.status, 400)
	}
	wants(t, r.body, `-32021`, `"data":{"requiredCapabilities":{"sampling":{}}}`)
	id := st.open(st.agent, mcpwire.Version20251125)
	wants(t, st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"missing"}}`, mcpwire.HeaderSession,
		id).body, `"isError":true`)
}

const canElicit = `{"elicitation":{"form":{}}}`

// asked sends a legacy call on whose stream the surface asks, and answers with what
// reply makes of the question; it returns the response.
func (st *stack) asked(session, name string, reply func(question string) string) string {
	st.t.Helper()
	req, err := http.NewRequestWithContext(st.t.Context(), "POST", st.url,
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+name+`","arguments":{"p":1}}}`))
	ok(st.t, err)
	for k, v := range map[string]string{
		"Authorization": "Bearer " + st.agent, "Content-Type": "application/json",
		"Accept": "application/json, text/event-stream", mcpwire.HeaderSession: session,
	} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	ok(st.t, err)
	defer resp.Body.Close()
	last := ""
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		data := strings.TrimPrefix(in.Text(), "data: ")
		if !strings.HasPrefix(data, "{") {
			continue
		}
		last = data
		var q struct{ ID, Method string }
		_ = json.Unmarshal([]byte(data), &q) // the id of the response is a number
		if q.Method == "elicitation/create" {
			if r := st.do("POST", st.agent, `{"jsonrpc":"2.0","id":"`+q.ID+`",`+reply(data)+`}`, mcpwire.HeaderSession, session); r.status != 202 {
				st.t.Errorf("the answer: %d %s; want r.status = 202", r.status, r.body)
			}
		}
	}
	return last
}

func (st *stack) openAble(able string) string {
	st.t.Helper()
	r := st.do("POST", st.agent, strings.Replace(strings.Replace(initialize, "VERSION", mcpwire.Version20251125, 1), `"capabilities":{}`,
		`"capabilities":`+able, 1))
	return r.header.Get(mcpwire.HeaderSession)
}

// TestAURLToOpenFirstReachesClientsThatCanOpenIt holds that a session whose client declares
// URL elicitation receives the protocol error of the upstream, as from the upstream itself,
// and that other clients receive a failed tool.
func TestAURLToOpenFirstReachesClientsThatCanOpenIt(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{})
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"opens","arguments":{}}}`
	r := st.do("POST", st.agent, call, mcpwire.HeaderSession, st.openAble(`{"elicitation":{"url":{}}}`))
	if a := r.decode(t); r.status != 200 || a.Error == nil || a.Error.Code != mcpwire.CodeURLElicitation {
		t.Fatalf("with URL elicitation: %d %s, want 200 and -32042", r.status, r.body)
	}
	wants(t, r.body, `"data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://up.example/a","message":"[up] Log in"}]}`)
	for _, able := range []string{`{}`, canElicit} {
		r := st.do("POST", st.agent, call, mcpwire.HeaderSession, st.openAble(able))
		wants(t, r.body, `"isError":true`, "open it first")
	}
	wants(t, st.asModern(st.agent, "tools/call", "opens", `"name":"opens","arguments":{},`, `{"elicitation":{"url":{}}}`).body, `"isError":true`)
}

func TestQuestionsReachTheClientOfASession(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{})
	got := st.asked(st.openAble(canElicit), "ask", func(q string) string {
		wants(t, q, `"message":"Which?"`)
		return `"result":{"action":"accept","content":{"n":9007199254740993}}`
	})
	wants(t, got, `"got":{"action":"accept","content":{"n":9007199254740993}}`)
	wants(t, st.asked(st.openAble(canElicit), "ask", func(string) string { return `"error":{"code":-1,"message":"no"}` }), `"isError":true`,
		"could not answer")
	wants(t, st.asked(st.openAble(`{}`), "ask", nil), "nobody to ask")
	wants(t, st.asked(st.openAble(`{"sampling":{}}`), "ask", nil), "caller_cannot_answer")
}

func TestQuestionsReachAModernClientInRounds(t *testing.T) {
	st, u := newUpstreamStack(t, stackOptions{})
	for _, tool := range []string{"ask", "relay"} {
		t.Run(tool, func(t *testing.T) {
			call := func(token, rest string) reply {
				return st.asModern(token, "tools/call", tool, `"name":"`+tool+`","arguments":{"p":1},`+rest, canElicit)
			}
			stateOf := func(r reply) string {
				var a struct {
					Result struct{ ResultType, RequestState string }
				}
				ok(t, json.Unmarshal([]byte(r.body), &a))
				if a.Result.ResultType != "input_required" || a.Result.RequestState == "" {
					t.Fatalf(`%d %s; want a.Result.ResultType = "input_required", a.Result.RequestState other than ""`,
						r.status, r.body)
				}
				return a.Result.RequestState
			}
			key := map[string]string{"ask": "question", "relay": "k1"}[tool]
			answer := `"inputResponses":{"` + key + `":{"action":"accept","content":{"n":9007199254740993}},"odd":{}},`
			first := call(st.agent, "")
			state := stateOf(first)
			if strings.Contains(first.body, "theirs") {
				t.Error("the upstream's state is readable")
			}
			tampered := []byte(state)
			tampered[len(tampered)/2] ^= 1
			for name, r := range map[string]reply{
				"tampered":        call(st.agent, answer+`"requestState":"`+string(tampered)+`",`),
				"somebody else's": call(st.agent2, answer+`"requestState":"`+state+`",`),
				"another call": st.asModern(st.agent, "tools/call", tool, `"name":"`+tool+`","arguments":{"p":2},`+answer+`"requestState":"`+state+
					`",`, canElicit),
				"no answers": call(st.agent, `"inputResponses":null,`),
				"no answer":  call(st.agent, `"inputResponses":{"k1":7},`),
				"no string":  call(st.agent, answer+`"requestState":7,`),
			} {
				if r.status != 400 || !strings.Contains(r.body, "-32602") {
					t.Errorf(`%s: %d %s; want r.status = 400, r.body with "-32602"`, name, r.status, r.body)
				}
			}
			again := call(st.agent, `"requestState":"`+state+`",`) // without an answer: asked again
			state = stateOf(again)
			done := call(st.agent, answer+`"requestState":"`+state+`",`)
			wants(t, done.body, `9007199254740993`, `"resultType":"complete"`)
			if tool == "relay" {
				wants(t, done.body, `"state":"theirs"`, `"odd":{}`)
			}
			if r := call(st.agent, answer+`"requestState":"`+state+`",`); r.status != 400 {
				t.Errorf("replayed: %d %s; want r.status = 400", r.status, r.body)
			}
		})
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if string(u.relays[0].Capabilities) != canElicit {
		t.Errorf("the upstream is told %s; want string(u.relays[0].Capabilities) = %v", u.relays[0].Capabilities, canElicit)
	}
}

func TestParkedCallsAreBoundedAndEnd(t *testing.T) {
	st, u := newUpstreamStack(t, stackOptions{})
	for i := range maxParked + 1 {
		r := st.asModern(st.agent, "tools/call", "ask", `"name":"ask",`, canElicit)
		if full := strings.Contains(r.body, "isError"); full != (i == maxParked) {
			t.Fatalf("%d: %s; want full = (i == maxParked)", i, r.body)
		}
	}
	receive(t, u.ended) // the one that was refused
	st.surface.mu.Lock()
	waits := make([]*waiting, 0, maxParked)
	for _, w := range st.surface.waiting {
		waits = append(waits, w)
	}
	st.surface.mu.Unlock()
	for _, w := range waits[:3] {
		w.timer.Reset(0)
		if err := receive(t, u.ended); err == nil {
			t.Error("an unanswered call goes on; want an error")
		}
	}
}

const clientRules = `
@id("client-writes")
@consent("client")
permit (principal == Principal::"agent:one", action in Action::"write", resource in Module::"mcp.up");
`

func TestConsentByTheCallersOwnPerson(t *testing.T) {
	for _, decision := range []policy.Decision{policy.DecideOnce, policy.DecideTimed, policy.DecideAlways, policy.DecideDeny} {
		t.Run(string(decision), func(t *testing.T) {
			st, u := newUpstreamStack(t, stackOptions{only: clientRules})
			answer := `{"action":"accept","content":{"decision":"` + string(decision) + `"}}`
			session := st.openAble(canElicit)
			asks := 0
			legacy := func() string {
				return st.asked(session, "write", func(q string) string {
					asks++
					wants(t, q, `"enum":["once","timed","always","deny"]`, "junctor asks for your approval")
					return `"result":` + answer
				})
			}
			got := legacy()
			if denied := strings.Contains(got, "confirmation_rejected"); denied != (decision == policy.DecideDeny) ||
				denied == (len(u.inputs) == 1) {
				t.Errorf("%s after %v; want denied = (decision == policy.DecideDeny), denied other than (len(u.inputs) == 1)",
					got, u.inputs)
			}
			legacy()
			if again := decision == policy.DecideOnce || decision == policy.DecideDeny; (asks == 2) != again {
				t.Errorf("asked %d times; want (asks == 2) = %v", asks, again)
			}
			if decision == policy.DecideTimed || decision == policy.DecideAlways {
				return
			}
			call := func(rest string) reply {
				return st.asModern(st.agent, "tools/call", "write", `"name":"write","arguments":{"p":2},`+rest, canElicit)
			}
			var a struct{ Result struct{ RequestState string } }
			ok(t, json.Unmarshal([]byte(call("").body), &a))
			r := call(`"inputResponses":{"question":` + answer + `},"requestState":"` + a.Result.RequestState + `",`)
			if denied := strings.Contains(r.body, "confirmation_rejected"); denied != (decision == policy.DecideDeny) {
				t.Errorf("%s; want denied = (decision == policy.DecideDeny)", r.body)
			}
		})
	}
	st, _ := newUpstreamStack(t, stackOptions{only: clientRules})
	wants(t, st.asked(st.openAble(`{}`), "write", nil), "confirmation_required", "apr_")
	other, err := st.policy.Approvals(t.Context(), policy.ApprovalPending, "", 10)
	ok(t, err)
	if _, _, err := st.policy.Answer(t.Context(), capability.Principal{ID: "agent:two", Role: capability.RoleAgent}, other[0].ID,
		policy.DecideOnce); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("somebody else answers: %v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	wants(t, st.asked(st.openAble(canElicit), "write", func(string) string { return `"result":{"action":"decline"}` }),
		"confirmation_rejected")
}

func TestLogLinesOfUpstreams(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20251125)
	call := func() string {
		return st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"log"}}`, mcpwire.HeaderSession, id).body
	}
	wants(t, call(), `"level":"debug"`, `"level":"error"`)
	wants(t, st.do("POST", st.agent, `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"warning"}}`,
		mcpwire.HeaderSession, id).body, `"result":{}`)
	if got := call(); strings.Contains(got, `"level":"debug"`) || !strings.Contains(got, `"level":"error"`) {
		t.Errorf("log messages = %s, want level error without level debug", got)
	}
}

func TestViews(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{views: map[string]View{"up": {Modules: []string{"mcp.*"}, OwnNames: true, Exposure: "full"}}})
	st.url += "/up"
	list := st.modern(st.agent, "tools/list", "", "")
	var names []string
	for _, tool := range list.decode(t).Result.Tools {
		names = append(names, tool.Name)
	}
	if got := strings.Join(names, " "); got != "ask askslow log marked missing opens raw relay says_no write" {
		t.Errorf(`%s; want got = "ask askslow log marked missing opens raw relay says_no write"`, got)
	}
	wants(t, st.modern(st.agent, "tools/call", "raw", `"name":"raw",`).body, `"later":true`)
	if r := st.modern(st.agent, "tools/call", "echo", `"name":"echo",`); !strings.Contains(r.body, "unknown tool") {
		t.Errorf(`what the view leaves out: %s; want r.body with "unknown tool"`, r.body)
	}
	st.url = strings.TrimSuffix(st.url, "up") + "nowhere"
	if r := st.modern(st.agent, "tools/list", "", ""); r.status != 404 {
		t.Errorf("%d %s; want r.status = 404", r.status, r.body)
	}
}

func TestMetaAndTracePassToTheProvider(t *testing.T) {
	st, u := newUpstreamStack(t, stackOptions{})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	call := func(meta string, headers ...string) string {
		body := strings.Replace(modernBody("tools/call", `"name":"raw",`), `"_meta":{`, `"_meta":{`+meta, 1)
		h := append([]string{mcpwire.HeaderVersion, mcpwire.Version20260728, mcpwire.HeaderMethod, "tools/call", mcpwire.HeaderName, "raw"},
			headers...)
		if r := st.do("POST", st.agent, body, h...); r.status != 200 {
			t.Fatalf("r.body = %v, want r.status == 200", r.body)
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.metas[len(u.metas)-1]
	}
	for name, tt := range map[string]struct{ got, want string }{
		"nothing":     {call(""), ""},
		"foreign":     {call(`"x/y":9007199254740993,"junctor/provider":"posing",`), `{"x/y":9007199254740993}`},
		"trace":       {call(`"traceparent":"` + parent + `","tracestate":"a=b",`), `{"traceparent":"` + parent + `","tracestate":"a=b"}`},
		"as a header": {call("", "traceparent", parent), `{"traceparent":"` + parent + `"}`},
		"both":        {call(`"traceparent":"mine",`, "traceparent", parent), `{"traceparent":"mine"}`},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s; want tt.got = %v", name, tt.got, tt.want)
		}
	}
}
