package config

import "time"

// Limits of agents.go.
const (
	maxCustomKeys = 32
	maxRetries    = 100
	maxPolicy     = 64 << 10
)

// maxMillis is a year of 366 days, in milliseconds.
const maxMillis = 366 * 24 * 3600 * 1000

// MaxApprovalTimeout is the longest time for which a call over MCP is held for an approval.
const MaxApprovalTimeout = 10 * time.Minute

// patientApprovalTimeout is below the five minutes after which Claude Code ends a request over HTTP
// without progress. Over the bridge it waits for a day by default (MCP_TOOL_TIMEOUT).
const patientApprovalTimeout = 4 * time.Minute

// maxCatalogFile is the size limit of the catalog's file, in bytes.
const maxCatalogFile = 1 << 20

// maxFile is the size limit of config.yaml, in bytes.
const maxFile = 1 << 20

const maxModelRoutes = 16

// maxHeartbeatInterval is a third of the default time after which a gateway removes a silent
// node. A gateway with a shorter time requests more frequent heartbeats when the node joins.
const maxHeartbeatInterval = 10 * time.Second

// The bounds of Upstreams.ConnectTimeout.
const (
	minConnectTimeout = time.Second
	maxConnectTimeout = 10 * time.Minute
)
