package audit

import "time"

// anchorTimeout bounds one write to an anchor.
const anchorTimeout = 10 * time.Second

// Limits of arguments.go.
const (
	maxArguments      = 64 << 10 // bytes of one document
	maxArgumentsInput = 1 << 20  // bytes of an input that is decoded
	maxRecordsOfRun   = 1000
	maxArgumentText   = 4 << 10 // bytes of a string in arguments that would be too large
	sweepInterval     = time.Hour
)

// MaxLine is the maximum size of a record in bytes, including its newline. Fields that would
// exceed it are cut, and the record is flagged as truncated.
const MaxLine = 16 << 10

// Limits of write.go.
const (
	// maxOpen bounds the open calls that are stored to close them after a crash.
	maxOpen = 10_000
	// maxRounds is the number of batches that one caller writes before another one becomes
	// the writer.
	maxRounds = 8
)
