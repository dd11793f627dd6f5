package cast

import "time"

// Bounds of a recording.
const (
	MaxFile       = 64 << 20 // bytes
	MaxLine       = 4 << 20  // bytes
	MaxEvents     = 1 << 20
	MaxEventDelay = 7 * 24 * time.Hour
	maxSide       = 1000 // columns or rows
)
