package modelwire

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Anthropic's Messages.

type messagesRequest struct {
	Model        string          `json:"model"`
	MaxTokens    int             `json:"max_tokens"`
	Stream       bool            `json:"stream,omitzero"`
	CacheControl *cacheControl   `json:"cache_control,omitzero"`
	OutputConfig *messagesOutput `json:"output_config,omitzero"`
	Tools        []messagesTool  `json:"tools,omitzero"`
	ToolChoice   *messagesChoice `json:"tool_choice,omitzero"`
	System       any             `json:"system,omitzero"`
}

type cacheControl struct {
	Type string `json:"type"`
}

type messagesOutput struct {
	Effort string          `json:"effort,omitzero"`
	Format *messagesFormat `json:"format,omitzero"`
}

type messagesFormat struct {
	Type   string    `json:"type"`
	Schema jsonx.Raw `json:"schema"`
}

type messagesTool struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitzero"`
	InputSchema jsonx.Raw `json:"input_schema"`
}

type messagesChoice struct {
	Type string `json:"type"`
}

type messagesBlock struct {
	Type      string    `json:"type"`
	Text      string    `json:"text,omitzero"`
	ID        string    `json:"id,omitzero"`
	Name      string    `json:"name,omitzero"`
	Input     jsonx.Raw `json:"input,omitzero"`
	ToolUseID string    `json:"tool_use_id,omitzero"`
	Content   string    `json:"content,omitzero"`
	IsError   bool      `json:"is_error,omitzero"`
}

func encodeMessages(r Request) ([]byte, error) {
	body := messagesRequest{Model: r.Model, MaxTokens: r.MaxTokens, Stream: r.Stream}
	if r.Cache {
		body.CacheControl = &cacheControl{"ephemeral"}
	}
	if r.Effort != "" || r.Schema != nil {
		body.OutputConfig = &messagesOutput{Effort: r.Effort}
		if r.Schema != nil {
			body.OutputConfig.Format = &messagesFormat{"json_schema", r.Schema.Schema}
		}
	}
	for _, t := range r.Tools {
		body.Tools = append(body.Tools, messagesTool{t.Name, t.Description, t.schema()})
	}
	if len(r.Tools) > 0 && r.Choice != MayCall {
		body.ToolChoice = &messagesChoice{map[Choice]string{MustCall: "any", MustNotCall: "none"}[r.Choice]}
	}
	if len(r.System) > 0 {
		body.System = textContent("text", r.System)
	}
	var messages []jsonx.Raw
	for _, m := range r.Messages {
		content := m.Raw
		if !m.sentBy(AnthropicMessages) {
			built := messagesContent(m)
			if built == nil {
				continue
			}
			var err error
			if content, err = jsonx.Marshal(built); err != nil {
				return nil, err
			}
		} else if string(content) == "[]" {
			continue // the service accepts no empty message
		}
		turn := jsonx.AppendString([]byte(`{"role":`), string(m.Role))
		messages = append(messages, append(append(append(turn, `,"content":`...), content...), '}'))
	}
	return withList(body, "messages", messages)
}

// messagesContent returns the content of a message that is built from its blocks, nil if
// nothing is left.
func messagesContent(m Message) any {
	var blocks []messagesBlock
	onlyText := true
	for _, b := range m.Blocks {
		switch b.Kind {
		case Text:
			if b.Text == "" { // the service rejects empty text blocks
				continue
			}
			blocks = append(blocks, messagesBlock{Type: "text", Text: b.Text})
			continue
		case Call:
			blocks = append(blocks, messagesBlock{Type: "tool_use", ID: b.ID, Name: b.Name, Input: b.object()})
		case Result:
			blocks = append(blocks, messagesBlock{Type: "tool_result", ToolUseID: b.ID, Content: b.Text, IsError: b.Failed})
		default:
			continue
		}
		onlyText = false
	}
	switch {
	case len(blocks) == 0:
		return nil
	case len(blocks) == 1 && onlyText:
		return blocks[0].Text
	}
	return blocks
}

type messagesUsage struct {
	In         int `json:"input_tokens"`
	Out        int `json:"output_tokens"`
	CacheRead  int `json:"cache_read_input_tokens"`
	CacheWrite int `json:"cache_creation_input_tokens"`
}

// add records the counts that u contains. The service counts cached input separately, and
// repeats counts that grow.
func (u *messagesUsage) add(to *messagesUsage) {
	to.In, to.Out = max(to.In, u.In), max(to.Out, u.Out)
	to.CacheRead, to.CacheWrite = max(to.CacheRead, u.CacheRead), max(to.CacheWrite, u.CacheWrite)
}

func (u *messagesUsage) usage() Usage {
	return Usage{In: u.In + u.CacheRead + u.CacheWrite, Out: u.Out, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}
}

func messagesStop(reason string) Stop {
	switch reason {
	case "":
		return ""
	case "end_turn", "stop_sequence":
		return StopEnd
	case "tool_use":
		return StopCalls
	case "max_tokens", "model_context_window_exceeded":
		return StopLength
	case "refusal":
		return StopRefused
	case "pause_turn":
		return StopPaused
	}
	return StopOther
}

func decodeMessages(data []byte) (Reply, error) {
	var w struct {
		Type    string        `json:"type"`
		Model   string        `json:"model"`
		Content jsonx.Raw     `json:"content"`
		Stop    *string       `json:"stop_reason"`
		Usage   messagesUsage `json:"usage"`
		Error   jsonx.Raw     `json:"error"`
	}
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return Reply{}, err
	}
	if err := serviceError(w.Error); err != nil {
		return Reply{}, err
	}
	if w.Type != "message" {
		return Reply{}, errors.New("it is not a message")
	}
	reason := "end_turn"
	if w.Stop != nil {
		reason = *w.Stop
	}
	return messagesReply(Reply{Model: w.Model, Usage: w.Usage.usage()}, w.Content, messagesStop(reason))
}

// messagesReply decodes the content blocks of an assistant's message.
func messagesReply(r Reply, raw jsonx.Raw, stop Stop) (Reply, error) {
	r.Message = Message{Role: Assistant, Form: AnthropicMessages, Raw: raw}
	err := jsonx.Elements(raw, func(one []byte) error {
		var b struct {
			Type     string    `json:"type"`
			Text     string    `json:"text"`
			Thinking string    `json:"thinking"`
			ID       string    `json:"id"`
			Name     string    `json:"name"`
			Input    jsonx.Raw `json:"input"`
		}
		if err := jsonx.Unmarshal(one, &b); err != nil {
			return err
		}
		switch b.Type {
		case "text":
			r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Text, Text: b.Text})
		case "thinking":
			r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Thinking, Text: b.Thinking})
		case "tool_use":
			r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Call, ID: b.ID, Name: b.Name, Input: string(b.Input)})
		default:
			r.Message.Blocks = append(r.Message.Blocks, Block{Kind: Opaque})
		}
		return nil
	})
	r.Stop = stopOr(stop, r.Message)
	return r, err
}

// messagesStream assembles the events of a streamed message.
type messagesStream struct {
	got    Reply
	usage  messagesUsage
	blocks []*messagesStreamBlock
	stop   Stop
}

type messagesStreamBlock struct {
	merged
	index int
	call  int // of the calls of the message, if it is one
	input strings.Builder
}

func (s *messagesStream) event(data []byte, emit func(Delta)) (bool, error) {
	var w struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Message *struct {
			Model string        `json:"model"`
			Usage messagesUsage `json:"usage"`
		} `json:"message"`
		Block jsonx.Raw     `json:"content_block"`
		Delta jsonx.Raw     `json:"delta"`
		Usage messagesUsage `json:"usage"`
		Error jsonx.Raw     `json:"error"`
	}
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return false, err
	}
	w.Usage.add(&s.usage)
	switch w.Type {
	case "message_start":
		if w.Message != nil {
			s.got.Model = w.Message.Model
			w.Message.Usage.add(&s.usage)
		}
	case "content_block_start":
		return false, s.start(w.Index, w.Block, emit)
	case "content_block_delta":
		at := slices.IndexFunc(s.blocks, func(b *messagesStreamBlock) bool { return b.index == w.Index })
		if at < 0 { // some compatible services do not start their blocks
			at = len(s.blocks)
			if err := s.start(w.Index, jsonx.Raw(`{"type":"text","text":""}`), emit); err != nil {
				return false, err
			}
		}
		return false, s.blocks[at].add(w.Delta, emit)
	case "message_delta":
		var d struct {
			Stop *string `json:"stop_reason"`
		}
		if err := jsonx.Unmarshal(w.Delta, &d); err != nil {
			return false, err
		}
		if d.Stop != nil {
			s.stop = messagesStop(*d.Stop)
		}
	case "message_stop":
		return true, nil
	case "error":
		return false, serviceError(w.Error)
	}
	return false, nil // pings and unknown events
}

// start begins a block.
func (s *messagesStream) start(index int, raw jsonx.Raw, emit func(Delta)) error {
	b := &messagesStreamBlock{index: index}
	for _, other := range s.blocks {
		if other.text("type") == "tool_use" {
			b.call++
		}
	}
	if err := b.setAll(raw); err != nil {
		return err
	}
	s.blocks = append(s.blocks, b)
	switch b.text("type") {
	case "tool_use":
		emit(Delta{Kind: Call, Call: b.call, Name: b.text("name")})
	case "text":
		emit(Delta{Kind: Text, Text: b.text("text")})
	}
	return nil
}

// add adds a piece to a block. The names of a delta's members are those of the block's, except
// for two.
func (b *messagesStreamBlock) add(delta jsonx.Raw, emit func(Delta)) error {
	if len(delta) == 0 {
		return nil
	}
	return jsonx.Members(delta, func(name string, raw []byte) {
		piece, isText := jsonx.Text(raw)
		switch {
		case name == "type":
		case name == "partial_json":
			b.input.WriteString(piece)
			if b.text("type") == "tool_use" {
				emit(Delta{Kind: Call, Call: b.call, Text: piece})
			}
		case name == "citation":
			b.appendElements("citations", list([]jsonx.Raw{raw}))
		case isText:
			b.appendText(name, piece)
			switch name {
			case "text":
				emit(Delta{Kind: Text, Text: piece})
			case "thinking":
				emit(Delta{Kind: Thinking, Text: piece})
			}
		default:
			b.merge(name, raw)
		}
	})
}

func (s *messagesStream) reply() (Reply, error) {
	s.got.Usage = s.usage.usage()
	all := make([]jsonx.Raw, 0, len(s.blocks))
	written := make(map[int]string) // malformed arguments, by the number of the call
	for _, b := range s.blocks {
		if b.input.Len() > 0 {
			input := []byte(b.input.String())
			if !jsonx.Valid(input) || !bytes.HasPrefix(bytes.TrimSpace(input), []byte("{")) {
				written[b.call], input = string(input), []byte("{}")
			}
			b.set("input", input)
		}
		if b.text("type") == "text" && b.text("text") == "" {
			continue // sent back, the service would reject it
		}
		all = append(all, b.bytes())
	}
	r, err := messagesReply(s.got, list(all), s.stop)
	call := 0
	for i := range r.Message.Blocks {
		if b := &r.Message.Blocks[i]; b.Kind == Call {
			if input, malformed := written[call]; malformed {
				b.Input = input
			}
			call++
		}
	}
	return r, err
}
