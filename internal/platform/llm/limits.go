package llm

import "time"

const maxEvent = 1 << 20 // bytes of a line of a stream

// Defaults and limits.
const (
	DefaultTimeout   = 60 * time.Second
	DefaultMaxTokens = 2048
	MaxPrompt        = 4 << 20 // bytes of an encoded request
	DefaultMaxText   = 256 << 10
	maxBody          = 8 << 20 // bytes of a whole response
	maxErrorBody     = 16 << 10
	maxAttempts      = 3
	maxRetryDelay    = 20 * time.Second // if a service requires a longer delay, the call is not retried
)
