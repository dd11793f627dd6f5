package search

// Limits of piece.go.
const (
	maxDescription = 4096 // bytes of it that are read
	maxEntries     = 16   // providers whose words are read, since those of one family are similar
)

// Parameters of BM25, and bounds.
const (
	k1 = 1.2
	b  = 0.75

	// MaxResults is the maximum number of results; DefaultResults applies if the caller does
	// not set a limit.
	MaxResults     = 20
	DefaultResults = 10

	maxTerms = 32      // of one query; further words are ignored
	maxDocs  = 400_000 // actions in cached pieces, about 600 bytes each
	maxBooks = 64      // catalogs whose list of pieces is cached
)

const maxFoundDescription = 300
