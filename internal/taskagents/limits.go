package taskagents

import "time"

// Limits of blockers.go.
const (
	// maxKept is the number of bytes of a tool's input that an approval stores. A larger one can be
	// refused there, but not allowed.
	maxKept = 1 << 20
	// maxSummary is the number of bytes of the text that describes a blocker in a list.
	maxSummary = 300
)

// decisionTimeout limits a call of the service. Its caller may end it sooner.
const decisionTimeout = 30 * time.Second

// Limits of the bridge.
const (
	maxRemembered     = 50 // messages of one answer
	maxRememberedText = 600
	maxMemoryQuery    = 500
	parentTimeout     = 5 * time.Second
	roomPage          = 50 // messages of one read

	maxSpeaker  = 200
	maxBioLine  = 1_000
	maxBioLines = 50
)

// Limits of skills.go.
const (
	recommendTimeout = 15 * time.Second // for a model to recommend skills
	answerTimeout    = time.Minute      // for a program to accept a skill's result
)

// maxAsked is the number of bytes of a tool's input in a question. A larger one can be refused
// there, but not allowed.
const maxAsked = 32 << 10

// A session starts shortly before its thread registers it. Its messages until then are held
// for holdTTL, at most maxHeld of all sessions. Sessions without thread have no transcript.
const (
	holdTTL      = time.Minute
	holdInterval = time.Second
	maxHeld      = 256
)

// maxConsents is the number of setups that the server remembers an agreement to.
const maxConsents = 1000

// maxRecorded is the number of bytes of changed settings that a record of the audit log has.
const maxRecorded = 2000

// maxUnreadEvents is the number of events that wait for one subscriber.
const maxUnreadEvents = 1 << 11
