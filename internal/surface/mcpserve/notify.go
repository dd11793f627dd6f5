package mcpserve

import (
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	coalesce    = 50 * time.Millisecond  // one notice for a burst
	noticeEvery = 250 * time.Millisecond // four a second
	expireEvery = time.Minute
)

// CatalogChanged says that there is a new snapshot, or that what may be seen has
// changed otherwise. It never blocks; [Surface.Run] tells those whose list it
// changes.
func (s *Surface) CatalogChanged() {
	s.epoch.Add(1)
	select {
	case s.changed <- struct{}{}:
	default: // one is waiting already, and will see this change too
	}
}

// Run delivers list_changed and ends idle sessions until ctx ends; then it ends
// all sessions and the calls in them, and returns nil.
func (s *Surface) Run(ctx context.Context) error {
	defer s.shut()
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	notice := time.NewTimer(time.Hour)
	notice.Stop()
	defer notice.Stop()
	var last time.Time
	pending := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
			if !pending {
				pending = true
				notice.Reset(max(coalesce, noticeEvery-time.Since(last)))
			}
		case <-notice.C:
			pending, last = false, time.Now()
			s.announce()
		case <-tick.C:
			s.expire()
		}
	}
}

// announce compares every viewer's list with the one it was told of last.
func (s *Surface) announce() {
	s.mu.Lock()
	viewers := make([]*viewer, 0, len(s.viewers))
	for _, v := range s.viewers {
		viewers = append(viewers, v)
	}
	s.mu.Unlock()
	for _, v := range viewers {
		hash := s.listOf(v.caller).hash
		s.mu.Lock()
		same := hash == v.announced
		v.announced = hash
		if !same {
			v.toggled = !v.toggled
		}
		add := v.toggled
		s.mu.Unlock()
		switch {
		case same:
		case add:
			v.server.AddTool(&mcp.Tool{Name: hiddenTool, InputSchema: json.RawMessage(`{"type":"object"}`)},
				func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return nil, wireError(unknownTool(hiddenTool))
				})
		default:
			v.server.RemoveTools(hiddenTool)
		}
	}
}

// shut ends everything that lives longer than a request.
func (s *Surface) shut() {
	s.cancel()
	s.Drain()
	s.mu.Lock()
	gone := make([]*session, 0, len(s.sessions))
	for id, sess := range s.sessions {
		gone = append(gone, sess)
		delete(s.sessions, id)
	}
	s.mu.Unlock()
	for _, sess := range gone {
		sess.cancel(nil)
		sess.release()
	}
}
