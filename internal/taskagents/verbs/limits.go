package verbs

import "time"

// Bounds of CREATE_TASK.
const (
	maxCriteria  = 20
	maxBrief     = 4_000 // characters
	maxLesson    = 400   // characters of each
	briefTimeout = 30 * time.Second
)

const maxTasks = 50

// Limits of snapshot.go.
const (
	// MaxOutlook is the maximal number of bytes of [Context] and [Examples].
	MaxOutlook = 4 << 10
	maxLines   = 12  // of one section
	maxLine    = 180 // characters
)

const maxTalks = 1000

// MaxLabel and MaxListedText are the maximal numbers of characters of a label, and of a request
// or a summary.
const (
	MaxLabel      = 60
	MaxListedText = 1_000
)

// Bounds of TASK_HISTORY.
const (
	defaultTasks   = 10
	maxDetails     = 5
	maxDetailItems = 50 // of each list of a task
)

// Limits of verb.go.
const (
	shortTimeout = time.Minute
	longTimeout  = 15 * time.Minute // for cloning or pushing a large repository
)

// Bounds of a conversation; longer texts are cut or refused.
const (
	MaxMessage    = 64 << 10 // bytes of the user's message
	MaxRecent     = 10       // messages before it
	MaxRecentText = 400      // characters of each
)
