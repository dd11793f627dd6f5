package audit

import (
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Outcome is the success member of a record: true, false, or null for an unfinished call or
// an event that cannot succeed or fail.
type Outcome uint8

// The outcomes.
const (
	OutcomeNone Outcome = iota
	OutcomeSuccess
	OutcomeFailure
)

// OutcomeOf returns the outcome of a finished call.
func OutcomeOf(success bool) Outcome {
	if success {
		return OutcomeSuccess
	}
	return OutcomeFailure
}

// Record is one line of the log without the members of the chain. Only Event is required. It
// intentionally lacks members for arguments, results and environment values; [Log.Digest]
// returns their keyed digests. Strings are redacted and, beyond the encoder's limits, cut.
type Record struct {
	Time      time.Time // zero: now; written in UTC with milliseconds
	Level     Level     // "" or unknown: the level of the event's row
	Logger    string    // the package that logs, for example "invoke"
	Event     Event
	Extension string // module id
	Command   string // "" (null) outside slash commands
	Action    string // canonical action, or the command's action
	Runner    string // kind of provider: endpoint, node, local, mcp, a2a
	Session   string
	User      string // principal id
	Success   Outcome
	Duration  time.Duration // written in seconds and, in the metadata, milliseconds
	ExitCode  *int          // nil: null
	Metadata  Metadata
	Error     string // "": null; text for operators, redacted
}

// Metadata is the nested object "metadata" of a record. The first ten members are
// always written (null when empty), the others only when set.
type Metadata struct {
	Tool        string
	ArgsCount   int
	WorkDir     string // the home directory is written as ~
	ArgsHash    string // of Log.Digest; so are the next two
	StdoutHash  string
	StderrHash  string
	RunID       string
	Permissions []string
	Decision    Decision
	Sandbox     string
	State       string // final state of the invocation
	Truncated   bool   // output of the call was cut; also set if this record was cut

	CapabilityID    string
	CanonicalAction string
	Provider        string
	Surface         string
	Principal       Principal
	Effect          capability.Effect
	View            string
	Client          string
	TraceID         string
	Parent          string
	Task            string
	Gateway         string // "": the log's own
	Selection       Selection
	Pin             string
	UpstreamCallID  string
	BytesIn         int64
	BytesOut        int64
	Timings         Timings
	Node            Node
	Code            capability.Code // of the failure
	Reason          string          // fine code of the failure
	Attrs           []Attr          // members of events other than calls
}

// Decision is the reason why a call was allowed or denied. Effect is "permit" or "forbid".
type Decision struct {
	Effect    string
	PolicyIDs []string
	Grant     string
	Approval  string
}

// Principal is the caller; OnBehalfOf is set for a task's agent.
type Principal struct {
	ID         string
	Role       capability.Role
	OnBehalfOf string
}

// Selection is the reason for the choice of the provider.
type Selection struct {
	Step          int
	DecidedBy     string
	Fallback      bool
	ExplanationID string
}

// Timings holds parts of the duration.
type Timings struct {
	Queue, Consent, Provider time.Duration
}

// Node holds the additional members of a call to a node.
type Node struct {
	ID            string
	Epoch         uint64
	Function      string
	Skill         string
	PayloadDigest string
	ModuleDigest  string
}

// Attr is one further member of the metadata; Key is lower_snake and must not
// repeat a name of [Metadata]. At most 32 are written.
type Attr struct{ Key, Value string }

// Durability is the state that a record must reach before Append returns.
type Durability uint8

// The durabilities, weakest first. In strict mode every append is Synced.
const (
	// Buffered is for begin records and debug: the operating system has the bytes, so they
	// survive the end of the process, but are not flushed to the disk.
	Buffered Durability = iota
	// Written is for the end of reads: as Buffered, and fsynced within 100 ms.
	Written
	// Synced is for effects >= write, denials and security: on disk.
	Synced
)

// Receipt is the position of a record. Seq is 0 if the record waits in memory
// for a broken log to recover.
type Receipt struct{ Seq uint64 }
