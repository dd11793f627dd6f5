package runner

import "time"

// Limits of artifact.go.
const (
	MaxArtifacts    = 64
	MaxArtifactSize = 32 << 20 // bytes of one artifact
	maxEntries      = 10_000   // entries that are visited
	maxDepth        = 8
	maxName         = 240
)

// waitNoticeDelay is how long a run may wait in the queue before its caller is notified.
const waitNoticeDelay = 100 * time.Millisecond

// settleTimeout is the longest time that ending a program takes: its grace period and
// the end of its process tree.
const settleTimeout = 5 * time.Second
