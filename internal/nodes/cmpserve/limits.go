package cmpserve

// Limits of cmpserve.go.
const (
	// maxBatch bounds the requests of one body.
	maxBatch = 64
	// maxAnswers bounds what the answers to a batch hold together, in bytes: what
	// comes after is not carried out.
	maxAnswers = 8 << 20
)
