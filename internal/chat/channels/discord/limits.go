package discord

import "time"

// Limits of discord.go.
const (
	callTimeout = 30 * time.Second
	// nonceTTL is how long the service recognises a nonce; it promises "the past few minutes".
	nonceTTL = 2 * time.Minute
	// maxGuilds bounds the guilds whose channels are listed, each with a request.
	maxGuilds = 20
)

// Limits of gateway.go.
const (
	startTimeout = 30 * time.Second
	// minInterval and maxInterval bound the interval of heartbeats that the service requests.
	minInterval = time.Second
	maxInterval = 2 * time.Minute
	// maxSeen bounds the conversations whose last message is remembered.
	maxSeen = 100
)
