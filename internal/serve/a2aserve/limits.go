package a2aserve

// maxSkills limits the extended card; agents find further skills by catalog_search.
const maxSkills = 1000

// Limits of message.go.
const (
	maxParts   = 64
	maxID      = 128
	maxContext = 120 // a session id has 128 bytes, and "a2a:" before it
)

// maxInline is the largest result in bytes that an artifact contains.
const maxInline = 1 << 20
