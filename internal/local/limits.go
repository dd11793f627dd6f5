package local

import "time"

// Timeouts of a command and limits of its input.
const (
	defaultCommandTimeout = 300 * time.Second
	maxCommandTimeout     = 30 * time.Minute
	maxCommandBytes       = 64 << 10
	maxCommandArgs        = 1024
	maxCommandEnv         = 256
	maxCommandEnvBytes    = 64 << 10
)
