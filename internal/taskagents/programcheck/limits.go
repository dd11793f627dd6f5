package programcheck

import "time"

// The time for a whole check. Programs that need seconds to start get more.
const (
	checkTimeout     = 20 * time.Second
	slowCheckTimeout = time.Minute
)

const (
	stopTimeout = 5 * time.Second // for the program to exit
	maxHookBody = 1 << 20
	maxWords    = 500 // bytes of the program's state in a finding
)
