package validation

import "time"

// Bounds of checks.
const (
	MaxChecks    = 8
	checkTimeout = 10 * time.Minute
	maxOutput    = 4000 // characters
	maxManifest  = 1 << 20
)

// Bounds of criteria.
const (
	maxCriteria  = 7
	minCriteria  = 3
	maxCriterion = 500 // characters
)

// MaxRounds is the maximal number of follow-ups to an agent, unless the task has its own
// validator.
const MaxRounds = 3

// Bounds of a verdict.
const (
	maxSummary  = 2000 // characters
	maxFollowUp = 8000
	maxListed   = 20
	maxVerdict  = 256 << 10 // bytes read of an answer
	maxVerdicts = 200       // objects tried
)
