package extensions

import "time"

// publishTimeout limits the wait for the catalog. The change itself is already stored.
const publishTimeout = 5 * time.Second

// maxEgressRecords limits the audit records of one run's connections.
const maxEgressRecords = 100

// Limits of toolrunner.go.
const (
	// maxToolOutput limits the stored output of a program, in bytes.
	maxToolOutput = 16 << 20
	// artifactTTL is how long the artifacts of a run are stored.
	artifactTTL = 24 * time.Hour
)
