package upstream

import (
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

const (
	breakAfter = 5 // failures in a row
	breakFor   = 30 * time.Second
)

// breaker keeps calls from an upstream that is connected and breaks them. After five
// failures in a row nothing is sent for half a minute; then one call goes out on
// trial. What an upstream answers, also an error of its own, is no failure here.
type breaker struct {
	mu     sync.Mutex
	failed int
	opened time.Time // when it opened, or the trial began; zero: closed
	trial  bool
}

// admit says whether a call may be sent, and when to ask again.
func (b *breaker) admit(now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened.IsZero() {
		return 0, true
	}
	if left := b.opened.Add(breakFor).Sub(now); left > 0 {
		return left, false
	}
	b.opened, b.trial = now, true // others wait for it, or for as long again if it never ends
	return 0, true
}

// report takes a call's end in, and reports whether it opened the breaker.
func (b *breaker) report(err error, now time.Time) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case answered(err):
		b.failed, b.opened, b.trial = 0, time.Time{}, false
		return false
	case !broke(err):
		return false
	case b.trial:
		b.opened, b.trial = now, false
		return false
	}
	if b.failed++; b.failed == breakAfter {
		b.opened = now
		return true
	}
	return false
}

func (b *breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed, b.opened, b.trial = 0, time.Time{}, false
}

// answered reports whether a call came to the upstream and back.
func answered(err error) bool {
	switch capability.CodeOf(err) {
	case "", capability.CodeInvalidInput, capability.CodeTooLarge, capability.CodeConsentRequired:
		return true
	case capability.CodeFailed:
		return !broke(err)
	}
	return false
}

// broke reports whether a call failed by the connection rather than by what it asked
// for. A deadline is the caller's, and one in a hurry must not shut others out.
func broke(err error) bool {
	e := capability.AsError(err)
	return e.Reason == "connection_failed" || e.Reason == "idle_timeout"
}
