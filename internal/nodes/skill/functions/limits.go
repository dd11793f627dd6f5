package functions

import "time"

// Defaults and bounds of executions.
const (
	DefaultConcurrent = 10
	DefaultQueue      = 1000
	DefaultTimeout    = 300 * time.Second
	MaxTimeout        = time.Hour
	MaxResult         = 16 << 20 // bytes, of a result and of all chunks that are collected
	MaxChunks         = 10_000   // that are collected
)

// Limits of functions.go.
const (
	DefaultPriority = 5
	MaxPriority     = 10
	DefaultMax      = 1024 // functions of a node
)

// Bounds of what is remembered. It ends with the process.
const (
	KeyTTL    = 24 * time.Hour
	MaxKeys   = 10_000
	maxKept   = 1 << 20  // bytes of one outcome
	maxMemory = 64 << 20 // bytes of all outcomes
)

// Limits of refresh.go.
const (
	// DebounceDelay is how long changes are collected before they are told.
	DebounceDelay = 50 * time.Millisecond
	// RefreshTimeout bounds one telling.
	RefreshTimeout = 8 * time.Second
	// maxNamed is the number of functions that an error names.
	maxNamed = 20
)
