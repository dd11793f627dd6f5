package coordinator

import "time"

const maxInput = 4000 // characters of a tool's input in the question

// Timeouts and limits of the coordinator.
const (
	coalesceDelay    = 500 * time.Millisecond
	cooldownInterval = 15 * time.Second
	parentTimeout    = 30 * time.Second
	modelTimeout     = time.Minute
	sendTimeout      = time.Minute
	reportTimeout    = 30 * time.Second
	stopDelay        = 5 * time.Second
	heldTTL          = 30 * time.Second
	maxHeld          = 100
	MaxResponses     = 10 // automatic answers in a row
	MaxRecovered     = 2  // automatic recoveries of a task
	scanInterval     = time.Minute
	idleTimeout      = 5 * time.Minute
	idleChecks       = 4
	blindChecks      = 2 // without a model
	retryTimeout     = 5 * time.Minute
	waitTimeout      = 24 * time.Hour
	maxShared        = 100 // stored shared decisions of a thread
)

// Limits of finish.go.
const (
	validateTimeout = 30 * time.Minute
	maxSummary      = 16 << 10 // characters
)

// Limits of recover.go.
const (
	spawnTimeout       = 2 * time.Minute
	maxHandedText      = 4000 // characters of the failed program's output
	maxHandedDecisions = 10   // decisions
)
