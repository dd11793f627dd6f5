package telemetry

import "time"

// Limits of export.go.
const (
	// maxQueue bounds the calls that wait for their export. Further ones are dropped and counted.
	maxQueue = 8192
	// maxBatch is the number of calls in one request.
	maxBatch        = 512
	spanInterval    = 5 * time.Second
	metricsInterval = time.Minute
	exportTimeout   = 10 * time.Second // of one request
	maxAttempts     = 5
	firstDelay      = 500 * time.Millisecond
	maxDelay        = 30 * time.Second // also of a Retry-After
	flushTimeout    = 3 * time.Second
)
