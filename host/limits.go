package host

// Limits of one function's declaration.
const (
	maxTitleRunes       = 120
	maxDescriptionRunes = 1024
	maxSchemaBytes      = 256 << 10
)
