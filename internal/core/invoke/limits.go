package invoke

import "time"

// previewTimeout bounds the preview of a call.
const previewTimeout = 10 * time.Second

// probeTimeout bounds the probe whether a provider marked unavailable is available again.
const probeTimeout = time.Second

// minNarrowed is the number of nodes above which a call that names a node is judged for
// that node only. With fewer, the record of the choice includes the others.
const minNarrowed = 16

// settleTimeout is how long a provider may take to react to the end of its call, unless
// the provider sets its own. Then the engine stops waiting, and the goroutine ends when
// the provider returns.
const (
	settleTimeout    = 100 * time.Millisecond
	maxSettleTimeout = 10 * time.Second
)

// Limits of idempotency.go.
const (
	outcomeTTL  = 24 * time.Hour
	maxOutcomes = 10_000 // keys per principal
	maxKeyBytes = 200    // bytes of a key
	// elsewhereTimeout is how long a call waits for another server that uses its key,
	// because that server cannot report whether it still runs.
	elsewhereTimeout  = 10 * time.Second
	elsewhereInterval = 50 * time.Millisecond // doubled up to a second
)

// Limits of veto.go.
const (
	vetoTimeout   = 5 * time.Second // of one route augmenter, because it delays the call
	maxVetoReason = 200             // bytes
)
