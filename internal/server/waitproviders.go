package server

import (
	"context"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/local"
)

// settle waits until the providers that this server offered before its stop are connected again, at
// most for settleTimeout, so that the first call after the ready line finds them. A provider
// that is down does not delay the start any longer.
func (s *Server) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	restored, err := s.endpoints.Restored(ctx)
	if err != nil {
		return // the registry has logged the error
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
