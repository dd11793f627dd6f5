package server

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// savesUses is how often the counts of grants are brought to the store: what a
// crash may cost, where the records have each use all the same.
const savesUses = time.Minute

// saveUses keeps the counts of grants, the last time when ctx ends.
func (s *Server) saveUses(ctx context.Context) error {
	tick := time.NewTicker(savesUses)
	defer tick.Stop()
	for {
		var over bool
		select {
		case <-tick.C:
		case <-ctx.Done():
			over = true
		}
		if err := s.policy.SaveUses(context.WithoutCancel(ctx)); err != nil {
			s.logger.Error("the uses of grants are not saved", "err", err)
		}
		if over {
			return nil
		}
	}
}

// supersede ends the open questions about extensions that are gone, or have
// another content now (spec/README section 5).
func (s *Server) supersede(change catalog.Change) {
	for _, old := range modulesOf(change.Old) {
		if old.Origin != capability.OriginExtension {
			continue
		}
		content := ""
		if m, ok := change.After.Module(old.Extension); ok {
			content = m.Digest
		}
		if content == old.Digest {
			continue
		}
		if err := s.policy.Supersede(context.Background(), old.Extension, content); err != nil {
			s.logger.Error("the questions about an extension that is gone stay open", "extension", old.Extension, "err", err)
		}
	}
}

// modulesOf are the modules of several batches.
func modulesOf(batches map[string]capability.Batch) (list []capability.Module) {
	for _, b := range batches {
		list = append(list, b.Modules...)
	}
	return list
}
