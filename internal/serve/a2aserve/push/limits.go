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

	maxQueue         = 256 // pending changes of one task
	maxRequests      = 64  // that are under way
	maxOwnerRequests = 8   // of those, for the tasks of one owner
	maxOwnerTasks    = 256 // that are delivered concurrently
	sweepInterval    = 10 * time.Minute
)
