package eval

// Limits of scenario files.
const (
	maxBytes      = 16 << 20 // of one file
	maxScenarios  = 10_000   // in one file
	maxExtensions = 10_000   // in one scenario
	maxAsks       = 10_000   // in one scenario
)
