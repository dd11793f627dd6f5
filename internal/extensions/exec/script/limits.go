package script

import "time"

// defaultDisk is the default of how many bytes the working folder may hold.
const defaultDisk = 256 << 20

// Limits of one run, in bytes unless noted.
const (
	DefaultTimeout = 300 * time.Second // the default of local providers
	MaxLog         = 64 << 10          // of the log of one run
	MaxFile        = 1 << 20           // of a file that is read or written
	maxUsage       = 32 << 10          // of the usage guide in the document
)
