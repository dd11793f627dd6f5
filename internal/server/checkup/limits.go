package checkup

import "time"

// answerTimeout bounds the check whether a server responds.
const answerTimeout = 5 * time.Second

// Limits of state.go.
const (
	// readTimeout bounds the time for reading a whole database or log.
	readTimeout = 10 * time.Second
	// clockGrace is the permitted difference between clocks.
	clockGrace = time.Minute
	// checkTimeout bounds the look at a database, because the client waits for the answer.
	checkTimeout = 5 * time.Second
)
