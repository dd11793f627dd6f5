package capability

import (
	"context"
	"encoding/json"
	"time"
)

// Invocation is one request on the path, as a surface hands it to the engine.
type Invocation struct {
	ID             string // minted by the engine when empty
	Parent         string
	Surface        string // "http", "router", "mcp", "cli", …
	Client         string // self-declared name of the caller's program; never decides
	Principal      Principal
	Session        string
	Target         Target
	Context        *Context        // nil: no conversation, the principal's own workspace
	Input          json.RawMessage // one JSON value, or nil for {}
	Timeout        time.Duration   // 0: capability's, then provider's default
	IdempotencyKey string
	Audience       Audience    // which catalog the surface shows; "" = agent
	Progress       func(Chunk) // nil when only the end matters; called serially
	// Meta is an object that goes to the provider beside the input, as it came: trace
	// context, and what others put there. It decides nothing. Trace is the id of the
	// trace in it, for the records.
	Meta  json.RawMessage
	Trace string
	// Within states which modules exist for this caller, by their extension ids; nil:
	// all that the rules let it see.
	Within func(extension string) bool
	// Ask puts questions of the provider to the caller; nil if the caller cannot be
	// asked while the call runs.
	Ask Asker
	// Relay lets the caller answer questions of the provider with another call.
	Relay *Relay
	// Balance requests a choice among the nodes that offer the function. If nil, only
	// calls without an effect are balanced.
	Balance *Balance
	// Keep and Resume are for callers that outlive this process; see [Resumer].
	Keep   Keeper
	Resume string
}

// Balance states how one of several nodes is chosen. The zero value leaves it all
// to the gateway.
type Balance struct {
	Strategy  string   // "": resource_aware
	Preferred []string // ids of nodes: first, if alive and able
	Excluded  []string // never
	Labels    []string // that the node must have
	Tags      []string // that the function must have
	NeedsGPU  bool
	MinMemory int // MiB
}

// Call is what reaches a provider.
type Call struct {
	Invocation string
	Capability ID
	Action     Action
	Member     Member
	Principal  Principal
	Session    string
	Context    *Context        // where it happens; never nil, must not be changed
	Input      json.RawMessage // never nil: "{}" at least
	Progress   func(Chunk)     // never nil
	// Idempotent reports that the call may be sent twice without harm.
	Idempotent bool
	// Key is the caller's idempotency key, for a far side that remembers outcomes
	// itself; "" if it has none.
	Key string
	// Watched reports whether the caller receives progress.
	Watched bool
	// Meta is the invocation's, nil without one.
	Meta json.RawMessage
	// Ask and Relay are the invocation's; nil if the caller cannot be asked. Within too,
	// for providers that call others for the caller.
	Ask    Asker
	Relay  *Relay
	Within func(extension string) bool
	// Agreed is the Binds of the preview that was agreed to, "" without one. A
	// provider whose preview would differ by now refuses the call.
	Agreed string
	// Keep takes the far side's id of the work as soon as it is known. If nil, it is
	// not kept. See [Resumer].
	Keep func(upstreamCall string)
}

// Previewer is a Provider that can say what exactly a call would do.
type Previewer interface {
	// Preview looks and changes nothing; it is quick. Its error is the call's.
	Preview(ctx context.Context, c Call) (Preview, error)
}

// Preview is what a call would do, for those who are asked and for a dry run.
type Preview struct {
	// What is the argument list, with dots for what must not be seen.
	What []string
	// Binds is a digest of everything that an approval covers, besides
	// the capability, its content and the input.
	Binds string
	// Confirm, "first" or "always", requires an approval for every caller; Why says for what
	// reason.
	Confirm, Why string
	// Details are shown by a dry run: permissions, network, sandbox.
	Details map[string]any
	// Ran is what is known of the run beforehand, for its records; may be nil.
	Ran *Ran
}

// Chunk is a progress notice of a running call. Progress must increase; Total
// is 0 when unknown.
type Chunk struct {
	Progress float64 `json:"progress"`
	Total    float64 `json:"total,omitempty"`
	Message  string  `json:"message,omitempty"`
	// Stage reports that a call waits for its turn, or does no more; such a chunk has no
	// progress of its own.
	Stage string          `json:"stage,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// The stages that a call may tell of. StageLog is a line of the provider's own log,
// whose Data is the parameters of notifications/message of MCP.
const (
	StageQueued    = "queued"
	StageExecuting = "executing"
	StageLog       = "log"
)

// Result is what a provider returns: one JSON value as the bytes that came. Those
// of the provider kinds mcp and a2a are results of MCP as they came: of tools/call,
// prompts/get and so on. A Value may come with an error too: what the far side says
// of its failure, in the same form.
type Result struct {
	Value json.RawMessage
	// UpstreamCall is the id of the work at the far side, for the audit.
	UpstreamCall string
	// Ran is what was run, for the audit, where that was a program or a command.
	// It may come with an error too; nil says nothing.
	Ran *Ran
}

// Ran states what a provider ran. Nothing in it is secret but Output, of which
// only a keyed hash is recorded.
type Ran struct {
	Command   string // "/postman"
	Action    string // "get"
	Runner    string // "exec.curl"
	Tool      string // "curl"
	WorkDir   string // where it ran
	Args      int    // how many
	ExitCode  *int
	Sandbox   string // the tier: "T3"
	Truncated bool
	Output    string
	// Node states where a call to a node went; nil for all others.
	Node *NodeRan
}

// NodeRan is what the record of a call to a node adds.
type NodeRan struct {
	ID            string
	Epoch         int64
	Function      string
	Skill         string // whose function it is, or which was installed or removed
	PayloadDigest string // of the skill that was installed, in hex
}
