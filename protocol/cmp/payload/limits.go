package payload

// maxTimeout bounds the timeout of a capability, in seconds.
const maxTimeout = 3600

// Limits of payload.go.
const (
	// MaxCapabilities bounds the entries of a skill.
	MaxCapabilities = 256
	// maxItems bounds every other list.
	maxItems = 1024
)
