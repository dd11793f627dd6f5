package oauthclient

import "time"

// Limits.
const (
	maxDocument    = 1 << 20 // of metadata, and of a registration
	maxSecret      = 16 << 10
	maxScopes      = 64
	maxScope       = 256
	maxAddress     = 2 << 10
	maxPending     = 8 // logins begun and not finished, of one upstream
	maxServers     = 8 // authorization servers of one upstream that are looked at
	pendingTTL     = 10 * time.Minute
	tokenTimeout   = 10 * time.Second // one request to an authorization server
	renewGrace     = 10 * time.Second // a token is renewed so long before it ends
	maxStepUps     = 3                // within stepUpInterval
	stepUpInterval = 10 * time.Minute
	maxRenewals    = 2 // for one request
	quietTimeout   = 2 * time.Second
)
