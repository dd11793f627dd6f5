package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// modelReplies are streams of events of each form. Each names what the reply consists of.
var modelReplies = map[modelwire.Form]map[string]string{
	modelwire.OpenAIChat: {
		"text":      `{"choices":[{"index":0,"delta":{"role":"assistant","content":"he"},"finish_reason":null}]}|{"choices":[{"index":0,"delta":{"content":"llo é"},"finish_reason":null}]}|{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}|[DONE]`,
		"calls":     `{"choices":[{"index":0,"delta":{"role":"assistant","content":"I look"},"finish_reason":null}]}|{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"read","arguments":""}}]},"finish_reason":null}]}|{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":"}}]},"finish_reason":null}]}|{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]},"finish_reason":null}]}|{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"list","arguments":"{}"}}]},"finish_reason":null}]}|{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}|[DONE]`,
		"refusal":   `{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"refusal":"I can"},"finish_reason":null}]}|{"choices":[{"index":0,"delta":{"refusal":"not"},"finish_reason":null}]}|{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}|[DONE]`,
		"truncated": `{"choices":[{"index":0,"delta":{"role":"assistant","content":"he"},"finish_reason":null}]}|{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}|[DONE]`,
		"failure":   `{"choices":[{"index":0,"delta":{"role":"assistant","content":"he"},"finish_reason":null}]}|{"error":{"message":"boom","type":"server_error"}}`,
	},
	modelwire.AnthropicMessages: {
		"text":      messageStart + `|{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}|{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"he"}}|{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"llo é"}}|{"type":"content_block_stop","index":0}|` + messageStop("end_turn"),
		"thinking":  messageStart + `|{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}|{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}|{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}|{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}|{"type":"content_block_stop","index":0}|{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"Zg=="}}|{"type":"content_block_stop","index":1}|{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}|{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"so"}}|{"type":"content_block_stop","index":2}|` + messageStop("end_turn"),
		"two texts": messageStart + `|{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}|{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}|{"type":"content_block_stop","index":0}|{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}|{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"b"}}|{"type":"content_block_stop","index":1}|` + messageStop("end_turn"),
		"calls":     messageStart + `|{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"read","input":{}}}|{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}|{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\":"}}|{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"1}"}}|{"type":"content_block_stop","index":0}|{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c2","name":"list","input":{}}}|{"type":"content_block_stop","index":1}|` + messageStop("tool_use"),
		"refusal":   messageStart + `|` + messageStop("refusal"),
		"truncated": messageStart + `|{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}|{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"he"}}|{"type":"content_block_stop","index":0}|` + messageStop("max_tokens"),
		"failure":   messageStart + `|{"type":"error","error":{"type":"overloaded_error","message":"boom"}}`,
	},
	modelwire.OpenAIResponses: {
		"text":      responseItems(`{"type":"message","id":"m1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hello é","annotations":[]}]}`),
		"thinking":  responseItems(`{"type":"reasoning","id":"r1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"Zg=="}`, `{"type":"message","id":"m1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"so","annotations":[]}]}`),
		"calls":     responseItems(`{"type":"function_call","id":"f1","call_id":"c1","name":"read","arguments":"{\"path\":1}","status":"completed"}`, `{"type":"function_call","id":"f2","call_id":"c2","name":"list","arguments":"{}","status":"completed"}`),
		"refusal":   responseItems(`{"type":"message","id":"m1","status":"completed","role":"assistant","content":[{"type":"refusal","refusal":"I cannot"}]}`),
		"truncated": strings.ReplaceAll(strings.ReplaceAll(responseItems(`{"type":"message","id":"m1","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"he","annotations":[]}]}`), `"response.completed"`, `"response.incomplete"`), `"status":"completed","incomplete_details":null`, `"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}`),
	},
	modelwire.GeminiGenerate: {
		"text":      `{"candidates":[{"content":{"role":"model","parts":[{"text":"he"}]}}]}|{"candidates":[{"content":{"role":"model","parts":[{"text":"llo é"}]},"finishReason":"STOP"}]}`,
		"thinking":  `{"candidates":[{"content":{"role":"model","parts":[{"text":"hm","thought":true}]}}]}|{"candidates":[{"content":{"role":"model","parts":[{"text":"so","thoughtSignature":"c2ln"}]},"finishReason":"STOP"}]}`,
		"calls":     `{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"read","args":{"path":1}},"thoughtSignature":"c2ln"},{"functionCall":{"name":"list","args":{}}}]},"finishReason":"STOP"}]}`,
		"truncated": `{"candidates":[{"content":{"role":"model","parts":[{"text":"he"}]},"finishReason":"MAX_TOKENS"}]}`,
	},
}

const messageStart = `{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"m-1","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}`

func messageStop(reason string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_sequence":null},"usage":{"output_tokens":2}}|{"type":"message_stop"}`
}

// responseItems returns the events of a response with these output items.
func responseItems(items ...string) string {
	response := func(status, output string) string {
		return fmt.Sprintf(`{"id":"r","object":"response","model":"m-1","status":%q,"incomplete_details":null,"error":null,"output":[%s],"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":3}}`, status, output)
	}
	events := []string{`{"type":"response.created","sequence_number":0,"response":` + response("in_progress", "") + `}`}
	for i, item := range items {
		events = append(events,
			fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":%s}`, i, item),
			fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, i, item))
	}
	events = append(events, `{"type":"response.completed","response":`+response("completed", strings.Join(items, ","))+`}`)
	return strings.Join(events, "|")
}

// modelService answers every request with one stream and keeps the last request's body.
type modelService struct {
	*httptest.Server
	mu     sync.Mutex
	stream string
	body   []byte
}

func newModelService(t *testing.T) *modelService {
	t.Helper()
	s := &modelService{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.body = body
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range strings.SplitSeq(s.stream, "|") {
			var named struct {
				Type string `json:"type"`
			}
			if _ = json.Unmarshal([]byte(event), &named); named.Type != "" {
				fmt.Fprintf(w, "event: %s\n", named.Type)
			}
			fmt.Fprintf(w, "data: %s\n\n", event)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// ask lets the official SDK send a body and returns what it made of the reply.
func (s *modelService) ask(
	t *testing.T, node string, form modelwire.Form, stream string, body []byte,
) (message json.RawMessage, failure string) {
	t.Helper()
	s.mu.Lock()
	s.stream = stream
	s.mu.Unlock()
	base := s.URL
	if form == modelwire.OpenAIChat || form == modelwire.OpenAIResponses {
		base += "/v1"
	}
	cmd := exec.CommandContext(t.Context(), node, "modelsdk.mjs", string(form), base)
	cmd.Stdin = bytes.NewReader(body)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: modelsdk.mjs: got %v and %s, want no error", form, err, out)
	}
	var said struct {
		Message json.RawMessage `json:"message"`
		Error   string          `json:"error"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%s: modelsdk.mjs: got %s (%v), want a JSON document", form, out, err)
	}
	return said.Message, said.Error
}

// meaning decodes JSON for a comparison: members that are null, false or empty are left out,
// as are those that an SDK adds for its users.
func meaning(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("decode %s: got %v, want no error", data, err)
	}
	var clean func(any) any
	clean = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				switch member = clean(member); {
				case member == nil, member == false, name == "parsed", name == "parsed_arguments":
					delete(v, name)
				default:
					v[name] = member
				}
			}
			return v
		case []any:
			for i := range v {
				v[i] = clean(v[i])
			}
			if len(v) == 0 {
				return nil
			}
		case string:
			if v == "" {
				return nil
			}
		}
		return v
	}
	return clean(v)
}

func TestStreamsAreReadAsTheOfficialSDKsReadThem(t *testing.T) {
	t.Parallel()
	node := installed(t)
	for form, streams := range modelReplies {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel()
			s := newModelService(t)
			for name, stream := range streams {
				body, err := form.Encode(modelwire.Request{
					Model: "m-1", MaxTokens: 64, Stream: true,
					Messages: []modelwire.Message{{Role: modelwire.User, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: "go"}}}},
				})
				ok(t, err)
				theirs, failure := s.ask(t, node, form, stream, body)
				d := form.NewDecoder(1 << 20)
				var failed error
				for event := range strings.SplitSeq(stream, "|") {
					_, done, err := d.Event([]byte(event))
					if failed = err; done || err != nil {
						break
					}
				}
				ours, err := d.Reply()
				if failed != nil {
					err = failed
				}
				if (failure != "" && name != "truncated") != (err != nil) {
					t.Errorf("%s: we report %v, the SDK %q; want both to succeed or to fail", name, err, failure)
				}
				if err != nil || failure != "" { // an SDK may report a truncated reply as an error
					continue
				}
				if len(ours.Message.Raw) == 0 {
					ours.Message.Raw = jsonx.Raw("[]")
				}
				if d := cmp.Diff(meaning(t, theirs), meaning(t, ours.Message.Raw)); d != "" {
					t.Errorf("%s: the content of the reply (-SDK +ours)\n%s", name, d)
				}
			}
		})
	}
}

// modelRequests are conversations with every member that a request may have.
func modelRequests(t *testing.T, form modelwire.Form) []modelwire.Request {
	t.Helper()
	text := func(s string) []modelwire.Block { return []modelwire.Block{{Kind: modelwire.Text, Text: s}} }
	ask := modelwire.Message{Role: modelwire.User, Blocks: text("look é \u2028 </script>")}
	calls := modelwire.Message{Role: modelwire.Assistant, Blocks: append(text("I look"),
		modelwire.Block{Kind: modelwire.Call, ID: "c1", Name: "read", Input: `{"path":1}`},
		modelwire.Block{Kind: modelwire.Call, ID: "c2", Name: "list", Input: `{}`})}
	results := modelwire.Message{Role: modelwire.User, Blocks: []modelwire.Block{
		{Kind: modelwire.Result, ID: "c1", Name: "read", Text: "found"},
		{Kind: modelwire.Result, ID: "c2", Name: "list", Text: "denied", Failed: true},
	}}
	tools := []modelwire.Tool{
		{Name: "read", Description: "Reads.", Schema: jsonx.Raw(`{"type":"object","properties":{"path":{"type":"number"}},"required":["path"]}`)},
		{Name: "list"},
	}
	schema := &modelwire.Schema{Name: "answer", Schema: jsonx.Raw(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`)}
	list := []modelwire.Request{
		{Messages: []modelwire.Message{ask}},
		{Messages: []modelwire.Message{ask}, System: []string{"be brief"}},
		{Messages: []modelwire.Message{ask}, System: []string{"be brief", "be kind"}},
		{Messages: []modelwire.Message{{Role: modelwire.User, Blocks: append(text("a"), text("b")...)}}},
		{Messages: []modelwire.Message{ask}, Tools: tools},
		{Messages: []modelwire.Message{ask}, Tools: tools, Choice: modelwire.MustCall},
		{Messages: []modelwire.Message{ask}, Tools: tools, Choice: modelwire.MustNotCall},
		{Messages: []modelwire.Message{ask}, Schema: schema},
		{Messages: []modelwire.Message{ask}, Effort: "low"},
		{Messages: []modelwire.Message{ask}, Schema: schema, Effort: "high", System: []string{"be brief"}, Tools: tools, Cache: true},
		{Messages: []modelwire.Message{ask, calls, results}, Tools: tools, System: []string{"be brief"}},
		{Messages: []modelwire.Message{ask, calls, results, {Role: modelwire.Assistant, Blocks: text("done")}, ask}, Tools: tools},
	}
	for name, stream := range modelReplies[form] {
		d := form.NewDecoder(1 << 20)
		for event := range strings.SplitSeq(stream, "|") {
			if _, done, err := d.Event([]byte(event)); done || err != nil {
				break
			}
		}
		reply, err := d.Reply()
		if err != nil || len(reply.Message.Raw) == 0 || name == "failure" {
			continue
		}
		turns := []modelwire.Message{ask, reply.Message}
		if name == "calls" {
			turns = append(turns, results)
		} else {
			turns = append(turns, ask)
		}
		list = append(list, modelwire.Request{Messages: turns, Tools: tools, Effort: "low"})
	}
	for i := range list {
		list[i].Model, list[i].MaxTokens, list[i].Stream = "m-1", 64, true
	}
	return list
}

// TestRequestsHaveTheTypesOfTheOfficialSDKs lets the TypeScript compiler hold the bodies against
// the types of the SDKs, which reject unknown and missing members.
func TestRequestsHaveTheTypesOfTheOfficialSDKs(t *testing.T) {
	t.Parallel()
	installed(t)
	source := []string{
		`import type OpenAI from "openai";`, `import type Anthropic from "@anthropic-ai/sdk";`,
		`// @ts-expect-error The compiler must object to a member that does not exist.`,
		`export const faulty: OpenAI.ChatCompletionCreateParams = { model: "m", messages: [], max_token: 1 };`,
	}
	for form, typed := range map[modelwire.Form]string{
		modelwire.OpenAIChat:        "OpenAI.ChatCompletionCreateParams",
		modelwire.OpenAIResponses:   "OpenAI.Responses.ResponseCreateParams",
		modelwire.AnthropicMessages: "Anthropic.MessageCreateParams",
	} {
		for i, r := range modelRequests(t, form) {
			body, err := form.Encode(r)
			ok(t, err)
			source = append(source, fmt.Sprintf("export const %s%d: %s = %s;", strings.ReplaceAll(string(form), "-", "_"), i, typed, body))
		}
	}
	dir := t.TempDir()
	modules, err := filepath.Abs("node_modules")
	ok(t, err)
	ok(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	ok(t, os.WriteFile(filepath.Join(dir, "bodies.ts"), []byte(strings.Join(source, "\n")), 0o600))
	cmd := exec.CommandContext(t.Context(), filepath.Join(modules, ".bin", "tsc"), "--noEmit", "--strict", "--skipLibCheck",
		"--target", "es2022", "--module", "nodenext", "--moduleResolution", "nodenext", "--types", "", "bodies.ts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the TypeScript compiler: got %v and\n%s\nwant no error", err, out)
	}
}

// TestGeminisSDKSendsTheSameBodies compares with what the SDK sends, because its types are those
// before its own conversion.
func TestGeminisSDKSendsTheSameBodies(t *testing.T) {
	t.Parallel()
	node := installed(t)
	s := newModelService(t)
	for i, r := range modelRequests(t, modelwire.GeminiGenerate) {
		body, err := modelwire.GeminiGenerate.Encode(r)
		ok(t, err)
		if _, failure := s.ask(t, node, modelwire.GeminiGenerate, modelReplies[modelwire.GeminiGenerate]["text"], body); failure != "" {
			t.Errorf("conversation %d: the SDK reports %s, want no failure", i, failure)
		}
		theirs, _ := meaning(t, s.body).(map[string]any)
		if system, is := theirs["systemInstruction"].(map[string]any); is {
			delete(system, "role") // the SDK gives it a role, which has no meaning there
		}
		if d := cmp.Diff(any(theirs), meaning(t, body)); d != "" {
			t.Errorf("conversation %d: the body (-SDK +ours)\n%s", i, d)
		}
	}
}
