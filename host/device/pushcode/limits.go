package pushcode

import "time"

// Limits of runtime.go.
const (
	// releaseGrace is how long running calls may continue after their skill was removed.
	releaseGrace = 5 * time.Second
	// tryTimeout bounds the trying of one module.
	tryTimeout = 10 * time.Second
)
