package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/secret"
)

// openShared opens the shared database, if one is configured, and determines the unique name of this
// gateway. Otherwise the file in the home is used for everything. Data of this machine is always
// in the file: installed extensions, their settings and users, and the references of blobs.
func (s *Server) openShared(ctx context.Context) (err error) {
	s.shared, s.gateway = s.db, hostName()
	if s.cfg.Store.URL == "" {
		return nil
	}
	password, err := storePassword(s.cfg, s.secrets)
	if err != nil {
		return err
	}
	if s.shared, err = store.OpenPostgres(ctx, store.Postgres{URL: s.cfg.Store.URL, Password: password}); err != nil {
		s.shared = nil
		return err
	}
	id, err := s.home.key("gateway.id")
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "home", "the name of this gateway cannot be kept", err)
	}
	name := regexp.MustCompile(`[^A-Za-z0-9.-]`).ReplaceAllString(s.gateway, "-")
	s.gateway = name[:min(len(name), maxGatewayName)] + "-" + hex.EncodeToString(id[:4])
	return nil
}

func storePassword(cfg config.Config, secrets *secretstore.Store) (secret.Value, error) {
	name := cfg.Store.PasswordSecret
	if name == "" {
		return secret.Value{}, nil
	}
	password, err := secrets.Get(name)
	if err != nil {
		return secret.Value{}, capability.Wrap(capability.CodeInvalidInput, "config",
			fmt.Sprintf("store.password_secret: the secret %s cannot be read", name), err).
			With("", "store it before store.url is set: junctor secrets set "+name)
	}
	return password, nil
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "local"
	}
	return name
}

// watchShared updates the mirrors in memory after changes of other gateways, until ctx ends. After an
// error, Watch starts again and reads everything, so that no change is lost.
func (s *Server) watchShared(ctx context.Context) error {
	if !s.shared.Shared() {
		return nil
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !s.endpoints.Running() { // before that, changes would be missed
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return s.shared.Watch(ctx, s.takeOver, func(h store.Health) {
		if h.Down {
			s.logger.Error("the shared store is away; this server goes on with what it knows", "store", s.shared.Where(), "cause", h.Cause, "err",
				errors.Unwrap(h.Err))
		} else {
			s.logger.Info("the shared store answers again")
		}
		s.publish("store.changed", map[string]any{"down": h.Down})
	})
}

// takeOver updates the mirrors of a table, or of all tables for "". A new mirror is one line here.
func (s *Server) takeOver(ctx context.Context, table string) error {
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	if table == "" || table == "tokens" || table == "grants" {
		if err := s.policy.Refresh(ctx); err != nil {
			return err
		}
	}
	if table == "" || table == "upstreams" || table == "upstream_pins" || table == "tokens" {
		if err := s.upstreams.Refresh(ctx); err != nil {
			return err
		}
	}
	if table == "" || table == "agent_notes" {
		s.chat.Noted()
	}
	if table == "" || table == "endpoints" {
		return s.endpoints.Refresh(ctx)
	}
	return nil
}
