package server

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/engine"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/queue"
	"github.com/junctor-run/junctor/internal/core/runs"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/extensions"
	"github.com/junctor-run/junctor/internal/platform/llm"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/store/blob"
	"github.com/junctor-run/junctor/internal/store/sqlstore"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
	"github.com/junctor-run/junctor/secret"
)

// sweepEvery is how often what conversations left behind is thrown away.
const sweepEvery = 10 * time.Minute

// conversations are what chat is made of.
type conversations struct {
	runs     *runs.Register
	messages *session.Messages
	results  *session.Results
	blobs    *blob.Store
	chat     *engine.Engine
}

// openChat needs the engine and the extensions.
func (s *Server) openChat() {
	c := &conversations{
		runs: runs.New(s.engine, time.Now), results: s.extensions.Results(), blobs: s.extensions.Blobs(),
		messages: session.NewMessages(session.MessagesConfig{Store: sqlstore.New(s.shared)}),
	}
	cfg := engine.Config{
		Runs: c.runs, Messages: c.messages, Results: c.results, Log: s.log, Commands: s.extensions.Commands, Usage: s.extensions.Usage, Home: s.home.Dir,
		Subagents: verbs.Action,
	}
	if s.model != nil {
		cfg.Model = talker{s.model}
	}
	c.chat = engine.New(cfg)
	s.conversations = c
}

// sweep throws away what is too old, until ctx ends.
func (c *conversations) sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		_, err := c.results.Sweep(ctx)
		_, err2 := c.messages.Sweep(ctx)
		err = errors.Join(err, err2)
		if capability.CodeOf(err) == capability.CodeUnavailable {
			err = nil // the shared store is away; the next sweep finds the same
		}
		if err := errors.Join(err, c.blobs.Sweep(ctx)); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// openExtensions opens the runtime of what is installed, as it is configured.
func (s *Server) openExtensions(ctx context.Context) (err error) {
	tables, err := sqlstore.Migrations()
	if err == nil {
		err = s.shared.Migrate(ctx, sqlstore.Owner, tables)
	}
	if err != nil {
		return err
	}
	cfg := s.cfg
	s.extensions, err = extensions.Open(ctx, extensions.Config{
		Home: s.home.Path, DB: s.db, Sessions: s.shared, Log: s.log, Logger: s.logger, Secrets: s.secrets, Model: s.model, Version: s.version, Builtins: engine.Builtins(),
		Withholds: s.deployment.Withholds, Mode: string(s.deployment), NeedDigest: !s.loopback(), NoExternalBins: cfg.Extensions.NoExternalBins,
		MinTier: cfg.Sandbox.MinTier, ReadOnly: cfg.Sandbox.ReadOnly, Off: cfg.Sandbox.Off, Addresses: cfg.Sandbox.Addresses, Confirm: cfg.Sandbox.Confirm,
		Rates: queue.Rates{PerMinute: cfg.Extensions.CallsPerMinute, Burst: cfg.Extensions.Burst},
		Limits: queue.Limits{
			Global: max(2, 2*runtime.GOMAXPROCS(0)), PerUser: cfg.Extensions.PerUser, PerExtension: cfg.Extensions.MaxConcurrent, Length: cfg.Extensions.Queue,
		},
	})
	return err
}

// openModel is the configured language model, nil without one.
func openModel(cfg config.Config, secrets *secretstore.Store) (*llm.Client, error) {
	if cfg.Model.URL == "" {
		return nil, nil
	}
	c := llm.Config{Kind: llm.Kind(cfg.Model.Kind), BaseURL: cfg.Model.URL, Model: cfg.Model.Name, MaxTokens: cfg.Model.MaxTokens}
	if name := cfg.Model.KeySecret; name != "" {
		c.Key = func() (secret.Value, error) { return secrets.Get(name) }
	}
	client, err := llm.New(c)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "config", "model: "+capability.AsError(err).Message, err)
	}
	return client, nil
}

// talker lets chat ask a model.
type talker struct{ *llm.Client }

func (t talker) Answer(ctx context.Context, system string, turns []engine.Turn, emit func(string) error) (string, error) {
	req := llm.Request{System: system}
	for _, turn := range turns {
		role := llm.User
		if turn.Assistant {
			role = llm.Assistant
		}
		req.Turns = append(req.Turns, llm.Turn{Role: role, Parts: []string{turn.Text}})
	}
	reply, err := t.Ask(ctx, req, emit)
	return reply.Text, err
}

// preview says what a command would do, for a dry run.
func (s *Server) preview(ctx context.Context, who capability.Principal, id string, route *command.Route) (map[string]any, error) {
	input, err := engine.Input(route, false)
	if err != nil {
		return nil, err
	}
	_, p, err := s.engine.Preview(ctx, capability.Invocation{
		Surface: "slash", Principal: who, Session: id, Input: input, Audience: capability.AudienceInternal, Target: capability.Target{Member: engine.Member(route)},
	})
	if err != nil {
		return nil, err
	}
	out := map[string]any{"what": p.What}
	for key, value := range p.Details {
		out[key] = value
	}
	if p.Confirm != "" {
		out["confirm"], out["confirm_reason"] = p.Confirm, p.Why
	}
	return out, nil
}
