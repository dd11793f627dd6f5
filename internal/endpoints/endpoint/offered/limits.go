package offered

import "time"

// maxPTYTimeout limits the timeout in the input of pty.command.run, defaultPTYTimeout applies
// without one; ptyGrace is added for the transport.
const (
	maxPTYTimeout     = 30 * time.Minute
	defaultPTYTimeout = 5 * time.Minute
	ptyGrace          = 5 * time.Second
)

// maxRank limits the priority that a manifest may state.
const maxRank = 1_000_000
