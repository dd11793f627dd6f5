package capability

import (
	"context"
	"encoding/json"
)

// Question is what a provider wants to know from the caller while a call runs. The
// method and its parameters are MCP's for every provider: "elicitation/create" and
// "sampling/createMessage".
type Question struct {
	Method string
	Params json.RawMessage
}

// Asker sends a question to the caller and waits for the answer, the result of
// the method in MCP. It ends with ctx, and with the caller's patience: code timeout.
// A caller that cannot answer such a question makes it fail at once, code
// unavailable. It may be called from several goroutines.
type Asker func(ctx context.Context, q Question) (json.RawMessage, error)

// Relay is for providers that hold no call open while they ask: they end it with
// their questions ([InputRequired]), and the caller calls again with answers.
type Relay struct {
	// Capabilities is what the caller says it can answer, as MCP has it.
	Capabilities json.RawMessage
	// Responses and State are the answers and the provider's own state, as it gave
	// it out; nil in the first round.
	Responses json.RawMessage
	State     json.RawMessage
}

// ReasonInputRequired marks the end of a call whose provider wants answers first.
// The Value beside the error is the provider's input_required result.
const ReasonInputRequired = "input_required"

// InputRequired is the error beside such a result.
func InputRequired(provider ProviderKey) *Error {
	return Errorf(CodeConsentRequired, "execute", "%s asks something first, and the call has not been carried out", provider).
		With(ReasonInputRequired, "call again through MCP, where questions can be answered")
}
