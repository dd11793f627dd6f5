package tasks

import "time"

// maxBehind is how many changes a watcher may be behind.
const maxBehind = 256

// Bounds of held calls.
const (
	MaxHeldInput   = 256 << 10 // bytes of arguments
	MaxHeldOf      = 100       // calls of one principal that wait
	MaxHeldFor     = 1000      // calls for one node that wait
	MaxHoldTTL     = 7 * 24 * time.Hour
	DefaultHoldTTL = 24 * time.Hour
	EndedHeldTTL   = 24 * time.Hour // how long an outcome remains available

	// claimTTL is the age at which a delivery counts as abandoned; it exceeds that of any call.
	claimTTL          = 2 * time.Hour
	heldSweepInterval = time.Minute
)

// maxTaken is how many tasks one statement gives to another gateway.
const maxTaken = 500

// Limits of manager.go.
const (
	maxTaskTTL    = 7 * 24 * time.Hour
	sweepInterval = time.Minute
	cancelTimeout = 5 * time.Second
)

// Limits of resume.go.
const (
	// resumeTimeout is how long after a start the work of an earlier process may take to be
	// resumed, because the provider must connect first.
	resumeTimeout  = 5 * time.Minute
	resumeInterval = time.Second // between two attempts
	// seenTTL is how long a principal counts as present after it was last seen.
	seenTTL = time.Minute
)

// progressInterval is the minimum interval between status texts.
const progressInterval = 50 * time.Millisecond

// Limits of stored runs.
const (
	RunTTL       = time.Hour // after the end
	MaxEndedRuns = 1000      // the oldest go first
	MaxRunBytes  = 64 << 20  // bytes of results; the oldest go first
	// MaxDetachedRuns bounds the runs whose caller does not wait for the result.
	MaxDetachedRuns = 100
)

// Bounds. Exceeding one of the first four fails with code overloaded.
const (
	MaxRunning   = 256 // running tasks of one process
	MaxRunningOf = 32  // of one principal
	MaxOpenOf    = 64  // of one principal that have not ended
	MaxAsking    = 8   // of one principal that wait for an answer while they run
	MaxRequests  = 8   // open questions of one task
	MaxHistory   = 64  // documents of one task
	MaxDocuments = 5 << 20
	// MaxEndedOf and MaxBytesOf are the maximum number of ended tasks stored for one principal,
	// and the maximum size of their results and documents; the oldest go first.
	MaxEndedOf = 1000
	MaxBytesOf = 256 << 20
	// TaskTTL is how long a task is available after its last change, and how long a waiting task
	// waits.
	TaskTTL = 24 * time.Hour
	// Timeout is the timeout of a task's invocation whose surface sets none. It equals the
	// maximum of all calls.
	Timeout = time.Hour

	maxStatus = 1 << 10
)

// Bounds are the storage limits of one owner.
type Bounds struct {
	Open, Ended int
	Bytes       int64
}
