package nodesource

import "time"

// maxKept limits the chunks kept for the result of a stream that has a receiver. Without a
// receiver, all chunks are the result.
const maxKept = 1 << 20

// settleTimeout limits how long a call waits for the catalog after an install.
const settleTimeout = 2 * time.Second
