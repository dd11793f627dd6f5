package modelwire

import (
	"errors"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// OpenAI's Chat Completions, which most other services and local servers accept too.

type chatRequest struct {
	Model               string         `json:"model"`
	MaxTokens           int            `json:"max_tokens,omitzero"`
	MaxCompletionTokens int            `json:"max_completion_tokens,omitzero"`
	Stream              bool           `json:"stream,omitzero"`
	StreamOptions       *streamOptions `json:"stream_options,omitzero"`
	Effort              string         `json:"reasoning_effort,omitzero"`
	Format              *chatFormat    `json:"response_format,omitzero"`
	Tools               []chatTool     `json:"tools,omitzero"`
	ToolChoice          string         `json:"tool_choice,omitzero"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatFormat struct {
	Type   string     `json:"type"`
	Schema namedShape `json:"json_schema"`
}

// namedShape is a schema with its name, and a function of the model in two of the forms.
type namedShape struct {
	Type        string    `json:"type,omitzero"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitzero"`
	Strict      *bool     `json:"strict,omitzero"`
	Schema      jsonx.Raw `json:"schema,omitzero"`
	Parameters  jsonx.Raw `json:"parameters,omitzero"`
}

type chatTool struct {
	Type     string     `json:"type"`
	Function namedShape `json:"function"`
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content,omitzero"` // string or []typedText
	ToolCalls  []chatCall `json:"tool_calls,omitzero"`
	ToolCallID string     `json:"tool_call_id,omitzero"`
}

type typedText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// textContent returns a plain string for one text, because not every compatible service
// supports a list, and a list for several.
func textContent(kind string, texts []string) any {
	if len(texts) == 1 {
		return texts[0]
	}
	parts := make([]typedText, len(texts))
	for i, t := range texts {
		parts[i] = typedText{kind, t}
	}
	return parts
}

// texts returns the text blocks of a message.
func (m Message) texts() (out []string) {
	for _, b := range m.Blocks {
		if b.Kind == Text {
			out = append(out, b.Text)
		}
	}
	return out
}

func encodeChat(r Request) ([]byte, error) {
	body := chatRequest{Model: r.Model, Stream: r.Stream, Effort: r.Effort}
	if r.Stream {
		body.StreamOptions = &streamOptions{true}
	}
	if r.NewTokenLimit {
		body.MaxCompletionTokens = r.MaxTokens
	} else {
		body.MaxTokens = r.MaxTokens
	}
	if r.Schema != nil {
		strict := true
		body.Format = &chatFormat{"json_schema", namedShape{Name: r.Schema.Name, Strict: &strict, Schema: r.Schema.Schema}}
	}
	for _, t := range r.Tools {
		body.Tools = append(body.Tools, chatTool{"function", namedShape{Name: t.Name, Description: t.Description, Parameters: t.schema()}})
	}
	if len(r.Tools) > 0 {
		body.ToolChoice = string(r.Choice)
	}
	var messages []jsonx.Raw
	add := func(m chatMessage) error {
		data, err := jsonx.Marshal(m)
		messages = append(messages, data)
		return err
	}
	if len(r.System) > 0 {
		if err := add(chatMessage{Role: "system", Content: textContent("text", r.System)}); err != nil {
			return nil, err
		}
	}
	for _, m := range r.Messages {
		if m.sentBy(OpenAIChat) {
			messages = append(messages, m.Raw)
			continue
		}
		out := chatMessage{Role: string(m.Role)}
		for _, b := range m.Blocks {
			switch b.Kind {
			case Call:
				out.ToolCalls = append(out.ToolCalls, chatCall{b.ID, "function", chatFunction{b.Name, b.Input}})
			case Result:
				if err := add(chatMessage{Role: "tool", Content: b.Text, ToolCallID: b.ID}); err != nil {
					return nil, err
				}
			default:
			}
		}
		if texts := m.texts(); len(texts) > 0 {
			out.Content = textContent("text", texts)
		}
		if out.Content == nil && out.ToolCalls == nil {
			continue
		}
		if err := add(out); err != nil {
			return nil, err
		}
	}
	return withList(body, "messages", messages)
}

type chatUsage struct {
	In     int `json:"prompt_tokens"`
	Out    int `json:"completion_tokens"`
	InMore struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	OutMore struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func (u *chatUsage) usage() Usage {
	return Usage{In: u.In, Out: u.Out, CacheRead: u.InMore.Cached, Reasoning: u.OutMore.Reasoning}
}

type chatAnswer struct {
	Model   string `json:"model"`
	Choices []struct {
		Message jsonx.Raw `json:"message"`
		Delta   jsonx.Raw `json:"delta"`
		Finish  *string   `json:"finish_reason"`
	} `json:"choices"`
	Usage *chatUsage `json:"usage"`
	Error jsonx.Raw  `json:"error"`
}

// serviceError returns an error that a response contains, or nil.
func serviceError(raw jsonx.Raw) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	said := string(raw)
	return &ServiceError{said, strings.Contains(said, "overloaded") || strings.Contains(said, "rate_limit")}
}

func chatStop(reason string) Stop {
	switch reason {
	case "":
		return ""
	case "stop":
		return StopEnd
	case "tool_calls", "function_call":
		return StopCalls
	case "length":
		return StopLength
	case "content_filter":
		return StopRefused
	}
	return StopOther
}

func decodeChat(data []byte) (Reply, error) {
	var w chatAnswer
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return Reply{}, err
	}
	if err := serviceError(w.Error); err != nil {
		return Reply{}, err
	}
	if len(w.Choices) == 0 {
		return Reply{}, errors.New("it has no choices")
	}
	r := Reply{Model: w.Model}
	if w.Usage != nil {
		r.Usage = w.Usage.usage()
	}
	first := w.Choices[0]
	reason := "stop"
	if first.Finish != nil {
		reason = *first.Finish
	}
	return chatReply(r, first.Message, chatStop(reason))
}

// chatReply decodes an assistant's message.
func chatReply(r Reply, raw jsonx.Raw, stop Stop) (Reply, error) {
	var m struct {
		Content   jsonx.Raw `json:"content"`
		Refusal   *string   `json:"refusal"`
		Reasoning *string   `json:"reasoning_content"`
		ToolCalls []struct {
			ID       string `json:"id"`
			Function *struct {
				Name      string    `json:"name"`
				Arguments jsonx.Raw `json:"arguments"` // a string; some servers send an object
			} `json:"function"`
		} `json:"tool_calls"`
	}
	if err := jsonx.Unmarshal(raw, &m); err != nil {
		return Reply{}, err
	}
	r.Message = Message{Role: Assistant, Form: OpenAIChat, Raw: raw}
	if m.Reasoning != nil && *m.Reasoning != "" {
		r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Thinking, Text: *m.Reasoning})
	}
	if s, ok := jsonx.Text(m.Content); ok && s != "" {
		r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Text, Text: s})
	} else if len(m.Content) > 0 && m.Content[0] == '[' {
		var parts []typedText
		if err := jsonx.Unmarshal(m.Content, &parts); err != nil {
			return Reply{}, err
		}
		for _, p := range parts {
			if p.Type == "text" {
				r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Text, Text: p.Text})
			} else {
				r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Opaque})
			}
		}
	}
	if m.Refusal != nil && *m.Refusal != "" {
		r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Text, Text: *m.Refusal})
		stop = StopRefused
	}
	for _, c := range m.ToolCalls {
		if c.Function == nil { // a custom tool, which we never declare
			r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Opaque})
			continue
		}
		input, ok := jsonx.Text(c.Function.Arguments)
		if !ok {
			input = string(c.Function.Arguments)
		}
		r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Call, ID: c.ID, Name: c.Function.Name, Input: input})
	}
	r.Stop = stopOr(stop, r.Message)
	return r, nil
}

// chatStream assembles the chunks of a streamed chat completion.
type chatStream struct {
	got     Reply
	message merged
	calls   []*chatStreamCall
	stop    Stop
}

type chatStreamCall struct {
	index  int
	rest   merged
	name   string
	inside merged // the function
}

func newChatStream() *chatStream {
	s := &chatStream{}
	s.message.set("role", []byte(`"assistant"`)) // some services leave it out
	return s
}

func (s *chatStream) event(data []byte, emit func(Delta)) (bool, error) {
	if string(data) == "[DONE]" {
		return true, nil
	}
	var w chatAnswer
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return false, err
	}
	if err := serviceError(w.Error); err != nil {
		return false, err
	}
	if w.Model != "" {
		s.got.Model = w.Model
	}
	if w.Usage != nil {
		s.got.Usage = w.Usage.usage()
	}
	if len(w.Choices) == 0 {
		return false, nil
	}
	first := w.Choices[0]
	if first.Finish != nil && *first.Finish != "" {
		s.stop = chatStop(*first.Finish)
	}
	if len(first.Delta) == 0 || first.Delta[0] != '{' {
		return false, nil
	}
	var failed error
	err := jsonx.Members(first.Delta, func(name string, raw []byte) {
		piece, isText := jsonx.Text(raw)
		switch {
		case name == "role":
			if isText && piece != "" {
				s.message.set(name, raw)
			}
			return
		case name == "tool_calls":
			if raw[0] == '[' {
				failed = errors.Join(failed, jsonx.Elements(raw, func(one []byte) error { return s.call(one, emit) }))
			}
			return
		case isText && name == "content" || name == "refusal":
			emit(Delta{Kind: Text, Text: piece})
		case isText && name == "reasoning_content":
			emit(Delta{Kind: Thinking, Text: piece})
		}
		s.message.merge(name, raw)
	})
	return false, errors.Join(err, failed)
}

// call adds a piece of a call.
func (s *chatStream) call(raw []byte, emit func(Delta)) error {
	var w struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	if err := jsonx.Unmarshal(raw, &w); err != nil {
		return err
	}
	at := slices.IndexFunc(s.calls, func(c *chatStreamCall) bool {
		if w.Index != nil {
			return c.index == *w.Index
		}
		return w.ID != "" && c.rest.text("id") == w.ID
	})
	if at < 0 && w.Index == nil && w.ID == "" && len(s.calls) > 0 {
		at = len(s.calls) - 1 // a service without indexes continues the last call
	}
	if at < 0 {
		at = len(s.calls)
		c := &chatStreamCall{index: at}
		if w.Index != nil {
			c.index = *w.Index
		}
		s.calls = append(s.calls, c)
	}
	c := s.calls[at]
	piece := Delta{Kind: Call, Call: at, Text: w.Function.Arguments}
	err := jsonx.Members(raw, func(name string, value []byte) {
		switch name {
		case "index":
		case "function":
			if value[0] != '{' {
				return
			}
			_ = jsonx.Members(value, func(name string, value []byte) {
				if name == "name" { // some services repeat it in each piece
					if w.Function.Name != "" && c.name == "" {
						c.name, piece.Name = w.Function.Name, w.Function.Name
						c.inside.set(name, value)
					}
					return
				}
				c.inside.merge(name, value)
			})
		default:
			if v := c.rest.values[name]; v == nil || string(value) != "null" && string(value) != `""` {
				c.rest.set(name, value)
			}
		}
	})
	emit(piece)
	return err
}

func (s *chatStream) reply() (Reply, error) {
	if len(s.calls) > 0 {
		all := make([]jsonx.Raw, len(s.calls))
		for i, c := range s.calls {
			c.rest.set("function", c.inside.bytes())
			all[i] = c.rest.bytes()
		}
		s.message.set("tool_calls", list(all))
	}
	return chatReply(s.got, s.message.bytes(), s.stop)
}
