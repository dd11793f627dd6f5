package upstream

import (
	"context"
	"errors"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
)

// serve handles the events of an upstream while its main connection c is up: loss,
// restarts, changed lists, idle connections. It closes c before it returns.
func (u *upstream) serve(ctx context.Context, c *conn) {
	lists := reader{u: u, conn: c}
	defer lists.group.Wait() // they end with the connection
	closing := func() {
		u.away(c)
		u.noteErrors(c)
		u.close(c)
	}
	sweeping := time.NewTicker(max(u.reg.cfg.Idle/4, time.Millisecond))
	defer sweeping.Stop()
	var noticed time.Time
	timer := time.NewTimer(u.untilRefresh())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			closing()
			return
		case err := <-c.down:
			closing()
			if err == nil {
				err = errors.New("the connection was lost")
			}
			u.lost(ctx, u.unreachable(u.limited(c, err)))
			return
		case <-sweeping.C:
			u.sweep()
			continue
		case <-u.wake:
			if u.restarted() {
				u.set(capability.Availability{State: capability.StateDegraded, Reason: "it is being restarted"})
				closing()
				u.closeAll()
				return
			}
			if wait := time.Until(noticed.Add(noticeDelay)); wait > 0 && u.waits() {
				again := time.NewTimer(wait) // a flood of notices costs ten lists a second
				select {
				case <-again.C:
				case <-ctx.Done():
				}
				again.Stop()
			}
			kinds := u.pending()
			if len(kinds) > 0 {
				noticed = time.Now()
				lists.read(ctx, kinds)
			}
			u.sweep()
		case <-timer.C:
			lists.read(ctx, ingest.Kinds())
		}
		timer.Reset(u.untilRefresh())
	}
}

// waits reports whether a list is marked to be read again.
func (u *upstream) waits() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.dirty) > 0
}

// pending returns and clears the lists that are marked to be read again.
func (u *upstream) pending() (kinds []ingest.Kind) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, kind := range ingest.Kinds() {
		if u.dirty[kind] {
			kinds = append(kinds, kind)
		}
	}
	clear(u.dirty)
	return kinds
}

// untilRefresh returns the time until the lists are read again without a notification:
// Config.Refresh, or less if a list could not be read or has a shorter TTL.
func (u *upstream) untilRefresh() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.listed) > 0 {
		return min(minRefreshInterval, u.reg.cfg.Refresh)
	}
	wait := u.reg.cfg.Refresh
	for _, ttl := range u.ttl {
		if ttl > 0 {
			wait = min(wait, max(ttl, minRefreshInterval))
		}
	}
	return wait
}
