package upstream

import (
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/breaker"
)

const breakAfter = 5 // failures in a row

// limits returns the limits of the breaker. A trial that does not end blocks other calls
// for one more breakerDelay.
func limits() breaker.Config {
	return breaker.Config{Failures: breakAfter, Open: breakerDelay, Trials: 1, TrialTimeout: breakerDelay}
}

// callBreaker stops calls to a connected upstream whose calls fail. After five failures
// in a row, calls are refused for half a minute; then one call is sent as a trial. An
// answer of the upstream, even an error, is not a failure.
type callBreaker struct {
	mu    sync.Mutex
	state breaker.Breaker
}

// admit reports whether a call may be sent, and otherwise how long to wait.
func (b *callBreaker) admit(now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.state.Admit(limits(), now) {
		return b.state.Wait(now), false
	}
	return 0, true
}

// report records the end of a call, and reports whether that opened the breaker.
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

// answered reports whether the upstream answered the call.
func answered(err error) bool {
	switch capability.CodeOf(err) {
	case "", capability.CodeInvalidInput, capability.CodeTooLarge, capability.CodeApprovalRequired:
		return true
	case capability.CodeFailed:
		return !broke(err)
	}
	return false
}

// broke reports whether a call failed because of the connection or the idle timeout. The
// caller's own deadline does not count, so that an impatient caller cannot block others.
func broke(err error) bool {
	e := capability.AsError(err)
	return e.Reason == capability.ReasonConnectionFailed || e.Reason == capability.ReasonIdleTimeout
}
