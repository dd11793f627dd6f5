package gitops

// Limits of one command line.
const (
	maxArgs     = 256
	maxArgBytes = 64 << 10
)
