// Package verbs offers the eleven verbs of task agents to agents that delegate work: by their
// names and aliases ([Service.Run]), and as capabilities of the catalog ([Functions]). Every
// call is checked against the access policy first.
//
// Two texts for the prompt of such an agent, the state of its task agents ([Context]) and
// examples ([Examples]), are pure functions of at most [MaxOutlook] bytes in which anything
// that looks like a credential is masked.
package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

// Launcher starts, creates and controls the work of threads. Package launch implements it.
type Launcher interface {
	Create(ctx context.Context, by capability.Principal, t launch.Task) (launch.Created, error)
	Control(ctx context.Context, by capability.Principal, c launch.Control) (launch.Controlled, error)
	// Track creates a task for a running session, which the coordinator then supervises, and
	// sends the task to it.
	Track(ctx context.Context, by capability.Principal, session, task, label string) (threadID string, err error)
}

// Registry is the part of threads.Registry that the verbs use.
type Registry interface {
	List(ctx context.Context, f threads.Filter) ([]threads.Summary, error)
	Count(ctx context.Context, f threads.Filter) (int, error)
	Find(ctx context.Context, search, agent string) (threads.Summary, error)
	Detail(ctx context.Context, thread string, s threads.Selection) (threads.Detail, error)
	Session(ctx context.Context, id string) (row.Session, error)
	Share(ctx context.Context, thread string, roots threads.ShareRoots) (threads.Shared, error)
	Pending(ctx context.Context) ([]row.PendingDecision, error)
	Lessons(ctx context.Context, agent string) ([]threads.Lesson, error)
}

// Agents starts agents' programs and gives access to running ones. Package agents implements
// it.
type Agents interface {
	Spawn(ctx context.Context, by capability.Principal, req agents.Request) (agents.Info, error)
	List() []agents.Info // the oldest first
	// Get returns a session that runs or ended recently. It fails with not_found, reason
	// session_not_found.
	Get(id string) (agents.Info, sessions.Live, error)
}

// Choice selects the program for a task.
type Choice interface {
	State(ctx context.Context, t choice.Task) choice.State
	// Fixed returns the program for all tasks, or "" if the best is selected for each.
	Fixed() programs.Name
}

// Model completes prompts with a language model.
type Model interface {
	Ask(ctx context.Context, small bool, prompt string) (string, error)
}

// Workspaces is the part of workspace.Manager that the verbs use.
type Workspaces interface {
	Provision(ctx context.Context, req workspace.Request) (workspace.Workspace, error)
	List() []workspace.Workspace // the newest first
	Resolve(labelOrID string) (workspace.Workspace, error)
	Finalize(ctx context.Context, id string, req workspace.FinalizeRequest) (workspace.Finalized, error)
	Issues(ctx context.Context, repo string) (forge.Issues, error)
}

// Config holds the dependencies of the verbs. Choice and Now are required. Verbs whose
// dependency is nil fail with SERVICE_UNAVAILABLE. Without Workspaces tasks have no repository,
// without Model no brief, and without Registry no lessons and no last repository.
type Config struct {
	Launcher   Launcher
	Agents     Agents
	Registry   Registry
	Choice     Choice
	Workspaces Workspaces
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

// verbs implements the verbs for one principal.
type verbs struct {
	cfg   Config // limited to what the principal may see
	talks *Talks
}

// of returns the verbs for a principal. One that is neither administrator nor operator sees
// only its own sessions and threads.
func (s *Service) of(by capability.Principal) *verbs {
	cfg := s.cfg
	if by.Role != capability.RoleAdmin && by.Role != capability.RoleOperator {
		cfg = own(cfg, by)
	}
	return &verbs{cfg, s.talks}
}

// table returns the verbs by name.
func (v *verbs) table() map[Name]Do {
	launcher, registry, live, repos := v.cfg.Launcher != nil, v.cfg.Registry != nil, v.cfg.Agents != nil, v.cfg.Workspaces != nil
	return map[Name]Do{
		CreateTask:         Needs(launcher, v.create),
		TaskControl:        Needs(launcher && registry, v.control),
		TaskHistory:        Needs(registry, v.history),
		TaskShare:          Needs(registry, v.share),
		SpawnAgent:         Needs(live, v.spawn),
		SendToAgent:        Needs(live, v.send),
		ListAgents:         Needs(live && registry, v.list),
		StopAgent:          Needs(live, v.stop),
		ProvisionWorkspace: Needs(repos, v.provision),
		FinalizeWorkspace:  Needs(repos, v.finalize),
		ManageIssues:       Needs(repos, v.issues),
	}
}

// pick returns the program for a task: the fixed one, otherwise wanted. "" leaves the choice to
// the launcher.
func (v *verbs) pick(wanted programs.Name) programs.Name { return cmp.Or(v.cfg.Choice.Fixed(), wanted) }

// session returns the session with the given id. If id is "", it returns the last session of
// the call's conversation if that is live, otherwise the newest live session; without one it
// fails with NO_SESSION.
func (v *verbs) session(c Call, id string) (sessions.Live, error) {
	if id == "" {
		live := slices.DeleteFunc(v.cfg.Agents.List(), func(i agents.Info) bool { return !i.Live() })
		if len(live) == 0 {
			return nil, NoSession.Errorf("no agent is running")
		}
		last := v.talks.Last(c).SessionID
		if id = live[len(live)-1].ID; slices.ContainsFunc(live, func(i agents.Info) bool { return i.ID == last }) {
			id = last
		}
	}
	_, s, err := v.cfg.Agents.Get(id)
	return s, err
}

// Context returns the current state of task agents as a text for the model of a principal.
func (s *Service) Context(ctx context.Context, by capability.Principal) (string, error) {
	now, err := s.of(by).snapshot(ctx)
	if err != nil {
		return "", err
	}
	return Context(now), nil
}

// Outlook is Context with the principal's own agents and tasks only, also for operators, who may see
// all. It is "" for a principal without agents, tasks and open decisions.
func (s *Service) Outlook(ctx context.Context, by capability.Principal) (string, error) {
	now, err := (&verbs{own(s.cfg, by), s.talks}).snapshot(ctx)
	if err != nil || len(now.Sessions)+len(now.Tasks)+len(now.Confirmations) == 0 {
		return "", err
	}
	return Context(now), nil
}

// Examples returns the example calls for a principal, with the currently preferred program.
func (s *Service) Examples(ctx context.Context, by capability.Principal) (string, error) {
	now, err := s.of(by).snapshot(ctx)
	return Examples(now.Preferred.ID), err
}

// Run runs a verb by any of its names. A failure is reported twice: by the result, whose
// Success is false and whose Error is the verb's own code, and by the error, which has one of
// the codes of [capability.Code] and the verb's code in its details ("error", "data").
func (s *Service) Run(ctx context.Context, c Call, name string, params json.RawMessage) (Result, error) {
	verb, spelled, ok := Lookup(name)
	if !ok {
		return Fail(capability.UnknownCapability(capability.Target{Action: capability.Action(text.Line(name, 100))}), nil)
	}
	c.Spelled = spelled
	if err := s.cfg.Policy.Check(Person{By: c.By, Role: c.UserRole, Connector: c.Connector}, verb.Ability); err != nil {
		return Fail(err, nil)
	}
	r, err := s.of(c.By).table()[verb.Name](ctx, c, params)
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
	Do      func(ctx context.Context, c capability.Call) (json.RawMessage, error)
	Preview func(ctx context.Context, c capability.Call) (capability.Preview, error)
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
		if s != nil {
			f.Preview = func(_ context.Context, c capability.Call) (capability.Preview, error) {
				return s.preview(Told(c), row.Name)
			}
		}
		out = append(out, f)
	}
	return out
}
