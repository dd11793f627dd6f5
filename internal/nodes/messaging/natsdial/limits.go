package natsdial

import "time"

// defaultTimeout limits operations without a deadline.
const defaultTimeout = 10 * time.Second

// Limits of dial.go.
const (
	// dialTimeout limits one attempt to connect, including TLS.
	dialTimeout = 10 * time.Second
	// maxAddresses limits the addresses of a node.
	maxAddresses = 16
	// minRetryDelay is at most how long a node waits before it goes to the next of several gateways, to
	// which the library goes at once: the bus should have noticed what is gone, or it asks the dead who
	// the node is, and many nodes should not come at the same instant.
	minRetryDelay = 200 * time.Millisecond
)
