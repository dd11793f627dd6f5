package queue

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
)

// Rates bound how often runs may be requested. Zero fields mean the defaults.
type Rates struct {
	PerMinute int // 80
	Burst     int // 14
}

// Limiter holds a token bucket for each user, each extension and each user of an extension, whose
// bucket is smaller than the extension's. It is safe for concurrent use.
type Limiter struct {
	every rate.Limit
	burst int
	now   func() time.Time

	mu      sync.Mutex
	buckets map[bucketKey]*rate.Limiter
}

type bucketKey struct{ user, extension string }

// NewLimiter returns a limiter that reads the time from now.
func NewLimiter(r Rates, now func() time.Time) *Limiter {
	if r.PerMinute <= 0 {
		r.PerMinute = 80
	}
	if r.Burst <= 0 {
		r.Burst = 14
	}
	return &Limiter{every: rate.Limit(float64(r.PerMinute) / 60), burst: r.Burst, now: now, buckets: make(map[bucketKey]*rate.Limiter)}
}

// Take takes one token from each bucket of the run: the user's, the extension's, and the user's of
// the extension. If one is empty it takes none and returns overloaded, reason rate_limited, with
// the time to wait.
func (l *Limiter) Take(user, extension string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	var taken []*rate.Reservation
	var wait time.Duration
	keys := []bucketKey{{extension: extension}, {user: user}, {user, extension}}
	if user == "" {
		keys = keys[:1]
	}
	for _, k := range keys {
		r := l.bucket(k, now).ReserveN(now, 1)
		taken = append(taken, r)
		wait = max(wait, r.DelayFrom(now))
	}
	if wait <= 0 {
		return nil
	}
	for _, r := range taken {
		r.CancelAt(now)
	}
	e := capability.Errorf(capability.CodeOverloaded, "queue", "%s has been asked too often; the next run may begin in %s", extension,
		wait.Round(time.Millisecond)).
		With("rate_limited", "wait that long")
	e.RetryAfter = wait
	return e
}

// bucket returns the bucket of a key; the caller holds the lock.
func (l *Limiter) bucket(k bucketKey, now time.Time) *rate.Limiter {
	if b := l.buckets[k]; b != nil {
		return b
	}
	if len(l.buckets) >= maxBuckets {
		for old, b := range l.buckets {
			if b.TokensAt(now) >= float64(b.Burst()) {
				delete(l.buckets, old)
			}
		}
		for old := range l.buckets { // none is full: drop any
			if len(l.buckets) < maxBuckets {
				break
			}
			delete(l.buckets, old)
		}
	}
	b := rate.NewLimiter(l.every, l.burst)
	if k.user != "" && k.extension != "" {
		b = rate.NewLimiter(l.every*userShare, max(1, int(float64(l.burst)*userShare)))
	}
	l.buckets[k] = b
	return b
}
