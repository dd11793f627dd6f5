package noderun

import "time"

// maxControl bounds what is said over the socket, in bytes.
const maxControl = 4 << 20

// Bounds of questions.
const (
	maxQuestions = 64
	maxNames     = 16  // of one question that is asked again and again
	maxShown     = 200 // characters of one text of a skill or caller
	// questionTTL is how long a question stays open whose caller no longer waits, and
	// how long its answer counts then.
	questionTTL = time.Hour
)
