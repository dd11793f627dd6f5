package record

import "time"

// maxHosts is the maximum number of hosts in a record's network.
const maxHosts = 64

// maxOAuthName limits the name so that the key of the tokens fits the store's limit.
const maxOAuthName = 100

// Limits of a record.
const (
	maxNameBytes      = 120
	maxWords          = 256
	maxText           = 8 << 10
	maxPairs          = 64
	maxTimeout        = time.Hour
	maxConnectTimeout = 10 * time.Minute
	maxKeys           = 16 // of one A2A agent
	// maxOwnName is also that of an upstream to which each principal logs in.
	maxOwnName = 80 // leaves room for "own.", a dot and a digest in the name of a secret
)
