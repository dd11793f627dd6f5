package forge

import "time"

// Limits of bareforge.go.
const (
	maxPulls  = 10_000 // in one repository
	maxRecord = 256 << 10
)

// Limits of device.go.
const (
	deviceTimeout       = 300 * time.Second
	maxAnswer           = 64 << 10
	defaultPollInterval = 5 * time.Second
)

// Limits of items.go.
const (
	maxItems = 50
	maxTitle = 256 // characters; the limit of forges
)

const maxURL = 2048

// Limits of rest.go.
const (
	restTimeout = 30 * time.Second
	maxAnswers  = 16 << 20 // bytes of one answer
	maxOutput   = 16 << 10 // bytes of a check's output
	maxTraces   = 8        // failed checks whose output is read
)
