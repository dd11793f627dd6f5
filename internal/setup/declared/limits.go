package declared

import "time"

// Limits of declared.go.
const (
	// scanInterval is how often the folder is read. Files are applied once two readings are equal,
	// because a checkout removes a file before it writes the new one.
	scanInterval = time.Second
	// retryInterval is how often declarations that could not be stored are tried again.
	retryInterval = time.Minute
	// declareTimeout bounds how long one object is waited for; it is connected nevertheless.
	declareTimeout = 20 * time.Second
	maxAtOnce      = 8 // objects that are connected at the same time
)

// Limits of decode.go.
const (
	maxFiles   = 100
	maxBytes   = 4 << 20 // of all files; one has at most yamljson.MaxBytes
	maxEntries = 512
	maxName    = 120
)
