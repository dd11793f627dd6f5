package webpush

import "time"

// Limits of deliver.go.
const (
	maxWaiting     = 16 // notices of one subscription; the oldest is dropped
	maxBurst       = 10 // notices of one subscription without a pause; then one in each noticeInterval
	maxAttempts    = 4
	maxAnswer      = 64 << 10 // bytes of a response that are read and discarded
	maxRecord      = 2048     // bytes of a message, which is padded to this size
	maxTitle       = 60       // runes
	maxText        = 200      // runes
	maxMissed      = 100      // pending approvals that are read after events were lost
	attemptTimeout = 15 * time.Second
	retryDelay     = time.Second // before the second attempt; five times as long before each further one
	maxRetryDelay  = 10 * time.Minute
	maxNoticeTTL   = 24 * time.Hour // push services may keep a notice for this long

	noticeInterval = 6 * time.Second
	missedGrace    = 5 * time.Second // between an approval and its event
)

// Limits of webpush.go.
const (
	maxPerPrincipal  = 20
	maxSubscriptions = 1000
	maxEndpoint      = 1024 // bytes
	maxName          = 80   // runes
)
