package approvalhook

import "time"

// Limits of desktop.go.
const (
	maxDesktopQueue = 8 // notifications that wait; further ones are dropped, because they would flood the screen
	maxDesktopRunes = 120
	desktopTimeout  = 5 * time.Second // of the program that shows one
	desktopInterval = time.Second     // between two
)

// Limits of hook.go.
const (
	maxHookQueue    = 256 // notices that wait for delivery; further ones are dropped and reported
	maxHookAttempts = 4
	hookTimeout     = 10 * time.Second // of one attempt
	hookRetryDelay  = time.Second      // before the second attempt; five times as long before each further one
	maxHookAnswer   = 64 << 10         // bytes of a response that are read and discarded
)
