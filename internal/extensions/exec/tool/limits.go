package tool

import "time"

// minSecret is the length in bytes of the shortest secret that is redacted. Shorter ones
// would match ordinary text.
const minSecret = 4

// maxEnvironment limits the size of all variables together, in bytes.
const maxEnvironment = 64 << 10

// Bounds of a run.
const (
	DefaultTimeout = 300 * time.Second
	MaxTimeout     = time.Hour

	errorLine  = 500     // bytes of the last line of stderr that an error quotes
	binaryHead = 8 << 10 // bytes that are searched for NUL
)
