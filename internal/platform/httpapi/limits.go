package httpapi

import "time"

// Limits of guard.go.
const (
	bodyTimeout = time.Minute // for sending the body of a request
	restTimeout = 2 * time.Second
)
