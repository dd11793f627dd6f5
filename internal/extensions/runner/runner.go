// Package runner makes installed extensions providers: a module for each, with
// an entry for each action that code may call and, where agents may, a tool
// besides. A call passes the extension's own limits, the cache of its results
// and the queue, and ends in the executor of its action's runner. Whether it may
// happen at all was decided before: there is one path.
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

// Kind is the member kind of the entry that every action has: its input is the
// words that a user typed (see Words), its name <command>.<action>.
const Kind = "command"

// Extension is one installed extension.
type Extension struct {
	// Module is what intake made of the package: its commands, and the tools that
	// agents may see, named tool.<command>.<action>.
	Module capability.Module
	// Commands are those of the package, under the names it declares.
	Commands []command.Command
}

// Run is one execution of an action.
type Run struct {
	ID        string // of the invocation
	Extension string
	Digest    string // of the package that was agreed to
	Route     *command.Route
	Owner     session.Owner // Session is empty outside a session
	// Permissions are those of the action, which policy has let pass.
	Permissions []string
	Progress    func(capability.Chunk)
	// Agreed is the approved content: the Binds of its preview, or "".
	Agreed string
}

// Outcome is what came of a run that succeeded.
type Outcome struct {
	Output   string
	Stored   string // what becomes the last response; "": Output
	Metadata map[string]any
	// Ran is for the record, and may come with an error too; what is known of
	// command and action is filled in.
	Ran capability.Ran
	// Kept reports that the output is the session's last response from now on.
	Kept bool
}

// Executor carries out the actions of a family of runners.
type Executor interface {
	// Supports reports whether a runner of the family is one of the executor's.
	Supports(runner string) bool
	// Needs returns the permissions that an action requires. An action whose extension
	// does not declare them is refused before any other check.
	Needs(a *command.Action) []string
	// Execute runs the action. An error means that it did not succeed.
	Execute(ctx context.Context, r Run) (Outcome, error)
}

// Previewer is an Executor that can tell more of a run than its words: p comes
// with those and with the permissions, and is the executor's to complete.
type Previewer interface {
	Preview(ctx context.Context, r Run, p *capability.Preview) error
}

// Config of a Source. Executors, Queue, Limiter, Cache, Results, Running and
// Effect are required.
type Config struct {
	// Executors by runner ("analyze.response") or by the root of a family ("exec").
	Executors map[string]Executor
	Queue     *queue.Queue
	Limiter   *queue.Limiter
	Cache     *queue.Cache
	Results   *session.Results
	Running   *Running
	// QueueWait is the longest wait of the queue, which a call's time allows for.
	QueueWait time.Duration
	// Effect is the highest effect among permissions.
	Effect func(permissions []string) capability.Effect
	Now    func() time.Time // nil: time.Now
	// Artifacts begins to watch what a run of an extension makes for others; what
	// it returns keeps that, and states what was left out. nil: no caller watches.
	Artifacts func(extension string) func(ctx context.Context, r Run) (kept []Artifact, omitted []string, err error)
}

// Artifact is a file that a run made for others.
type Artifact struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	MIME   string `json:"mime"`
}

// Source publishes the installed extensions.
type Source struct {
	cfg  Config
	list func() []Extension
	news <-chan struct{}
}

// New returns the source of list, which is read again whenever news has something.
func New(cfg Config, list func() []Extension, news <-chan struct{}) *Source {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Source{cfg: cfg, list: list, news: news}
}

// Run publishes the extensions, at once and after each change, until ctx ends.
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

// provider is one extension as it was when it was published.
type provider struct {
	cfg     Config
	key     capability.ProviderKey
	id      string
	digest  string
	router  *command.Router // of this extension alone: its names are free here
	actions map[string]*action
	tools   map[string]*action // by the name of a contribution
}

// action is where the calls of an action go.
type action struct {
	*command.Action
	command  *command.Command
	name     string // <command>.<action>
	executor Executor
	priority queue.Priority
}

// Key implements capability.Provider.
func (p *provider) Key() capability.ProviderKey { return p.key }

// settleTimeout is what the end of a program may take: the grace that it is given, the
// end of its tree, and a bit.
const settleTimeout = 5 * time.Second

// Settle implements capability.Settler: when a run is over, nothing of it runs.
func (p *provider) Settle() time.Duration { return settleTimeout }

// module adds the entries of all actions to what intake declared, and gives the
// tools their way here. What cannot run states why instead of being hidden.
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

// entry is what code calls: the command line, chat and other commands.
func (p *provider) entry(a *action) capability.Contribution {
	a.executor = p.executor(a.Runner)
	a.priority, _ = queue.ParsePriority(a.Priority) // intake holds the words to the four
	permissions := a.permissions()
	return capability.Contribution{
		ID: Kind + "." + a.name + ".run", Kind: "capability.rpc", Title: "/" + a.command.Name + " " + a.ID,
		Description: cmp.Or(a.Description, a.command.Summary),
		Member:      capability.Member{Module: p.id, Kind: Kind, Name: a.name},
		Provider:    p.key, Effect: p.effect(a, permissions), Permissions: permissions, InputSchema: json.RawMessage(wordsSchema),
		Approval: a.confirm() == "always", Confirm: a.confirm(), Timeout: p.time(a), Availability: p.availability(a),
	}
}

// effect is that of the permissions, and what starts a program is at least external.
func (p *provider) effect(a *action, permissions []string) capability.Effect {
	effect := p.cfg.Effect(permissions)
	if strings.HasPrefix(a.Runner, "exec.") && !effect.AtLeast(capability.EffectExternal) {
		return capability.EffectExternal
	}
	return effect
}

// permissions are the action's own, or else its command's.
func (a *action) permissions() []string {
	out := slices.Clone(a.Permissions)
	if len(out) == 0 {
		out = slices.Clone(a.command.Permissions)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// confirm is what people are asked too; "never" is the absence of a question. What
// changes a database always asks.
func (a *action) confirm() string {
	switch {
	case a.Runner == "db.exec":
		return "always"
	case a.Confirm == "never":
		return ""
	}
	return a.Confirm
}

// time is how long a call may take, the queue included.
func (p *provider) time(a *action) time.Duration {
	if a.Timeout <= 0 {
		return 0
	}
	return a.Timeout + p.cfg.QueueWait
}

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

// executor finds who runs a runner: the exact name, else the longest registered
// prefix before a dot; never another one.
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
