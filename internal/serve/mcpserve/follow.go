package mcpserve

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// following is one subscription of a session.
type following struct {
	session *mcp.ServerSession
	uri     string
}

// hold is one subscription at an upstream.
type hold struct {
	stop func() // nil until the upstream has confirmed
	due  bool   // the resource has changed, and the session was not notified yet
}

// taken returns a copy of the hold for end. If stop is not set yet, the handler that is
// subscribing ends the subscription itself. The caller holds the lock.
func (h *hold) taken() *hold {
	if h == nil {
		return nil
	}
	return &hold{stop: h.stop}
}

// end ends the subscription, if there is one. The lock must not be held.
func (h *hold) end() {
	if h != nil && h.stop != nil {
		h.stop()
	}
}

// freshness is a resource change of which a viewer's sessions must be notified.
type freshness struct {
	viewer *viewer
	uri    string
}

// follow returns the handler that subscribes a session at the upstream. The SDK stores
// which session subscribed to which address; the surface stores only how to unsubscribe.
func (s *Surface) follow(v *viewer) func(context.Context, *mcp.SubscribeRequest) error {
	return func(ctx context.Context, req *mcp.SubscribeRequest) error {
		uri := req.Params.URI
		by := v.caller
		if sess := s.sessionOf(req.Session.ID()); sess != nil {
			by.session = sess.digest
		}
		entry, rivals := s.readable(ctx, by, uri)
		if entry == nil {
			return wireError(unreadable(uri, rivals, mcpwire.Era{Modern: req.Session.ID() == ""}))
		}
		key := following{req.Session, uri}
		own := new(hold)
		s.mu.Lock()
		_, again := v.following[key]
		n, all := 0, len(v.following)
		for k := range v.following {
			if k.session == req.Session {
				n++
			}
		}
		full := n >= maxFollowing || all >= maxFollowed
		if !again && !full {
			v.following[key] = own // it counts from now on, also for concurrent subscribers
		}
		s.mu.Unlock()
		if again {
			return nil
		}
		if full {
			return wireError(mcpwire.InvalidParams("a session subscribes to %d resources at most, all of a principal to %d", maxFollowing,
				maxFollowed))
		}
		stop, err := s.cfg.Updates.Subscribe(ctx, by.who, by.session, entry.Module.Extension, uri, func() {
			s.resourceUpdated(v, key, own)
		})
		s.mu.Lock()
		wanted := v.following[key] == own
		if own.stop = stop; err != nil && wanted {
			delete(v.following, key)
		}
		s.mu.Unlock()
		if err != nil {
			return wireError(&mcpwire.Fault{Code: codeRefused, Message: "the upstream does not report changes of " + uri})
		}
		if !wanted {
			stop() // its session ended in the meantime
		}
		return nil
	}
}

func (s *Surface) unfollow(v *viewer) func(context.Context, *mcp.UnsubscribeRequest) error {
	return func(_ context.Context, req *mcp.UnsubscribeRequest) error {
		key := following{req.Session, req.Params.URI}
		s.mu.Lock()
		held := v.following[key].taken()
		delete(v.following, key)
		s.mu.Unlock()
		held.end()
		return nil
	}
}

// unfollowAll ends the subscriptions of a session that ends.
func (s *Surface) unfollowAll(v *viewer, live *mcp.ServerSession) {
	var stops []*hold
	s.mu.Lock()
	for key, held := range v.following {
		if key.session == live {
			stops = append(stops, held.taken())
			delete(v.following, key)
		}
	}
	s.mu.Unlock()
	for _, held := range stops {
		held.end()
	}
}

// resourceUpdated notes that a resource changed for one session. Another session of the viewer
// may have a connection of its own to the upstream, on which nothing changed.
func (s *Surface) resourceUpdated(v *viewer, of following, held *hold) {
	s.mu.Lock()
	held.due = true
	s.fresh[freshness{v, of.uri}] = true
	s.mu.Unlock()
	select {
	case s.updated <- struct{}{}:
	default:
	}
}

// tellUpdates notifies the sessions that subscribed, each viewer's on its own goroutine,
// because the SDK waits for clients that do not read and others must not be delayed.
func (s *Surface) tellUpdates(ctx context.Context, group *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uris := make(map[*viewer][]string)
	for f := range s.fresh {
		if !f.viewer.telling { // otherwise it is notified again after the current notification
			uris[f.viewer] = append(uris[f.viewer], f.uri)
			delete(s.fresh, f)
		}
	}
	for v, list := range uris {
		v.telling = true
		group.Go(func() { s.tell(ctx, v, list) })
	}
}

// onlyDue drops the notifications of sessions for which the resource did not change, because the
// SDK notifies all sessions of a server that subscribed to the address.
func (s *Surface) onlyDue(v *viewer) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			p, ok := req.GetParams().(*mcp.ResourceUpdatedNotificationParams)
			live, isServer := req.GetSession().(*mcp.ServerSession)
			if ok && isServer {
				s.mu.Lock()
				held := v.following[following{live, p.URI}]
				due := held != nil && held.due
				if due {
					held.due = false
				}
				s.mu.Unlock()
				if !due {
					return nil, nil //nolint:nilnil // a notification has no result
				}
			}
			return next(ctx, method, req)
		}
	}
}

func (s *Surface) tell(ctx context.Context, v *viewer, uris []string) {
	for _, uri := range uris {
		if ctx.Err() != nil {
			break
		}
		if err := v.server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
			s.cfg.Logger.Warn("mcp resource update", "err", err)
		}
	}
	s.mu.Lock()
	v.telling = false
	s.mu.Unlock()
	select {
	case s.updated <- struct{}{}: // for changes in the meantime
	default:
	}
}
