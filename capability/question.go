package capability

import (
	"context"
	"encoding/json"
)

// Question is a request of a provider to the caller while a call runs. For every provider it
// uses MCP's methods "elicitation/create" and "sampling/createMessage" and their
// parameters.
type Question struct {
	Method string
	Params json.RawMessage
}

// Asker sends a question to the caller and waits for the answer, the result of the MCP
// method. It ends with ctx. Errors: timeout if the caller does not answer in time;
// unavailable, at once, if the caller cannot answer such a question. It may be called from
// several goroutines.
type Asker func(ctx context.Context, q Question) (json.RawMessage, error)

// Relay is for providers that do not keep a call open while they wait for answers: they end
// it with their questions ([InputRequired]), and the caller repeats it with the answers.
type Relay struct {
	// Capabilities are the MCP client capabilities of the caller, which list the questions
	// that it can answer.
	Capabilities json.RawMessage
	// Responses and State are the answers and the provider's own state from the previous
	// result; nil in the first call.
	Responses json.RawMessage
	State     json.RawMessage
}

// ReasonInputRequired is the reason of the error of a call whose provider needs answers
// first. The Value beside the error is the provider's input_required result.
const ReasonInputRequired = "input_required"

// InputRequired returns the error with [ReasonInputRequired].
func InputRequired(provider ProviderKey) *Error {
	return Errorf(CodeApprovalRequired, "execute", "%s asks something first, and the call has not been carried out", provider).
		With(ReasonInputRequired, "call again through MCP, where questions can be answered")
}
