package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// Address returns the URL at which the server listens.
func (s *Server) Address() string { return "http://" + s.listener.Addr().String() }

// Engine returns the engine that makes all calls.
func (s *Server) Engine() *invoke.Engine { return s.engine }

// Ready returns the line for stdout and run/server.json.
func (s *Server) Ready() ReadyLine {
	return ReadyLine{
		URL: s.Address(), PID: os.Getpid(), Home: s.home.Dir,
		TokenFile: s.home.Path("run", "admin.token"), Version: s.version,
	}
}

// Run serves until ctx ends. Then it rejects new requests, lets running calls finish for ten
// seconds, cancels the rest, and closes everything that New opened. onReady is called once
// requests are served; it may be nil.
func (s *Server) Run(ctx context.Context, onReady func(ReadyLine) error) error {
	defer s.close()
	handler, err := s.handler()
	if err != nil {
		return err
	}
	// Calls may continue after ctx until the drain timeout; their own context ends after that.
	callCtx, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()
	web := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return callCtx },
		ErrorLog:    slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	parts, partsCtx := errgroup.WithContext(callCtx)
	parts.Go(func() error { return s.log.Run(partsCtx) })
	parts.Go(func() error { return s.mcp.Run(partsCtx) })
	parts.Go(func() error { return s.tasks.Run(partsCtx) })
	parts.Go(func() error { return s.pushes.Run(partsCtx) })
	parts.Go(func() error { s.told.Run(partsCtx, s.recordTelemetry); return nil })
	// Agents keep streams open permanently, so these end with the listener. Otherwise every
	// stop would take the whole drain timeout.
	web.RegisterOnShutdown(s.mcp.Drain)
	web.RegisterOnShutdown(s.a2a.Drain)
	for _, w := range s.wings() {
		parts.Go(func() error { return w.Run(partsCtx) })
	}
	parts.Go(func() error { return s.saveUses(partsCtx) })
	for _, run := range []func(context.Context){s.notices.Run, s.policy.Run, s.compiler.Run, s.hook.Run, s.metrics.Run} {
		parts.Go(func() error { run(partsCtx); return nil })
	}
	parts.Go(func() error { s.policyFiles.Run(partsCtx, s.policy, s.mcp.CatalogChanged); return nil })
	parts.Go(func() error { return s.watchShared(partsCtx) })
	parts.Go(func() error { return s.intake.Run(partsCtx, s.sources()...) })
	parts.Go(func() error {
		if err := web.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	s.event(ctx, audit.ServerStarted)
	s.settle(partsCtx)
	s.names.Settle(partsCtx)
	s.warnUnknownNames()
	if err := s.announce(onReady); err != nil {
		cancelCalls()
		web.Close()
		return errors.Join(err, parts.Wait())
	}
	select {
	case <-ctx.Done():
	case <-partsCtx.Done(): // an essential part failed
	}
	s.startup.End()
	close(s.stopping)
	s.bus.Close()
	stop, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancelStop()
	if err := web.Shutdown(stop); err != nil {
		s.logger.Warn("stop cancels requests that still run", "after", drainTimeout)
		cancelCalls()
		last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancelLast()
		if web.Shutdown(last) != nil {
			web.Close()
		}
	}
	s.agents.Stop(stop)
	s.chat.Stop(stop)
	s.tasks.Close(stop)
	s.event(ctx, audit.ServerStopped)
	cancelCalls()
	err = parts.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// announce writes run/server.json, marks the server ready, and calls onReady.
func (s *Server) announce(onReady func(ReadyLine) error) error {
	line := s.Ready()
	data, err := marshalLine(line)
	if err != nil {
		return err
	}
	if err := hostfs.WriteFile(s.home.Path("run", "server.json"), data); err != nil {
		return err
	}
	s.startup.Begin()
	if onReady != nil {
		return onReady(line)
	}
	return nil
}

// event records a lifecycle event of the server and publishes it on the bus.
func (s *Server) event(ctx context.Context, ev audit.Event) {
	_, err := s.log.Append(context.WithoutCancel(ctx), audit.Record{
		Logger: "server", Event: ev,
		Metadata: audit.Metadata{Attrs: []audit.Attr{{Key: "version", Value: s.version}}},
	}, audit.Synced)
	if err != nil {
		s.logger.Error("audit record not written", "event", string(ev), "err", err)
	}
	s.publish(strings.ReplaceAll(string(ev), "_", "."), map[string]any{"version": s.version})
}

// close closes everything that New opened, in reverse order. It must be called once.
func (s *Server) close() {
	if s.listener != nil {
		s.listener.Close()
	}
	if s.extensions != nil {
		if err := s.extensions.Close(); err != nil {
			s.logger.Error("extensions not closed cleanly", "err", err)
		}
	}
	s.models.Close()
	if s.agents != nil {
		if err := s.agents.Close(); err != nil {
			s.logger.Error("task agents not closed cleanly", "err", err)
		}
	}
	if s.nodes != nil {
		if err := s.nodes.Close(); err != nil {
			s.logger.Error("nodes not closed cleanly", "err", err)
		}
	}
	if s.log != nil {
		if err := s.log.Close(); err != nil {
			s.logger.Error("audit log not closed cleanly", "err", err)
		}
	}
	if s.shared != nil && s.shared != s.db {
		if err := s.shared.Close(); err != nil {
			s.logger.Error("shared store not closed cleanly", "err", err)
		}
	}
	if s.db != nil {
		if err := s.db.Close(); err != nil {
			s.logger.Error("database not closed cleanly", "err", err)
		}
	}
	if s.roots != nil {
		s.roots.Close()
	}
	if s.walls != nil {
		s.walls.Close()
	}
	if s.secrets != nil {
		s.secrets.Close()
	}
	if err := s.home.Close(); err != nil {
		s.logger.Error("home not closed cleanly", "err", err)
	}
}
