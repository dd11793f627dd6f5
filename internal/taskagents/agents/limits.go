package agents

import "time"

// Limits of agents.go.
const (
	preflightTTL  = 15 * time.Second // cache of preflight results
	autoStopDelay = 5 * time.Second  // after a completion that a hook reported
	undoTimeout   = 30 * time.Second
	askTimeout    = 55 * time.Second // for a decision about a tool; programs limit their hooks to a minute
	maxMemory     = 256 << 10
	maxCustom     = 64 // variables in Request.Custom
)

const maxKept = 200 // folders; the oldest go first

// Limits of recordings.go.
const (
	maxRecordings = 100      // the oldest are removed
	maxRecording  = 16 << 20 // bytes of one recording, which then ends
)

// Bounds of a body and of the texts in it.
const (
	MaxBody     = 1 << 20
	maxName     = 128
	maxPath     = 4096
	maxResponse = 256 << 10
	maxDecision = 2000 // characters of a shared decision
)

// Bounds of the records from which usage is read.
const (
	maxRecords  = 64        // files of one conversation
	maxSeen     = 10_000    // files and folders of one conversation
	maxRecord   = 256 << 20 // bytes of one file
	maxAnswers  = 10_000    // ids of one file that are remembered
	recordPiece = 1 << 20   // bytes that are read at once; longer lines are left out
	recordDelay = time.Second
)

const removalGrace = time.Minute // after its end a session's files must be removed within this time
