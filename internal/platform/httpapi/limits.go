package httpapi

import "time"

// MaxBody is the maximum body size, in bytes, of /api/v1 and of the connect API. The router, MCP and
// A2A have their own limits.
const MaxBody = 1 << 20

// Limits of guard.go.
const (
	bodyTimeout = time.Minute // for sending the body of a request
	restTimeout = 2 * time.Second
	// maxRest is the number of bytes of a rejected body that are read before the connection is closed,
	// because a client that is still writing would get a broken pipe instead of the response.
	maxRest = 8 << 20
)
