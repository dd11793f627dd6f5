package sessions

import "time"

// Bounds of one subscriber's queue. The oldest output beyond them is dropped; too many other
// events end the subscription.
const (
	maxWaiting      = 10_000
	maxOutputQueued = 1 << 20
)

// MaxKeys is the maximal number of keys in one list.
const MaxKeys = 100

// sendSoonTimeout is the time that SendSoon waits. A busy program accepts a text after its turn,
// which may take hours.
const sendSoonTimeout = 10 * time.Second

const maxRequests = 4

// Limits and timeouts of sessions.
const (
	MaxLive    = 8 // default for Config.MaxLive
	MaxEnded   = 100
	MaxMessage = 1 << 20
	MaxQueued  = 20 // messages that wait for a busy session

	maxRefusals = 50
	maxWhat     = 300 // bytes of what was refused

	// Cols and Rows are the size of a terminal by default.
	Cols = 120
	Rows = 40

	minCols, maxCols = 20, 500
	minRows, maxRows = 5, 200

	consoleBytes = 100_000

	pasteDelay     = 150 * time.Millisecond // between a text and its Enter
	keyDelay       = 50 * time.Millisecond
	echoDelay      = time.Second            // until the screen shows what a user's key did
	redrawDelay    = 500 * time.Millisecond // until a screen that is drawn again is complete
	confirmTimeout = 2 * time.Second        // for the program to show that it accepted a text
	enters         = 3
	readyDelay     = 250 * time.Millisecond // before a first task is typed
	readyTimeout   = 2 * time.Minute
	startTimeout   = 20 * time.Second // for a task on the command line to begin
	stopGrace      = 5 * time.Second
	askAgainDelay  = time.Second
	closeGrace     = 3 * time.Second
	controlTTL     = time.Minute // without input, until a person's control ends
	maxPerInterval = 8 << 20     // bytes of output in a second before the reader pauses
	maxReplies     = 64
	cursorTimeout  = time.Second // for the cursor of a dialog to move
	sameAnswered   = 3           // times in a row
	maxSent        = 8           // stored texts
)

// Timeouts and limits for stalled sessions.
const (
	stallTimeout    = time.Minute
	maxStallTimeout = 4 * time.Minute
	maxStalls       = 5
	wedgedTimeout   = 5 * time.Minute
	stallText       = 500 // characters of the screen's end that count as its content
	lookInterval    = 5 * time.Second
)
