package stdiobridge

import "time"

// Limits of stdiobridge.go.
const (
	// maxLine exceeds the server's body limit of 4 MiB, so that the server reports
	// messages that are too large.
	maxLine         = 4<<20 + 64<<10
	maxRunning      = 64               // concurrent requests
	maxWaiting      = 1024             // requests that wait for a slot
	maxAnswer       = 64 << 20         // bytes of one response, so that a broken server cannot fill the memory
	drainGrace      = 10 * time.Second // for requests that are running when In ends
	closeTimeout    = 2 * time.Second  // for ending the session
	firstRetryDelay = time.Second / 2  // before a broken stream of notifications is opened again,
	maxRetryDelay   = 30 * time.Second // doubling up to this
)
