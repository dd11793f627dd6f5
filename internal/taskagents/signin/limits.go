package signin

import "time"

// Limits of helper.go.
const (
	pollInterval = 2500 * time.Millisecond // between checks of the account
	lookInterval = 100 * time.Millisecond
	maxPrinted   = 1 << 20
	maxLines     = 200
	maxLinks     = 32
	maxReplies   = 64 // replies to a program's terminal queries; more could fill its input
)

// Limits of links.go.
const (
	maxURL   = 4096
	maxWraps = 32
	maxTold  = 1000 // bytes of text for the user
)

// Timeouts and intervals of the recovery of sessions that wait for a login.
const (
	dedupeInterval = 5 * time.Second
	nudgeDelay     = 250 * time.Millisecond
	nudgeInterval  = 8 * time.Second
	askInterval    = 500 * time.Millisecond
	readyTimeout   = 30 * time.Second
	// quietTimeout is the time that a session may wait for input after a login before its task
	// is sent again. The session itself would deliver it sooner.
	quietTimeout = 8 * time.Second
	maxTries     = 5 // logins of a session
)

// Timeouts and limits of a login.
const (
	LoginTTL           = 5 * time.Minute // duration of a login
	firstOutputTimeout = 2 * time.Second // after the first output, for an address
	maxAddressTimeout  = 10 * time.Second
	maxTyped           = 1024
)
