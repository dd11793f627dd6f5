package server

import "time"

const (
	saveUsesInterval = time.Minute      // between two times of storing the use counts of grants, which a crash forgets
	drainTimeout     = 10 * time.Second // running calls may continue after a stop was requested
	settleTimeout    = 2 * time.Second  // a start waits for the previous providers
	takeOverTimeout  = 10 * time.Second // of one update of the mirrors, because their owners wait for it
	maxGatewayName   = 40               // of the host name in the id of a gateway
)
