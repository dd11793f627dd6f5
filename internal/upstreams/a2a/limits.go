package a2a

import "time"

// Limits of agent.go.
const (
	connectTimeout = 10 * time.Second
	cancelTimeout  = 5 * time.Second
)

// Limits of an agent's data.
const (
	MaxCard      = 1 << 20
	MaxAnswer    = 32 << 20 // of one message, all events together
	MaxSkills    = 256
	maxArtifacts = 1024 // of one task
)

// Limits of call.go.
const (
	maxRounds       = 16  // questions of one call
	maxTaskID       = 256 // bytes
	minPollInterval = 100 * time.Millisecond
	maxPollInterval = 2 * time.Second
)

// Limits of signature.go.
const (
	// MaxKeys are the pinned keys of one agent.
	MaxKeys       = 16
	maxKey        = 8 << 10
	maxSignatures = 16
)

const maxEvent = 8 << 20
