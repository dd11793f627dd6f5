package db

import "time"

// Limits of an answer.
const (
	MaxRows        = 1000
	MaxCell        = 4 << 10 // bytes
	maxAnswer      = 1 << 20 // bytes of all cells
	maxColumns     = 500
	DefaultTimeout = 30 * time.Second
	workerGrace    = 5 * time.Second // added to the statement's time for the worker's start and end
)

// minSecret is the length in bytes of the shortest password that is redacted.
const minSecret = 4

// Limits of a connection.
const (
	connectTimeout = 10 * time.Second
	maxMessage     = 16 << 20 // bytes of one message of a server: a row, at most
	maxDSN         = 2 << 10
)

// Limits of a statement.
const (
	MaxStatement = 64 << 10 // bytes
	maxTokens    = 32 << 10
	maxParams    = 100
)
