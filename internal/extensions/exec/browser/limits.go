package browser

import "time"

// Limits of actions.go.
const (
	// minSecret is the length in bytes of the shortest value that is redacted.
	minSecret = 4
	// maxPasswords limits the redacted values, except secrets of the extension.
	maxPasswords = 200
	// maxExpansion is the number of bytes in which an encoding writes one.
	maxExpansion = 6
	// maxHeight limits the width and height of a full-page screenshot, in pixels.
	maxHeight = 10_000
)

// Limits of calls.
const (
	DefaultTimeout     = time.Minute
	DefaultIdleTimeout = 5 * time.Minute
	DefaultMost        = 4 // browsers at once
	MaxArtifact        = 32 << 20
	maxArtifacts       = 256 // files in work/artifacts
	maxURL             = 8 << 10
	maxText            = 256 << 10
	maxShown           = 4 << 20 // characters of a page that are searched for secrets
	maxFields          = 50
)

// Limits of launch.go.
const (
	startTimeout = 30 * time.Second
	cpuTimeout   = 30 * time.Minute
)

// loadTime is how long a page may take to load.
const loadTimeout = 30 * time.Second

// Limits of the pipes to a browser: bytes of one message (large enough for a screenshot
// or document in base64), and how long a write may wait.
const (
	maxMessage     = 48 << 20
	commandTimeout = 10 * time.Second
)
