package server

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/junctor-run/junctor/internal/local"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/restserve"
	"github.com/junctor-run/junctor/internal/server/checkup"
)

// Doctor returns the findings about this installation, with remedies for the bad ones.
func (s *Server) Doctor(ctx context.Context) []httpapi.Check {
	checks := []httpapi.Check{
		s.checkAudit(s.cfg.Audit.Mode), s.checkDatabase(ctx), checkup.Chain(ctx, s.cfg.Audit.Anchor, s.log.Verify), s.checkShared(ctx),
		checkup.Disk(s.home.Dir), local.CheckRoots(s.cfg.FS.Roots), checkup.Private(s.home.Dir), s.checkGit(ctx), s.checkCatalog(),
		s.checkPolicies(ctx),
	}
	checks = append(checks, slices.Concat(s.hook.Checks(), s.metrics.Checks())...)
	for _, w := range s.wings() {
		checks = append(checks, w.Checks(ctx)...)
	}
	return checks
}

// status returns the state of this server for the REST API.
func (s *Server) status() restserve.Status {
	snap, h := s.catalog.Snapshot(), s.log.Health()
	return restserve.Status{
		Version: s.version, Go: runtime.Version(), URL: s.Address(), Started: s.began.UTC().Format(time.RFC3339),
		Catalog: restserve.CatalogStatus{Generation: snap.Generation, Etag: snap.Etag, Entries: snap.Len(), Modules: snap.ModuleCount()},
		Audit:   restserve.AuditStatus{Seq: h.Seq, Broken: h.Broken, Waiting: h.Waiting, Lost: h.Lost},
	}
}
