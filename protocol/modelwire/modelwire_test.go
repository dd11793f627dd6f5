package modelwire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// reply is a response of each form with reasoning that only the service can read, two texts, two
// calls with one malformed input, and content of an unknown kind.
var reply = map[modelwire.Form]struct{ whole, raw, stream string }{
	modelwire.OpenAIChat: {
		whole: `{"model":"m-1","choices":[{"message":RAW,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":2}}}`,
		raw:   `{"role":"assistant","content":"I look é","reasoning_content":"hm","signed":{"x": 1.50},"tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"path\": 1.0}"},"extra":"kept"},{"id":"c2","type":"function","function":{"name":"list","arguments":"{oops"}}]}`,
		stream: `{"model":"m-1","choices":[{"delta":{"role":"assistant","content":""}}]}
{"choices":[{"delta":{"content":"I lo"}}]}
{"choices":[{"delta":{"content":"ok é"}}]}
{"choices":[{"delta":{"role":"assistant","reasoning_content":"h"}}]}
{"choices":[{"delta":{"reasoning_content":"m","signed":{"x": 1.50}}}]}
{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"read","arguments":""},"extra":"kept"}]}}]}
{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\": "}}]}}]}
{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"list","arguments":"{oo"}},{"index":0,"function":{"arguments":"1.0}"}}]}}]}
{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"ps"}}]},"finish_reason":"tool_calls"}]}
{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":2}}}
[DONE]`,
	},
	modelwire.AnthropicMessages: {
		whole: `{"type":"message","role":"assistant","model":"m-1","content":RAW,"stop_reason":"tool_use","usage":{"input_tokens":1,"cache_read_input_tokens":5,"cache_creation_input_tokens":3,"output_tokens":4}}`,
		raw:   `[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"redacted_thinking","data":"Zg=="},{"type":"text","text":"I look é"},{"type":"tool_use","id":"c1","name":"read","input":{"path": 1.0}},{"type":"future","deep":{"n": 1.50}},{"type":"tool_use","id":"c2","name":"list","input":{}}]`,
		stream: `{"type":"message_start","message":{"model":"m-1","usage":{"input_tokens":1,"cache_read_input_tokens":5,"cache_creation_input_tokens":3,"output_tokens":1}}}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"ping"}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}
{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"Zg=="}}
{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I lo"}}
{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"ok é"}}
{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"c1","name":"read","input":{}}}
{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"path\": "}}
{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"1.0}"}}
{"type":"content_block_start","index":4,"content_block":{"type":"future","deep":{"n": 1.50}}}
{"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"c2","name":"list","input":{}}}
{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{oops"}}
{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":4}}
{"type":"message_stop"}`,
	},
	modelwire.OpenAIResponses: {
		whole: `{"status":"completed","model":"m-1","error":null,"output":RAW,"usage":{"input_tokens":9,"output_tokens":4,"input_tokens_details":{"cached_tokens":5},"output_tokens_details":{"reasoning_tokens":2}}}`,
		raw:   `[{"type":"reasoning","id":"r1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"Zg=="},{"type":"message","id":"m1","role":"assistant","content":[{"type":"output_text","text":"I look é","annotations":[]}]},{"type":"function_call","id":"f1","call_id":"c1","name":"read","arguments":"{\"path\": 1.0}"},{"type":"future","n":1.50},{"type":"function_call","id":"f2","call_id":"c2","name":"list","arguments":"{oops"}]`,
		stream: `{"type":"response.created","response":{"status":"in_progress"}}
{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"r1","summary":[]}}
{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"hm"}
{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"r1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"Zg=="}}
{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"m1","role":"assistant","content":[]}}
{"type":"response.output_text.delta","output_index":1,"delta":"I lo"}
{"type":"response.output_text.delta","output_index":1,"delta":"ok é"}
{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"m1","role":"assistant","content":[{"type":"output_text","text":"I look é","annotations":[]}]}}
{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"f1","call_id":"c1","name":"read","arguments":""}}
{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"path\": "}
{"type":"response.function_call_arguments.delta","output_index":2,"delta":"1.0}"}
{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"f1","call_id":"c1","name":"read","arguments":"{\"path\": 1.0}"}}
{"type":"response.output_item.added","output_index":3,"item":{"type":"future","n":1.50}}
{"type":"response.output_item.done","output_index":3,"item":{"type":"future","n":1.50}}
{"type":"response.output_item.added","output_index":4,"item":{"type":"function_call","id":"f2","call_id":"c2","name":"list","arguments":""}}
{"type":"response.function_call_arguments.delta","output_index":4,"delta":"{oops"}
{"type":"response.output_item.done","output_index":4,"item":{"type":"function_call","id":"f2","call_id":"c2","name":"list","arguments":"{oops"}}
{"type":"response.completed","response":{"status":"completed","model":"m-1","output":[],"usage":{"input_tokens":9,"output_tokens":4,"input_tokens_details":{"cached_tokens":5},"output_tokens_details":{"reasoning_tokens":2}}}}`,
	},
	modelwire.GeminiGenerate: {
		whole: `{"modelVersion":"m-1","candidates":[{"content":RAW,"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2,"thoughtsTokenCount":2,"cachedContentTokenCount":5}}`,
		raw:   `{"role":"model","parts":[{"thought":true,"text":"hm"},{"text":"I look é"},{"functionCall":{"id":"c1","name":"read","args":{"path": 1.0}},"thoughtSignature":"c2ln"},{"future":{"n": 1.50}},{"functionCall":{"name":"list","args":{}}}]}`,
		stream: `{"modelVersion":"m-1","candidates":[{"content":{"role":"model","parts":[{"thought":true,"text":"hm"}]}}]}
{"candidates":[{"content":{"role":"model","parts":[{"text":"I look é"}]}}]}
{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"read","args":{"path": 1.0}},"thoughtSignature":"c2ln"},{"future":{"n": 1.50}}]}}]}
{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"list","args":{}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2,"thoughtsTokenCount":2,"cachedContentTokenCount":5}}`,
	},
}

// streamed feeds a stream to a decoder and returns the reply and what was emitted, one line per
// text, thought or call.
func streamed(form modelwire.Form, maxText int, events string) (modelwire.Reply, string, error) {
	d := form.NewDecoder(maxText)
	text := map[modelwire.BlockKind]string{}
	calls := map[int]string{}
	for event := range strings.SplitSeq(events, "\n") {
		pieces, done, err := d.Event([]byte(event))
		if err != nil {
			return modelwire.Reply{}, "", err
		}
		for _, p := range pieces {
			if p.Kind == modelwire.Call {
				if p.Name != "" {
					calls[p.Call] += p.Name + " "
				}
				calls[p.Call] += p.Text
			} else {
				text[p.Kind] += p.Text
			}
		}
		if done {
			break
		}
	}
	r, err := d.Reply()
	out := []string{text[modelwire.Thinking], text[modelwire.Text]}
	for i := range len(calls) {
		out = append(out, calls[i])
	}
	return r, strings.Join(out, "|"), err
}

func TestAReplyIsTheSameWholeAndStreamedInEveryForm(t *testing.T) {
	t.Parallel()
	for form, c := range reply {
		whole, err := form.Decode([]byte(strings.Replace(c.whole, "RAW", c.raw, 1)))
		if err != nil {
			t.Fatalf("%s: decode the response: got %v, want no error", form, err)
		}
		if string(whole.Message.Raw) != c.raw {
			t.Errorf("%s: raw content of a whole response\ngot  %s\nwant %s", form, whole.Message.Raw, c.raw)
		}
		var got []string
		for _, b := range whole.Message.Blocks {
			if b.Kind != modelwire.Opaque {
				got = append(got, string(b.Kind)+":"+b.Text+b.Name+" "+b.Input)
			}
		}
		second := "call:list {oops" // only a stream or a string can carry malformed input
		if form == modelwire.AnthropicMessages || form == modelwire.GeminiGenerate {
			second = "call:list {}"
		}
		want := []string{"thinking:hm ", "text:I look é ", `call:read {"path": 1.0}`, second}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: blocks (-want +got)\n%s", form, d)
		}
		if whole.Stop != modelwire.StopCalls || whole.Model != "m-1" {
			t.Errorf("%s: stop %q of model %q, want calls of m-1", form, whole.Stop, whole.Model)
		}
		u := whole.Usage
		if u.In != 9 || u.Out != 4 || u.CacheRead != 5 {
			t.Errorf("%s: usage %+v, want 9 in of which 5 were cached, 4 out", form, u)
		}

		live, pieces, err := streamed(form, 1000, c.stream)
		if err != nil {
			t.Fatalf("%s: decode the stream: got %v, want no error", form, err)
		}
		if !bytes.Equal(canonical(t, live.Message.Raw), canonical(t, whole.Message.Raw)) {
			t.Errorf("%s: raw content of a stream\ngot  %s\nwant %s", form, live.Message.Raw, whole.Message.Raw)
		}
		if form == modelwire.AnthropicMessages {
			whole.Message.Blocks[len(whole.Message.Blocks)-1].Input = "{oops"
		}
		if d := cmp.Diff(whole.Message.Blocks, live.Message.Blocks); d != "" || live.Stop != whole.Stop || live.Usage != whole.Usage {
			t.Errorf("%s: streamed %q %+v, want %q %+v; blocks (-want +got)\n%s", form, live.Stop, live.Usage, whole.Stop, whole.Usage, d)
		}
		wantPieces := `hm|I look é|read {"path": 1.0}|list {oops`
		if form == modelwire.GeminiGenerate {
			wantPieces = `hm|I look é|read {"path": 1.0}|list {}`
		}
		if pieces != wantPieces {
			t.Errorf("%s: pieces %q, want %q", form, pieces, wantPieces)
		}
		if cut, _, err := streamed(form, 3, c.stream); err != nil || cut.Stop != modelwire.StopLength {
			t.Errorf("%s: a stream with more text than allowed: stop %q, %v; want length, no error", form, cut.Stop, err)
		}
	}
}

// canonical orders the members and keeps the numbers as written.
func canonical(t *testing.T, raw jsonx.Raw) []byte {
	t.Helper()
	out, err := jsonx.Sorted(raw)
	if err != nil {
		t.Fatalf("sort %s: got %v, want no error", raw, err)
	}
	return out
}

// conversation returns a request whose third message is a reply of one form.
func conversation(assistant modelwire.Message) modelwire.Request {
	return modelwire.Request{
		Model: "m-1", MaxTokens: 64, Stream: true, System: []string{"be brief"},
		Tools: []modelwire.Tool{
			{Name: "read", Description: "Reads.", Schema: jsonx.Raw(`{"type":"object","properties":{"path":{"type":"number"}}}`)},
			{Name: "list"},
		},
		Messages: []modelwire.Message{
			{Role: modelwire.User, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: "look"}}},
			assistant,
			{Role: modelwire.User, Blocks: []modelwire.Block{
				{Kind: modelwire.Result, ID: "c1", Name: "read", Text: "found"},
				{Kind: modelwire.Result, ID: "c2", Name: "list", Text: "denied", Failed: true},
			}},
		},
	}
}

func TestARequestRepeatsWhatItsServiceSentAndRebuildsWhatAnotherSent(t *testing.T) {
	t.Parallel()
	for from, c := range reply {
		r, err := from.Decode([]byte(strings.Replace(c.whole, "RAW", c.raw, 1)))
		if err != nil {
			t.Fatalf("%s: decode: got %v, want no error", from, err)
		}
		for _, to := range modelwire.Forms() {
			body, err := to.Encode(conversation(r.Message))
			if err != nil || !jsonx.Valid(body) {
				t.Errorf("%s to %s: got %v and %s, want one JSON document", from, to, err, body)
			}
			inner := strings.Trim(c.raw, "[]")
			if from == to && !bytes.Contains(body, []byte(inner)) {
				t.Errorf("%s: the request lacks the bytes of the reply\ngot  %s\nwant %s", to, body, inner)
			}
			if from != to {
				for _, hidden := range []string{"Zg==", "c2ln", `"hm"`, "future", "signed"} {
					if bytes.Contains(body, []byte(hidden)) {
						t.Errorf("%s to %s: got %s, want it without %s", from, to, body, hidden)
					}
				}
				for _, kept := range []string{"I look é", "found", "denied", "read", "list"} {
					if !bytes.Contains(body, []byte(kept)) {
						t.Errorf("%s to %s: got %s, want it with %s", from, to, body, kept)
					}
				}
			}
		}
	}
}

func TestTheNextRequestBeginsWithTheLast(t *testing.T) {
	t.Parallel()
	for form, c := range reply {
		r, err := form.Decode([]byte(strings.Replace(c.whole, "RAW", c.raw, 1)))
		if err != nil {
			t.Fatalf("%s: decode: got %v, want no error", form, err)
		}
		next := conversation(r.Message)
		last := next
		last.Messages = next.Messages[:1]
		first, err := form.Encode(last)
		second, err2 := form.Encode(next)
		if err = errors.Join(err, err2); err != nil {
			t.Fatalf("%s: encode: got %v, want no error", form, err)
		}
		if prefix := bytes.TrimSuffix(first, []byte("]}")); !bytes.HasPrefix(second, prefix) {
			t.Errorf("%s: the second request\ngot  %s\nwant one that begins with %s", form, second, prefix)
		}
	}
}

func TestRequestsInEveryForm(t *testing.T) {
	t.Parallel()
	r := conversation(modelwire.Message{Role: modelwire.Assistant, Blocks: []modelwire.Block{
		{Kind: modelwire.Thinking, Text: "hm"},
		{Kind: modelwire.Text, Text: "I look"},
		{Kind: modelwire.Call, ID: "c1", Name: "read", Input: `{"path":1}`},
		{Kind: modelwire.Call, ID: "c2", Name: "list", Input: `{oops`},
	}})
	r.Choice, r.Effort, r.Cache = modelwire.MustCall, "low", true
	r.Schema = &modelwire.Schema{Name: "answer", Schema: jsonx.Raw(`{"type":"object"}`)}
	for form, want := range map[modelwire.Form]string{
		modelwire.OpenAIChat:        `{"model":"m-1","max_tokens":64,"stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"low","response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":{"type":"object"}}},"tools":[{"type":"function","function":{"name":"read","description":"Reads.","parameters":{"type":"object","properties":{"path":{"type":"number"}}}}},{"type":"function","function":{"name":"list","parameters":{"type":"object","properties":{}}}}],"tool_choice":"required","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"look"},{"role":"assistant","content":"I look","tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"path\":1}"}},{"id":"c2","type":"function","function":{"name":"list","arguments":"{oops"}}]},{"role":"tool","content":"found","tool_call_id":"c1"},{"role":"tool","content":"denied","tool_call_id":"c2"}]}`,
		modelwire.AnthropicMessages: `{"model":"m-1","max_tokens":64,"stream":true,"cache_control":{"type":"ephemeral"},"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},"tools":[{"name":"read","description":"Reads.","input_schema":{"type":"object","properties":{"path":{"type":"number"}}}},{"name":"list","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"any"},"system":"be brief","messages":[{"role":"user","content":"look"},{"role":"assistant","content":[{"type":"text","text":"I look"},{"type":"tool_use","id":"c1","name":"read","input":{"path":1}},{"type":"tool_use","id":"c2","name":"list","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"found"},{"type":"tool_result","tool_use_id":"c2","content":"denied","is_error":true}]}]}`,
		modelwire.OpenAIResponses:   `{"model":"m-1","store":false,"max_output_tokens":64,"stream":true,"reasoning":{"effort":"low"},"include":["reasoning.encrypted_content"],"text":{"format":{"type":"json_schema","name":"answer","strict":true,"schema":{"type":"object"}}},"tools":[{"type":"function","name":"read","description":"Reads.","strict":false,"parameters":{"type":"object","properties":{"path":{"type":"number"}}}},{"type":"function","name":"list","strict":false,"parameters":{"type":"object","properties":{}}}],"tool_choice":"required","instructions":"be brief","input":[{"role":"user","content":"look"},{"role":"assistant","content":"I look"},{"type":"function_call","call_id":"c1","name":"read","arguments":"{\"path\":1}"},{"type":"function_call","call_id":"c2","name":"list","arguments":"{oops"},{"type":"function_call_output","call_id":"c1","output":"found"},{"type":"function_call_output","call_id":"c2","output":"denied"}]}`,
		modelwire.GeminiGenerate:    `{"systemInstruction":{"parts":[{"text":"be brief"}]},"tools":[{"functionDeclarations":[{"name":"read","description":"Reads.","parametersJsonSchema":{"type":"object","properties":{"path":{"type":"number"}}}},{"name":"list","parametersJsonSchema":{"type":"object","properties":{}}}]}],"toolConfig":{"functionCallingConfig":{"mode":"ANY"}},"generationConfig":{"maxOutputTokens":64,"responseMimeType":"application/json","responseJsonSchema":{"type":"object"},"thinkingConfig":{"thinkingLevel":"LOW"}},"contents":[{"role":"user","parts":[{"text":"look"}]},{"role":"model","parts":[{"text":"I look"},{"functionCall":{"id":"c1","name":"read","args":{"path":1}}},{"functionCall":{"id":"c2","name":"list","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"read","response":{"output":"found"}}},{"functionResponse":{"id":"c2","name":"list","response":{"error":"denied"}}}]}]}`,
	} {
		got, err := form.Encode(r)
		if err != nil || string(got) != want {
			t.Errorf("%s: encode: %v\ngot  %s\nwant %s", form, err, got, want)
		}
	}
}

func TestRepliesThatEndOtherwise(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		form   modelwire.Form
		events string
		want   string // the stop, or a part of the error
	}{
		"refused (chat)":          {modelwire.OpenAIChat, `{"choices":[{"delta":{"refusal":"no"},"finish_reason":"stop"}]}`, "refused"},
		"filtered (chat)":         {modelwire.OpenAIChat, `{"choices":[{"delta":{},"finish_reason":"content_filter"}]}`, "refused"},
		"cut by the service":      {modelwire.OpenAIChat, `{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}`, "length"},
		"broken (chat)":           {modelwire.OpenAIChat, `{"choices":[{"delta":{"content":"a"}}]}`, "without its end"},
		"failed (chat)":           {modelwire.OpenAIChat, `{"error":{"message":"boom"}}`, "boom"},
		"no JSON":                 {modelwire.OpenAIChat, `nonsense`, "malformed"},
		"calls without indexes":   {modelwire.OpenAIChat, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"x\",\"arguments\":\"{\"}}]}}]}\n{\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"}\"}}]},\"finish_reason\":\"stop\"}]}", "calls"},
		"refused (messages)":      {modelwire.AnthropicMessages, "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\"}}\n{\"type\":\"message_stop\"}", "refused"},
		"paused (messages)":       {modelwire.AnthropicMessages, "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"pause_turn\"}}\n{\"type\":\"message_stop\"}", "paused"},
		"broken (messages)":       {modelwire.AnthropicMessages, `{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`, "without its end"},
		"overloaded (messages)":   {modelwire.AnthropicMessages, `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`, "busy"},
		"cut (responses)":         {modelwire.OpenAIResponses, `{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}`, "length"},
		"failed (responses)":      {modelwire.OpenAIResponses, `{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"boom"}}}`, "boom"},
		"error event (responses)": {modelwire.OpenAIResponses, `{"type":"error","message":"boom"}`, "boom"},
		"broken (responses)":      {modelwire.OpenAIResponses, `{"type":"response.output_text.delta","output_index":0,"delta":"a"}`, "without its end"},
		"blocked (generate)":      {modelwire.GeminiGenerate, `{"promptFeedback":{"blockReason":"SAFETY"}}`, "refused"},
		"malformed (generate)":    {modelwire.GeminiGenerate, `{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}`, "other"},
		"broken (generate)":       {modelwire.GeminiGenerate, `{"candidates":[{"content":{"role":"model","parts":[{"text":"a"}]}}]}`, "without its end"},
		"failed (generate)":       {modelwire.GeminiGenerate, `{"error":{"code":503,"message":"boom"}}`, "boom"},
	} {
		r, _, err := streamed(c.form, 100, c.events)
		got := string(r.Stop)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// FuzzStream feeds arbitrary events to every form. What is decoded must be encodable again.
func FuzzStream(f *testing.F) {
	for _, c := range reply {
		f.Add(c.stream)
	}
	f.Fuzz(func(t *testing.T, events string) {
		for _, form := range modelwire.Forms() {
			r, _, err := streamed(form, 50, events)
			if err != nil {
				continue
			}
			body, err := form.Encode(conversation(r.Message))
			if err != nil || !jsonx.Valid(body) {
				t.Errorf("%s: encode what was decoded: got %v and %s, want one JSON document", form, err, body)
			}
		}
	})
}
