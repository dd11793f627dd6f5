package scriptedmodel

import "time"

const (
	maxBody       = 16 << 20        // bytes of a request
	maxAsked      = 500             // requests that are kept
	maxReplyDelay = 2 * time.Minute // of Step.Slow
)
