// Package breaker implements a circuit breaker: after several failures in a row, calls are
// rejected for some time. Then a few calls are admitted as a trial. The caller decides
// which results count as failures.
package breaker

import "time"

// Config holds the limits of a Breaker.
type Config struct {
	Failures     int           // failures in a row that open the breaker
	Open         time.Duration // how long it stays open
	MaxOpen      time.Duration // if above Open, each opening in a row lasts twice as long as the last, up to this
	Trials       int           // calls admitted afterwards before one has ended; 0: any number
	TrialTimeout time.Duration // if set, one trial is admitted per such interval, even if earlier trials have not ended
	Extend       bool          // failures of calls that are not trials prolong an opening
}

// Breaker is the state for one destination. The zero value is closed. Its methods must
// not be called concurrently.
type Breaker struct {
	failures int // in a row
	until    time.Time
	pause    time.Duration // of the last opening
	trials   int           // since then
}

// Closed reports whether the breaker has not opened since the last Reset.
func (b *Breaker) Closed() bool { return b.until.IsZero() }

// Wait returns the time until calls are admitted again, or 0.
func (b *Breaker) Wait(now time.Time) time.Duration { return max(0, b.until.Sub(now)) }

// Refuses reports whether Admit would refuse a call.
func (b *Breaker) Refuses(c Config, now time.Time) bool {
	if b.Closed() {
		return false
	}
	return now.Before(b.until) || c.TrialTimeout == 0 && c.Trials > 0 && b.trials >= c.Trials
}

// Admit reports whether a call may be made. A call that is admitted after an opening is a
// trial.
func (b *Breaker) Admit(c Config, now time.Time) bool {
	if b.Closed() {
		return true
	}
	if b.Refuses(c, now) {
		return false
	}
	b.trials++
	if c.TrialTimeout > 0 {
		b.until = now.Add(c.TrialTimeout)
	}
	return true
}

// Fail records a failed call and reports whether that opened the breaker, for the first
// time or again.
func (b *Breaker) Fail(c Config, now time.Time) (opened bool) {
	if b.failures++; b.failures < c.Failures {
		return false
	}
	if !b.Closed() && !c.Extend { // a failure that is not a trial's changes nothing
		if c.Trials > 0 && b.trials == 0 || c.Trials == 0 && now.Before(b.until) {
			return false
		}
	}
	b.pause = min(max(2*b.pause, c.Open), max(c.Open, c.MaxOpen))
	b.until, b.trials = now.Add(b.pause), 0
	return true
}

// Abandon removes a trial that ended without a result, so that another one may be admitted.
func (b *Breaker) Abandon() { b.trials = max(0, b.trials-1) }

// Reset closes the breaker.
func (b *Breaker) Reset() { *b = Breaker{} }
