package reference

// maxRuns bounds sessions that were not stopped.
const maxRuns = 64

// Limits of files.go.
const (
	maxEntries = 1000
	maxRead    = 5 << 20
)

// Limits of notes.go.
const (
	defaultMaxNotes = 1000
	maxNoteLength   = 8 << 10
)

// Limits of notes_more.go.
const (
	maxStoreKeys  = 10_000
	maxStoreKey   = 256
	maxStoreValue = 64 << 10
)
