package upstreams

import "time"

// documentTTL is how long the operations of an OpenAPI document are listed before it is read again.
const documentTTL = time.Hour

// registryCheckTimeout bounds the questions of one check to the MCP registry.
const registryCheckTimeout = 5 * time.Second
