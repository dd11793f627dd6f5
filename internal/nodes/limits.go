package nodes

import "time"

// assetTTL is how long a value is kept.
const assetTTL = time.Hour

// Limits of assetfetch.go.
const (
	// maxAssetFetches and maxAssetAnswers limit concurrent transfers between gateways.
	maxAssetFetches, maxAssetAnswers = 4, 16
	// locateTimeout is how long to wait for a gateway that has the value: the others do
	// not reply. pieceTimeout is for each piece, requested pieceTries times, and
	// assetFetchTimeout for all of them.
	locateTimeout, pieceTimeout, assetFetchTimeout = 2 * time.Second, 5 * time.Second, time.Minute
)

// Limits of checks.go.
const (
	// busTimeout limits the check of the session with the bus.
	busTimeout = time.Second
	// tokenExpiryGrace is how long before its expiry the doctor warns of a node's token.
	tokenExpiryGrace = 72 * time.Hour
)

// revokeInterval is the time between two checks for nodes whose token has expired.
const revokeInterval = time.Second
