package wire

import "time"

// maxDeadline is the maximum duration of a call in milliseconds.
const maxDeadline = 3600 * 1000

// The bounds of messages, in bytes unless stated otherwise.
const (
	MaxInline    = 512 << 10 // of one message
	MaxChunk     = 128 << 10 // of one chunk's value
	MaxFunctions = 1024      // number, of a node
	maxText      = 1024      // of free text

	// The bytes of a stream that may be in transit.
	MinWindow     = 64 << 10
	DefaultWindow = 256 << 10
	MaxWindow     = 4 << 20
)

// Limits of proof.go.
const (
	// ProofTTL is the maximum difference between the time of a proof and the gateway's clock. A node uses
	// the gateway's time from its join, so that its own clock may be wrong.
	ProofTTL = 5 * time.Minute
	// maxProof bounds the header.
	maxProof = 1 << 10
)
