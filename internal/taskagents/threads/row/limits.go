package row

// Bounds of one column in bytes; larger values are too_large.
const (
	MaxName     = 1 << 10 // ids have 128
	MaxPath     = 4 << 10
	MaxText     = 256 << 10
	MaxDocument = 256 << 10
	MaxDepth    = 64 // levels of a document
	maxID       = 128
)
