package worker

import "time"

// watchdogInterval is how long the engine may take to notice its deadline, before the
// process ends itself.
const watchdogInterval = 300 * time.Millisecond

// maxDepth is the maximum depth of nested calls, which the engine does not extend by itself.
const maxDepth = 2000

const maxHead = 2 << 10

// Limits of one run, in bytes unless stated otherwise.
const (
	DefaultMemory  = 64 << 20 // of the engine
	MaxMemory      = 512 << 20
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = time.Hour
	MaxCode        = 8 << 20
	MaxInput       = 4 << 20
	MaxResult      = 16 << 20
	MaxChunk       = 1 << 20
	MaxChunks      = 10_000 // number
	MaxAllChunks   = 16 << 20
	MaxCalls       = 1000 // number of host calls
	MaxRequest     = 1 << 20
	MaxReply       = 4 << 20

	// overhead is the memory of the process beyond the engine's: this binary, compiled code,
	// and results in transit.
	overhead = 256 << 20
	// grace is how long after the engine's deadline the process is killed.
	stopGrace = time.Second
)
