package scriptedmodel

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

var ids atomic.Int64

// newID returns an id that no other answer has, which programs require.
func newID() string { return strconv.FormatInt(ids.Add(1), 10) }

// responses is the Responses API of OpenAI.
type responses struct{}

func (responses) read(body []byte) (r request, err error) {
	var doc struct {
		Instructions string `json:"instructions"`
		Input        []struct {
			Type    string          `json:"type"`
			Role    string          `json:"role"`
			Content content         `json:"content"`
			Output  json.RawMessage `json:"output"`
		} `json:"input"`
		Tools []struct {
			Type       string `json:"type"`
			Name       string `json:"name"`
			Parameters schema `json:"parameters"`
		} `json:"tools"`
		Stream bool `json:"stream"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return r, err
	}
	r.stream = doc.Stream
	r.items = append(r.items, item{system, doc.Instructions})
	for _, in := range doc.Input {
		switch {
		case strings.HasSuffix(in.Type, "_call_output"):
			r.items = append(r.items, item{result, string(in.Output)})
		case in.Role != "":
			r.items = append(r.items, item{roleOf(in.Role), in.Content.text()})
		}
	}
	for _, t := range doc.Tools {
		switch t.Type {
		case "function":
			r.tools = append(r.tools, t.Parameters.tool(t.Name))
		case "custom":
			r.tools = append(r.tools, tool{name: t.Name, free: true})
		case "tool_search":
			r.search = true
		}
		r.names = append(r.names, cmp.Or(t.Name, t.Type))
	}
	return r, nil
}

func (responses) write(w http.ResponseWriter, a answer, stream bool) {
	out := object{
		"type": "message", "id": "msg_" + newID(), "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": a.say, "annotations": []any{}}},
	}
	if a.tool != "" {
		out = object{
			"type": "function_call", "id": "fc_" + newID(), "call_id": "call_" + newID(), "name": a.tool, "arguments": a.arguments(),
			"status": "completed",
		}
		if a.namespace != "" {
			out["namespace"] = a.namespace
		}
		if a.free != "" {
			out["type"], out["input"] = "custom_tool_call", a.free
			delete(out, "arguments")
		}
	}
	id := "resp_" + newID()
	whole := object{
		"id": id, "object": "response", "status": "completed", "output": []any{out},
		"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": nil, "output_tokens_details": nil},
	}
	if !stream {
		writeJSON(w, http.StatusOK, whole)
		return
	}
	writeEvents(
		w,
		event{"response.created", object{"type": "response.created", "response": object{"id": id}}},
		event{"response.output_item.done", object{"type": "response.output_item.done", "output_index": 0, "item": out}},
		event{"response.completed", object{"type": "response.completed", "response": whole}},
	)
}

func (responses) failure(f Failure) (int, object) { return openAIFailure(f) }

func openAIFailure(f Failure) (int, object) {
	doc := func(kind, code, text string) object {
		return object{"error": object{"type": kind, "code": code, "message": text}}
	}
	switch f {
	case Auth:
		return http.StatusUnauthorized, doc("invalid_request_error", "invalid_api_key", "Incorrect API key provided.")
	case Billing:
		return http.StatusTooManyRequests, doc("insufficient_quota", "insufficient_quota",
			"You exceeded your current quota, please check your plan and billing details.")
	}
	return http.StatusTooManyRequests, doc("requests", "rate_limit_exceeded", "Rate limit reached for requests.")
}

// completions is the chat completions API of OpenAI.
type completions struct{}

func (completions) read(body []byte) (r request, err error) {
	var doc struct {
		Messages []struct {
			Role    string  `json:"role"`
			Content content `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name       string `json:"name"`
				Parameters schema `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
		Stream bool `json:"stream"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return r, err
	}
	r.stream = doc.Stream
	for _, m := range doc.Messages {
		r.items = append(r.items, item{roleOf(m.Role), m.Content.text()})
	}
	for _, t := range doc.Tools {
		r.tools = append(r.tools, t.Function.Parameters.tool(t.Function.Name))
	}
	return r, nil
}

func (completions) write(w http.ResponseWriter, a answer, stream bool) {
	msg, why := object{"role": "assistant", "content": a.say}, "stop"
	if a.tool != "" {
		call := object{"index": 0, "id": "call_" + newID(), "type": "function", "function": object{"name": a.tool, "arguments": a.arguments()}}
		msg, why = object{"role": "assistant", "tool_calls": []any{call}}, "tool_calls"
	}
	chunk := func(kind string, choice object) object {
		choice["index"] = 0
		return object{
			"id": "chatcmpl-" + newID(), "object": kind, "created": 1, "model": "fake", "choices": []any{choice},
			"usage": object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
		}
	}
	if !stream {
		writeJSON(w, http.StatusOK, chunk("chat.completion", object{"message": msg, "finish_reason": why}))
		return
	}
	const kind = "chat.completion.chunk"
	writeEvents(w, event{"", chunk(kind, object{"delta": msg, "finish_reason": nil})},
		event{"", chunk(kind, object{"delta": object{}, "finish_reason": why})}, event{"", "[DONE]"})
}

func (completions) failure(f Failure) (int, object) { return openAIFailure(f) }
