package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/serve/a2aserve"
	"github.com/junctor-run/junctor/internal/serve/a2aserve/push"
	"github.com/junctor-run/junctor/internal/serve/taskserve"
	"github.com/junctor-run/junctor/internal/store/tasksql"
)

// openAgents opens the tasks and the A2A surfaces. It must run after the engine and the door exist.
func (s *Server) openAgents(ctx context.Context) error {
	kept, err := tasksql.Open(ctx, s.shared)
	if err != nil {
		return err
	}
	var local []netip.Prefix
	for _, text := range s.cfg.A2A.PushAddresses {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return capability.Errorf(capability.CodeInvalidInput, "a2a", "a2a.push_addresses: %q is not a range of addresses",
				text).With("invalid_settings", "write it as 10.1.0.0/16")
		}
		local = append(local, p)
	}
	if s.pushes, err = push.Open(ctx, push.Options{
		Database: s.shared, Bodies: a2aserve.Bodies, Task: kept.Task, Addresses: local,
		Logger: s.logger,
	}); err != nil {
		return err
	}
	s.tasks = tasks.New(tasks.Config{
		Store: kept, Engine: s.engine, Gateway: s.gateway, Log: s.log, Logger: s.logger, Standing: s.standing, Approval: s.shared.Approval,
		Decide: func(ctx context.Context, by capability.Principal, id string, d policy.Decision) error {
			_, _, err := s.policy.Answer(ctx, by, id, d)
			return err
		},
		Changed: func(t tasks.Task) {
			s.pushes.Changed(t)
			s.publish("task.status_changed", map[string]any{"task": t.ID, "state": t.State})
		},
	})
	seed, err := s.home.key("a2a.key")
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "home", "the key that signs agent cards cannot be read", err)
	}
	key, err := signingKey(seed)
	if err != nil {
		return err
	}
	at := s.cfg.PublicURL
	if at == "" {
		at = s.Address()
	}
	s.a2a = a2aserve.New(a2aserve.Config{
		Door: s.door, Engine: s.engine, Tasks: s.tasks, Push: s.pushes, Key: key, URL: at, Version: s.version,
		MaxBody: int64(s.cfg.Limits.RequestBody), Exposure: compile.View(s.cfg.MCP.Exposure), Logger: s.logger,
	})
	// Load the tasks of an earlier process before new ones are created.
	return s.tasks.Open(ctx)
}

// standing returns the current principal with an id. For a principal of an authorization server, whose
// rights are known only while it is connected, the error is unavailable.
func (s *Server) standing(id string) (capability.Principal, error) {
	if _, subject, _ := strings.Cut(id, ":"); strings.HasPrefix(subject, "oidc/") {
		return capability.Principal{}, capability.Errorf(capability.CodeUnavailable, "tasks", "%s is known only while it calls",
			id).With("principal_absent", "it goes on when they ask for the task")
	}
	return s.policy.Standing(id)
}

// signingKey derives a P-256 key from 32 random bytes. One of 2^32 seeds is not a valid key; then its
// digest is used as the seed.
func signingKey(seed []byte) (*ecdsa.PrivateKey, error) {
	for range 8 {
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed); err == nil {
			return key, nil
		}
		sum := sha256.Sum256(seed)
		seed = sum[:]
	}
	return nil, errors.New("the key that signs agent cards is damaged")
}

// agentRoutes adds the routes of the A2A surfaces.
func (s *Server) agentRoutes(mux *http.ServeMux) {
	s.a2a.Routes(mux)
	taskserve.New(s.door, s.tasks).Routes(mux)
}
