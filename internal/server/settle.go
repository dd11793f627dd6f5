package server

import (
	"context"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/local"
)

// settleTimeout is how long a start waits at most for what was there before.
const settleTimeout = 2 * time.Second

// settle waits until what this server offered before it was stopped is back, so
// that the first call after the ready line finds it. What does not come back in
// time comes later, and /readyz does not wait for it: an endpoint that is down
// must not keep the others from being reached.
func (s *Server) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	restored, err := s.endpoints.Restored(ctx)
	if err != nil {
		return // the registry has said so in the log
	}
	installed := s.extensions.List()
	back := func() bool {
		isLocal := func(m *capability.Module) bool { return m.Extension == local.Extension }
		if !s.endpoints.Running() || !s.upstreams.Running() || !slices.ContainsFunc(slices.Collect(s.catalog.Snapshot().Modules()), isLocal) {
			return false
		}
		for _, x := range installed {
			is := func(m *capability.Module) bool { return m.Extension == x.Module.Extension }
			if !slices.ContainsFunc(slices.Collect(s.catalog.Snapshot().Modules()), is) {
				return false
			}
		}
		return restored()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !back() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
