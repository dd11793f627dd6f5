package clients

// Limits of read.go.
const (
	// maxFileBytes bounds a configuration file. Claude Code's holds the history of projects.
	maxFileBytes = 16 << 20
	maxServers   = 256
)
