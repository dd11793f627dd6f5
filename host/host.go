package host

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
)

const (
	opRegister = "host.register"
	opInvoke   = "host.invoke"
)

// Config tunes a Host. The zero value is useful.
type Config struct {
	// MaxFunctions bounds how many functions may be registered at once, so that
	// a faulty extension cannot flood the catalog. 0 means 4096.
	MaxFunctions int
}

// Host is a registry of functions. Create it with New; it is safe for concurrent use.
type Host struct {
	max int

	mu        sync.RWMutex
	functions map[string]Function
	byAction  map[capability.Action]string // action → id
	changed   chan struct{}                // closed and replaced at every change
}

// New returns an empty host.
func New(cfg Config) *Host {
	if cfg.MaxFunctions <= 0 {
		cfg.MaxFunctions = 4096
	}
	return &Host{
		max:       cfg.MaxFunctions,
		functions: make(map[string]Function),
		byAction:  make(map[capability.Action]string),
		changed:   make(chan struct{}),
	}
}

// Register adds all functions or none. Errors: conflict if an id or canonical action is
// taken; invalid_input for a wrong declaration.
func (h *Host) Register(functions ...Function) error {
	return h.apply(functions, func(f Function) error {
		if _, taken := h.functions[f.ID]; taken {
			return capability.Errorf(capability.CodeConflict, opRegister, "a function with the id %s is registered already", f.ID).
				With("duplicate_function", "choose another id, or replace the function")
		}
		return nil
	})
}

// Replace replaces registered functions by others of the same ids, all or none. It also
// serves to make a function unavailable or available again. Running calls finish in the
// old function. Error: not_found if an id is not registered.
func (h *Host) Replace(functions ...Function) error {
	return h.apply(functions, func(f Function) error {
		if _, known := h.functions[f.ID]; !known {
			return capability.Errorf(capability.CodeNotFound, opRegister, "no function with the id %s is registered", f.ID)
		}
		return nil
	})
}

// apply checks all functions, with admit for each, and only then stores them.
func (h *Host) apply(functions []Function, admit func(Function) error) error {
	for _, f := range functions {
		if err := f.check(); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make(map[string]bool, len(functions))
	owners := make(map[capability.Action]string, len(functions))
	for _, f := range functions {
		if err := admit(f); err != nil {
			return err
		}
		owner, taken := owners[f.Action]
		if !taken {
			owner, taken = h.byAction[f.Action]
		}
		switch {
		case ids[f.ID]:
			return capability.Errorf(capability.CodeConflict, opRegister, "the id %s is given twice", f.ID).
				With("duplicate_function", "give every function its own id")
		case f.Action != "" && taken && owner != f.ID:
			return capability.Errorf(capability.CodeConflict, opRegister, "the action %s is carried by function %s already", f.Action, owner).
				With("duplicate_action", "one host is one provider: it carries an action once")
		}
		ids[f.ID] = true
		owners[f.Action] = f.ID
	}
	if grown := len(ids); len(h.functions)+grown > h.max {
		for id := range ids {
			if _, known := h.functions[id]; known {
				grown--
			}
		}
		if len(h.functions)+grown > h.max {
			return capability.Errorf(capability.CodeTooLarge, opRegister, "this host carries at most %d functions", h.max)
		}
	}
	for _, f := range functions {
		h.forget(f.ID)
		h.functions[f.ID] = f.clone()
		if f.Action != "" {
			h.byAction[f.Action] = f.ID
		}
	}
	if len(functions) > 0 {
		h.announce()
	}
	return nil
}

// Unregister removes functions and returns the number of those that were registered.
// Running calls are not affected.
func (h *Host) Unregister(ids ...string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, id := range ids {
		if h.forget(id) {
			n++
		}
	}
	if n > 0 {
		h.announce()
	}
	return n
}

func (h *Host) forget(id string) bool {
	f, known := h.functions[id]
	if !known {
		return false
	}
	delete(h.functions, id)
	if f.Action != "" && h.byAction[f.Action] == id {
		delete(h.byAction, f.Action)
	}
	return true
}

func (h *Host) announce() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Functions returns the registered functions, sorted by id. The slices within are shared
// and must not be changed.
func (h *Host) Functions() []Function {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := make([]Function, 0, len(h.functions))
	for _, f := range h.functions {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Function) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Changed returns a channel that is closed at the next change. Call it before Functions,
// so that no change between the two is missed.
func (h *Host) Changed() <-chan struct{} {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.changed
}

// Invoke calls the function that the call names: by member name, else by the contribution
// id inside the capability id, else by action. Errors, beside those of the function:
// unknown_capability, unavailable, internal after a panic, and failed for an error without
// a code, whose text the caller does not receive.
func (h *Host) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	f, ok := h.find(c)
	if !ok {
		return capability.Result{}, capability.UnknownCapability(capability.Target{Capability: c.Capability, Action: c.Action, Member: c.Member})
	}
	if f.Unavailable != "" {
		e := capability.Errorf(capability.CodeUnavailable, opInvoke, "%s is not available here: %s", f.Name(), f.Unavailable)
		e.Reason, e.Target = "unconfigured", f.Name()
		return capability.Result{}, e
	}
	if err := ctx.Err(); err != nil {
		return capability.Result{}, capability.AsError(err)
	}
	if c.Input == nil {
		c.Input = []byte("{}")
	}
	g := &gate{report: c.Progress}
	c.Progress = g.pass
	defer g.close()
	return contained(f.Name(), func() (capability.Result, error) { return f.Handle(ctx, c) })
}

func (h *Host) find(c capability.Call) (Function, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if c.Member.Name != "" {
		f, ok := h.functions[c.Member.Name]
		return f, ok
	}
	if c.Capability != "" {
		runtime, _, _ := strings.Cut(string(c.Capability), "#")
		_, id, _ := strings.Cut(runtime, "/")
		f, ok := h.functions[id]
		return f, ok
	}
	f, ok := h.functions[h.byAction[c.Action]]
	return f, ok && c.Action != ""
}

// gate forwards progress, one chunk at a time, until the call has returned.
type gate struct {
	mu     sync.Mutex
	closed bool
	report func(capability.Chunk)
}

func (g *gate) pass(c capability.Chunk) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed && g.report != nil {
		g.report(c)
	}
}

func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
}
