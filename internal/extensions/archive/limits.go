package archive

// Limits of a package.
const (
	MaxBytes    = 50 << 20  // of a zip file
	MaxInflated = 200 << 20 // of all members together
	MaxEntries  = 10_000    // members, directories among them
	MaxDepth    = 16        // components of a name
	MaxName     = 240       // bytes of a name
	MaxRatio    = 200       // compression ratio of a member larger than ratioFrom
	ratioFrom   = 1 << 20
)
