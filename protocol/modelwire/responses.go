package modelwire

import (
	"errors"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// OpenAI's Responses. Nothing is stored at the service: each request carries the whole
// conversation, with the reasoning in the encrypted form that the service returns if an effort
// was requested.

type responsesRequest struct {
	Model           string              `json:"model"`
	Store           bool                `json:"store"`
	MaxOutputTokens int                 `json:"max_output_tokens,omitzero"`
	Stream          bool                `json:"stream,omitzero"`
	Reasoning       *responsesReasoning `json:"reasoning,omitzero"`
	Include         []string            `json:"include,omitzero"`
	Text            *responsesText      `json:"text,omitzero"`
	Tools           []namedShape        `json:"tools,omitzero"`
	ToolChoice      string              `json:"tool_choice,omitzero"`
	Instructions    string              `json:"instructions,omitzero"`
}

type responsesReasoning struct {
	Effort string `json:"effort"`
}

type responsesText struct {
	Format namedShape `json:"format"`
}

// responsesItem is an item of the input. Its content is a string or []typedText.
type responsesItem struct {
	Type      string `json:"type,omitzero"`
	Role      string `json:"role,omitzero"`
	Content   any    `json:"content,omitzero"`
	CallID    string `json:"call_id,omitzero"`
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments,omitzero"`
	Output    string `json:"output,omitzero"`
}

func encodeResponses(r Request) ([]byte, error) {
	body := responsesRequest{
		Model: r.Model, MaxOutputTokens: r.MaxTokens, Stream: r.Stream, Instructions: strings.Join(r.System, "\n\n"),
	}
	if r.Effort != "" {
		body.Reasoning, body.Include = &responsesReasoning{r.Effort}, []string{"reasoning.encrypted_content"}
	}
	strict := func(v bool) *bool { return &v }
	if r.Schema != nil {
		body.Text = &responsesText{namedShape{Type: "json_schema", Name: r.Schema.Name, Strict: strict(true), Schema: r.Schema.Schema}}
	}
	for _, t := range r.Tools {
		body.Tools = append(body.Tools, namedShape{
			Type: "function", Name: t.Name, Description: t.Description, Strict: strict(false), Parameters: t.schema(),
		})
	}
	if len(r.Tools) > 0 {
		body.ToolChoice = string(r.Choice)
	}
	var input []jsonx.Raw
	add := func(item responsesItem) error {
		data, err := jsonx.Marshal(item)
		input = append(input, data)
		return err
	}
	for _, m := range r.Messages {
		if m.sentBy(OpenAIResponses) {
			if err := jsonx.Elements(m.Raw, func(item []byte) error {
				if keptItem(item) {
					input = append(input, item)
				}
				return nil
			}); err != nil {
				return nil, err
			}
			continue
		}
		for _, b := range m.Blocks {
			if b.Kind != Result {
				continue
			}
			if err := add(responsesItem{Type: "function_call_output", CallID: b.ID, Output: b.Text}); err != nil {
				return nil, err
			}
		}
		if texts := m.texts(); len(texts) > 0 {
			kind := "input_text"
			if m.Role == Assistant {
				kind = "output_text"
			}
			if err := add(responsesItem{Role: string(m.Role), Content: textContent(kind, texts)}); err != nil {
				return nil, err
			}
		}
		for _, b := range m.Calls() {
			if err := add(responsesItem{Type: "function_call", CallID: b.ID, Name: b.Name, Arguments: b.Input}); err != nil {
				return nil, err
			}
		}
	}
	return withList(body, "input", input)
}

// keptItem reports whether an output item can be sent back. Reasoning without its encrypted
// form is known only to the service, which did not store it.
func keptItem(item []byte) bool {
	var w struct {
		Type      string  `json:"type"`
		Encrypted *string `json:"encrypted_content"`
	}
	return jsonx.Unmarshal(item, &w) != nil || w.Type != "reasoning" || w.Encrypted != nil && *w.Encrypted != ""
}

type responsesAnswer struct {
	Status     string    `json:"status"`
	Model      string    `json:"model"`
	Output     jsonx.Raw `json:"output"`
	Error      jsonx.Raw `json:"error"`
	Incomplete *struct {
		Why string `json:"reason"`
	} `json:"incomplete_details"`
	Usage *struct {
		In     int `json:"input_tokens"`
		Out    int `json:"output_tokens"`
		InMore struct {
			Cached int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		OutMore struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	} `json:"usage"`
}

func decodeResponses(data []byte) (Reply, error) {
	var w responsesAnswer
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return Reply{}, err
	}
	return w.reply(w.Output)
}

// reply decodes a response whose output items are given.
func (w *responsesAnswer) reply(output jsonx.Raw) (Reply, error) {
	if err := serviceError(w.Error); err != nil {
		return Reply{}, err
	}
	r := Reply{Model: w.Model, Message: Message{Role: Assistant, Form: OpenAIResponses, Raw: output}}
	if u := w.Usage; u != nil {
		r.Usage = Usage{In: u.In, Out: u.Out, CacheRead: u.InMore.Cached, Reasoning: u.OutMore.Reasoning}
	}
	switch w.Status {
	case "completed", "":
		r.Stop = StopEnd
	case "incomplete":
		if r.Stop = StopOther; w.Incomplete != nil {
			switch w.Incomplete.Why {
			case "max_output_tokens":
				r.Stop = StopLength
			case "content_filter":
				r.Stop = StopRefused
			}
		}
	default:
		return Reply{}, errors.New("its status is " + w.Status)
	}
	if err := jsonx.Elements(output, func(item []byte) error { return responsesBlocks(&r, item) }); err != nil {
		return Reply{}, err
	}
	r.Stop = stopOr(r.Stop, r.Message)
	return r, nil
}

// responsesBlocks appends the blocks of an output item.
func responsesBlocks(r *Reply, item []byte) error {
	var w struct {
		Type      string      `json:"type"`
		CallID    string      `json:"call_id"`
		Name      string      `json:"name"`
		Arguments string      `json:"arguments"`
		Summary   []typedText `json:"summary"`
		Content   []struct {
			Type    string `json:"type"`
			Text    string `json:"text"`
			Refusal string `json:"refusal"`
		} `json:"content"`
	}
	if err := jsonx.Unmarshal(item, &w); err != nil {
		return err
	}
	add := func(b Block) { r.Message.Blocks = append(r.Message.Blocks, b) }
	switch w.Type {
	case "message":
		for _, c := range w.Content {
			switch c.Type {
			case "output_text":
				add(Block{Kind: Text, Text: c.Text})
			case "refusal":
				r.Stop = StopRefused
				add(Block{Kind: Text, Text: c.Refusal})
			default:
				add(Block{Kind: Opaque})
			}
		}
	case "function_call":
		add(Block{Kind: Call, ID: w.CallID, Name: w.Name, Input: w.Arguments})
	case "reasoning":
		var summary []string
		for _, s := range w.Summary {
			summary = append(summary, s.Text)
		}
		add(Block{Kind: Thinking, Text: strings.Join(summary, "\n\n")})
	default:
		add(Block{Kind: Opaque})
	}
	return nil
}

// responsesStream assembles the events of a streamed response.
type responsesStream struct {
	items []responsesStreamItem
	calls []int // output indexes of the calls, in order
	final *responsesAnswer
}

type responsesStreamItem struct {
	index int
	raw   jsonx.Raw // nil until the item is done
	text  strings.Builder
}

func (s *responsesStream) at(index int) *responsesStreamItem {
	i := slices.IndexFunc(s.items, func(it responsesStreamItem) bool { return it.index == index })
	if i < 0 {
		s.items = append(s.items, responsesStreamItem{index: index})
		i = len(s.items) - 1
	}
	return &s.items[i]
}

func (s *responsesStream) event(data []byte, emit func(Delta)) (bool, error) {
	if string(data) == "[DONE]" {
		return true, nil
	}
	var w struct {
		Type     string    `json:"type"`
		Index    int       `json:"output_index"`
		Delta    jsonx.Raw `json:"delta"`
		Item     jsonx.Raw `json:"item"`
		Response jsonx.Raw `json:"response"`
	}
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return false, err
	}
	piece, _ := jsonx.Text(w.Delta)
	switch w.Type {
	case "response.output_item.added":
		var item struct {
			Type string `json:"type"`
			Name string `json:"name"`
		}
		if err := jsonx.Unmarshal(w.Item, &item); err != nil {
			return false, err
		}
		s.at(w.Index)
		if item.Type == "function_call" {
			s.calls = append(s.calls, w.Index)
			emit(Delta{Kind: Call, Call: len(s.calls) - 1, Name: item.Name})
		}
	case "response.output_text.delta", "response.refusal.delta":
		s.at(w.Index).text.WriteString(piece)
		emit(Delta{Kind: Text, Text: piece})
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		emit(Delta{Kind: Thinking, Text: piece})
	case "response.function_call_arguments.delta":
		if call := slices.Index(s.calls, w.Index); call >= 0 {
			emit(Delta{Kind: Call, Call: call, Text: piece})
		}
	case "response.output_item.done":
		s.at(w.Index).raw = w.Item.Clone()
	case "response.completed", "response.incomplete", "response.failed":
		s.final = new(responsesAnswer)
		if err := jsonx.Unmarshal(w.Response, s.final); err != nil {
			return false, err
		}
		return true, serviceError(s.final.Error)
	case "error":
		return false, serviceError(data)
	}
	return false, nil
}

func (s *responsesStream) reply() (Reply, error) {
	final := s.final
	if final == nil {
		final = &responsesAnswer{}
	}
	slices.SortStableFunc(s.items, func(a, b responsesStreamItem) int { return a.index - b.index })
	var all []jsonx.Raw
	for _, item := range s.items {
		if item.raw != nil {
			all = append(all, item.raw)
		} else if item.text.Len() > 0 { // the reader cut the reply within this item
			content := list([]jsonx.Raw{append(append([]byte(`{"type":"output_text","annotations":[],"text":`),
				jsonx.AppendString(nil, item.text.String())...), '}')})
			all = append(all, append(append([]byte(`{"type":"message","role":"assistant","content":`), content...), '}'))
		}
	}
	output := list(all)
	if len(all) == 0 && len(final.Output) > 0 {
		output = final.Output
	}
	r, err := final.reply(output)
	if s.final == nil && r.Stop != StopRefused {
		r.Stop = ""
	}
	return r, err
}
