// Package catalog compiles what all providers offer into one immutable snapshot
// and chooses among the providers of an action. Readers load the snapshot from
// an atomic pointer and never wait; writers replace one source's batch at a time
// and compile the next snapshot. The package decides names, visibility per
// audience and selection; who may call is decided by package policy, what is
// done by package invoke. It does no I/O.
//
// The canonical actions live in the sub-package actions, one reviewed directory.
package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog/actions"
)

// Entry is one capability of one provider instance. It is immutable.
type Entry struct {
	ID           capability.ID
	Action       capability.Action // canonical, or minted "ext.<extension>.<contribution>"
	Row          *actions.Row      // nil for a minted action
	Contribution *capability.Contribution
	Module       *capability.Module
	Provider     capability.Provider // nil: the source published no such provider
	Effect       capability.Effect
	Tool         string // planner name; "" when agents never see it
	WireName     string // Tool in the strict64 dialect (decision R12)
	audience     audienceSet
	schema       func() (*Schema, error)
}

// Key is the provider key of the entry.
func (e *Entry) Key() capability.ProviderKey { return e.Contribution.Provider }

// Name is what people and models know the entry by: its tool name where agents
// see it, else its action.
func (e *Entry) Name() string {
	if e.Tool != "" {
		return e.Tool
	}
	return string(e.Action)
}

// VisibleTo reports whether the audience's catalog holds the entry. The internal
// audience sees everything.
func (e *Entry) VisibleTo(a capability.Audience) bool {
	return e.audience.has(a)
}

// Schema returns the compiled input schema, or nil when the contribution has
// none (decision R59). It is compiled at first use and kept.
func (e *Entry) Schema() (*Schema, error) {
	if e.schema == nil {
		return nil, nil
	}
	return e.schema()
}

// InputSchema is the schema document as published, "" when there is none.
func (e *Entry) InputSchema() []byte {
	if len(e.Contribution.InputSchema) > 0 {
		return e.Contribution.InputSchema
	}
	if e.Row != nil {
		return e.Row.InputSchema
	}
	return nil
}

// ContentHash is what approvals and grants bind to: the module's digest, or,
// where a source has none, the contribution's own text.
func (e *Entry) ContentHash() string {
	if e.Module.Digest != "" {
		return e.Module.Digest
	}
	c := e.Contribution
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s\n%s", e.ID, c.Effect, c.Description, c.InputSchema, strings.Join(c.Permissions, ",")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

type audienceSet uint8

const (
	toAgent audienceSet = 1 << iota
	toOperator
	toInternal
)

func (s audienceSet) has(a capability.Audience) bool {
	switch a {
	case capability.AudienceAgent:
		return s&toAgent != 0
	case capability.AudienceOperator:
		return s&toOperator != 0
	case capability.AudienceInternal:
		return s&toInternal != 0
	}
	return false
}

// audienceOf is the ceiling of a contribution kind (catalog spec, section 5)
// narrowed by the action's own visibility.
func audienceOf(kind string, row *actions.Row) audienceSet {
	var s audienceSet
	switch {
	case kind == "capability.agent-tool", kind == "adapter.runtime", kind == "capability.memory":
		s = toAgent | toOperator | toInternal
	case kind == "capability.control-command", kind == "capability.provider-integration",
		strings.HasPrefix(kind, "surface."):
		s = toOperator | toInternal // internal: code calls routes and fetches assets
	default:
		s = toInternal
	}
	if row != nil {
		switch row.Visibility {
		case "operator":
			s &^= toAgent
		case "internal":
			s &^= toAgent | toOperator
		}
	}
	return s
}

// Snapshot is one compiled state of the catalog. It is immutable and shared;
// its slices must not be changed.
type Snapshot struct {
	Generation uint64 // strictly increasing in this process
	Etag       string // of the content; equal content has an equal etag
	Entries    []*Entry
	Modules    []*capability.Module
	Conflicts  []Conflict

	byID     map[capability.ID]*Entry
	byAction map[capability.Action][]*Entry
	byMember map[capability.Member][]*Entry
	byWire   map[string][]*Entry
}

// Conflict is something two contributions both claimed; neither ran over the
// other silently.
type Conflict struct {
	Class   string   `json:"class"` // runtime_id, registration
	Key     string   `json:"key"`
	Members []string `json:"members"`
	Kept    string   `json:"kept,omitempty"`
}

// Capability returns the entry of that id.
func (s *Snapshot) Capability(id capability.ID) (*Entry, bool) {
	e, ok := s.byID[id]
	return e, ok
}

// Action returns the entries offering a, in deterministic order.
func (s *Snapshot) Action(a capability.Action) []*Entry { return s.byAction[a] }

// Member returns the entries of module:kind:name; the module may be named by its
// own id or by its extension id. More than one is possible only where two
// endpoints carry a module of the same id.
func (s *Snapshot) Member(m capability.Member) []*Entry { return s.byMember[m] }

// Tool returns the entries behind a wire name.
func (s *Snapshot) Tool(wire string) []*Entry { return s.byWire[wire] }

// Resolve returns the entries a target names, visible or not.
func (s *Snapshot) Resolve(t capability.Target) []*Entry {
	switch {
	case t.Capability != "":
		if e, ok := s.byID[t.Capability]; ok {
			return []*Entry{e}
		}
		return nil
	case t.Action != "":
		if es := s.byAction[t.Action]; es != nil {
			return es
		}
		return s.byAction[aliasOf(t.Action)]
	}
	return s.byMember[t.Member]
}

// aliasOf maps a registry alias to its action.
func aliasOf(a capability.Action) capability.Action {
	if row, ok := actions.Lookup(a); ok {
		return row.ID
	}
	return ""
}

// Catalog holds the batches of all sources and the snapshot compiled from them.
// The zero value is not usable; call New.
type Catalog struct {
	current atomic.Pointer[Snapshot]
	mu      sync.Mutex // serializes Apply and guards batches
	batches map[string]capability.Batch
}

// New returns an empty catalog.
func New() *Catalog {
	c := &Catalog{batches: make(map[string]capability.Batch)}
	c.current.Store(compile(0, nil))
	return c
}

// Snapshot returns the current state; it never blocks.
func (c *Catalog) Snapshot() *Snapshot { return c.current.Load() }

// Change is what one batch did to the catalog.
type Change struct {
	Before, After *Snapshot
	Old           capability.Batch // what the source offered before
}

// Apply replaces everything b.Source offered with b, as a whole, or changes
// nothing and says why. An empty batch withdraws the source. changed is false
// when the compiled content stays the same (availability counts as content).
// Providers are compared, so they must be pointers or other comparable values.
func (c *Catalog) Apply(b capability.Batch) (snap *Snapshot, changed bool, err error) {
	change, changed, err := c.Replace(b)
	return change.After, changed, err
}

// Replace is Apply for who needs to know what was there before.
func (c *Catalog) Replace(b capability.Batch) (_ Change, changed bool, err error) {
	if b.Source == "" {
		return Change{}, false, capability.Errorf(capability.CodeInternal, "catalog.apply", "a batch needs the name of its source")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(b); err != nil {
		return Change{}, false, err
	}
	old := c.batches[b.Source]
	if len(b.Modules) == 0 && len(b.Providers) == 0 {
		delete(c.batches, b.Source)
	} else {
		c.batches[b.Source] = b
	}
	prev := c.current.Load()
	// The snapshot must not depend on the order of arrival.
	batches := make([]capability.Batch, 0, len(c.batches))
	for _, name := range slices.Sorted(maps.Keys(c.batches)) {
		batches = append(batches, c.batches[name])
	}
	snap := compile(prev.Generation+1, batches)
	if snap.Etag == prev.Etag && sameProviders(old.Providers, b.Providers) {
		return Change{Before: prev, After: prev, Old: old}, false, nil
	}
	c.current.Store(snap)
	return Change{Before: prev, After: snap, Old: old}, true, nil
}

func sameProviders(a, b []capability.Provider) bool {
	return slices.EqualFunc(a, b, func(x, y capability.Provider) bool { return x == y })
}

// admit refuses a batch that claims an extension id another source holds
// (conflict class 1: ids are never taken over) or holds one twice itself.
func (c *Catalog) admit(b capability.Batch) error {
	seen := make(map[string]bool, len(b.Modules))
	for _, m := range b.Modules {
		key := strings.ToLower(m.Extension)
		if seen[key] {
			return capability.Errorf(capability.CodeConflict, "catalog.apply", "%s offers module %s twice", b.Source, m.ID).
				With("registration_conflict", "give the modules different ids")
		}
		seen[key] = true
		for source, other := range c.batches {
			if source == b.Source {
				continue
			}
			for _, o := range other.Modules {
				if strings.EqualFold(o.Extension, m.Extension) {
					return capability.Errorf(capability.CodeConflict, "catalog.apply", "module %s of %s is already offered by %s", m.ID, b.Source, source).
						With("registration_conflict", "disconnect one of the two, or rename the module at its source")
				}
			}
		}
	}
	return nil
}

// DisplayName is the human label: the registry's title with the provider, or the
// contribution's own title (catalog spec, section 4.2).
func (e *Entry) DisplayName() string {
	_, kind, instance := e.Key().Parts()
	title := e.Contribution.Title
	if e.Row != nil {
		title = e.Row.Title + " (" + kind + "/" + instance + ")"
	}
	if title == "" {
		title = e.Contribution.ID
	}
	return title
}

// Description comes from the registry for a canonical action, never from the
// provider.
func (e *Entry) Description() string {
	if e.Row != nil {
		return e.Row.Description
	}
	return e.Contribution.Description
}

// OutputSchema is the result's schema document, nil when none is declared.
func (e *Entry) OutputSchema() []byte {
	if e.Row != nil && len(e.Row.OutputSchema) > 0 {
		return e.Row.OutputSchema
	}
	return e.Contribution.OutputSchema
}

// TelemetryTags always holds extension, contribution, source and origin.
func (e *Entry) TelemetryTags() map[string]string {
	tags := map[string]string{
		"extension": e.Module.Extension, "contribution": e.Contribution.ID, "source": e.Module.Origin, "origin": e.Module.Origin,
	}
	for k, v := range e.Contribution.Telemetry {
		tags[k] = v
	}
	return tags
}
