package publish

import "time"

// Delays of notices. A notice is delayed until no further change arrives for changeDelay, but
// by no more than maxHoldDelay. A change of availability alone waits for flapDelay, so that
// a provider that returns within 100 ms does not cause a notice.
const (
	changeDelay    = 50 * time.Millisecond
	flapDelay      = 110 * time.Millisecond
	maxHoldDelay   = 200 * time.Millisecond
	noticeInterval = 250 * time.Millisecond // between two notices to one subscriber

	maxSubscribers = 10_000
)

// Limits of emitter_context.go.
const (
	maxViewsTold = 256  // workspaces and agents whose names are remembered
	maxVetosTold = 4096 // verdicts
)

// Bounds of the feed. A generation that touches more than maxTouched actions becomes a reset.
const (
	maxGenerations = 1024
	maxTouched     = 10_000
	maxChanges     = 200_000 // of all generations in the ring
)

const maxRecent = 1024
