package node

import "time"

// The limits in percent above which a node stops accepting calls, and the number of
// consecutive heartbeats for which they must be exceeded.
const (
	maxCPU        = 90
	maxMemory     = 85
	strainedBeats = 3
)

// Limits of a node.
const (
	MaxStreams     = 32      // concurrent streams
	MaxOutstanding = 4 << 20 // bytes of all streams that were sent and not consumed
	MaxUpward      = 64      // concurrent calls to the gateway
	AckDelay       = 250 * time.Millisecond
	JoinTimeout    = 15 * time.Second // for an answer of the gateway
	DrainTimeout   = 30 * time.Second
	// maxRefusals is the number of consecutive refusals by the bus after which a node that
	// has never joined stops.
	maxRefusals = 3
)

// goodbyeDelay is the pause between the last answer and the announcement to leave. The
// gateway reads them from different subscriptions, and an answer that it has not read when
// the node leaves is lost.
const goodbyeDelay = 250 * time.Millisecond

// DefaultUpwardTimeout is the timeout of a call to the gateway without a deadline.
const DefaultUpwardTimeout = 60 * time.Second
