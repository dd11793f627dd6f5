// Package verbs offers the eleven verbs of task agents (task-agents, section 7) to whoever
// delegates work: by their names and all their aliases ([Service.Run]), and as capabilities
// of the catalog ([Functions]; spec/README, R16). Every use is held against the access
// policy first.
package verbs

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/internal/task/outlook"
	"github.com/junctor-run/junctor/internal/task/verbs/access"
	"github.com/junctor-run/junctor/internal/task/verbs/agentverbs"
	"github.com/junctor-run/junctor/internal/task/verbs/repoverbs"
	"github.com/junctor-run/junctor/internal/task/verbs/verb"
	"github.com/junctor-run/junctor/secret"
)

// Config is the two families of verbs, which share one [verb.Talks], and who may use them.
type Config struct {
	Agents agentverbs.Config
	Repos  repoverbs.Config
	Policy access.Policy
}

// Service runs verbs. It is safe for concurrent use.
type Service struct {
	agents *agentverbs.Verbs
	table  map[verb.Name]agentverbs.Do
	policy access.Policy
}

// New makes the service.
func New(cfg Config) *Service {
	agents := agentverbs.New(cfg.Agents)
	table := agents.Table()
	maps.Copy(table, repoverbs.New(cfg.Repos).Table())
	return &Service{agents, table, cfg.Policy}
}

// Context and Examples are the texts of task-agents, section 7.13, as they are now. message
// is what the user says, "" where that is not known.
func (s *Service) Context(ctx context.Context, message string) (string, error) {
	now, err := s.agents.Snapshot(ctx, message)
	if err != nil {
		return "", err
	}
	return outlook.Context(now), nil
}

// Examples names the program that is preferred now.
func (s *Service) Examples(ctx context.Context) (string, error) {
	now, err := s.agents.Snapshot(ctx, "")
	if err != nil {
		return "", err
	}
	return outlook.Examples(now.Preferred.ID), nil
}

// Run uses a verb by any of its names. What was not done is told twice: by the result,
// whose Success is false and whose Error is the verb's own code, and by the error, which
// has the code of spec/README, section 4, and the verb's in its details ("error", "data").
func (s *Service) Run(ctx context.Context, c verb.Call, name string, params json.RawMessage) (verb.Result, error) {
	row, spelled, ok := verb.Lookup(name)
	if !ok {
		return verb.Fail(capability.UnknownCapability(capability.Target{Action: capability.Action(verb.Cut(name, 100))}), nil)
	}
	c.Spelled = spelled
	if err := s.policy.Check(access.Person{By: c.By, Role: c.UserRole, Connector: c.Connector}, row.Ability); err != nil {
		return verb.Fail(err, nil)
	}
	r, err := s.table[row.Name](ctx, c, params)
	r.Text = secret.MaskTokens(r.Text)
	return r, err
}

// Function is a capability of core's; it converts to core.Function.
type Function struct {
	capability.Contribution
	Do func(ctx context.Context, c capability.Call) (json.RawMessage, error)
}

// Unavailable is why the verbs cannot be used where the server runs no task agents.
const Unavailable = "task agents do not run on this server"

// Functions are the verbs as capabilities. Titles, descriptions and schemas are those of
// the registry of canonical actions. Without a service they are there and unavailable.
func Functions(s *Service) []Function {
	var out []Function
	for _, row := range verb.Table() {
		domain := "task-agent"
		if row.Name == verb.ProvisionWorkspace || row.Name == verb.FinalizeWorkspace || row.Name == verb.ManageIssues {
			domain = "workspace"
		}
		f := Function{Contribution: capability.Contribution{
			ID: string(row.Action), Kind: "capability.agent-tool", Action: row.Action, Effect: row.Effect, Timeout: row.Timeout, Aliases: row.Aliases,
			Provider: capability.NewProviderKey(domain, "core", "default"),
		}}
		if s == nil {
			f.Availability = capability.Availability{State: capability.StateUnconfigured, Reason: Unavailable}
		}
		f.Do = func(ctx context.Context, c capability.Call) (json.RawMessage, error) {
			if s == nil {
				return nil, verb.ServiceUnavailable.Errorf(Unavailable)
			}
			r, err := s.Run(ctx, Told(c), string(row.Name), c.Input)
			if err != nil {
				return nil, err
			}
			return jsonx.Marshal(r)
		}
		out = append(out, f)
	}
	return out
}
