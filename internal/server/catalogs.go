package server

import (
	"context"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/catalog/compile"
	"github.com/junctor-run/junctor/internal/intake/manifest"
	"github.com/junctor-run/junctor/internal/intake/operator"
)

// explain keeps the record of a choice and returns its id.
func (s *Server) explain(_ *capability.Invocation, agent *compile.Agent, sel *arbitration.Selection) string {
	return s.choices.Put(arbitration.Explain(sel, agent.Etag()))
}

// operatorRows are the operator catalog on a snapshot: what the packages in the
// home declare, and the state of what runs. A package is declared by lying there;
// nothing of it is started.
func (s *Server) operatorRows(ctx context.Context, snap *catalog.Snapshot) (rows any, err error) {
	all, err := s.static.Build(ctx)
	if err != nil {
		return nil, err
	}
	declared := slices.Clone(all.Extensions)
	for i := range declared {
		declared[i].Stage = capability.StageDeclared
	}
	resolved := manifest.Resolve(declared, snap.Settings().Owners)
	view, err := operator.New(resolved).View(snap, resolved.Conflicts...)
	return view.Rows, err
}

// staticRows is a static catalog by name.
func (s *Server) staticRows(ctx context.Context, name string) (rows any, ok bool, err error) {
	all, err := s.static.Build(ctx)
	if err != nil {
		return nil, false, err
	}
	switch name {
	case "install":
		return all.Install.Rows, true, nil
	case "onboarding":
		return all.Onboarding.Rows, true, nil
	case "channels":
		return all.Channels.Rows, true, nil
	case "cli":
		return all.CLI.Rows, true, nil
	}
	return nil, false, nil
}
