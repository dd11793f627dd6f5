package push

import "time"

const maxAnswer = 64 << 10 // bytes of a receiver's response, which are read and discarded

// Limits.
const (
	MaxPerTask = 16
	MaxURL     = 2048
	MaxSecret  = 4096
	Attempts   = 5
	Timeout    = 15 * time.Second

	maxQueue      = 256 // pending changes of one task
	atOnce        = 16  // tasks that are delivered concurrently
	sweepInterval = 10 * time.Minute
)
