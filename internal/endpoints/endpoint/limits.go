package endpoint

import "time"

// Limits of breaker.go.
const (
	// minOpenDelay is the first time that a breaker stays open, maxOpenDelay the longest.
	minOpenDelay = time.Second
	maxOpenDelay = time.Minute
)

// Limits of cloud.go.
const (
	cloudTimeout = 2 * time.Minute
	// cleanupTimeout bounds the removal of an agent after a failure.
	cleanupTimeout = 10 * time.Second
)

// Limits of cloudagent.go.
const (
	defaultPollInterval = 2 * time.Second
	maxAnswer           = 1 << 20
)

// Limits of lifecycle.go.
const (
	// disposeTimeout limits all dispose calls of one change together, so that a module that is
	// removed delays no caller for long.
	disposeTimeout = 5 * time.Second
	// maxHookOutcomes limits the hooks in a Status.
	maxHookOutcomes = 32
)

// maxSeen limits the size of an endpoint's saved manifests. If they are larger, none is
// saved, and after a restart its modules are listed only once it answers.
const maxSeen = 4 << 20

// Limits of watch.go.
const (
	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = 15 * time.Second
	// probeTimeout limits one request to an endpoint that is down, so that a silent host does
	// not block its watcher for the whole call timeout.
	probeTimeout = 5 * time.Second
)
