package server

import (
	"context"

	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/intake/manifest"
	"github.com/junctor-run/junctor/internal/intake/operator"
)

// operatorRows is the operator catalog on a snapshot.
func (s *Server) operatorRows(*catalog.Snapshot) any {
	return operator.New(manifest.Resolve(nil, nil)).Rows()
}

// staticRows is a static catalog by name.
func (s *Server) staticRows(_ context.Context, name string) (rows any, ok bool, err error) {
	switch name {
	case "install", "onboarding", "channels", "cli":
		return []any{}, true, nil
	}
	return nil, false, nil
}
