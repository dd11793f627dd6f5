package upstream

import "time"

const breakerDelay = 30 * time.Second

// Limits of what is shown of a program's error output.
const (
	maxShownLines = 20 // if it does not start
	maxShownText  = 4 << 10
	maxTail       = 8 << 10 // if it ended later
)

const maxErrorText = 1 << 10

// minMasked is the length of the shortest secret that is masked. A shorter one would match
// unrelated text.
const minMasked = 4

const credentialsTTL = 5 * time.Second

// Limits of the log of one upstream.
const (
	maxLogLines     = 1000
	maxLogBytes     = 128 << 10
	maxLogLine      = 2 << 10 // of one stored line
	maxRawLine      = 8 << 10 // of one line before secrets are removed
	maxLinesASecond = 200     // that one upstream may write; the rest is counted
)

// addTimeout is how long Add waits for each list other than tools.
const addTimeout = 5 * time.Second

// Limits of offers.go.
const (
	maxOffers      = 10_000 // resources of one connection
	offersInterval = time.Second
)

// maxLogins is how many principals may be logged in to one upstream.
const maxLogins = 256

// maxOpens is how many URLs one error may ask a person to open.
const maxOpens = 16

// Limits of subscriptions.
const (
	maxSubscribed = 1000 // addresses of one upstream
	maxListeners  = 1000 // of one address
)

// Limits of connections.
const (
	maxUpstreams       = 256
	maxConnections     = 64  // of one upstream
	maxTotal           = 256 // of all
	connectTimeout     = time.Minute
	dialTimeout        = 10 * time.Second
	listTimeout        = 40 * time.Second // above the client's own limit
	maxRetryDelay      = 30 * time.Second
	minRefreshInterval = 30 * time.Second
	noticeDelay        = 100 * time.Millisecond // between two reads because of notifications
	maxExits           = 5                      // within exitInterval
	exitInterval       = 5 * time.Minute
	awaitTimeout       = 5 * time.Second // how long a call waits for a connection
)
