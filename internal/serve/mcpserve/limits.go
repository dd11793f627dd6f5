package mcpserve

import "time"

// Limits of one session, and of all sessions of one client.
const (
	// maxCalls is the number of concurrent calls in all sessions of a viewer. Calls
	// continue after their client disconnects, so connections do not limit them.
	maxCalls = 1_024
	maxBatch = 100 // messages
	// maxInitialize is the largest initialize request, which this package and the SDK
	// store until the session ends.
	maxInitialize = 64 << 10
)

// maxResult is the largest result included in an answer, in bytes, because a larger one
// does not fit into the context of a model.
const maxResult = 1 << 20

// Limits of follow.go.
const (
	maxFollowing = 256 // resources that one session may subscribe to,
	// maxFollowed is shared by all sessions of a viewer. An upstream accepts 1,000 in
	// total, and one viewer must not use them all.
	maxFollowed = 512
)

// Limits of hold.go.
const (
	maxHeldOf = 64   // held calls of one principal
	maxHeld   = 1000 // held calls of all principals
	// heldProgressInterval is the time between two progress notifications of a held call.
	heldProgressInterval = 5 * time.Second
)

// Limits of links.go, for the addresses of one viewer.
const (
	maxLinked = 256 << 10 // bytes
	maxLinks  = 1000
	// maxLinkers is how many upstreams of one address are stored; with two it is read from neither.
	maxLinkers = 4
	// maxResultLinks is how many links of one result are stored.
	maxResultLinks = 256
)

// Limits of member.go.
const (
	maxURI = 8 << 10
	// maxExpanded is how many variables a template may have, maxMatched the longest address that
	// it matches, and maxTried how many of one upstream's are tried for an address. The cost of
	// matching is their product, and every reader pays it.
	maxExpanded = 12
	maxMatched  = 2 << 10
	maxTried    = 16
)

// Limits of notify.go.
const (
	coalesceDelay  = 50 * time.Millisecond  // one notice for a burst
	noticeInterval = 250 * time.Millisecond // four a second
	expireInterval = 20 * time.Second
)

const resultTTL = 15 * time.Minute

// maxParked is how many calls of one caller may wait for answers.
const maxParked = 8

// humanAnswerTimeout is how long a person has to answer a question on the stream of a call.
const humanAnswerTimeout = 2 * time.Minute

// Limits of requeststate.go.
const (
	stateTTL = 10 * time.Minute
	// maxStates is how many used states are stored per caller, so that a caller that uses up
	// many does not block others; maxCallers bounds the memory of all callers.
	maxStates  = 4_096
	maxCallers = 2_048
)

// Limits of sdk.go.
const (
	// maxInstructions bounds the instructions of all upstreams together, in bytes.
	maxInstructions = 16 << 10
	// closeTimeout limits the wait for the end of a session, because the SDK waits for
	// handlers, which a dead client may block.
	closeTimeout = 2 * time.Second
)

// Limits of session.go.
const (
	maxSessions          = 10_000
	maxSessionsPerViewer = 1_024
	sessionIdleTimeout   = time.Hour
)

const taskPollInterval = time.Second // suggested to clients
