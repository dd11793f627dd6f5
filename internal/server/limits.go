package server

import "time"

// saveUsesInterval is how often the use counts of grants are stored. A crash loses the counts since,
// but not the audit records of the uses.
const saveUsesInterval = time.Minute

// drainTimeout is how long running calls may continue after a stop was requested.
const drainTimeout = 10 * time.Second

// settleTimeout is the longest time that a start waits for the previous providers.
const settleTimeout = 2 * time.Second

// takeOverTimeout bounds one update of the mirrors, because their owners wait for it.
const takeOverTimeout = 10 * time.Second
