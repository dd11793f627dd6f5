package search

// Limits of piece.go.
const (
	maxDescription = 4096 // bytes of it that are read
	maxNameWords   = 255
	maxEntries     = 16 // providers whose words are read, since those of one family are similar
)

// Limits of stem.go.
const (
	minStemmed = 4 // letters of a word that is stemmed
	minStem    = 3 // and of what is left of it
)

// Parameters of BM25, and bounds.
const (
	k1 = 1.2
	b  = 0.75

	// MaxResults is the maximum number of results; DefaultResults applies if the caller does
	// not set a limit.
	MaxResults     = 20
	DefaultResults = 10
	// A catalog of more actions has more that are alike, so more are returned.
	manyActions     = 20_000
	defaultFromMany = 15

	maxTerms = 32      // of one query; further words are ignored
	maxDocs  = 400_000 // actions in cached pieces, about 600 bytes each
	maxBooks = 64      // catalogs whose list of pieces is cached
)

const maxFoundDescription = 300
