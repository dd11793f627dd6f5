package deviceaction

import (
	"time"

	"github.com/junctor-run/junctor/protocol/cmp"
)

// Bounds of actions.
const (
	MaxActions     = 1024
	maxName        = cmp.MaxFunction
	maxDescription = 4 << 10
	maxMetadata    = 64 << 10
)

// Bounds of a folder.
const (
	maxEntries = 4096
	maxSide    = 64 << 10 // bytes of a side file
	maxCode    = 8 << 20  // bytes of a module
	maxArgv    = 64
)

// Limits of program.go.
const (
	// maxLine bounds one chunk of a program that streams, in bytes.
	maxLine = 1 << 20
	// drainGrace is how long its output is read after it has ended.
	drainGrace = 500 * time.Millisecond
)
