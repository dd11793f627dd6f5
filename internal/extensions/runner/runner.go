// Package runner publishes installed extensions as providers: one module for each, with an entry
// for each action and a tool for each action that agents may call. A call passes the extension's
// rate limit, the cache of results and the queue, and reaches the executor of its action's runner.
// The policy decision was made before, in package invoke.
package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/core/queue"
	"github.com/junctor-run/junctor/internal/core/session"
)

// Kind is the member kind of the entry that every action has. Its input is the typed
// words (see Words), its name <command>.<action>.
const Kind = "command"

// Extension is one installed extension.
type Extension struct {
	// Module is the package's module with the tools that agents may see, whose
	// contributions have the ids tool.<command>.<action>.
	Module capability.Module
	// Commands are those of the package, under the names it declares.
	Commands []command.Command
}

// Run is one execution of an action.
type Run struct {
	ID        string // of the invocation
	Extension string
	Digest    string // of the published package
	Route     *command.Route
	Owner     session.Owner // Session is empty outside a session
	Person    string        // whom the owner's principal works for, or the principal
	// Permissions are those of the action, which policy has allowed.
	Permissions []string
	Progress    func(capability.Chunk)
	// Agreed is the approved content: the Binds of its preview, or "".
	Agreed string
	// Shared reports whether a run for another principal could leave files in the same folder meanwhile.
	Shared func() bool
}

// Outcome is the result of a run.
type Outcome struct {
	Output   string
	Stored   string // stored as the last response instead of Output, unless ""
	Metadata map[string]any
	// Ran is the audit data of the run. It is used with an error too. The provider sets
	// its Command, Action, Runner and Args.
	Ran capability.Ran
	// Kept is true if the output becomes the session's last response.
	Kept bool
}

// Executor runs the actions of a family of runners.
type Executor interface {
	// Supports reports whether the executor implements a runner of the family.
	Supports(runner string) bool
	// Needs returns the permissions that an action requires. An action whose extension
	// does not declare them is refused before any other check.
	Needs(a *command.Action) []string
	// Execute runs the action. With an error, Outcome may still hold Ran.
	Execute(ctx context.Context, r Run) (Outcome, error)
}

// Previewer is an Executor that can add to the preview of a run, which holds the words
// and permissions when Preview is called.
type Previewer interface {
	Preview(ctx context.Context, r Run, p *capability.Preview) error
}

// Config of a Source. Executors, Queue, Limiter, Cache, Results, Running and Effect are required.
type Config struct {
	// Executors holds executors by runner ("analyze.response") or by prefix ("exec").
	Executors map[string]Executor
	Queue     *queue.Queue
	Limiter   *queue.Limiter
	Cache     *queue.Cache
	Results   *session.Results
	Running   *Running
	// QueueWait is the longest wait in the queue. It is added to an action's timeout.
	QueueWait time.Duration
	// Effect returns the highest effect among permissions.
	Effect func(permissions []string) capability.Effect
	Now    func() time.Time // nil: time.Now
	// Settings returns a digest of the settings that an extension's runs read. An approval is
	// bound to it. If nil, extensions have no settings.
	Settings func(ctx context.Context, extension string) (string, error)
	// Artifacts is called before a run of an extension; the returned function, called
	// after it, stores the new artifacts and returns them and the omitted ones. If nil,
	// no artifacts are collected.
	Artifacts func(extension string) Collect
}

// Collect stores the artifacts of a run.
type Collect func(ctx context.Context, r Run) (kept []Artifact, omitted []string, err error)

// Artifact describes a stored file that a run created.
type Artifact struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	MIME   string `json:"mime"`
}

// Source publishes the installed extensions to the catalog.
type Source struct {
	cfg  Config
	list func() []Extension
	news <-chan struct{}
}

// New returns a source of the extensions of list, which it calls again whenever it
// receives from news.
func New(cfg Config, list func() []Extension, news <-chan struct{}) *Source {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Source{cfg: cfg, list: list, news: news}
}

// Run publishes the extensions at once and after each change, when it also empties the
// cache of results. It returns the error of publish, or ctx's when ctx ends.
func (s *Source) Run(ctx context.Context, publish func(capability.Batch) error) error {
	for {
		if err := publish(s.batch()); err != nil {
			return err
		}
		select {
		case <-s.news:
			s.cfg.Cache.Clear()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Source) batch() capability.Batch {
	b := capability.Batch{Source: capability.OriginExtension}
	for _, x := range s.list() {
		p := &provider{
			cfg: s.cfg, key: capability.NewProviderKey("ext", capability.OriginExtension, x.Module.Extension), id: x.Module.Extension,
			digest: x.Module.Digest,
		}
		b.Modules = append(b.Modules, p.module(x))
		b.Providers = append(b.Providers, p)
	}
	return b
}

// provider is one extension as it was published.
type provider struct {
	cfg     Config
	key     capability.ProviderKey
	id      string
	digest  string
	router  *command.Router // of this extension only, so its names cannot conflict
	actions map[string]*action
	tools   map[string]*action // by the member name of a contribution
}

// action is an action with its executor.
type action struct {
	*command.Action
	command  *command.Command
	name     string // <command>.<action>
	executor Executor
	priority queue.Priority
}

// Key implements capability.Provider.
func (p *provider) Key() capability.ProviderKey { return p.key }

// Settle implements capability.Settler: a cancelled run may take that long to end.
func (p *provider) Settle() time.Duration { return settleTimeout }

// module returns the extension's module with an entry for every action, and with this
// provider set for the tools; it fills p.actions, p.tools and p.router. An action that
// cannot run is listed with the reason in its availability.
func (p *provider) module(x Extension) capability.Module {
	m := x.Module
	m.Origin = capability.OriginExtension
	m.Contributions = slices.Clone(m.Contributions)
	p.actions, p.tools = make(map[string]*action), make(map[string]*action)
	commands := slices.Clone(x.Commands)
	for i := range commands {
		c := &commands[i]
		c.Enabled, c.Extension = true, p.id
		for j := range c.Actions {
			a := &c.Actions[j]
			act := &action{Action: a, command: c, name: c.Name + "." + a.ID}
			p.actions[act.name] = act
			m.Contributions = append(m.Contributions, p.entry(act))
		}
	}
	p.router = command.New(command.Table{Commands: commands})
	for i := range m.Contributions {
		c := &m.Contributions[i]
		name, tool := strings.CutPrefix(c.ID, "tool.")
		if act := p.actions[name]; tool && act != nil {
			p.tools[c.Member.Name] = act
			c.Provider, c.Timeout, c.Availability, c.Confirm = p.key, p.time(act), p.availability(act), act.confirm()
			c.Approval = c.Approval || c.Confirm == "always"
		}
	}
	return m
}

// entry returns the contribution that the command line, chat and other commands call,
// and sets the executor and priority of a.
func (p *provider) entry(a *action) capability.Contribution {
	a.executor = p.executor(a.Runner)
	a.priority, _ = queue.ParsePriority(a.Priority) // the package's check accepts only valid priorities
	permissions := a.permissions()
	return capability.Contribution{
		ID: Kind + "." + a.name + ".run", Kind: "capability.rpc", Title: "/" + a.command.Name + " " + a.ID,
		Description: cmp.Or(a.Description, a.command.Summary),
		Member:      capability.Member{Module: p.id, Kind: Kind, Name: a.name},
		Provider:    p.key, Effect: p.effect(a, permissions), Permissions: permissions, InputSchema: json.RawMessage(wordsSchema),
		Approval: a.confirm() == "always", Confirm: a.confirm(), Timeout: p.time(a), Availability: p.availability(a),
	}
}

// effect returns the effect of the permissions, but at least external if the action
// starts a program.
func (p *provider) effect(a *action, permissions []string) capability.Effect {
	effect := p.cfg.Effect(permissions)
	if strings.HasPrefix(a.Runner, "exec.") && !effect.AtLeast(capability.EffectExternal) {
		return capability.EffectExternal
	}
	return effect
}

// permissions returns the action's own permissions, or else its command's.
func (a *action) permissions() []string {
	out := slices.Clone(a.Permissions)
	if len(out) == 0 {
		out = slices.Clone(a.command.Permissions)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// confirm returns when users have to confirm the action: "always" for db.exec, "" for
// "never", else as declared.
func (a *action) confirm() string {
	switch {
	case a.Runner == "db.exec":
		return "always"
	case a.Confirm == "never":
		return ""
	}
	return a.Confirm
}

// time returns the timeout of a call including the wait in the queue, or 0 if the action
// has no timeout.
func (p *provider) time(a *action) time.Duration {
	if a.Timeout <= 0 {
		return 0
	}
	return a.Timeout + p.cfg.QueueWait
}

// availability returns unconfigured, with the reason, if no executor supports the
// action's runner, else ready.
func (p *provider) availability(a *action) capability.Availability {
	why := ""
	if a.executor == nil {
		why = fault.UnsupportedRunner(a.Runner, families(p.cfg.Executors)).Message
	}
	if why != "" {
		return capability.Availability{State: capability.StateUnconfigured, Reason: why}
	}
	return capability.Availability{State: capability.StateReady}
}

// executor returns the executor of a runner: registered under its name or else under its
// longest prefix before a dot, and supporting it; nil if not found.
func (p *provider) executor(runner string) Executor {
	for key := runner; ; {
		if x := p.cfg.Executors[key]; x != nil && x.Supports(runner) {
			return x
		}
		i := strings.LastIndexByte(key, '.')
		if i < 0 {
			return nil
		}
		key = key[:i]
	}
}

func families(executors map[string]Executor) []string { return slices.Sorted(maps.Keys(executors)) }
