package arbitration

// Bounds of the stored records. The oldest are dropped first.
const (
	maxExplanations = 1024
	maxExplained    = 1 << 18 // entries in all records, some 150 bytes each
)

// maxListed is the number of providers that a sentence names; further ones are counted.
const maxListed = 8
