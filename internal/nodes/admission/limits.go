package admission

import "time"

// storeTimeout limits requests to the store if the caller has no context.
const storeTimeout = 2 * time.Second

// Looking for an unknown token reads all tokens. This is always done for a new row;
// otherwise the interval limits how often devices with invalid tokens can cause it.
const (
	newRowGrace  = time.Minute
	seekInterval = time.Second
)
