package device

import "time"

// Limits of requests to a gateway.
const (
	webTimeout   = 15 * time.Second // of one small request
	dialTimeout  = 5 * time.Second  // to one of several gateways
	assetTimeout = 10 * time.Minute // of one asset
	maxAnswer    = 64 << 10         // bytes of an answer that is not an asset
)
