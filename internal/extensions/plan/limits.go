package plan

import "time"

// Limits of condition.go.
const (
	maxWhen      = 1024 // bytes
	maxWhenDepth = 32
)

// Limits of engine.go.
const (
	// MaxDownload is the largest size of one download in bytes.
	MaxDownload = 200 << 20
	maxOutput   = 500 // characters of a step's output or error in a report
)

// Limits of httpfetch.go.
const (
	maxRedirects = 5
	maxRetries   = 3
)

// Limits of plan.go.
const (
	maxSteps       = 100
	maxCommand     = 32 << 10
	defaultTimeout = 300 * time.Second
	verifyTimeout  = 30 * time.Second
	maxTimeout     = time.Hour
)
