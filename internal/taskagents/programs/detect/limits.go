package detect

import "time"

// Bounds of an answer.
const (
	maxValues = 64
	maxValue  = 64 << 10 // bytes
)

// Limits of detect.go.
const (
	maxTyped   = 4096 // bytes
	maxPayload = 1000 // bytes of a sequence
	maxText    = 200  // bytes of a piece of evidence
	maxSeries  = 8    // changes of one Tick
)

// Intervals of the detector, and how long a state must last before it is reported.
const (
	evaluateInterval = 50 * time.Millisecond
	maxUpdateDelay   = time.Second // after this time an unfinished synchronised update is evaluated
	blockerDelay     = 250 * time.Millisecond
	doneDelay        = 1500 * time.Millisecond
	signalDelay      = 2500 * time.Millisecond // for a completion that only the last lines of the screen show
	hookGrace        = 2 * time.Second
	// hookEndTimeout is the time that an open input box alone needs to end a turn of a program
	// whose hooks report the turn, in case that the hook of its end is lost.
	hookEndTimeout = 45 * time.Second
	// agreedDelay applies if a sequence and the screen agree; the longer times are for one
	// of them alone.
	agreedDelay = 500 * time.Millisecond
	fatalDelay  = 750 * time.Millisecond
	workDelay   = 250 * time.Millisecond // for work without a submitted text, because a start of helpers briefly looks like it
)

// Limits of dialog.go.
const (
	maxBelow   = 14 // non-blank rows below the options: footer, notes, a preview
	maxOptions = 40
	maxPrompt  = 400 // runes
)

// stallTimeout is the time without change after which a session counts as stalled.
const stallTimeout = time.Minute

// Bounds of the evaluated screen, whatever its size.
const (
	maxRows = 200
	maxRow  = 1000 // runes
)

// replayGrace is how long the clock continues after the last event, so that the final screen
// may settle.
const replayGrace = 5 * time.Second

// Bounds of rule files: a file that a user put into the override folder must not
// make every look at every screen slow.
const (
	maxFiles    = 64
	maxFile     = 256 << 10 // bytes
	maxRules    = 200       // of a file
	maxPatterns = 40        // of a list
	maxPattern  = 500       // bytes of a pattern
	format      = 1
)
