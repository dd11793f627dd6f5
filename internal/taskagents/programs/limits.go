package programs

import "time"

// Limits of a task, and of what is read before it.
const (
	MaxTyped = 4_000   // characters that are typed; a longer task goes into a file
	MaxArgv  = 100_000 // bytes of an argument; Linux allows 128 KiB
	MaxTask  = 1 << 20 // bytes of a task, or of a memory text

	maxSettings = 1 << 20 // bytes of a program's settings file
)

const defaultDeliverDelay = 300 * time.Millisecond
