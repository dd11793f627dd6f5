package upstream

import (
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/breaker"
)

const (
	breakAfter   = 5 // failures in a row
	breakerDelay = 30 * time.Second
)

// limits make others wait for a trial, or for as long again if it never ends.
func limits() breaker.Config {
	return breaker.Config{Failures: breakAfter, Open: breakerDelay, Trials: 1, TrialTimeout: breakerDelay}
}

// callBreaker keeps calls from an upstream that is connected and breaks them. After five
// failures in a row nothing is sent for half a minute; then one call goes out on
// trial. What an upstream answers, also an error of its own, is not a failure here.
type callBreaker struct {
	mu    sync.Mutex
	state breaker.Breaker
}

// admit reports whether a call may be sent, and when to ask again.
func (b *callBreaker) admit(now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.state.Admit(limits(), now) {
		return b.state.Wait(now), false
	}
	return 0, true
}

// report takes a call's end in, and reports whether it opened the breaker.
func (b *callBreaker) report(err error, now time.Time) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case answered(err):
		b.state.Reset()
	case broke(err):
		closed := b.state.Closed()
		return b.state.Fail(limits(), now) && closed
	}
	return false
}

func (b *callBreaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Reset()
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
	return e.Reason == capability.ReasonConnectionFailed || e.Reason == capability.ReasonIdleTimeout
}
