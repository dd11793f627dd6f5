package exchange

import "time"

// Limits of exchange.go.
const (
	beatInterval = 15 * time.Second // a comment on a quiet stream
	// MaxProgress is the number of notices within progressInterval; after that only the
	// newest is sent.
	MaxProgress      = 10
	progressInterval = time.Second
	writeTimeout     = 30 * time.Second // after which a client that does not read is disconnected
)

// Limits of the unread part of one stream: messages, and their bytes, of which one message
// may have more.
const (
	maxUnread      = 256
	MaxUnreadBytes = 2 << 20
)
