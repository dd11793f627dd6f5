package natsbus

import (
	"time"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// Limits of bucket.go.
const (
	// markerTTL is how long a bucket remembers that an entry was deleted, for
	// watchers that come back.
	markerTTL = time.Hour
	// bucketTimeout bounds one step: servers without a leader do not answer.
	bucketTimeout = 2 * time.Second
	// retryDelay is the pause before a watch that failed is tried again.
	retryDelay = 50 * time.Millisecond
	// checkInterval is how often a watch in a cluster is compared with the bucket: the
	// server that feeds it may be gone while ours is not.
	checkInterval = 300 * time.Millisecond
)

// Limits of callout.go.
const (
	// authorizeTimeout is how long an answer may take: less than the servers wait for it.
	authorizeTimeout = 2 * time.Second
	// leaveTimeout bounds leaveCallouts.
	leaveTimeout = time.Second
)

// Limits of the embedded server's store.
const (
	maxMemory = 32 << 20
	maxStore  = 256 << 20
)

// minSecret is the shortest secret that gateways of a cluster may share.
const minSecret = 32

// Limits of direct.go.
const (
	// maxLine bounds a line of the protocol, as servers do by default.
	maxLine = 4 << 10
	// maxNumber bounds a session's number of a subscription, in bytes.
	maxNumber = 64
)

// Limits of link.go.
const (
	// dialTimeout bounds one try to connect, TLS included.
	dialTimeout = 10 * time.Second
	// maxInfo bounds the first line of a server.
	maxInfo = 64 << 10
)

// Limits of natsbus.go.
const (
	// maxWire is the servers' limit of one message: the data, the header, and
	// what the header's form adds.
	maxWire = messaging.MaxPayload + messaging.MaxHeader + 1<<10
	// maxSubs is the servers' limit for one session: a node's subscriptions and
	// the inbox of its requests.
	maxSubs = messaging.MaxSubscriptions + 1
	// defaultTimeout limits operations without a deadline.
	defaultTimeout = 10 * time.Second
)

// Limits of websocket.go.
const (
	// maxFrame is the largest WebSocket message that is taken from a node; a
	// NATS message may be spread over several.
	maxFrame = 4 << 20
	// maxLines is how many lines of the protocol a node may send in a second: 80,000
	// messages, more than the answers of one node to calls, or 160 MiB. burstLines are
	// the 4,000 messages that fit into a queue of the gateway. lineSize is the
	// number of bytes that counts as a line.
	maxLines   = 160_000
	burstLines = 8_000
	lineSize   = 1 << 10
	// writeTimeout is how long a node may take to accept what is sent to it.
	writeTimeout = 10 * time.Second
	// openTimeout is how long a session waits for its turn: less than dialTimeout.
	openTimeout = 8 * time.Second
)
