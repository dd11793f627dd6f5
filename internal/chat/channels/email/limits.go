package email

import "time"

// Limits of decode.go.
const (
	maxHeader  = 128 << 10 // bytes of the header of a mail, or of one of its parts
	maxText    = 256 << 10 // bytes of the text of a mail, and of its HTML
	maxDepth   = 10        // of parts in parts
	maxParts   = 200
	maxFiles   = 10
	maxParents = 100 // ids of mails that are answered
	maxID      = 250
	// maxAttribution bounds the lines in which the beginning of a quotation is looked for.
	maxAttribution = 500
)

// Limits of email.go.
const (
	dialTimeout = 20 * time.Second
	callTimeout = 30 * time.Second
	bodyTimeout = 5 * time.Minute
	sendTimeout = 3 * time.Minute
	// idleInterval is how long one IDLE lasts. Servers end it after 30 minutes.
	idleInterval = 10 * time.Minute
	pollInterval = time.Minute // of a server without IDLE
	// busyDelay is the pause after a temporary failure of the server that sends.
	busyDelay = 5 * time.Second
	// onceTTL is how long a send whose answer was lost is repeated. Mail systems and programs show one
	// of the mails with the same Message-ID.
	onceTTL = time.Hour

	maxMail     = 30 << 20  // bytes of a mail that is read; larger ones are refused
	maxUnproved = 64 << 10  // bytes that are read of a mail whose sender is not proved
	maxListed   = 512 << 10 // bytes of a mail that are read for a list
	maxScanned  = 300       // mails that are looked at for a list
	maxTries    = 5         // connections that may fail at one mail
	maxTopics   = 1000
)

// Limits of proof.go.
const (
	// proofTTL is how long answers to a mail prove that their sender reads the mailbox.
	proofTTL    = 90 * 24 * time.Hour
	dayInterval = 24 * time.Hour
)

// Limits of send.go.
const (
	maxSubject = 100 // runes
	maxReason  = 200 // runes of a server's answer in an error
)
