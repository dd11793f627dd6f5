// Package modelwire is the wire format of language model services: a conversation with
// tools, as a request, a whole response or a stream of events, in four forms. It does no
// I/O. The forms are those that the services publish: OpenAI's Chat Completions and
// Responses, Anthropic's Messages, and Gemini's generateContent.
//
// A service may put content into its response that only it can read, such as encrypted
// reasoning, and wants it back unchanged. An assistant's [Message] therefore keeps the bytes
// of the response, and a request in the same form repeats them. A request in another form is
// built from the decoded blocks, without that content.
//
// The messages are the last member of each request, so that the next request of a
// conversation begins with the bytes of the last one up to its final message.
package modelwire

import (
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Form is a wire form.
type Form string

// The wire forms.
const (
	OpenAIChat        Form = "openai-chat"        // POST <base>/chat/completions
	OpenAIResponses   Form = "openai-responses"   // POST <base>/responses
	AnthropicMessages Form = "anthropic-messages" // POST <base>/v1/messages
	GeminiGenerate    Form = "gemini-generate"    // POST <base>/models/<model>:generateContent
)

// Forms returns all forms.
func Forms() []Form {
	return []Form{OpenAIChat, OpenAIResponses, AnthropicMessages, GeminiGenerate}
}

// Valid reports whether f is a known form.
func (f Form) Valid() bool {
	switch f {
	case OpenAIChat, OpenAIResponses, AnthropicMessages, GeminiGenerate:
		return true
	}
	return false
}

// Role is the side that a message comes from. Results of tools are blocks of the user's side.
type Role string

// The roles.
const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// BlockKind is the kind of a block.
type BlockKind string

// The kinds of blocks.
const (
	Text     BlockKind = "text"     // Text
	Thinking BlockKind = "thinking" // Text: readable reasoning or its summary; never sent to another form
	Call     BlockKind = "call"     // ID, Name, Input
	Result   BlockKind = "result"   // ID and Name of the call, Text, Failed
	Opaque   BlockKind = "opaque"   // content that only its service can read; it is in Message.Raw
)

// Block is a part of a message.
type Block struct {
	Kind  BlockKind
	Text  string
	ID    string // of a call, unique in its message
	Name  string // of the tool
	Input string // arguments as the model wrote them: usually a JSON object, but not always valid
	// Failed marks the result of a tool that did not do what was requested.
	Failed bool
}

// Message is one message of a conversation.
type Message struct {
	Role   Role
	Blocks []Block
	// Form and Raw keep the content of an assistant's message as its service sent it: the
	// message (chat), the list of output items (responses), the list of content blocks
	// (messages) or the content (generate). Raw is nil in a message made by other means.
	Form Form
	Raw  jsonx.Raw
}

// Tool is a function that the model may call.
type Tool struct {
	Name, Description string
	Schema            jsonx.Raw // JSON Schema of an object; nil means one without members
}

// Choice determines whether the model may or must call tools.
type Choice string

// The choices. The zero value leaves the choice to the model.
const (
	MayCall     Choice = ""
	MustCall    Choice = "required"
	MustNotCall Choice = "none"
)

// Schema is the JSON Schema that the text of a response must match.
type Schema struct {
	Name   string
	Schema jsonx.Raw
}

// Request is a prompt for a model.
type Request struct {
	Model    string
	System   []string
	Messages []Message // the first is a user's
	Tools    []Tool
	Choice   Choice
	Schema   *Schema // nil: free text
	// Effort is low, medium or high; empty leaves it to the service. Models without
	// adjustable reasoning reject it.
	Effort    string
	MaxTokens int
	Stream    bool
	// Cache asks a service to reuse what it has computed for the same beginning, where that
	// has to be requested.
	Cache bool
	// NewTokenLimit sends the limit as max_completion_tokens, which newer models require in
	// the form openai-chat.
	NewTokenLimit bool
}

// Stop is the reason why a model stopped.
type Stop string

// The reasons.
const (
	StopEnd     Stop = "end"
	StopCalls   Stop = "calls"   // it waits for the results of its calls
	StopLength  Stop = "length"  // a limit of the service or of the reader was reached
	StopRefused Stop = "refused" // by the model or by a filter of the service
	StopPaused  Stop = "paused"  // the service wants the same request with this message appended
	StopOther   Stop = "other"
)

// Usage is the number of tokens of a request and its response. A service may report less.
type Usage struct {
	In, Out    int
	CacheRead  int // part of In that the service had cached
	CacheWrite int // part of In that it cached now
	Reasoning  int // part of Out
	// Cost is set by clients that have prices, in billionths of their currency.
	Cost int64
}

// Reply is a model's response.
type Reply struct {
	Message Message
	Model   string // as the service names it; may be empty
	Stop    Stop
	Usage   Usage
}

// Text returns the text blocks of a message, joined.
func (m Message) Text() string {
	var b strings.Builder
	for _, block := range m.Blocks {
		if block.Kind == Text {
			b.WriteString(block.Text)
		}
	}
	return b.String()
}

// Calls returns the calls of a message.
func (m Message) Calls() (out []Block) {
	for _, block := range m.Blocks {
		if block.Kind == Call {
			out = append(out, block)
		}
	}
	return out
}

// ServiceError is a failure that a service reports in the body of a response with status 200,
// usually within a stream.
type ServiceError struct {
	Message    string // as sent: it may contain what the request contained
	Overloaded bool
}

func (e *ServiceError) Error() string { return "the service reports: " + e.Message }

// form holds the functions of one wire form.
type form struct {
	encode func(Request) ([]byte, error)
	decode func(data []byte) (Reply, error)
	stream func() collector
}

func (f Form) functions() form {
	switch f {
	case AnthropicMessages:
		return form{encodeMessages, decodeMessages, func() collector { return &messagesStream{} }}
	case OpenAIResponses:
		return form{encodeResponses, decodeResponses, func() collector { return &responsesStream{} }}
	case GeminiGenerate:
		return form{encodeGenerate, decodeGenerate, func() collector { return &generateStream{} }}
	default:
		return form{encodeChat, decodeChat, func() collector { return newChatStream() }}
	}
}

// Path returns the path of a request below the base URL.
func (f Form) Path(model string, stream bool) string {
	switch f {
	case AnthropicMessages:
		return "/v1/messages"
	case OpenAIResponses:
		return "/responses"
	case GeminiGenerate:
		if stream {
			return "/models/" + model + ":streamGenerateContent?alt=sse"
		}
		return "/models/" + model + ":generateContent"
	default:
		return "/chat/completions"
	}
}

// KeyHeader returns the name of the header that carries the key, and what precedes the key.
func (f Form) KeyHeader() (name, prefix string) {
	switch f {
	case AnthropicMessages:
		return "x-api-key", ""
	case GeminiGenerate:
		return "x-goog-api-key", ""
	default:
		return "Authorization", "Bearer "
	}
}

// Encode returns the body of a request.
func (f Form) Encode(r Request) ([]byte, error) { return f.functions().encode(r) }

// Decode returns the reply of a response that is not streamed. Errors: a malformed response;
// [ServiceError].
func (f Form) Decode(data []byte) (Reply, error) { return f.functions().decode(data) }

// emptySchema is the schema of a tool without arguments.
const emptySchema = `{"type":"object","properties":{}}`

func (t Tool) schema() jsonx.Raw {
	if len(t.Schema) == 0 {
		return jsonx.Raw(emptySchema)
	}
	return t.Schema
}

// object returns the arguments of a call as a JSON object, because most forms accept nothing
// else. Malformed arguments become an empty object.
func (b Block) object() jsonx.Raw {
	if strings.HasPrefix(strings.TrimSpace(b.Input), "{") && jsonx.Valid([]byte(b.Input)) {
		return jsonx.Raw(b.Input)
	}
	return jsonx.Raw("{}")
}

// sentBy reports whether the message can be repeated in a form as its service sent it.
func (m Message) sentBy(f Form) bool { return m.Form == f && len(m.Raw) > 0 }

// stopOr returns calls if the message has any and the model just ended: services disagree on
// the reason that they give then.
func stopOr(stop Stop, m Message) Stop {
	if (stop == StopEnd || stop == StopOther) && len(m.Calls()) > 0 {
		return StopCalls
	}
	return stop
}

// withList returns a body: the members of head, and a last one that is a list. Its elements are
// written as they are, with their spaces.
func withList(head any, name string, elements []jsonx.Raw) ([]byte, error) {
	out, err := jsonx.Marshal(head)
	if err != nil {
		return nil, err
	}
	out = append(out[:len(out)-1], `,"`+name+`":`...)
	return append(append(out, list(elements)...), '}'), nil
}
