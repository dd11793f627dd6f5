package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// answers has the far side answer every call with the same result.
func (f *far) answers(result string) {
	f.set(func() {
		f.answer = func(context.Context, upstream.Request) (json.RawMessage, error) { return json.RawMessage(result), nil }
	})
}

func (f *far) last() upstream.Request {
	_, _, calls := f.counts()
	return calls[len(calls)-1]
}

func TestEachKindOfMemberIsItsMethod(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.features = []string{"tools", "prompts", "resources", "completions"}
	r.far.offer(ingest.Tool, `{"name":"t","inputSchema":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"},"o":{"type":"object","properties":{"s":{"type":"string","x-mcp-header":"S"}}}}}}`)
	r.far.offer(ingest.Prompt, `{"name":"p"}`)
	r.far.offer(ingest.Resource, `{"uri":"file:///a","name":"a"}`)
	r.far.offer(ingest.Template, `{"uriTemplate":"file:///notes/{name}","name":"n"}`)
	r.add("far", func(rec *record.Record) { rec.IdleTimeoutMS = 1500 })
	tests := []struct{ kind, name, input, method, params, header string }{
		{
			"tool", "t", `{"n":7, "x":9007199254740993,"y":1.10,"z":"\ud800"}`, "tools/call",
			`{"name":"t","arguments":{"n":7, "x":9007199254740993,"y":1.10,"z":"\ud800"}}`, "t",
		},
		{"prompt", "p", `{"arguments":{"who":"\u0000"}}`, "prompts/get", `{"name":"p","arguments":{"who":"\u0000"}}`, "p"},
		{"prompt", "p", `{}`, "prompts/get", `{"name":"p"}`, "p"},
		{"resource", "file:///a", `{"uri":"file:///a"}`, "resources/read", `{"uri":"file:///a"}`, "file:///a"},
		{"resource", "file:///a", `{}`, "resources/read", `{"uri":"file:///a"}`, "file:///a"},
		{
			"resource-template", "file:///notes/{name}", `{"uri":"file:///notes/x"}`, "resources/read", `{"uri":"file:///notes/x"}`,
			"file:///notes/x",
		},
		{
			"completion", "complete", `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"who","value":"a"}}`, "completion/complete",
			`{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"who","value":"a"}}`, "",
		},
	}
	r.listed("completion complete", "prompt p", "resource file:///a", "resource-read read", "resource-template file:///notes/{name}", "tool t")
	for _, tt := range tests {
		if _, _, err := r.call("admin:root", "", tt.kind, tt.name, tt.input); err != nil {
			t.Errorf("%s: %v", tt.kind, err)
			continue
		}
		got := r.far.last()
		if got.Method != tt.method || string(got.Params) != tt.params || got.Name != tt.header || got.Idle.Milliseconds() != 1500 {
			t.Errorf("%s went out as %s %s, name %q; want got.Method = %v, string(got.Params) = %v, got.Name = %v, "+
				"got.Idle.Milliseconds() = 1500", tt.kind, got.Method, got.Params, got.Name, tt.method, tt.params, tt.header)
		}
	}
	if _, err := r.tool("t", `{"n":42,"o":{"s":"x y"}}`); err != nil {
		t.Fatal(err)
	}
	if h := r.far.last().Headers; h.Get("Mcp-Param-N") != "42" || h.Get("Mcp-Param-S") != "x y" {
		t.Errorf(`headers %v; want h.Get("Mcp-Param-N") = "42", h.Get("Mcp-Param-S") = "x y"`, h)
	}
	for _, bad := range []struct{ kind, name, uri string }{
		{"resource", "file:///a", "file:///etc/passwd"},
		{"resource-template", "file:///notes/{name}", "file:///notes/../../etc/passwd"},
		{"resource-template", "file:///notes/{name}", ""},
	} {
		_, _, err := r.call("admin:root", "", bad.kind, bad.name, `{"uri":"`+bad.uri+`"}`)
		fails(t, err, capability.CodeInvalidInput, "invalid_uri")
	}
}

func TestResultsAreTheBytesThatCame(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	raw := `{ "structuredContent":{"n":9007199254740993,"f":1.10,"s":"\ud800"}, "content":[{"type":"novel","x":1e400}],"_meta":{"a":1}, "more":null }`
	r.far.answers(raw)
	if out, err := r.tool("t", `{}`); err != nil || out != raw {
		t.Errorf("%v: %s; want no error, out = %v", err, out, raw)
	}
}

func TestFailuresOfToolsComeWithTheirResult(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	tests := []struct{ name, result, message string }{
		{"a text", `{"content":[{"type":"image"},{"type":"text","text":"no\u202e such file"}],"isError":true}`, "no such file"},
		{"no text", `{"content":[],"isError":true}`, "does not say why"},
		{"no content", `{"isError":true}`, "does not say why"},
		{"a long text", `{"content":[{"type":"text","text":"` + strings.Repeat("é", 2000) + `"}],"isError":true}`, strings.Repeat("é", 512)},
	}
	for _, tt := range tests {
		r.far.answers(tt.result)
		out, err := r.tool("t", `{}`)
		e := fails(t, err, capability.CodeFailed, "tool_error")
		if !strings.Contains(e.Message, tt.message) || len(e.Message) > 1<<10 || out != tt.result {
			t.Errorf("%s: %q, %s; want e.Message with %v, len(e.Message) at most 1 << 10, out = %v",
				tt.name, e.Message, out, tt.message, tt.result)
		}
	}
	r.far.answers(`[1]`)
	_, err := r.tool("t", `{}`)
	fails(t, err, capability.CodeFailed, "upstream_error")
}

func TestResultsThatBreakTheirOutputSchemaAreMarked(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", `"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`))
	r.add("far", nil)
	good := `{"content":[],"structuredContent":{"n":9007199254740993}}`
	r.far.answers(good)
	if out, err := r.tool("t", `{}`); err != nil || out != good {
		t.Errorf("%v: %s; want no error, out = %v", err, out, good)
	}
	for result, marked := range map[string]string{
		`{"content":[{"type":"text","text":"x"}],"structuredContent":{"n":"1"}}`: `{"isError":true,"content":[{"type":"text","text":"x"}],"structuredContent":{"n":"1"}}`,
		`{"content":[], "isError" : false, "structuredContent":{}}`:              `{"content":[], "isError" : true, "structuredContent":{}}`,
		`{"content":[]}`: `{"isError":true,"content":[]}`,
		`{ }`:            `{"isError":true }`,
	} {
		r.far.answers(result)
		out, err := r.tool("t", `{}`)
		fails(t, err, capability.CodeFailed, "output_schema_violation")
		if out != marked {
			t.Errorf("%s is marked as %s; want out = %v", result, out, marked)
		}
	}
}

func TestQuestionsShowWhoAsks(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	var asked []capability.Question
	ask := func(_ context.Context, q capability.Question) (json.RawMessage, error) {
		asked = append(asked, q)
		return json.RawMessage(`{"action":"accept","content":{"code":9007199254740993}}`), nil
	}
	r.far.set(func() {
		r.far.answer = func(ctx context.Context, req upstream.Request) (json.RawMessage, error) {
			if req.Ask == nil {
				return json.RawMessage(`{"content":[{"type":"text","text":"nobody to ask"}]}`), nil
			}
			if _, err := req.Ask(ctx, capability.Question{
				Method: "sampling/createMessage",
				Params: json.RawMessage(`{}`),
			}); capability.AsError(err).Reason != "sampling_denied" {
				return nil, errors.New("a sample was had")
			}
			return req.Ask(ctx, capability.Question{
				Method: "elicitation/create",
				Params: json.RawMessage(`{ "requestedSchema":{"x":1.10},"message":"Which\ncode?" }`),
			})
		}
	})
	inv := capability.Invocation{
		Surface: "test", Principal: admin(), Audience: capability.AudienceInternal, Ask: ask,
		Target: capability.Target{Member: capability.Member{Module: "mcp.far", Kind: "tool", Name: "t"}},
	}
	reply, err := r.engine.Invoke(t.Context(), inv)
	if err != nil || string(reply.Result) != `{"action":"accept","content":{"code":9007199254740993}}` {
		t.Fatalf(`%v: %s; want no error, string(reply.Result) = "{\"action\":\"accept\",\"content\":{\"code\":9007199254740993}}"`,
			err, reply.Result)
	}
	if len(asked) != 1 || string(asked[0].Params) != `{ "requestedSchema":{"x":1.10},"message":"[far] Which\ncode?" }` {
		t.Errorf(`asked %+v; want len(asked) = 1, string(asked[0].Params) = "{ `+
			`\"requestedSchema\":{\"x\":1.10},\"message\":\"[far] Which\\ncode?\" }"`, asked)
	}
	if n := r.events(audit.UpstreamQuestionAnswered); n != 2 {
		t.Errorf("%d records of questions; want n = 2", n)
	}
	inv.Ask = nil
	if reply, err = r.engine.Invoke(t.Context(), inv); err != nil || !strings.Contains(string(reply.Result), "nobody to ask") {
		t.Errorf(`%v: %s; want no error, string(reply.Result) with "nobody to ask"`, err, reply.Result)
	}
}

func TestQuestionsThatEndTheCallShowWhoAsks(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	r.far.answers(`{"resultType":"input_required", "inputRequests":{"a":{"method":"elicitation/create","params":{"message":"Who?","mode":"form"}},"b":{"params":{"message":"And?"},"method":"elicitation/create"}},"requestState":"s"}`)
	out, err := r.tool("t", `{}`)
	fails(t, err, capability.CodeApprovalRequired, capability.ReasonInputRequired)
	if out != `{"resultType":"input_required", "inputRequests":{"a":{"method":"elicitation/create","params":{"message":"[far] Who?","mode":"form"}},"b":{"params":{"message":"[far] And?"},"method":"elicitation/create"}},"requestState":"s"}` {
		t.Errorf("passed on as %s", out)
	}
	r.far.answers(`{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage","params":{}}}}`)
	_, err = r.tool("t", `{}`)
	fails(t, err, capability.CodeDenied, "sampling_denied")
	for _, odd := range []string{`{"method":"roots/list"}`, `{"method":"later/thing","params":{"message":"x"}}`, `{}`} {
		r.far.answers(`{"resultType":"input_required","inputRequests":{"a":` + odd + `}}`)
		out, err = r.tool("t", `{}`)
		if fails(t, err, capability.CodeFailed, "upstream_error"); out != "" {
			t.Errorf(`the caller is asked %s; want out = ""`, out)
		}
	}
	for _, address := range []string{"javascript:alert(1)", "file:///etc/passwd", "https:", "far.example"} {
		r.far.answers(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url",` +
			`"elicitationId":"e","url":"` + address + `","message":"Log in"}}}}`)
		out, err = r.tool("t", `{}`)
		if fails(t, err, capability.CodeInvalidInput, "invalid_question"); out != "" {
			t.Errorf("the caller is asked to open %s: %s, want no question", address, out)
		}
	}
	// One byte that is not UTF-8, which some clients read over, does not hide the address.
	r.far.answers(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url",` +
		`"elicitationId":"e","url":"vscode://far/run","message":"Log in","x":"` + "\xff" + `"}}}}`)
	if out, err = r.tool("t", `{}`); err == nil || out != "" {
		t.Errorf("a question that cannot be read: got %s, %v, want no question", out, err)
	}
}

// TestURLsToOpenFirstShowWhoAsks holds that the list of an error -32042 reaches the caller
// with the upstream's name, and not at all if it is not a list of web addresses.
func TestURLsToOpenFirstShowWhoAsks(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	one := func(members string) string { return `{"elicitations":[{"elicitationId":"e",` + members + `}]}` }
	for data, want := range map[string]string{
		one(`"mode":"url","url":"https://a.example/x","message":"Log in"`):  one(`"mode":"url","url":"https://a.example/x","message":"[far] Log in"`),
		one(`"mode":"url","url":"javascript:alert(1)","message":"Log in"`):  "",
		one(`"mode":"url","url":"https://a.example/x"`):                     "",
		one(`"mode":"form","url":"https://a.example/x","message":"Log in"`): "",
		`{"elicitations":[` + strings.Repeat(`{},`, 20) + `{}]}`:            "",
		`{"elicitations":[]}`: "",
		`[]`:                  "",
	} {
		r.far.set(func() {
			r.far.answer = func(context.Context, upstream.Request) (json.RawMessage, error) {
				return nil, capability.Errorf(capability.CodeFailed, "", "far answered: open").With("upstream_error", "").
					Detail("code", int64(-32042)).Detail("data", json.RawMessage(data))
			}
		})
		_, err := r.tool("t", `{}`)
		got, _ := fails(t, err, capability.CodeFailed, "upstream_error").Details["data"].(json.RawMessage)
		if string(got) != want {
			t.Errorf("data of %s = %s, want %s", data, got, want)
		}
	}
}

// TestATrustedUpstreamMayAskForSamplesAndRoots: what it is trusted with is the caller's
// own machine and model, so an operator says so.
func TestATrustedUpstreamMayAskForSamplesAndRoots(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", func(rec *record.Record) { rec.Sampling = record.Forward })
	const asks = `{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"},"b":{"method":"sampling/createMessage","params":{"maxTokens":7}}}}`
	r.far.answers(asks)
	out, err := r.tool("t", `{}`)
	if fails(t, err, capability.CodeApprovalRequired, capability.ReasonInputRequired); out != asks {
		t.Errorf("passed on as %s; want out = %v", out, asks)
	}
	r.far.answers(`{"resultType":"input_required","inputRequests":{"a":{"method":"later/thing"}}}`)
	_, err = r.tool("t", `{}`)
	fails(t, err, capability.CodeFailed, "upstream_error")
}

func TestAnUpstreamThatBreaksCallsGetsNoneForAWhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	breaks := func(times int, after string) {
		t.Helper()
		r.far.set(func() {
			r.far.answer = func(context.Context, upstream.Request) (json.RawMessage, error) {
				return nil, capability.Errorf(capability.CodeFailed, "", "no progress").With("idle_timeout", "")
			}
		})
		for i := range times {
			_, err := r.tool("t", `{}`)
			if got := capability.AsError(err).Reason; got != "idle_timeout" {
				t.Fatalf("failure %d after %s: got %s, want idle_timeout, because five failures in a row open the breaker", i+1, after, got)
			}
		}
	}
	breaks(4, "the start")
	r.far.set(func() {
		r.far.answer = func(context.Context, upstream.Request) (json.RawMessage, error) {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "unknown argument").With("upstream_error", "")
		}
	})
	_, err := r.tool("t", `{}`)
	fails(t, err, capability.CodeInvalidInput, "upstream_error")
	breaks(5, "an answer of the upstream, from which failures are counted")
	_, err = r.tool("t", `{}`)
	if e := fails(t, err, capability.CodeUnavailable, "circuit_open"); e.RetryAfter <= 0 {
		t.Errorf("it does not say when to try again; got e.RetryAfter = %v; want e.RetryAfter more than 0", e.RetryAfter)
	}
	if _, err := r.Restart(t.Context(), admin(), "far"); err != nil {
		t.Fatal(err)
	}
	r.far.answers(`{"content":[]}`)
	if _, err := r.tool("t", `{}`); err != nil {
		t.Error(err)
	}
}

// FuzzResult holds that no result of a stranger breaks the judge.
func FuzzResult(f *testing.F) {
	f.Add(`{"content":[{"type":"text","text":"x"}],"isError":true}`)
	f.Add(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"x"}}}}`)
	f.Add(`{"structuredContent":{"n":1e400}}`)
	r := newRig(f, nil)
	r.far.offer(ingest.Tool, def("t", `"outputSchema":{"type":"object","required":["n"]}`))
	r.add("far", nil)
	f.Fuzz(func(t *testing.T, result string) {
		r.far.answers(result)
		one := *r
		one.TB = t
		out, err := one.tool("t", `{}`)
		if err == nil && out != result {
			t.Errorf("changed: %s; want not (err == nil && out != result)", out)
		}
		if code := capability.CodeOf(err); code == capability.CodeInternal {
			t.Errorf("%v; want code other than capability.CodeInternal", err)
		}
	})
}
