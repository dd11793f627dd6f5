package mcpclient

import "time"

// Limits of events.go.
const (
	maxEventID    = 1024
	maxRetryDelay = time.Minute
)

// Limits of http.go.
const (
	drainGrace    = 250 * time.Millisecond
	maxResumes    = 5
	minRetryDelay = 50 * time.Millisecond
)

// The first calls of a legacy session wait for its notification stream, because servers
// also send requests on it, which are lost before it is open. They wait until the server
// answers, at most openGrace after the request for it was sent and openTimeout in all.
const (
	openTimeout = 2 * time.Second
	openGrace   = 250 * time.Millisecond
)

// Limits of listen.go.
const (
	minListenDelay = 500 * time.Millisecond
	maxListenDelay = 30 * time.Second
	steadyInterval = 10 * time.Second // a stream that lasted so long resets the backoff
)

// The limits of what a server may send and how long it may take.
const (
	connectTimeout = 10 * time.Second
	probeTimeout   = 2 * time.Second // of stdio: silence means legacy
	idleTimeout    = 60 * time.Second
	noteTimeout    = 2 * time.Second // a notification, or an answer to the server
	listTimeout    = 30 * time.Second
	maxAnswer      = 32 << 20
	maxLine        = 16 << 20
	maxRefusal     = 1 << 20 // the body of an HTTP error
	maxListPages   = 200
	maxListItems   = 5000
	maxListBytes   = 16 << 20
	maxRounds      = 8  // of questions in one call
	maxQuestions   = 16 // of one round, and open at a time on one connection
	maxNotices     = 64 // notifications that wait for a slow caller
	maxNotice      = 256 << 10
	maxQuestion    = 1 << 20
	maxStderr      = 64 << 10
	maxGarbage     = 10 // lines in a row that are not messages
	maxWatched     = 1000
)

// Limits of message.go.
const (
	maxID    = 512  // bytes of an id of the server's requests, which is echoed
	maxBatch = 1000 // messages in one array
)

// The steps of stopping a process.
const (
	inputGrace = 2 * time.Second // after its input is closed
	termGrace  = 3 * time.Second // after SIGTERM
)

// The time between two looks at a task: the server's, within the bounds, or the default.
const (
	taskPollDelay    = time.Second
	minTaskPollDelay = 20 * time.Millisecond
	maxTaskPollDelay = 30 * time.Second
	// maxLiteral is the length of a number up to which its spelling is kept.
	maxLiteral = 64
	// maxLongLine is what is kept of a line that is too long.
	maxLongLine = 4 << 10
)
