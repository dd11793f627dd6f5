package agent

import "time"

// Limits of act.go.
const (
	maxTools       = 40 // that a run offers from the start
	maxDescribed   = 20 // tools that a run adds because the model described them
	maxSchemas     = 64 << 10
	maxDescription = 2 << 10
	maxResult      = 16 << 10  // of a result's text for the model
	maxCutNote     = 100       // of which the note that it was cut
	maxParallel    = 8         // reads of one answer at the same time
	maxPage        = 256 << 10 // of the input and result that are kept for the page of a tool
	maxAsks        = 3         // approvals that are requested for one call
)

// Limits of a character.
const (
	maxCharacter = 1 << 20  // bytes of a file
	maxPersona   = 16 << 10 // bytes of its text in a prompt
	maxBio       = 10       // lines of each list
	maxExamples  = 3        // conversations
)

// Limits of compact.go.
const (
	// maxSteps is the size of a run's steps above which the older ones are replaced by a summary.
	maxSteps    = 96 << 10
	maxSummary  = 8 << 10 // bytes
	maxExtract  = 400     // of one result, where the model gives no summary
	maxArgument = 200
)

// Limits of context.go.
const (
	contextTimeout = 2 * time.Second // of one source of context
	engineTimeout  = 10 * time.Second
	maxSegment     = 4 << 10  // bytes of one source
	maxContext     = 16 << 10 // of all
	maxMemories    = 5
	maxQuery       = 1 << 10
	maxEngineTurns = 256 << 10
)

// Limits of drive.go.
const (
	// maxCalls bounds the calls of one answer.
	maxCalls = 64
	// maxRepeats is how often the same call may have the same result.
	maxRepeats = 2
	// decisionTimeout bounds the wait for a decision that is being stored.
	decisionTimeout = 10 * time.Second
)

// Limits of engine.go.
const (
	// maxActive bounds the runs that work at the same time; others wait.
	maxActive = 64
	// maxActiveOf is how many of them are of one person.
	maxActiveOf = 16
	// sweepInterval is the time between two looks for decisions whose notice was lost.
	sweepInterval = 30 * time.Second
	// runTTL is how long an ended run is kept.
	runTTL = 7 * 24 * time.Hour
	// maxRecords is the number of records after which a run takes no further messages. Its own
	// records are bounded by its budget.
	maxRecords = 1000
)

// Limits of lease.go.
const (
	// leaseTTL is how long a gateway keeps its runs after it last extended its lease, and
	// renewInterval how often it does. takeInterval is the time between two looks for leases that ended.
	leaseTTL      = 15 * time.Second
	renewInterval = 5 * time.Second
	takeInterval  = 2 * time.Second
	// leaseTimeout bounds one statement about leases.
	leaseTimeout = 5 * time.Second
	// noteInterval is the time between two looks for notes whose notice was lost.
	noteInterval = 5 * time.Second
)

// followInterval is the time between two readings of the journal of a run that another gateway carries.
const followInterval = 500 * time.Millisecond

// maxQueue bounds the events that a follower has not read, beside one text.
const maxQueue = 1024

// replayTimeout bounds the repetition of one run.
const replayTimeout = time.Minute

// Limits of stages.go.
const (
	stageTimeout    = 10 * time.Second // of one call of a module
	evaluateTimeout = 2 * time.Minute  // of all evaluators of a turn
)

// MaxUsageDays is the longest time that one query of usage covers.
const MaxUsageDays = 366
