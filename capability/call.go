package capability

import (
	"context"
	"encoding/json"
	"time"
)

// Invocation is one request that a surface passes to the engine.
type Invocation struct {
	ID             string // created by the engine if empty
	Parent         string
	Surface        string // "http", "router", "mcp", "cli", …
	Client         string // self-declared name of the caller's program; no decision depends on it
	Principal      Principal
	Session        string
	Target         Target
	Context        *Context        // nil: no conversation, the principal's own workspace
	Input          json.RawMessage // one JSON value, or nil for {}
	Timeout        time.Duration   // 0: capability's, then provider's default
	IdempotencyKey string
	Audience       Audience    // the catalog that the surface uses; "" = agent
	Progress       func(Chunk) // if nil, progress is dropped; called serially
	// Meta is an object that is passed to the provider unchanged beside the input, for
	// example with a trace context. No decision depends on it. Trace is the id of the trace
	// in it, for the records.
	Meta  json.RawMessage
	Trace string
	// TraceParent is the id of the caller's span in that trace, or "".
	TraceParent string
	// Within reports whether a module, given by its extension id, exists for this caller. If
	// nil, only the rules decide.
	Within func(extension string) bool
	// Ask sends questions of the provider to the caller. It is nil if the caller cannot be
	// asked while the call runs.
	Ask Asker
	// Relay lets the caller answer questions of the provider with another call.
	Relay *Relay
	// Balance requests a choice among the nodes that offer the function. If nil, only
	// calls without an effect are balanced.
	Balance *Balance
	// Tainted is set if the caller decides after it has read text that neither its person nor the
	// operator wrote. A call with an effect of external or more then needs an approval of its own,
	// also where a rule or a grant permits it. Approval is the one that answered an earlier attempt
	// of the same call.
	Tainted  bool
	Approval string
	// Keep and Resume are for callers that outlive this process; see [Resumer].
	Keep   Keeper
	Resume string
}

// Balance holds the criteria for choosing one of several nodes. With the zero value the gateway
// chooses.
type Balance struct {
	Strategy  string   // "": resource_aware
	Preferred []string // ids of nodes to try first if they are available
	Excluded  []string // never
	Labels    []string // that the node must have
	Tags      []string // that the function must have
	NeedsGPU  bool
	MinMemory int // MiB
}

// Call is one call as its provider receives it.
type Call struct {
	Invocation string
	Capability ID
	Action     Action
	Member     Member
	Principal  Principal
	Session    string
	Context    *Context        // never nil; must not be changed
	Input      json.RawMessage // never nil: "{}" at least
	Progress   func(Chunk)     // never nil
	// Idempotent is true if the call may safely be sent twice.
	Idempotent bool
	// Key is the caller's idempotency key, for a far side that stores outcomes itself, or
	// "".
	Key string
	// Watched is true if the caller receives progress.
	Watched bool
	// Meta is that of the invocation, or nil.
	Meta json.RawMessage
	// Ask, Relay and Within are those of the invocation. Ask and Relay are nil if the caller
	// cannot be asked; Within is for providers that make further calls for the caller.
	Ask    Asker
	Relay  *Relay
	Within func(extension string) bool
	// Agreed is the Binds of the approved preview, or "". A provider must reject the call if
	// its preview would differ now.
	Agreed string
	// Keep stores the far side's id of the work as soon as it is known. If nil, the id is not
	// stored. See [Resumer].
	Keep func(upstreamCall string)
}

// Previewer is a Provider that can describe a call before it is made.
type Previewer interface {
	// Preview returns the preview of a call without changing anything. It must be quick. If it
	// fails, the call fails with its error.
	Preview(ctx context.Context, c Call) (Preview, error)
}

// Preview describes a call for the approver and for a dry run.
type Preview struct {
	// What is the argument list, with secrets replaced by dots.
	What []string
	// Binds is a digest of everything that an approval covers, besides
	// the capability, its content and the input.
	Binds string
	// Metadata is set if Binds and Details cover what the provider reads of the call's metadata.
	// Otherwise an approved call has of it only what tracing uses.
	Metadata bool
	// Confirm, "first" or "always", requires an approval for every caller; Why is the reason.
	Confirm, Why string
	// Details are shown by a dry run: permissions, network, sandbox.
	Details map[string]any
	// Ran is the known part of the run's description, for the records. It may be nil.
	Ran *Ran
}

// Chunk is a progress notice of a running call. Progress must increase; Total
// is 0 if it is unknown.
type Chunk struct {
	Progress float64 `json:"progress"`
	Total    float64 `json:"total,omitempty"`
	Message  string  `json:"message,omitempty"`
	// Literals are the JSON numbers of Progress and Total as they were received, with trailing
	// zeros; "" for one that was not.
	Literals [2]string `json:"-"`
	// Stage is set if the call starts or stops waiting, or for a log line. Such a chunk does
	// not contain progress.
	Stage string          `json:"stage,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// The stages of a chunk. StageLog is a line of the provider's own log; its Data are the parameters
// of MCP's notifications/message.
const (
	StageQueued    = "queued"
	StageExecuting = "executing"
	StageLog       = "log"
)

// Result is the result of a provider: one JSON value as the bytes that arrived. For the provider
// kinds mcp and a2a it is the unchanged MCP result of tools/call, prompts/get and so on. With
// an error, Value may hold the far side's description of the failure in the same form.
type Result struct {
	Value json.RawMessage
	// UpstreamCall is the id of the work at the far side, for the audit.
	UpstreamCall string
	// Login is the principal whose login at the far side the call used, for the audit, or "". It may
	// be set with an error too.
	Login string
	// Ran describes the program or command that ran, for the audit. It may be set with an
	// error too, and may be nil.
	Ran *Ran
}

// Ran describes the program or command that a provider ran. Only Output may be secret; only its
// keyed hash is recorded.
type Ran struct {
	Command   string // "/postman"
	Action    string // "get"
	Runner    string // "exec.curl"
	Tool      string // "curl"
	WorkDir   string // working directory
	Args      int    // number of arguments
	ExitCode  *int
	Sandbox   string // the tier: "T3"
	Truncated bool
	Output    string
	// Node identifies the node of a call to a node; nil for all others.
	Node *NodeRan
}

// NodeRan holds the additional fields in the record of a call to a node.
type NodeRan struct {
	ID            string
	Epoch         int64
	Function      string
	Skill         string // the skill that has the function, or that was installed or removed
	PayloadDigest string // of the skill that was installed, in hex
}
