// Package verbs offers the eleven verbs of task agents to agents that delegate work: by their
// names and aliases ([Service.Run]), and as capabilities of the catalog ([Functions]). Every
// call is checked against the access policy first.
//
// Two texts for the prompt of such an agent, the state of its task agents ([Context]) and
// examples ([Examples]), are pure functions of at most [MaxOutlook] bytes in which anything
// that looks like a credential is masked.
package verbs

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/secret"
)

// Launcher is package launch's.
type Launcher interface {
	taskLauncher
	agentLauncher
}

// Registry is threads.Registry.
type Registry interface {
	taskRegistry
	agentRegistry
}

// Config is what the verbs work with; Choice and Now are required. Verbs whose parts are
// not there answer SERVICE_UNAVAILABLE. Without Workspaces no task has a repository,
// without Model no brief is written, without History the lessons are missing and so is the last
// repository.
type Config struct {
	Launcher   Launcher
	Agents     Agents
	Registry   Registry
	Choice     Choice
	Workspaces Workspaces
	History    History
	Model      Model
	Roots      threads.ShareRoots // what may be shown
	Policy     Policy
	Now        func() time.Time
}

// Service runs verbs. It is safe for concurrent use.
type Service struct {
	cfg   Config
	talks *Talks
}

// New makes the service.
func New(cfg Config) *Service { return &Service{cfg: cfg, talks: new(Talks)} }

// of are the verbs as a principal may use them: an agent finds what it began
// itself, and nothing of others.
func (s *Service) of(by capability.Principal) (*agentVerbs, map[Name]Do) {
	cfg := s.cfg
	if by.Role != capability.RoleAdmin && by.Role != capability.RoleOperator {
		cfg = own(cfg, by)
	}
	tasks := newTaskVerbs(taskConfig{
		Launcher: cfg.Launcher, Registry: cfg.Registry, Choice: cfg.Choice, History: cfg.History, Model: cfg.Model, Repos: cfg.Workspaces != nil,
		Roots: cfg.Roots, Talks: s.talks, Now: cfg.Now,
	})
	agents := agentConfig{
		Agents: cfg.Agents, Registry: cfg.Registry, Launcher: cfg.Launcher, Tasks: tasks, State: cfg.Choice.State,
		Talks: s.talks,
	}
	repos := repoConfig{Workspaces: cfg.Workspaces, Talks: s.talks}
	if cfg.Workspaces != nil {
		agents.Workspaces = cfg.Workspaces.List
	}
	if cfg.History != nil {
		repos.LastRepo = cfg.History.LastRepo
	}
	live, table := newAgentVerbs(agents), tasks.Table()
	maps.Copy(table, live.Table())
	maps.Copy(table, newRepoVerbs(repos).Table())
	return live, table
}

// Context returns the current state of task agents as a text for the model of a principal.
// message is what the user says, or empty if that is not known.
func (s *Service) Context(ctx context.Context, by capability.Principal, message string) (string, error) {
	agents, _ := s.of(by)
	now, err := agents.Snapshot(ctx, message)
	if err != nil {
		return "", err
	}
	return Context(now), nil
}

// Examples names the program that is preferred now.
func (s *Service) Examples(ctx context.Context, by capability.Principal) (string, error) {
	agents, _ := s.of(by)
	now, err := agents.Snapshot(ctx, "")
	if err != nil {
		return "", err
	}
	return Examples(now.Preferred.ID), nil
}

// Run runs a verb by any of its names. A failure is reported twice: by the result, whose
// Success is false and whose Error is the verb's own code, and by the error, which has one of
// the codes of [capability.Code] and the verb's code in its details ("error", "data").
func (s *Service) Run(ctx context.Context, c Call, name string, params json.RawMessage) (Result, error) {
	row, spelled, ok := Lookup(name)
	if !ok {
		return Fail(capability.UnknownCapability(capability.Target{Action: capability.Action(text.Line(name, 100))}), nil)
	}
	c.Spelled = spelled
	if err := s.cfg.Policy.Check(Person{By: c.By, Role: c.UserRole, Connector: c.Connector}, row.Ability); err != nil {
		return Fail(err, nil)
	}
	_, table := s.of(c.By)
	r, err := table[row.Name](ctx, c, params)
	r.Text = secret.MaskTokens(r.Text)
	return r, err
}

// Action is the action that a word means: a name of a verb, its action, or a part of
// that after the domain, such as create or issues.
func Action(word string) (capability.Action, bool) {
	if row, _, ok := Lookup(word); ok {
		return row.Action, true
	}
	for _, row := range Table() {
		if slices.Contains(strings.Split(string(row.Action), ".")[1:], strings.ToLower(word)) && !strings.EqualFold(word, "task") {
			return row.Action, true
		}
	}
	return "", false
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
	for _, row := range Table() {
		domain := "task-agent"
		if row.Name == ProvisionWorkspace || row.Name == FinalizeWorkspace || row.Name == ManageIssues {
			domain = "workspace"
		}
		f := Function{Contribution: capability.Contribution{
			ID: string(row.Action), Kind: "capability.agent-tool", Action: row.Action, Effect: row.Effect, Timeout: row.Timeout,
			Aliases:  row.Aliases,
			Provider: capability.NewProviderKey(domain, "core", "default"),
		}}
		if s == nil {
			f.Availability = capability.Availability{State: capability.StateUnconfigured, Reason: Unavailable}
		}
		f.Do = func(ctx context.Context, c capability.Call) (json.RawMessage, error) {
			if s == nil {
				return nil, ServiceUnavailable.Errorf(Unavailable)
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
