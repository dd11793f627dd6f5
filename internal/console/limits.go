package console

import "time"

// The bounds of apps.
const (
	maxAppPage    = 4 << 20 // bytes
	maxAppOrigins = 32      // that an app declares
)

// The bounds of frames.
const (
	frameTTL  = 10 * time.Minute
	maxFrames = 128
	// A view may send this many messages a second, each of this many bytes.
	frameRate    = 50
	frameMessage = 256 << 10
)

// The bounds of sessions and sign-in codes.
const (
	sessionTTL  = 8 * time.Hour
	idleTimeout = 30 * time.Minute
	codeTTL     = 5 * time.Minute
	ticketTTL   = 30 * time.Second
	maxSessions = 64 // per server; the one that was used least recently ends
	maxCodes    = 64
	// Uses are saved at most this often, so a restart forgets at most this much.
	saveInterval = time.Minute
)

// The bounds of verifications.
const (
	verifyTTL   = 2 * time.Minute
	maxTries    = 3
	maxVerifies = 8 // of one principal, open at once; the oldest ends
	// So many wrong codes of one principal lock its codes for lockTTL, and so many new verifications
	// within it. Otherwise a program could ask for codes until it guesses one.
	maxWrong = 10
	maxAsked = 100
	lockTTL  = 10 * time.Minute
)
