// Package functions holds the functions that can be called on a node and executes them. Each
// has a handler and is owned by the node itself, its host, or an installed skill. Functions
// can change while calls run; a call keeps the handler it began with. The package does not
// communicate with a gateway: a [Refresher] reports when the gateway needs an update.
package functions

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	wire "github.com/junctor-run/junctor/protocol/cmp"
)

// Owners that are not skills.
const (
	OwnerNode = "node" // registered by the node's own program
	OwnerHost = "host" // registered by the host for itself: a reserved name
)

// OwnedBy returns the owner name of a skill.
func OwnedBy(skill string) string { return "skill:" + skill }

// OrphanOf returns the owner name for functions that an uninstalled skill left callable.
func OrphanOf(skill string) string { return "orphan:" + skill }

// DefaultVersion is the version of a registered function that names none.
const DefaultVersion = "1.0.0"

// Call is one call to a handler.
type Call struct {
	ID     string
	Caller string // the calling principal, for people and records
	Args   wire.Arguments
	// Emit sends one chunk of a stream and waits while the reader is not ready. Its error ends
	// the call. It is never nil, and must not be used after the handler has returned.
	Emit func(ctx context.Context, chunk json.RawMessage) error
}

// Handler executes calls. It must honour ctx and be safe for concurrent use. The handler of a
// streaming function emits chunks and returns nil.
type Handler func(ctx context.Context, c Call) (json.RawMessage, error)

// Function is a registered function. Zero values mean the defaults.
type Function struct {
	Name          string
	Description   string
	Version       string
	Tags          []string
	Timeout       time.Duration // 0: the node's
	Priority      int           // 1 to 10, higher first; 0: 5
	Mode          string        // informational; "": normal
	MaxConcurrent int           // 0: the node's limit only
	Stream        bool          // it emits chunks
	Effect        string        // "": execute
	Owner         string        // "": node
	Alias         string
	MediaType     string
	InputSchema   json.RawMessage
	OutputSchema  json.RawMessage
	Digest        string // of the code that runs, in hex, for records; "" if unknown
	Handle        Handler
}

// Registered is a function in the table. It is immutable: replacing a function creates a new one.
type Registered struct {
	Function
	stats *stats
}

type stats struct {
	mu     sync.Mutex
	active int
	of     wire.Stats // without LastExecuted
	last   time.Time
}

// Began counts a started call; the returned function counts its outcome.
func (r *Registered) Began(now time.Time) (ended func(took time.Duration, failed bool)) {
	r.stats.mu.Lock()
	defer r.stats.mu.Unlock()
	r.stats.active++
	return func(took time.Duration, failed bool) {
		s := r.stats
		s.mu.Lock()
		defer s.mu.Unlock()
		s.active--
		s.of.Total++
		if failed {
			s.of.Failed++
		} else {
			s.of.Successful++
		}
		s.of.AverageTime += (took.Seconds() - s.of.AverageTime) / float64(min(s.of.Total, 100))
		s.last = now // its text only who asks for it needs
	}
}

// Entry returns a copy of the function for lists.
func (r *Registered) Entry(withStats bool) wire.Function {
	f := r.Function
	e := wire.Function{
		Name: f.Name, Tags: slices.Clone(f.Tags), Description: f.Description, Version: f.Version, Priority: f.Priority, ExecutionMode: f.Mode,
		IsGenerator: f.Stream, Stream: f.Stream, InputSchema: slices.Clone(f.InputSchema), OutputSchema: slices.Clone(f.OutputSchema),
		Effect: f.Effect,
		Owner:  f.Owner, Alias: f.Alias, MediaType: f.MediaType, MaxConcurrent: f.MaxConcurrent,
	}
	if f.Timeout > 0 {
		seconds := f.Timeout.Seconds()
		e.TimeoutSeconds = &seconds
	}
	r.stats.mu.Lock()
	defer r.stats.mu.Unlock()
	e.Active = r.stats.active
	if withStats {
		s := r.stats.of
		if !r.stats.last.IsZero() {
			s.LastExecuted = wire.Time(r.stats.last)
		}
		e.Stats = &s
	}
	return e
}

// Registry is the table of functions. Create it with New; it is safe for concurrent use,
// also by handlers.
type Registry struct {
	max int

	mu       sync.RWMutex
	table    map[string]*Registered
	revision uint64
	changed  func() // told of each change, without the lock
}

// New returns an empty table with a maximum number of functions; 0 means DefaultMax.
func New(limit int) *Registry {
	return &Registry{max: cmp.Or(limit, DefaultMax), table: make(map[string]*Registered)}
}

// Register adds a function. A name that is taken is a conflict, unless replace is
// true: then the statistics of the old one are dropped.
func (r *Registry) Register(f Function, replace bool) error {
	for {
		owners, revision := r.Owners()
		if _, taken := owners[f.Name]; taken && !replace {
			return capability.Errorf(capability.CodeConflict, "register", "a function with the name %.200q is already registered", f.Name).
				With("already_registered", "choose another name, or replace it")
		}
		done, err := r.Apply(Change{Put: []Function{f}}, revision)
		if done || err != nil {
			return err
		}
	}
}

// Unregister removes a function and reports whether it existed. Running calls continue. An
// empty name is invalid_params.
func (r *Registry) Unregister(name string) (bool, error) {
	name = strings.TrimSpace(name)
	if name == "" {
		return false, wire.Errorf(wire.ReasonParams, "the name of a function is needed")
	}
	for {
		owners, revision := r.Owners()
		if _, there := owners[name]; !there {
			return false, nil
		}
		if done, err := r.Apply(Change{Remove: []string{name}}, revision); done || err != nil {
			return err == nil, err
		}
	}
}

// Change is a set of changes that is applied as a whole: first removals, then additions and
// replacements, then changes of owner.
type Change struct {
	Remove []string
	Put    []Function
	Own    map[string]string // name → owner
}

// Empty reports whether nothing would change.
func (c Change) Empty() bool { return len(c.Remove) == 0 && len(c.Put) == 0 && len(c.Own) == 0 }

// Apply applies a change to the table if it still has the given revision; otherwise done is
// false, and the caller must read the table again. On an error (a wrong declaration, or too
// many functions) nothing has changed.
func (r *Registry) Apply(c Change, revision uint64) (done bool, err error) {
	put := make([]*Registered, 0, len(c.Put))
	for _, f := range c.Put {
		if err := f.complete(); err != nil {
			return false, err
		}
		put = append(put, &Registered{Function: f, stats: new(stats)})
	}
	if c.Empty() {
		return true, nil
	}
	r.mu.Lock()
	if r.revision != revision {
		r.mu.Unlock()
		return false, nil
	}
	next := maps.Clone(r.table)
	for _, name := range c.Remove {
		delete(next, name)
	}
	for _, f := range put {
		next[f.Name] = f
	}
	for name, owner := range c.Own {
		if f, there := next[name]; there {
			other := *f
			other.Owner = owner
			next[name] = &other
		}
	}
	if len(next) > r.max {
		r.mu.Unlock()
		return false, wire.Errorf(wire.ReasonTooLarge, "a node has at most %d functions", r.max)
	}
	r.table = next
	r.revision++
	changed := r.changed
	r.mu.Unlock()
	if changed != nil {
		changed()
	}
	return true, nil
}

func (f *Function) complete() error {
	f.Name = strings.TrimSpace(f.Name)
	if err := wire.CheckFunction(f.Name); err != nil {
		return err
	}
	f.Version, f.Priority, f.Mode = cmp.Or(f.Version, DefaultVersion), cmp.Or(f.Priority, DefaultPriority), cmp.Or(f.Mode, "normal")
	f.Effect, f.Owner, f.Tags = cmp.Or(f.Effect, wire.EffectExecute), cmp.Or(f.Owner, OwnerNode), wire.Words(f.Tags)
	f.InputSchema, f.OutputSchema = slices.Clone(f.InputSchema), slices.Clone(f.OutputSchema)
	switch {
	case f.Handle == nil:
		return wire.Errorf(wire.ReasonParams, "the function %s has no handler", f.Name)
	case f.MaxConcurrent < 0 || f.Timeout < 0:
		return wire.Errorf(wire.ReasonParams, "the function %s has a negative limit", f.Name)
	case f.Priority < 1 || f.Priority > MaxPriority:
		return wire.Errorf(wire.ReasonParams, "the priority of the function %s must be 1 to %d", f.Name, MaxPriority)
	}
	return nil
}

// Get returns the current function with a name.
func (r *Registry) Get(name string) (*Registered, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	f, ok := r.table[name]
	return f, ok
}

// Owners returns the owner of each name, and the table's revision.
func (r *Registry) Owners() (owners map[string]string, revision uint64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	owners = make(map[string]string, len(r.table))
	for name, f := range r.table {
		owners[name] = f.Owner
	}
	return owners, r.revision
}

// Names returns the names, sorted.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.table))
}

// List returns all functions, sorted by name, and the table's revision.
func (r *Registry) List(withStats bool) (list []wire.Function, revision uint64) {
	r.mu.RLock()
	table, revision := r.table, r.revision // the map is never changed, only replaced
	r.mu.RUnlock()
	list = make([]wire.Function, 0, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		list = append(list, table[name].Entry(withStats))
	}
	return list, revision
}

// Revision counts the changes.
func (r *Registry) Revision() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.revision
}
