package chat

import "time"

// Limits of channels.go.
const (
	// artifactTTL is how long an attachment that was fetched is stored.
	artifactTTL = 24 * time.Hour
	// downGrace is how long an account may be away before the doctor reports it.
	downGrace = 10 * time.Second
)

// sweepInterval is the time between two removals of expired sessions, results and artifacts.
const sweepInterval = 10 * time.Minute
