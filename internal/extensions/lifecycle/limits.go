package lifecycle

// maxRecords is the number of ended records that are kept.
const maxRecords = 1000

// Limits of settings.go.
const (
	// maxSettings limits the settings of one extension, in bytes of JSON.
	maxSettings      = 64 << 10
	maxSettingsDepth = 16
)

// Limits of a working folder that is copied for an upgrade. They exceed what the sandbox
// allows an extension to write by default.
const (
	maxWork        = 2 << 30
	maxWorkEntries = 200_000
)
