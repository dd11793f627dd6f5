package catalog

// Limits of schema.go.
const (
	// maxSchemaBytes bounds one schema document of a provider.
	maxSchemaBytes = 256 << 10
	maxNumberBytes = 400
	maxExponent    = 400 // beyond every double
)
