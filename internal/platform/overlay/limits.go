package overlay

import "time"

// maxUp is the number of parent folders that are searched for a repository.
const maxUp = 64

// Limits of this package.
const (
	MaxFile    = 16 << 20 // bytes of a file that is changed
	MaxChanges = 256      // of one session
	maxBehind  = 64       // keys before a removed one that are kept for its place
)

// A lock that was not refreshed for staleTimeout counts as abandoned. A held lock is checked at
// lookInterval.
const (
	staleTimeout = 10 * time.Second
	lookInterval = 20 * time.Millisecond
)
