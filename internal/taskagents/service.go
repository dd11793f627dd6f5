// Package taskagents runs coding agents for users and programs: their sessions, threads of
// tasks with a coordinator, workspaces, skills and the HTTP API over all of it. [Service]
// connects the sub-packages; the server opens one Service and imports only this package.
package taskagents

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/agentserve"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
	"github.com/junctor-run/junctor/secret"
)

// Policy issues and revokes the tokens of sessions.
type Policy interface {
	CreateToken(ctx context.Context, by capability.Principal, req policy.TokenRequest) (policy.Token, secret.Value, error)
	RevokeToken(ctx context.Context, by capability.Principal, idOrName string) (policy.Token, error)
}

// Approvals stores what programs wait for, and how it was answered.
type Approvals interface {
	OpenBlocker(ctx context.Context, a policy.Approval) error
	SettleBlocker(ctx context.Context, by capability.Principal, module, id string, d policy.Decision) error
	EndBlockers(ctx context.Context, module string) error
}

// Catalog returns the current catalog.
type Catalog interface{ Snapshot() *catalog.Snapshot }

// Engine lists, plans and runs the capabilities that a principal may use.
type Engine interface {
	List(who capability.Principal, audience capability.Audience) []*catalog.Entry
	Plan(ctx context.Context, inv capability.Invocation) invoke.Plan
	Invoke(ctx context.Context, inv capability.Invocation) (invoke.Reply, error)
}

// Tasks holds the task of each thread.
type Tasks interface {
	// Carry sets the handler that answers and stops the tasks of threads.
	Carry(k tasks.Kind, c tasks.Carrier)
	Get(ctx context.Context, owner, id string) (tasks.Task, error)
	OpenThread(ctx context.Context, owner, surface, thread, status string) (tasks.Task, error)
	OpenThreads() []tasks.Task
	Move(ctx context.Context, id string, to tasks.Movement) (moved bool, err error)
}

// Model completes prompts; tokens is the number that the completion used.
type Model interface {
	Complete(ctx context.Context, system string, parts ...string) (text string, tokens int, err error)
}

// Secrets stores credentials by name.
type Secrets interface {
	Get(name string) (secret.Value, error)
	Set(name string, value secret.Value) error
}

// Log is the audit log.
type Log interface {
	Append(ctx context.Context, r audit.Record, d audit.Durability) (audit.Receipt, error)
}

// Config holds the dependencies of a Service. All fields are required, except those whose
// comment describes nil.
type Config struct {
	Agents  config.Agents
	Foreign config.Foreign
	// Reread returns the configuration with the current content of the foreign file.
	Reread  func() (config.Config, error)
	Home    string // the home's folder
	Version string
	Gateway string // the name among the gateways that share Shared

	DB      choice.Database // database of this machine
	Shared  store.Database  // database that several gateways share, or DB
	Log     Log
	Secrets Secrets
	Policy  Policy
	// Approvals stores the blockers of programs as approvals.
	Approvals Approvals
	Catalog   Catalog
	Engine    Engine
	Tasks     Tasks
	Model     Model // nil if no model is configured
	Walls     config.Sandbox
	Rooms     Rooms // the conversations of this server's own chat

	// Standing returns a principal with the rights that its token gives it now.
	Standing func(id string) (capability.Principal, error)
	Publish  func(event string, data any) // sends to the live feed without blocking
	Address  func() string                // URL of the server
	Door     *httpapi.Door
	// Unrouted answers requests that no route of mux matches.
	Unrouted func(mux *http.ServeMux, w http.ResponseWriter, r *http.Request)
	Logger   *slog.Logger
}

// Service is the task agents of one server.
type Service struct {
	cfg     Config
	logger  *slog.Logger
	workers *taskAgents
	folders *workspaces
}

// New opens the service and removes what an earlier process left behind. On failure it closes
// what it has opened.
func New(ctx context.Context, cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, logger: cfg.Logger}
	if err := s.open(ctx); err != nil {
		s.workers.close(ctx)
		_ = s.folders.close() // err has the cause
		return nil, err
	}
	return s, nil
}

// path joins names below the home.
func (s *Service) path(names ...string) string {
	return filepath.Join(append([]string{s.cfg.Home}, names...)...)
}

// Run supervises sessions, threads and workspaces until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return s.folders.run(ctx, s.workers.Agents) })
	parts.Go(func() error { return s.workers.run(ctx, s.cfg.Agents.IdleTimeout) })
	parts.Go(func() error { return s.workers.blockers.run(ctx) })
	parts.Go(func() error { return s.workers.threads.run(ctx, s.cfg.Agents.AutoResume, s.cfg.Standing) })
	return parts.Wait()
}

// Stop ends every session. ctx limits the time that their programs have to exit.
func (s *Service) Stop(ctx context.Context) { s.workers.close(ctx) }

// Close releases the folders. It is called once, after Run has returned.
func (s *Service) Close() error { return s.folders.close() }

// Routes adds the HTTP API of task agents to mux.
func (s *Service) Routes(mux *http.ServeMux) {
	c := s.workers.threads
	agentserve.New(agentserve.Config{
		Door: s.cfg.Door, Agents: s.workers, Accounts: s.workers, Console: s.workers.sessions,
		Workspaces: s.folders.Manager, NoWorkspaces: s.folders.missing, Scratch: s.folders.scratch,
		Threads: c.registry, Launcher: c.launcher, Supervisor: c.coordinator, Choice: s.workers.chooser, Feed: c.feed, Roots: s.agentRoots(),
		Taken: s.workers.records.taken, Unrouted: s.cfg.Unrouted,
	}).Routes(mux)
}

// Functions returns the verbs of task agents as capabilities.
func (s *Service) Functions() []verbs.Function {
	list := verbs.Functions(s.workers.verbs)
	for i := range list {
		do := list[i].Do
		list[i].Do = func(ctx context.Context, c capability.Call) (json.RawMessage, error) {
			c.Principal.ID = c.Principal.Owner() // tasks that the chat's agent creates belong to its person
			return do(ctx, c)
		}
	}
	return list
}
