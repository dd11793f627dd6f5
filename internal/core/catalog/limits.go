package catalog

// Limits of schema.go.
const (
	// maxSchemaBytes bounds one schema document of a provider.
	maxSchemaBytes = 256 << 10
	maxNumberBytes = 400
	maxExponent    = 400 // beyond every double
	// maxFaults is the number of faults of an input that an error lists.
	maxFaults = 5
)
