package wire

import (
	"encoding/json"

	"github.com/junctor-run/junctor/protocol/cmp"
)

// Proto is the version of the messages.
const Proto = 1

// Software is the name and version of a node's program.
type Software struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Join is a node's request to join. It always contains the node's complete state.
type Join struct {
	Proto     int            `json:"proto"`
	NodeID    string         `json:"node_id"`
	Instance  string         `json:"instance"` // random per process
	Software  Software       `json:"software"`
	OS        string         `json:"os"`
	Arch      string         `json:"arch"`
	Labels    []string       `json:"labels"`
	Location  string         `json:"location,omitzero"`
	Functions []cmp.Function `json:"functions"`
	Revision  uint64         `json:"revision"`
	// Epoch is the last one of this process; if another process has a newer one, this one was superseded.
	Epoch         int64           `json:"epoch,omitzero"`
	MaxConcurrent int             `json:"max_concurrent"`
	Accepting     bool            `json:"accepting"`
	HostStatus    json.RawMessage `json:"host_status,omitzero"` // a cmp.Status
}

// JoinReply is the reply to a Join.
type JoinReply struct {
	OK             bool           `json:"ok"`
	Error          *cmp.WireError `json:"error,omitzero"`
	Epoch          int64          `json:"epoch,omitzero"`
	HeartbeatMS    int64          `json:"heartbeat_ms,omitzero"`
	TimeoutMS      int64          `json:"timeout_ms,omitzero"`
	MaxInline      int            `json:"max_inline,omitzero"`
	Window         int            `json:"window,omitzero"`
	ServerTime     string         `json:"server_time,omitzero"`
	RejectedLabels []string       `json:"rejected_labels,omitempty"`
	Gateway        string         `json:"gateway,omitzero"` // the instance that accepted
}

// Update holds the functions and labels that a node currently offers. The gateway applies the newest
// revision.
type Update struct {
	Epoch     int64          `json:"epoch"`
	Revision  uint64         `json:"revision"`
	Functions []cmp.Function `json:"functions"`
	Labels    []string       `json:"labels"`
}

// Ack is the reply to an Update or a Leave.
type Ack struct {
	OK       bool           `json:"ok"`
	Error    *cmp.WireError `json:"error,omitzero"`
	Revision uint64         `json:"revision,omitzero"`
}

// Beat is a heartbeat; cpu, mem and gpu are 0 to 100.
type Beat struct {
	Epoch     int64   `json:"epoch"`
	Seq       uint64  `json:"seq"`
	Revision  uint64  `json:"revision"`
	CPU       float64 `json:"cpu"`
	Memory    float64 `json:"mem"`
	GPU       float64 `json:"gpu"`
	Active    int     `json:"active"`
	Queued    int     `json:"queued"`
	Accepting bool    `json:"accepting"`
}

// Leave announces that a node disconnects. With Drain, running calls finish first.
type Leave struct {
	Epoch  int64  `json:"epoch"`
	Reason string `json:"reason"`
	Drain  bool   `json:"drain"`
}

// Caller identifies the principal of a call.
type Caller struct {
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Display string `json:"display,omitzero"`
}

// Trace is the W3C trace context.
type Trace struct {
	Parent string `json:"traceparent,omitzero"`
}

// Call is one call to a node. If the arguments are too large, Arguments refers to an asset with them
// instead of Args and Kwargs.
type Call struct {
	Epoch          int64                      `json:"epoch"`
	CallID         string                     `json:"call_id"`
	Function       string                     `json:"function"`
	Args           []json.RawMessage          `json:"args,omitempty"`
	Kwargs         map[string]json.RawMessage `json:"kwargs,omitempty"`
	Arguments      json.RawMessage            `json:"arguments,omitzero"` // {"$asset": …}
	Stream         bool                       `json:"stream"`
	DeadlineMS     int64                      `json:"deadline_ms"` // remaining time
	IdempotencyKey string                     `json:"idempotency_key,omitzero"`
	Window         int                        `json:"window,omitzero"`
	Caller         Caller                     `json:"caller"`
	Trace          Trace                      `json:"trace"`
	Consent        json.RawMessage            `json:"consent,omitzero"`
}

// The types of reply frames.
const (
	FrameAck      = "ack"      // the call is queued
	FrameChunk    = "chunk"    // Value, or an asset as a value
	FrameProgress = "progress" // Fraction, Message
	FrameResult   = "result"   // Value, ExecMS: the end
	FrameDone     = "done"     // Chunks, Bytes, ExecMS: the end of a stream
	FrameError    = "error"    // Error: the end
)

// Frame is one part of the reply to a call. Seq counts from 0 without gaps, and exactly one frame, the
// last, is a result, a done or an error.
type Frame struct {
	CallID string          `json:"call_id"`
	Epoch  int64           `json:"epoch"`
	Seq    uint64          `json:"seq"`
	Type   string          `json:"type"`
	Value  json.RawMessage `json:"value,omitzero"`

	Fraction *float64       `json:"fraction,omitzero"` // 0 to 1
	Message  string         `json:"message,omitzero"`
	Chunks   int            `json:"chunks,omitzero"`
	Bytes    int64          `json:"bytes,omitzero"`
	ExecMS   int64          `json:"exec_ms,omitzero"`
	Error    *cmp.WireError `json:"error,omitzero"`
}

// Last reports whether no frame follows.
func (f *Frame) Last() bool {
	return f.Type == FrameResult || f.Type == FrameDone || f.Type == FrameError
}

// The types of control messages.
const (
	ControlCancel     = "cancel"     // CallID, Reason
	ControlCredit     = "credit"     // CallID, Bytes
	ControlDrain      = "drain"      // finish running calls, accept no new ones
	ControlRejoin     = "rejoin"     // the gateway does not know this node
	ControlUpdate     = "update"     // the gateway has an older revision
	ControlBeat       = "beat"       // the gateway knows this node from storage alone, and requests its announcement
	ControlSuperseded = "superseded" // a newer session has the node's id
	ControlShutdown   = "shutdown"   // the gateway stops
)

// Control is a message of a gateway to a node about a call or the session.
type Control struct {
	Epoch  int64  `json:"epoch"`
	Type   string `json:"type"`
	CallID string `json:"call_id,omitzero"`
	Bytes  int64  `json:"bytes,omitzero"`
	Reason string `json:"reason,omitzero"`
}
