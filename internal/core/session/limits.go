package session

import "time"

// Limits of results.go.
const (
	MaxResult  = 1_000_000 // bytes of one result's text
	MaxResults = 64 << 20  // bytes of all
	MaxEntries = 10_000    // results of all
	ResultTTL  = 24 * time.Hour
)

// Limits.
const (
	MaxMessageText     = 256 << 10 // bytes
	MaxMessageMetadata = 64 << 10  // bytes
	MaxMessages        = 10_000    // of a session; the oldest go first
	MaxSessions        = 1_000     // of a principal; the one idle longest goes first
	MaxPage            = 500       // messages or sessions of one answer
	maxPrincipal       = 256
	maxID              = 128
)

// ResultBounds bounds all stored results together.
type ResultBounds struct {
	Bytes   int64
	Entries int
}

// Bounds bounds the stored messages and sessions.
type Bounds struct {
	Messages int // of the session
	Sessions int // of the principal
}
