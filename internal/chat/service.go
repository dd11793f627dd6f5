// Package chat assembles the conversations of the server, in which people type commands or
// messages and package engine answers. Service holds the engine, the stored messages and
// the HTTP API.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/chat/agent/agentsql"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/chat/chatserve"
	"github.com/junctor-run/junctor/internal/chat/engine"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/llm"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/blob"
	"github.com/junctor-run/junctor/internal/store/sqlstore"
	"github.com/junctor-run/junctor/protocol/modelwire"
	"github.com/junctor-run/junctor/secret"
)

// Commands provides the commands that people can type. The runtime of extensions implements
// it.
type Commands interface {
	Commands() *command.Router
	// Refresh rebuilds the list of commands.
	Refresh()
	// Usage returns the usage document of an extension.
	Usage(extension string) (string, error)
}

// Config configures a Service; all fields but Models and Within are required.
type Config struct {
	Home    string    // shown as ~ in error texts
	Store   *store.DB // holds the tables of sessions
	Results *session.Results
	Blobs   *blob.Store
	Models  llm.Classes // may be empty
	// Agent, Path, Policy, Tasks, Bus, Gateway and Begun are of the agent, which works only with a
	// model.
	Agent    config.Agent
	Within   func(extension string) bool // nil: the agent sees every module
	Policy   agent.Policy
	Tasks    Tasks
	Bus      *bus.Bus
	Publish  func(event string, data any)
	Gateway  string
	Begun    <-chan struct{} // closed once the server is ready
	Logger   *slog.Logger
	Commands Commands
	// Subagents returns the action of a word after /subagents.
	Subagents func(word string) (capability.Action, bool)
	Engine    *invoke.Engine
	Log       *audit.Log
	Door      *httpapi.Door
	Channels  Channels
}

// Tasks holds the tasks of runs; [tasks.Manager] implements it.
type Tasks interface {
	agent.Tasks
	Carry(k tasks.Kind, c tasks.Carrier)
	List(ctx context.Context, q tasks.Query) (tasks.Page, error)
}

// Service is the chat of one server.
type Service struct {
	cfg      Config
	runs     *tasks.Runs
	messages *session.Messages
	surface  *chatserve.Surface
	agent    *agent.Engine // nil: it is off
	chat     *engine.Engine
	channels *channels.Hub
	outlook  Outlook // may be nil
}

// Outlook describes the work of a person's task agents; "" if they do nothing.
type Outlook interface {
	Outlook(ctx context.Context, person capability.Principal) (string, error)
}

// UseOutlook sets the source of what task agents do. It must be called before Run.
func (s *Service) UseOutlook(o Outlook) { s.outlook = o }

// Channels holds what only accounts of chat services need; all fields are required.
type Channels struct {
	Policy  channels.Policy
	Verify  channels.Verifier
	Secrets func(name string) (secret.Value, error)
	Catalog *catalog.Catalog
}

// New creates a Service. It starts nothing; see Run.
func New(ctx context.Context, cfg Config) (*Service, error) {
	s := &Service{
		cfg: cfg, runs: tasks.NewRuns(cfg.Engine, time.Now),
		messages: session.NewMessages(session.MessagesConfig{Store: sqlstore.New(cfg.Store)}),
	}
	c := engine.Config{
		Runs: s.runs, Messages: s.messages, Results: cfg.Results, Log: cfg.Log, Commands: cfg.Commands.Commands, Usage: cfg.Commands.Usage,
		Home:      cfg.Home,
		Subagents: cfg.Subagents,
	}
	if cfg.Models.Large != nil {
		c.Model = talker{cfg.Models.Large}
	}
	journal, err := agentsql.Open(ctx, cfg.Store)
	if err != nil {
		return nil, err
	}
	if cfg.Models.Large != nil && cfg.Agent.Tools != config.AgentToolsOff {
		if err := s.openAgent(ctx, journal); err != nil {
			return nil, err
		}
		c.Agent = s.agent
		if file := cfg.Agent.Character; file != "" {
			if c.Persona, err = agent.ReadCharacter(file); err != nil {
				return nil, err
			}
		}
	}
	s.chat = engine.New(c)
	if err := s.openChannels(ctx); err != nil {
		return nil, err
	}
	surface := chatserve.Config{
		Door: cfg.Door, Chat: s.chat, Runs: s.runs, Commands: cfg.Commands.Commands, Refresh: cfg.Commands.Refresh, Preview: s.preview,
		Blobs: cfg.Blobs, Channels: s.channels,
	}
	if s.agent != nil {
		surface.Agent = s.agent
	}
	s.surface = chatserve.New(surface)
	return s, nil
}

// openAgent opens the agent. It does not work before Run.
func (s *Service) openAgent(ctx context.Context, journal *agentsql.Store) error {
	var leases agent.Leases
	if s.cfg.Store.Shared() {
		leases = journal
	}
	budget := s.cfg.Agent.Budget
	s.agent = agent.New(agent.Config{
		Model: s.cfg.Models.Large, Small: s.cfg.Models.Small, Path: s.cfg.Engine, Policy: s.cfg.Policy, Tasks: s.cfg.Tasks, Journal: journal,
		Leases:  leases,
		Deliver: s.deliver,
		Memory:  s.cfg.Agent.Memory == config.On, Evaluators: s.cfg.Agent.Evaluators == config.On,
		Outlook: func(ctx context.Context, person capability.Principal) (string, error) {
			if s.outlook == nil {
				return "", nil
			}
			return s.outlook.Outlook(ctx, person)
		},
		Budget: agent.Budget{
			ModelCalls: budget.ModelCalls, ToolCalls: budget.ToolCalls, Work: budget.Work, Tokens: budget.Tokens, Cost: thousandths(budget.Cost),
			Day: agent.Used{
				ModelCalls: budget.Day.ModelCalls, ToolCalls: budget.Day.ToolCalls, Tokens: budget.Day.Tokens, Cost: thousandths(budget.Day.Cost),
			},
		},
		ReadOnly: s.cfg.Agent.Tools == config.AgentToolsReads, Within: s.cfg.Within, Gateway: s.cfg.Gateway, Logger: s.cfg.Logger,
		Publish: func(r agent.Run) {
			s.cfg.Publish("agent.run", map[string]any{"run": r.ID, "session": r.Session, "state": r.State})
			s.waits(r)
		},
	})
	s.cfg.Tasks.Carry(tasks.KindTurn, s.agent)
	return s.agent.Open(ctx)
}

// Noted makes the agent read what other gateways ask of this one. It never blocks.
func (s *Service) Noted() {
	if s.agent != nil {
		s.agent.Noted()
	}
}

// thousandths returns a configured cost in the unit of [modelwire.Usage].
func thousandths(n int) int64 { return int64(n) * 1_000_000 }

// runAgent continues the runs of an earlier process once the server is ready, and wakes runs whose
// approvals are decided, until ctx ends.
func (s *Service) runAgent(ctx context.Context) {
	select {
	case <-s.cfg.Begun:
	case <-ctx.Done():
		return
	}
	after := s.cfg.Bus.Latest()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { s.agent.Run(ctx) })
	for ev, err := range s.cfg.Bus.Subscribe(ctx, after) {
		if err != nil {
			return // the server stops
		}
		var about struct{ Approval string }
		switch ev.Type {
		case policy.EventApprovalDecided, policy.EventApprovalExpired:
			if json.Unmarshal(ev.Data, &about) == nil && about.Approval != "" {
				s.agent.Decided(about.Approval)
				continue
			}
			fallthrough // several ended at once
		case bus.Resync:
			s.agent.Sweep(ctx)
		}
	}
}

// Run removes expired sessions, results and artifacts every sweepInterval until ctx ends.
// It returns early with an error of a removal, unless the store is unavailable.
func (s *Service) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	if s.agent != nil {
		work.Go(func() { s.runAgent(ctx) })
	}
	work.Go(func() {
		select {
		case <-s.cfg.Begun:
			s.channels.Run(ctx)
		case <-ctx.Done():
		}
	})
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		_, err := s.cfg.Results.Sweep(ctx)
		_, err2 := s.messages.Sweep(ctx)
		err = errors.Join(err, err2)
		if capability.CodeOf(err) == capability.CodeUnavailable {
			err = nil // the shared store cannot be reached; the next sweep tries again
		}
		if err := errors.Join(err, s.cfg.Blobs.Sweep(ctx)); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// Stop rejects new runs, waits for the detached ones until ctx ends, and cancels the rest.
func (s *Service) Stop(ctx context.Context) {
	if s.agent != nil {
		s.agent.Close() // the next process continues its runs
	}
	s.runs.Close(ctx)
}

// Close does nothing: the service owns no resources.
func (s *Service) Close() error { return nil }

// Routes registers the HTTP API of conversations in mux.
func (s *Service) Routes(mux *http.ServeMux) { s.surface.Routes(mux) }

// Checks reports accounts of chat services that do not work. The model and the store have checks of
// their own.
func (s *Service) Checks(ctx context.Context) []httpapi.Check { return s.checkChannels(ctx) }

// Messages returns the store of the messages.
func (s *Service) Messages() *session.Messages { return s.messages }

// talker implements engine.Model with an llm.Model.
type talker struct{ *llm.Model }

// Answer implements engine.Model.
func (t talker) Answer(ctx context.Context, system string, turns []agent.Turn, emit func(string) error) (string, error) {
	req := llm.Request{System: system}
	for _, turn := range turns {
		role := modelwire.User
		if turn.Assistant {
			role = modelwire.Assistant
		}
		req.Turns = append(req.Turns, llm.Turn{Role: role, Parts: []string{turn.Text}})
	}
	reply, err := t.Ask(ctx, req, emit)
	return reply.Text, err
}

// preview returns what a command would do, for a dry run. It runs nothing.
func (s *Service) preview(ctx context.Context, who capability.Principal, id string, route *command.Route) (capability.Preview, error) {
	input, err := engine.Input(route, false)
	if err != nil {
		return capability.Preview{}, err
	}
	_, p, err := s.cfg.Engine.Preview(ctx, capability.Invocation{
		Surface: "slash", Principal: who, Session: id, Input: input, Audience: capability.AudienceInternal,
		Target: capability.Target{Member: engine.Member(route)},
	})
	return p, err
}
