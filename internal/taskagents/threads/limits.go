package threads

import "time"

// Limits of read.go.
const (
	maxSearch      = 1 << 10
	maxSearchWords = 16
	maxStatuses    = 32
)

// Bounds of [Registry.Lessons].
const (
	maxLessons = 8
	lessonTTL  = 48 * time.Hour
)

// Bounds of one call of FindTargets.
const (
	MaxTargets = 64      // the newest artifacts first
	maxAddress = 2 << 10 // bytes
	maxFound   = 16      // addresses in the texts of one session
)

// Limits of lists.
const (
	DefaultLimit = 50
	MaxLimit     = 500
	MaxPending   = 1000
	// DefaultTranscript and MaxTranscript are numbers of the newest transcript rows in a detail,
	// which have at most MaxTranscriptBytes.
	DefaultTranscript  = 500
	MaxTranscript      = 10_000
	MaxTranscriptBytes = 8 << 20
	// MaxListed is the maximal number of characters of a request and of a summary in lists.
	MaxListed = 4000
)

// Bounds of one thread. Beyond one of the first three, rows are refused with overloaded. Of events
// and transcripts the oldest are removed.
const (
	MaxSessions   = 256
	MaxNodes      = 64
	MaxRows       = 2000 // of each: decisions, artifacts, messages, verifications, evidence
	MaxEvents     = 5000
	MaxTranscribe = 2 << 20 // bytes of one session's transcript
)
