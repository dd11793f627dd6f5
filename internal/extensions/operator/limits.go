package operator

import "time"

const maxArgs = 1 << 20

// Limits of staticbuilder.go.
const (
	maxManifests = 10_000
	maxEntries   = 50_000 // directory entries that are visited, in total
	maxDropped   = 1000   // diagnostics of files
	// mtimeGrace is the coarsest resolution of modification times that is expected. A file
	// that changed less than that before it was read is read again next time.
	mtimeGrace = 2 * time.Second
)
