package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/serve/restserve"
	"github.com/junctor-run/junctor/internal/server/checkup"
	"github.com/junctor-run/junctor/secret"
)

// Doctor looks for everything that keeps this installation from working, each
// finding with its remedy.
func (s *Server) Doctor(ctx context.Context) []httpapi.Check {
	checks := []httpapi.Check{s.checkAudit(), s.checkDatabase(ctx), checkup.Chain(ctx, s.log.Verify), s.checkShared(ctx), checkup.Disk(s.home.Dir), s.checkRoots(), checkup.Private(s.home.Dir), s.checkGit(ctx), s.checkCatalog()}
	checks = append(checks, s.extensions.Checks(ctx)...)
	checks = append(checks, s.agents.Checks(ctx)...)
	checks = append(checks, s.nodes.Checks(ctx)...)
	checks = append(checks, s.upstreams.Checks(ctx)...)
	return append(checks, s.endpoints.Checks(ctx)...)
}

func (s *Server) checkAudit() httpapi.Check {
	h := s.log.Health()
	c := httpapi.Check{Name: "audit log", OK: !h.Broken, Detail: fmt.Sprintf("%d records, mode %s", h.Seq, s.cfg.Audit.Mode)}
	if h.Broken {
		c.Detail = fmt.Sprintf("cannot be written (%s); %d records wait in memory, %d are lost", h.Cause, h.Waiting, h.Lost)
		c.Remedy = "free space or fix the permissions of the home's audit folder; writing resumes by itself"
	}
	return c
}

func (s *Server) checkDatabase(ctx context.Context) httpapi.Check {
	return checkup.Database(ctx, func(ctx context.Context) error {
		var said string
		if err := s.db.SQL().QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&said); err != nil {
			return err
		}
		if said != "ok" {
			return errors.New(said)
		}
		return nil
	})
}

func (s *Server) checkRoots() httpapi.Check {
	c := httpapi.Check{Name: "local files", OK: true, Detail: fmt.Sprintf("%d roots", len(s.cfg.FS.Roots))}
	if len(s.cfg.FS.Roots) == 0 {
		c.Detail = "no root is configured, so fs.* and git.* are unavailable on this machine; that is fine if you do not want them"
	}
	for _, r := range s.cfg.FS.Roots {
		if info, err := os.Stat(r.Path); err != nil || !info.IsDir() {
			c.OK, c.Detail = false, "the root "+r.ID+" is gone"
			c.Remedy = "make the directory again, or take fs.roots out of the configuration, and restart"
		}
	}
	return c
}

// status is the body of GET /api/v1/status.
func (s *Server) status() map[string]any {
	snap := s.catalog.Snapshot()
	h := s.log.Health()
	return map[string]any{
		"version": s.version, "go": runtime.Version(), "url": s.Address(), "started": s.began.UTC().Format(time.RFC3339),
		"catalog": map[string]any{"generation": snap.Generation, "etag": snap.Etag, "entries": snap.Len(), "modules": snap.ModuleCount()},
		"audit":   map[string]any{"seq": h.Seq, "broken": h.Broken, "waiting": h.Waiting, "lost": h.Lost},
	}
}

// secretNames shows the secret store to /api/v1 without its values.
type secretNames struct{ *secretstore.Store }

func (n secretNames) Set(name string, value []byte) error {
	return n.Store.Set(name, secret.New(string(value)))
}

func (n secretNames) List() ([]restserve.SecretInfo, error) {
	list, err := n.Store.List()
	if err != nil {
		return nil, err
	}
	out := make([]restserve.SecretInfo, len(list))
	for i, info := range list {
		out[i] = restserve.SecretInfo{Name: info.Name, Updated: info.Updated}
	}
	return out, nil
}
