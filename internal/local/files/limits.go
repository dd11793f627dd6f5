package files

import "time"

// Limits of the three functions.
const (
	maxEntries    = 1000    // in one result of fs.list; also the default
	maxNames      = 100_000 // that a directory may hold
	maxText       = 5 << 20 // bytes read without maxBytes, or written
	maxCut        = 8 << 20 // the highest maxBytes
	maxPatterns   = 100     // in ignore
	maxPattern    = 512     // bytes of one pattern
	handleTimeout = time.Minute
)
