package api

import "time"

// Limits.
const (
	MaxBody        = 4 << 20 // bytes, of a request and, decompressed, of an answer
	DefaultTimeout = time.Minute
	connectTimeout = 10 * time.Second
	maxRedirects   = 5
	maxAttempts    = 3
	maxRetryDelay  = 30 * time.Second
	maxURL         = 8 << 10
	formBytes      = 16 // of the forms in which a service may repeat one byte of a secret, the longest that is usual
)

// Limits of the cache.
const (
	maxStored      = 1024
	maxStoredBytes = 32 << 20
	maxCacheTTL    = 24 * time.Hour
)
