package egress

import "time"

// Bounds of one proxy.
const (
	defaultRate        = 4 << 20 // bytes a second
	defaultConnections = 64
	maxHeader          = 32 << 10
	resolveTimeout     = 10 * time.Second
	dialTimeout        = 15 * time.Second
	idleTimeout        = 2 * time.Minute
	addressesTried     = 4
)
