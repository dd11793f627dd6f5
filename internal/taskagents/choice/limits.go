package choice

import "time"

// Limits of a cooldown.
const (
	DefaultCooldownTTL = 30 * time.Minute
	// maxCooldownTTL is the longest cooldown that a program may name; vendors use weeks.
	maxCooldownTTL = 8 * 24 * time.Hour
	maxFailure     = 64 << 10 // bytes of a failure's text
)

// maxText is the number of bytes of a task that are searched for words.
const maxText = 256 << 10
