package memory

import "time"

// Limits of the memory.
const (
	MaxText       = 64 << 10 // bytes of one item
	MaxItems      = 100_000  // of one principal in one workspace
	MaxLimit      = 100      // items in one result; a higher limit counts as this
	defaultLimit  = 10
	maxTags       = 16
	maxTag        = 64 // bytes
	maxQuery      = 4 << 10
	handleTimeout = 30 * time.Second
)

// Limits of search.go.
const (
	maxTerms      = 32
	minCandidates = 50
)

// maxWord is the length, in bytes, of the longest word that is indexed without hashing.
const maxWord = 64

// maxShort is the number of bytes of an id that an error shows.
const maxShort = 64
