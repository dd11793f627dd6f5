package compile

import "time"

// maxTried bounds the search for a shortened name among names with the same beginning.
const maxTried = 100_000

// Limits of compile.go.
const (
	maxViews = 64
	maxCache = 8192
	// trimInterval is the time after which what was not used is released: within twice of it.
	trimInterval = 20 * time.Second
)

// Default limits of the listed tools.
const (
	DefaultMaxDirect      = 40
	DefaultMaxSchemaBytes = 64 << 10
	// With Limits.Own the list is for a model's whole session; popular clients take 128 tools.
	maxDirectOfProviders      = 128
	maxSchemaBytesOfProviders = 256 << 10
	maxMisses                 = 1000 // tools whose schemas did not fit
)

const maxTag = 64

// MaxListedName is the length in bytes of the longest name in tools/list, unless a view sets another one.
const MaxListedName = 48

// Bounds of leases. Beyond them the oldest leases are dropped, and their names resolve as if
// they had never been listed.
const (
	LeaseTTL      = 24 * time.Hour // after the last listing
	maxLeases     = 8192
	maxLeaseNames = 16_384  // of one lease
	maxNames      = 524_288 // of all, some 100 bytes each
)

const maxAliasPieces = 1 << 14 // about two million tools

// maxEnum is the maximum number of values that a selector field lists. A field with more
// becomes a plain string.
const maxEnum = 50
