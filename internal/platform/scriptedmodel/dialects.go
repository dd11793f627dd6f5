package scriptedmodel

import (
	"encoding/json"
	"net/http"
	"strings"
)

// dialect is one API of models.
type dialect interface {
	read(body []byte) (request, error)
	write(w http.ResponseWriter, a answer, stream bool)
	failure(f Failure) (status int, doc object)
}

// dialectOf finds the dialect of a path; nil if it is unknown.
func dialectOf(path string) dialect {
	switch {
	case strings.HasSuffix(path, "/messages"), strings.HasSuffix(path, "/messages/count_tokens"):
		return messages{}
	case strings.HasSuffix(path, "/responses"):
		return responses{}
	case strings.HasSuffix(path, "/chat/completions"):
		return completions{}
	case strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, ":streamGenerateContent"),
		strings.HasSuffix(path, ":countTokens"):
		return gemini{}
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who asked may be gone
}

// event is one of a stream; its name may be "".
type event struct {
	name string
	data any
}

func writeEvents(w http.ResponseWriter, list ...event) {
	w.Header().Set("Content-Type", "text/event-stream")
	var out strings.Builder
	for _, e := range list {
		data, ok := e.data.(string)
		if !ok {
			raw, _ := json.Marshal(e.data) // of values made here
			data = string(raw)
		}
		if e.name != "" {
			out.WriteString("event: " + e.name + "\n")
		}
		out.WriteString("data: " + data + "\n\n")
	}
	_, _ = w.Write([]byte(out.String())) // who asked may be gone
}

// arguments is a call's arguments as text.
func (a answer) arguments() string {
	raw, _ := json.Marshal(a.args) // of values made here
	return string(raw)
}

// messages is the Messages API of Anthropic.
type messages struct{}

func (messages) read(body []byte) (r request, err error) {
	var doc struct {
		System   content `json:"system"`
		Messages []struct {
			Role    string  `json:"role"`
			Content content `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name   string `json:"name"`
			Schema schema `json:"input_schema"`
		} `json:"tools"`
		Stream bool `json:"stream"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return r, err
	}
	r.stream = doc.Stream
	r.items = append(r.items, item{system, doc.System.text()})
	for _, m := range doc.Messages {
		for _, p := range m.Content {
			if p.Type == "tool_result" {
				r.items = append(r.items, item{result, p.Content.text()})
			} else {
				r.items = append(r.items, item{roleOf(m.Role), p.Text})
			}
		}
	}
	for _, t := range doc.Tools {
		r.tools = append(r.tools, t.Schema.tool(t.Name))
	}
	return r, nil
}

func (messages) write(w http.ResponseWriter, a answer, stream bool) {
	block, begun, delta, why := object{"type": "text", "text": a.say}, object{"type": "text", "text": ""},
		object{"type": "text_delta", "text": a.say}, "end_turn"
	if a.tool != "" {
		block = object{"type": "tool_use", "id": "toolu_" + newID(), "name": a.tool, "input": a.args}
		begun = object{"type": "tool_use", "id": block["id"], "name": a.tool, "input": object{}}
		delta, why = object{"type": "input_json_delta", "partial_json": a.arguments()}, "tool_use"
	}
	usage := object{"input_tokens": 1, "output_tokens": 1}
	msg := object{
		"id": "msg_" + newID(), "type": "message", "role": "assistant", "model": "fake", "content": []any{}, "stop_reason": nil,
		"stop_sequence": nil, "usage": usage,
	}
	if !stream {
		msg["content"], msg["stop_reason"] = []any{block}, why
		writeJSON(w, http.StatusOK, msg)
		return
	}
	var list []event
	add := func(name string, rest object) {
		rest["type"] = name
		list = append(list, event{name, rest})
	}
	add("message_start", object{"message": msg})
	add("content_block_start", object{"index": 0, "content_block": begun})
	add("content_block_delta", object{"index": 0, "delta": delta})
	add("content_block_stop", object{"index": 0})
	add("message_delta", object{"delta": object{"stop_reason": why, "stop_sequence": nil}, "usage": object{"output_tokens": 3}})
	add("message_stop", object{})
	writeEvents(w, list...)
}

func (messages) failure(f Failure) (int, object) {
	doc := func(kind, text string) object {
		return object{"type": "error", "error": object{"type": kind, "message": text}}
	}
	switch f {
	case Auth:
		return http.StatusUnauthorized, doc("authentication_error", "invalid x-api-key")
	case Billing:
		return http.StatusBadRequest, doc("invalid_request_error",
			"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.")
	}
	return http.StatusTooManyRequests, doc("rate_limit_error", "This request would exceed your rate limit.")
}

// gemini is generateContent.
type gemini struct{}

func (gemini) read(body []byte) (r request, err error) {
	type said struct {
		Role  string `json:"role"`
		Parts []struct {
			Text     string          `json:"text"`
			Response json.RawMessage `json:"functionResponse"`
		} `json:"parts"`
	}
	var doc struct {
		System   said   `json:"systemInstruction"`
		Contents []said `json:"contents"`
		Tools    []struct {
			Functions []struct {
				Name       string `json:"name"`
				Parameters schema `json:"parameters"`
				Schema     schema `json:"parametersJsonSchema"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return r, err
	}
	doc.System.Role = "system"
	for _, c := range append([]said{doc.System}, doc.Contents...) {
		for _, p := range c.Parts {
			if len(p.Response) > 0 {
				r.items = append(r.items, item{result, string(p.Response)})
			} else {
				r.items = append(r.items, item{roleOf(c.Role), p.Text})
			}
		}
	}
	for _, group := range doc.Tools {
		for _, f := range group.Functions {
			if len(f.Parameters.Properties) == 0 {
				f.Parameters = f.Schema
			}
			r.tools = append(r.tools, f.Parameters.tool(f.Name))
		}
	}
	return r, nil
}

func (gemini) write(w http.ResponseWriter, a answer, stream bool) {
	part := object{"text": a.say}
	if a.tool != "" {
		part = object{"functionCall": object{"name": a.tool, "args": a.args}}
	}
	doc := object{
		"candidates":    []any{object{"content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	}
	if stream {
		writeEvents(w, event{"", doc})
		return
	}
	writeJSON(w, http.StatusOK, doc)
}

func (gemini) failure(f Failure) (int, object) {
	doc := func(code int, status, text string) (int, object) {
		return code, object{"error": object{"code": code, "message": text, "status": status}}
	}
	switch f {
	case Auth:
		return doc(http.StatusUnauthorized, "UNAUTHENTICATED", "API key not valid. Please pass a valid API key.")
	case Billing:
		return doc(http.StatusForbidden, "PERMISSION_DENIED", "This API method requires billing to be enabled.")
	}
	return doc(http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).")
}
