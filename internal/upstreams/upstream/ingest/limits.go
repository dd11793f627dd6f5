package ingest

// maxAdvised is the number of bytes of each text that are searched.
const maxAdvised = 16 << 10

// Limits of definitions and lists.
const (
	MaxTools       = 5000     // of one server; a quarter of it of each other kind
	MaxTotal       = 16 << 20 // bytes of one list
	MaxDefinition  = 64 << 10
	MaxDescription = 8 << 10 // bytes that agents see
	MaxName        = 128     // bytes
	MaxURI         = 2048    // bytes, templates too
	maxDepth       = 64
	maxObjects     = 4096 // in one definition, which bounds its subschemas
	maxDropped     = 100  // dropped definitions of one list that are recorded
)

// Limits of pindiff.go.
const (
	maxChanges = 200
	maxShown   = 4 << 10 // bytes of one value
)

// maxGone is the number of pins that are kept for definitions in quarantine that the upstream no
// longer lists, and maxPublished that of definitions which are published because the upstream is
// trusted, so that an upstream cannot fill the store by renaming its tools.
const (
	maxGone      = 2000
	maxPublished = 7000
)

// maxWeight limits the subschemas against which one value may have to be validated.
const maxWeight = 100_000
