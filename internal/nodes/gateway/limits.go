package gateway

import "time"

// barrierTimeout limits the wait, because the loss of a node must be handled soon.
const barrierTimeout = 20 * time.Millisecond

// maxCircuits limits the number of circuits; beyond it no new ones are recorded.
const maxCircuits = 1 << 16

// Limits of call.go.
const (
	// DefaultTimeout is the timeout of a call without a deadline.
	DefaultTimeout = 300 * time.Second
	// maxCollected is the largest size in bytes of the collected chunks of a stream.
	maxCollected = 16 << 20
)

// Limits of frames.go.
const (
	// maxFrames is the number of frames of one call that may wait for its reader.
	maxFrames = 16 << 10
	// attendInterval is the interval of attend.
	attendInterval = time.Second
	// firstFrameTimeout is how long a call may wait for its first frame before the node's
	// session is probed.
	firstFrameTimeout = 10 * time.Second
)

// Limits of gateway.go.
const (
	// laneLength is the number of jobs that wait in a lane: those of 16,000 nodes that join at once fit.
	laneLength = 1024
	// maxQueued is the number of messages of one node that wait in its lane, maxQueuedBytes the
	// size of all in all lanes.
	maxQueued      = 8
	maxQueuedBytes = 64 << 20
	// lossInterval is the shortest time between two warnings of lost messages.
	lossInterval = 10 * time.Second
)

// maxBeat is the largest heartbeat in bytes. Larger ones are not decoded.
const maxBeat = 16 << 10

// Limits of sessions.go.
const (
	// supersedeGrace is the time that the older of two processes has to receive the message that
	// it is superseded. If disconnected before that, it would join again and supersede the newer.
	supersedeGrace = 100 * time.Millisecond
	// maxOlder limits the pending entries.
	maxOlder = 4096
)

// The pauses before a watch that ended is opened again.
const minRetryDelay, maxRetryDelay = 100 * time.Millisecond, 5 * time.Second

// maxOutstanding is the number of bytes of all streams of one node that may be sent and not
// yet consumed.
const maxOutstanding = 4 << 20
