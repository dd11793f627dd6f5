package launch

import "time"

// Limits of comment.go.
const (
	maxComments = 100
	maxComment  = 4000 // characters
	maxQuoted   = 300  // characters of a commented line
)

const maxSettled = 500 // newest threads of earlier processes that are settled

// MaxParts is the maximal number of agents of one task.
const MaxParts = 8

const maxMemory = 128 << 10

// Limits of start.go.
const (
	maxResult       = 8000 // characters of a previous part's summary
	slotTimeout     = 15 * time.Second
	minSlotInterval = 200 * time.Millisecond // first interval; it doubles up to maxSlotInterval
	maxSlotInterval = 2 * time.Second
	// maxConflicts is the number of files with conflicts that a prompt names.
	maxConflicts = 50
)

// Characters of the names that branches of a task and of its parts get from titles.
const (
	maxTaskSlug = 30
	maxPartSlug = 40
)
