package server

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/local/memory"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/server/checkup"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
)

// stores holds the databases, the secrets and the audit log.
type stores struct {
	secrets *secretstore.Store
	db      *store.DB // database of this machine
	shared  *store.DB // shared database, or db without one
	gateway string    // name of this gateway among those that share a database
}

// openStores opens the secrets, the databases and the audit log.
func (s *Server) openStores(ctx context.Context) error {
	var err error
	if s.secrets, err = secretstore.Open(s.home.Path("secrets"), checkup.Further(s.cfg)); err != nil {
		return err
	}
	if s.db, err = store.Open(ctx, s.home.Path("state", "junctor.db")); err != nil {
		return err
	}
	if err = s.openShared(ctx); err != nil {
		return err
	}
	if err = memory.Tables().Migrate(ctx, s.shared); err != nil {
		return err
	}
	segments, err := segment.Open(s.home.Path("audit"), segment.Config{})
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "audit", "the audit log cannot be opened", err)
	}
	mirror, err := segment.OpenMirror(s.home.Path("logs"), segment.MirrorConfig{})
	if err != nil {
		segments.Close()
		return capability.Wrap(capability.CodeFailed, "audit", "the log files cannot be opened", err)
	}
	key, err := s.home.key("audit.key")
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "audit", "the audit key cannot be read", err)
	}
	anchor, err := segment.NewAnchor(s.cfg.Audit.Anchor, s.home.Dir)
	if err != nil {
		return err
	}
	user, _ := os.UserHomeDir()
	s.log, err = audit.Open(ctx, audit.Config{
		Segments: segments, Mirror: mirror, Index: s.shared.Audit(s.gateway), Gateway: s.gateway, Mode: audit.Mode(s.cfg.Audit.Mode),
		Key: key, Home: user, Logger: s.logger, Retain: s.cfg.Audit.Retention, Anchor: anchor, Arguments: segment.NewArguments(s.home.Path("arguments")), ArgumentMode: audit.ArgumentMode(s.cfg.Audit.Arguments), RetainArguments: s.cfg.Audit.ArgumentsRetention,
	})
	return err
}

// ownToken returns the name of a token that every home has, which is unique for each gateway.
func (s *stores) ownToken(name string) string {
	if s.shared.Shared() {
		return name + "@" + s.gateway
	}
	return name
}

// checkDatabase returns the finding about the database of this machine.
func (s *stores) checkDatabase(ctx context.Context) httpapi.Check {
	return checkup.Database(ctx, func(ctx context.Context) error { return store.IntactSoon(ctx, s.db.SQL()) })
}

// checkShared returns the finding about the shared database and whether it responds.
func (s *stores) checkShared(ctx context.Context) httpapi.Check {
	c := httpapi.Check{Name: "store", OK: true, Detail: "everything is in state/junctor.db of the home"}
	if !s.shared.Shared() {
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	began := time.Now()
	var version string
	var gateways int
	err := s.shared.SQL().QueryRowContext(ctx, `SELECT current_setting('server_version'), (SELECT count(*) FROM audit_position)`).
		Scan(&version, &gateways)
	if err == nil {
		c.Detail = fmt.Sprintf("shared: the database %s, version %s, answers in %s; %d gateways have written to it; this one is %s",
			s.shared.Where(), version, time.Since(began).Round(time.Millisecond), gateways, s.gateway)
		return c
	}
	e := capability.AsError(err)
	c.OK, c.Detail, c.Remedy = false, "shared: the database "+s.shared.Where()+": "+e.Message, e.Hint
	c.Remedy = cmp.Or(c.Remedy, "see that the server runs and can be reached; this gateway tries again by itself")
	return c
}
