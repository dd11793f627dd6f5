package host

import (
	"context"
	"encoding/json"
)

// Evaluator examines a message after it was answered, in four phases: shouldRun, prepare,
// prompt for the model, and process with the model's output. A phase whose closure is nil
// has a default, because agents may call each of them.
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
	// Prepare returns any JSON value, which later phases receive in EvaluatorCall.Prepared.
	// It may be nil.
	Prepare     func(ctx context.Context, c EvaluatorCall) (prepared any, err error) `json:"-"`
	BuildPrompt func(ctx context.Context, c EvaluatorCall) (string, error)           `json:"-"` // nil: Prompt
	// Process returns a value that encodes as a JSON object; nil means {}.
	Process func(ctx context.Context, c EvaluatorCall) (result any, err error) `json:"-"`
}

// EvaluatorCall is the input of an evaluator's phase. Message, State and Options are JSON
// objects. Prepared is nil until Prepare has returned, Output until Process.
type EvaluatorCall struct {
	Message, State, Options, Prepared, Output json.RawMessage
}

// ResponseEvaluator adds to an agent's response.
type ResponseEvaluator struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitzero"`
	Priority    *float64 `json:"priority,omitzero"`

	ShouldRun func(ctx context.Context, about json.RawMessage) (bool, error) `json:"-"` // nil: always
	// Evaluate returns a patch that encodes as a JSON object; nil means {}.
	Evaluate func(ctx context.Context, about json.RawMessage) (patch any, err error) `json:"-"`
}

// FieldEvaluator reads one field of a model's response.
type FieldEvaluator struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // of the field: a JSON object
	Priority    *float64        `json:"priority,omitzero"`

	ShouldRun func(ctx context.Context, c FieldCall) (bool, error) `json:"-"` // nil: always
	// Parse returns the corrected value, or ok false if the model's value is unusable. If
	// Parse is nil, every value is used unchanged.
	Parse func(ctx context.Context, c FieldCall) (value any, ok bool, err error) `json:"-"`
	// Handle returns the consequences of the value. It may be nil.
	Handle func(ctx context.Context, c FieldCall) (FieldEffect, error) `json:"-"`
}

// FieldCall is the input of a field evaluator. Context is a JSON object, and Value the model's
// value of the field, nil in ShouldRun. Handle reads Value, which Parse may not have seen: elizaOS
// does not wait for the Parse of an endpoint. Parsed is what the caller has besides: for elizaOS the
// model's whole answer, for junctor the object that Parse returned, or nil.
type FieldCall struct {
	Context, Value, Parsed json.RawMessage
}

// FieldEffect is the consequence of a field: a patch of the response (a JSON object or
// nil), an end of the turn, lines for the developer.
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
