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

// Launcher creates and controls threads. Package launch implements it.
type Launcher interface {
	taskLauncher
	agentLauncher
}

// Registry is the part of threads.Registry that the verbs use.
type Registry interface {
	taskRegistry
	agentRegistry
}

// Config holds the dependencies of the verbs. Choice and Now are required. Verbs whose
// dependency is nil fail with SERVICE_UNAVAILABLE. Without Workspaces tasks have no repository,
// without Model no brief, and without History no lessons and no last repository.
type Config struct {
	Launcher   Launcher
	Agents     Agents
	Registry   Registry
	Choice     Choice
	Workspaces Workspaces
	History    History
	Model      Model
	Roots      threads.ShareRoots // folders whose files may be shared
	Policy     Policy
	Now        func() time.Time
}

// Service runs verbs. It is safe for concurrent use.
type Service struct {
	cfg   Config
	talks *Talks
}

// New returns the service.
func New(cfg Config) *Service { return &Service{cfg: cfg, talks: new(Talks)} }

// of returns the verbs for a principal. One that is neither administrator nor operator sees
// only its own sessions and threads.
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
// message is the user's current message, or "".
func (s *Service) Context(ctx context.Context, by capability.Principal, message string) (string, error) {
	agents, _ := s.of(by)
	now, err := agents.Snapshot(ctx, message)
	if err != nil {
		return "", err
	}
	return Context(now), nil
}

// Examples returns the example calls for a principal, with the currently preferred program.
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

// Action returns the action of a word: a verb's name, alias or action, or the part of an action
// after its domain, such as create or issues.
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

// Function is a verb as a capability of the catalog.
type Function struct {
	capability.Contribution
	Do func(ctx context.Context, c capability.Call) (json.RawMessage, error)
}

// Unavailable is the reason that is shown for the verbs if the server runs no task agents.
const Unavailable = "task agents do not run on this server"

// Functions returns the verbs as capabilities. Titles, descriptions and schemas come from the
// registry of canonical actions. If s is nil, the capabilities are listed as unavailable.
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
