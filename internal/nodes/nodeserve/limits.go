package nodeserve

import "time"

// Limits of connect.go.
const (
	// proofTimeout is longer than the bus waits for a credential: a node that is connected
	// for so long has shown one.
	proofTimeout = 4 * time.Second
	// maxUnproven bounds the connections of one address, and of all, that may not have
	// shown a credential yet. A fleet behind one address comes in within seconds all
	// the same: proving takes milliseconds, and who is refused tries again.
	maxUnproven    = 1024
	maxAllUnproven = 4096
)

const maxHeldList = 500

// Limits of nodeserve.go.
const (
	defaultPage = 200
	maxPage     = 1000
)

// Limits of upward.go.
const (
	// maxUpward is how many calls of nodes run at once; more wait on the bus, which
	// bounds them too.
	maxUpward = 64
	// maxUpwardEach is how many of them may be one node's.
	maxUpwardEach = 16
)
