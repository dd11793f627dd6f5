package agentserve

import "time"

const maxLineRunes = 10_000

// Limits of console.go.
const (
	maxWatched          = 64 // sessions of one connection
	consoleWriteTimeout = 10 * time.Second
	consolePingInterval = 30 * time.Second
)

const pingInterval = 30 * time.Second
