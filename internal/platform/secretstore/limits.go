package secretstore

import "time"

// Limits of link.go.
const (
	maxLink      = 1 << 10
	vaultTimeout = 5 * time.Second
	vaultTTL     = 30 * time.Second // how long a value of the service is used again
	maxVault     = 1 << 20          // bytes of an answer
)

// MaxValue is the size limit of one secret in bytes.
const MaxValue = 64 << 10
