package host

import (
	"context"
	"encoding/json"
)

// Evaluator looks at a message after the fact, in four phases: whether it wants
// to, what it prepares, the prompt for the model, and what becomes of the
// model's output. A phase whose closure is nil has a default, because agents may
// call each of them.
type Evaluator struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Prompt      string          `json:"prompt"`
	Schema      json.RawMessage `json:"schema"` // of the model's output: a JSON object
	Similes     []string        `json:"similes,omitzero"`
	Providers   []string        `json:"providers,omitzero"`
	Priority    *float64        `json:"priority,omitzero"`
	ModelType   string          `json:"modelType,omitzero"`

	ShouldRun func(ctx context.Context, c EvaluatorCall) (bool, error) `json:"-"` // nil: always
	// Prepare's result, any JSON, comes back in EvaluatorCall.Prepared; nil and a
	// nil result prepare nothing.
	Prepare     func(ctx context.Context, c EvaluatorCall) (prepared any, err error) `json:"-"`
	BuildPrompt func(ctx context.Context, c EvaluatorCall) (string, error)           `json:"-"` // nil: Prompt
	// Process's result must encode as a JSON object; nil is {}.
	Process func(ctx context.Context, c EvaluatorCall) (result any, err error) `json:"-"`
}

// EvaluatorCall is what an evaluator is asked about. Message, State and Options
// are JSON objects; Prepared is nil before it exists, Output before Process.
type EvaluatorCall struct {
	Message, State, Options, Prepared, Output json.RawMessage
}

// ResponseEvaluator adds to an agent's response.
type ResponseEvaluator struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitzero"`
	Priority    *float64 `json:"priority,omitzero"`

	ShouldRun func(ctx context.Context, about json.RawMessage) (bool, error) `json:"-"` // nil: always
	// Evaluate's patch must encode as a JSON object; nil is {}.
	Evaluate func(ctx context.Context, about json.RawMessage) (patch any, err error) `json:"-"`
}

// FieldEvaluator reads one field of a model's response.
type FieldEvaluator struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // of the field: a JSON object
	Priority    *float64        `json:"priority,omitzero"`

	ShouldRun func(ctx context.Context, c FieldCall) (bool, error) `json:"-"` // nil: always
	// Parse returns the value as it should be, or not ok where the model's value
	// is of no use; nil takes every value as it is.
	Parse func(ctx context.Context, c FieldCall) (value any, ok bool, err error) `json:"-"`
	// Handle states what follows; nil: nothing.
	Handle func(ctx context.Context, c FieldCall) (FieldEffect, error) `json:"-"`
}

// FieldCall is what a field evaluator is asked about. Context is a JSON object,
// Value the model's value (nil in ShouldRun), Parsed the object that Parse made
// of it or nil.
type FieldCall struct {
	Context, Value, Parsed json.RawMessage
}

// FieldEffect is what follows from a field: a patch of the response (a JSON
// object or nil), an end of the turn, lines for the developer.
type FieldEffect struct {
	Patch   any      `json:"patch,omitzero"`
	Preempt *Preempt `json:"preempt,omitzero"`
	Debug   []string `json:"debug,omitzero"`
}

// Preempt ends the agent's turn early.
type Preempt struct {
	Mode   string `json:"mode"` // ack-and-stop, ignore or direct-reply
	Reason string `json:"reason"`
}
