package channels

import (
	"time"

	"golang.org/x/time/rate"
)

// Limits of approvals.go.
const (
	// maxInline is the longest input, in bytes, that is shown in the message itself.
	maxInline = 2500
	// maxAttached is the longest input that is sent as a file.
	maxAttached = 1 << 20
	// maxWrong is how many wrong codes a person may enter in lockTTL.
	maxWrong = 5
	maxOpen  = 10 // approvals that /approve lists
)

// Bounds of pairing.
const (
	// MaxTries is the number of wrong codes after which pairing is locked.
	MaxTries = 5
	// LockTTL is how long pairing is locked.
	LockTTL = time.Hour
	codeTTL = 10 * time.Minute
)

// Limits of directory.go.
const (
	// MaxPlaces is the number of places of an account that its directory has at most.
	MaxPlaces = 1000
	maxFound  = 100 // messages of a search
	maxLabel  = 200 // bytes
)

// maxGuestGroups is the number of groups of an account that have guests.
const maxGuestGroups = 100

// Limits of hub.go.
const (
	maxAccounts = 100
	// maxWaiting bounds the updates of an account that are stored and not handled. Further ones stay
	// at the service.
	maxWaiting = 1000
	// maxUnsent bounds the sends of an account that wait.
	maxUnsent    = 10_000
	maxHandling  = 16  // conversations of an account that are handled at the same time
	maxSending   = 256 // conversations of an account that wait for their turn to send
	firstDelay   = 200 * time.Millisecond
	backoffDelay = time.Minute // the longest
	// refusedDelay is the pause after the service refused the token.
	refusedDelay = 5 * time.Minute
	// keepTTL is how long ids of handled updates and ended sends are kept.
	keepTTL = 7 * 24 * time.Hour
)

// Limits of inbound.go.
const (
	// MaxFile is the largest attachment that is received, of any service; Kind.MaxFile is for sending.
	MaxFile  = 20 << 20
	maxText  = 64 << 10 // bytes of one message
	maxID    = 600      // bytes of an id, or of two
	maxPress = 4 << 10
	maxFiles = 10 // of one message; further ones are left out
	// refusalTTL is how long a refusal is not answered again for the same user, and maxRefusals how
	// many of an account are recorded in that time.
	refusalTTL  = time.Hour
	maxRefusals = 1000
	maxTasks    = 10 // of a list
)

// Limits of markdown.go.
const (
	maxMarkdown = 8 << 10 // bytes: the parser's time grows with the square of some texts
	maxMarkup   = 1 << 10 // bytes that the tags of a short text may need
)

// Limits of outbound.go.
const (
	// sendTTL is how long a send waits for its service.
	sendTTL      = 24 * time.Hour
	flushTimeout = 5 * time.Second
	// limitTimeout is the longest rate limit that a call waits for.
	limitTimeout = 30 * time.Second
	// maxOutcome is the length that is left free in the message about an approval.
	maxOutcome = 300
	// maxPaced bounds the conversations whose last message is remembered.
	maxPaced = 10_000
)

// maxMedia bounds the files of one message.
const maxMedia = 10

// Limits of reading.go.
const (
	defaultRead = 50 // messages
	maxRead     = 100
	// maxShown is the largest attachment, in bytes, whose text is part of the result.
	maxShown = 64 << 10
)

const maxAnswer = 16 << 20 // bytes of a service's answer

// Limits of socket.go.
const (
	dialTimeout  = 30 * time.Second
	pingInterval = 30 * time.Second
	maxFrame     = 4 << 20 // bytes
)

// guestRate, a second, and guestBurst bound the messages that the guests of one account write to the agent.
const (
	guestRate  = rate.Limit(0.2)
	guestBurst = 10
)
