package declaration

// Limits of one extension, so that a single manifest cannot fill the catalog.
const (
	MaxBytes         = 4 << 20 // of a manifest
	maxContributions = 4096
	maxActions       = 256 // of a contribution
	maxInstances     = 256
	maxOffered       = 65_536 // contributions × actions × instances
	maxChannels      = 64
	maxRoutes        = 64
	maxTitle         = 120  // characters
	maxDescription   = 1024 // characters
	maxTags          = 16
	maxValue         = 64 // bytes of a tag or a telemetry value
	maxName          = 128
	maxList          = 256
	maxSchema        = 256 << 10
)

// maxDiagnostics limits the number of unknown fields that are reported.
const maxDiagnostics = 100
