package mcpserve

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// CatalogChanged reports a new snapshot, or another change of what may be seen. It never
// blocks; [Surface.Run] notifies the sessions whose list changed.
func (s *Surface) CatalogChanged() {
	s.epoch.Add(1)
	select {
	case s.changed <- struct{}{}:
	default: // a pending notification covers this change too
	}
}

// Run delivers list_changed and ends idle sessions until ctx ends; then it ends
// all sessions and the calls in them, and returns nil.
func (s *Surface) Run(ctx context.Context) error {
	var telling sync.WaitGroup
	defer telling.Wait() // after the sessions that they wait for are closed
	defer s.shut()
	tick := time.NewTicker(min(expireInterval, max(s.cfg.SessionIdle/4, time.Millisecond)))
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
				notice.Reset(max(coalesceDelay, noticeInterval-time.Since(last)))
			}
		case <-notice.C:
			pending, last = false, time.Now()
			s.announce()
		case <-s.updated:
			s.tellUpdates(ctx, &telling)
		case <-tick.C:
			s.expire()
		}
	}
}

// announce compares every viewer's list with the one that it was last notified of.
func (s *Surface) announce() {
	s.mu.Lock()
	viewers := make([]*viewer, 0, len(s.viewers))
	for _, v := range s.viewers {
		viewers = append(viewers, v)
	}
	s.mu.Unlock()
	for _, v := range viewers {
		now := s.listOf(v.caller).hashes()
		s.mu.Lock()
		var changed [3]bool
		for i := range now {
			changed[i] = now[i] != v.announced[i]
			v.toggled[i] = v.toggled[i] != changed[i]
		}
		v.announced = now
		there := v.toggled
		s.mu.Unlock()
		v.toggle(changed, there)
	}
}

// toggle makes the SDK notify the viewer's sessions of the lists that have changed.
func (v *viewer) toggle(changed, there [3]bool) {
	switch {
	case !changed[0]:
	case there[0]:
		v.server.AddTool(&mcp.Tool{Name: hidden, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, wireError(unknownTool(hidden))
			})
	default:
		v.server.RemoveTools(hidden)
	}
	switch {
	case !changed[1]:
	case there[1]:
		v.server.AddPrompt(&mcp.Prompt{Name: hidden}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return nil, wireError(mcpwire.InvalidParams("unknown prompt %q", hidden))
		})
	default:
		v.server.RemovePrompts(hidden)
	}
	switch {
	case !changed[2]:
	case there[2]:
		v.server.AddResource(&mcp.Resource{Name: hidden, URI: hiddenURI},
			func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return nil, wireError(unknownResource(hiddenURI, mcpwire.Era{}))
			})
	default:
		v.server.RemoveResources(hiddenURI)
	}
}

// shut ends everything that outlives a request.
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
