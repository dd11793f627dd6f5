package server

import (
	"context"

	"github.com/junctor-run/junctor/internal/local"
	"github.com/junctor-run/junctor/internal/serve/mcpserve"
	"github.com/junctor-run/junctor/internal/serve/restserve"
	"github.com/junctor-run/junctor/internal/taskagents"
)

// openTaskAgents opens the task agents. It must run after policy, chat and tasks are open.
func (s *Server) openTaskAgents(ctx context.Context) (err error) {
	cfg := taskagents.Config{
		Agents: s.cfg.Agents, Foreign: s.cfg.Foreign, Reread: s.cfg.Reread, Home: s.home.Dir, Version: s.version, Gateway: s.gateway,
		DB: s.db, Shared: s.shared, Log: s.log, Secrets: s.secrets, Policy: s.policy, Approvals: s.policy, Catalog: s.catalog,
		Engine: s.engine, Tasks: s.tasks, Walls: s.cfg.Sandbox, Rooms: s.chat.Messages(),
		Standing: s.standing, Publish: s.publish, Address: s.Address, Door: s.door, Unrouted: restserve.Unrouted, Logger: s.logger,
	}
	if s.models.Large != nil {
		cfg.Model = s.models.Large
	}
	if s.agents, err = taskagents.New(ctx, cfg); err == nil {
		s.policy.Carry(s.agents)
		s.chat.UseOutlook(s.agents)
	}
	return err
}

// agentFunctions returns the functions of task agents for the catalog.
func (s *Server) agentFunctions() (list []local.Function) {
	for _, f := range s.agents.Functions() {
		list = append(list, local.Function(f))
	}
	return list
}

// agentTexts returns the resources of task agents for MCP clients.
func (s *Server) agentTexts() (list []mcpserve.Text) {
	for _, t := range s.agents.Texts() {
		list = append(list, mcpserve.Text(t))
	}
	return list
}
