package messaging

// Limits that every bus enforces.
const (
	// MaxInline is the largest value inside a message; larger values are sent as assets.
	MaxInline = 512 << 10
	// MaxPayload is the largest Data of a message: an inline value and the envelope around it.
	MaxPayload = MaxInline + 64<<10
	// MaxHeader is the largest sum of a message's header names and values.
	MaxHeader = 8 << 10
	// MaxSubscriptions limits the subscriptions of one node's session.
	MaxSubscriptions = 64
	// MaxGatewaySubscriptions limits those of the gateway's own session. It is lower because
	// servers have one limit for all sessions, and watches of buckets count.
	MaxGatewaySubscriptions = 48
	// MaxPendingBytes limits the data that waits to be sent to one node's session; a session
	// that exceeds it is closed.
	MaxPendingBytes = 4 << 20
	// MaxSubject is the longest subject, in bytes.
	MaxSubject = 512
	// DefaultPending and DefaultPendingBytes limit the messages waiting in a subscription.
	DefaultPending      = 4096
	DefaultPendingBytes = 16 << 20
	// MaxValue is the largest value of a bucket.
	MaxValue = 256 << 10
)
