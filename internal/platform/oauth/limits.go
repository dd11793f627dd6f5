package oauth

import "time"

// The bounds of sign-ins.
const (
	maxLogins   = 16               // requests to the provider at once, for strangers
	maxWaits    = 64               // programs that wait for a person at once
	maxUsed     = 4096             // remembered states of finished sign-ins
	maxSealed   = 4 << 10          // bytes of what a browser or program keeps for us
	maxAnswer   = 4 << 10          // bytes of a code or an error of the provider
	loginTTL    = 10 * time.Minute // from the begin of a sign-in to its end
	deviceTTL   = 15 * time.Minute
	waitTimeout = 20 * time.Second // of one request that waits for a person
	maxInterval = 30               // seconds between two questions to the provider
	metadataTTL = time.Hour
	retryDelay  = 5 * time.Second // after metadata that could not be fetched
	maxHint     = 4 << 10         // bytes of a token in the address that signs out at the provider
	endTimeout  = 3 * time.Second // of finding that address
	maxRate     = 20              // codes a second that are shown to the provider, for strangers
)

// Limits of oauth.go.
const (
	keysFetchInterval = time.Minute // between two fetches
	keysTTL           = time.Hour   // as long as fetched keys are used
	fetchTimeout      = 10 * time.Second
	maxKeys           = 1 << 20 // bytes of a document
	maxToken          = 16 << 10
	maxSubject        = 200
	// ClockSkewGrace is by how much the clocks of an issuer and of this server may differ.
	ClockSkewGrace = time.Minute
)
