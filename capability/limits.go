package capability

// Limits of context.go.
const (
	maxContextItems = 64
	maxContextValue = 256
)
