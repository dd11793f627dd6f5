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

// Host carries functions. Create it with New; it is safe for concurrent use.
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

// Register adds functions, all or none. An id or canonical action that is taken
// is a conflict; a wrong declaration is invalid_input.
func (h *Host) Register(functions ...Function) error {
	return h.apply(functions, func(f Function) error {
		if _, taken := h.functions[f.ID]; taken {
			return capability.Errorf(capability.CodeConflict, opRegister, "a function with the id %s is registered already", f.ID).
				With("duplicate_function", "choose another id, or replace the function")
		}
		return nil
	})
}

// Replace exchanges registered functions for others of the same ids, all or
// none: how a function becomes unavailable or ready again. An id that is not
// registered is not_found. Calls that are running end in the old function.
func (h *Host) Replace(functions ...Function) error {
	return h.apply(functions, func(f Function) error {
		if _, known := h.functions[f.ID]; !known {
			return capability.Errorf(capability.CodeNotFound, opRegister, "no function with the id %s is registered", f.ID)
		}
		return nil
	})
}

// apply checks everything before it changes anything.
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

// Unregister withdraws functions and returns how many were there. Calls that
// are running end undisturbed.
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

// Functions returns what is registered now, ordered by id. The slices within
// are shared and must not be changed.
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

// Changed returns a channel that is closed at the next change. Take it before
// calling Functions, so that no change falls between the two.
func (h *Host) Changed() <-chan struct{} {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.changed
}

// Invoke runs the function that the call names: by member name, else by the
// contribution id inside the capability id, else by action. The errors it adds
// to a function's own: unknown_capability, unavailable, internal for a panic,
// and failed for an error without a code, whose text stays inside.
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

// gate passes progress on one at a time until the call has returned.
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
