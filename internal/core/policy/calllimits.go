package policy

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// Limits bound the calls of a token's principal, together with those of all that act for it. Each is
// 0 (no bound) to [MaxLimit].
type Limits struct {
	PerMinute int `json:"per_minute,omitempty"` // as many may come at once
	PerDay    int `json:"per_day,omitempty"`    // of UTC
}

func (l Limits) valid() bool {
	return l.PerMinute >= 0 && l.PerMinute <= MaxLimit && l.PerDay >= 0 && l.PerDay <= MaxLimit
}

// meters count the calls under limits, by the ids of tokens.
type meters struct {
	mu sync.Mutex
	of map[string]*meter
}

type meter struct {
	minute *rate.Limiter
	day    string
	used   int // on that day
}

// Admit counts a call of a principal whose token has limits, or of one that acts for it. The error
// is overloaded, reason rate_limited, with the time after which a call may be made again. The calls of
// the day that were made before the server started are counted too.
func (p *Policy) Admit(ctx context.Context, who capability.Principal) error {
	id := who.Person()
	t, ok := p.tokens.Load().names[id]
	if !ok || t.Limits == (Limits{}) {
		return nil
	}
	now := p.now().UTC()
	today := now.Format(time.DateOnly)
	p.meters.mu.Lock()
	m := p.meters.of[t.ID]
	p.meters.mu.Unlock()
	if m == nil {
		m = p.meter(ctx, t, id, now)
	}
	p.meters.mu.Lock()
	defer p.meters.mu.Unlock()
	if m.day != today {
		m.day, m.used = today, 0
	}
	if t.Limits.PerDay > 0 && m.used >= t.Limits.PerDay {
		return limited(now.Truncate(24*time.Hour).Add(24*time.Hour).Sub(now), "%s may make %d calls a day", id, t.Limits.PerDay)
	}
	if t.Limits.PerMinute > 0 {
		r := m.minute.ReserveN(now, 1)
		if wait := r.DelayFrom(now); wait > 0 {
			r.CancelAt(now)
			return limited(wait, "%s may make %d calls a minute", id, t.Limits.PerMinute)
		}
	}
	m.used++
	return nil
}

func limited(wait time.Duration, format string, args ...any) error {
	e := capability.Errorf(capability.CodeOverloaded, "authorize", format, args...).
		With(capability.ReasonRateLimited, "wait, or ask an administrator for a token with wider limits")
	e.RetryAfter = wait
	return e
}

// meter returns the meter of a token, with the calls that the log has of this day.
func (p *Policy) meter(ctx context.Context, t Token, id string, now time.Time) *meter {
	m := &meter{day: now.Format(time.DateOnly), minute: rate.NewLimiter(rate.Limit(float64(t.Limits.PerMinute)/60), t.Limits.PerMinute)}
	if t.Limits.PerDay > 0 && p.log != nil {
		made, err := p.log.Usage(ctx, audit.UsageQuery{User: id, Since: now.Truncate(24 * time.Hour), Limit: 1})
		if err != nil {
			p.logger.Warn("calls of earlier today are not counted", "principal", id, "err", err)
		} else if len(made) > 0 {
			m.used = int(made[0].Calls)
		}
	}
	p.meters.mu.Lock()
	defer p.meters.mu.Unlock()
	if other := p.meters.of[t.ID]; other != nil {
		return other
	}
	if p.meters.of == nil {
		p.meters.of = make(map[string]*meter)
	}
	for other := range p.meters.of { // of tokens that have ended
		if t, ok := p.tokens.Load().ids[other]; !ok || !t.Live(now) {
			delete(p.meters.of, other)
		}
	}
	p.meters.of[t.ID] = m
	return m
}
