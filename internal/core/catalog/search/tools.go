package search

import (
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// Tools computes the results of catalog.search and catalog.describe in one agent catalog, and
// the target of catalog.callRead and catalog.call. It does not make or audit calls.
type Tools struct {
	Index *Index
	// Spelling encodes the names written to the caller. Names from the caller are accepted
	// in this spelling and as plain public names.
	Spelling compile.Spelling
	// Resolve resolves names by the caller's lease (see [compile.Leases.Reader]). If nil,
	// names have their current meaning.
	Resolve func(a *compile.Agent, name string) (*compile.Action, error)
	// Shown is called with the names that were returned, so that they can be leased. It may
	// be nil.
	Shown func(a *compile.Agent, shown []*compile.Action)
}

func (t Tools) read(a *compile.Agent, name string) (*compile.Action, error) {
	if t.Resolve != nil {
		return t.Resolve(a, name)
	}
	x, ok := t.Spelling.Read(a, name)
	if !ok {
		return nil, capability.UnknownCapability(capability.Target{Action: capability.Action(name)})
	}
	return x, nil
}

func (t Tools) shown(a *compile.Agent, list ...*compile.Action) {
	if t.Shown != nil && len(list) > 0 {
		t.Shown(a, list)
	}
}

// Found is the result of catalog.search.
type Found struct {
	Actions []FoundAction `json:"actions"`
}

// FoundAction is one action found: enough to decide whether to describe it.
type FoundAction struct {
	Name        string            `json:"name"`
	Title       string            `json:"title,omitempty"`
	Description string            `json:"description,omitempty"` // at most 300 bytes of it and "…"
	Effect      capability.Effect `json:"effect"`
}

// Described is the result of catalog.describe.
type Described struct {
	Name              string            `json:"name"`
	Title             string            `json:"title,omitempty"`
	Description       string            `json:"description,omitempty"`
	Effect            capability.Effect `json:"effect"`
	RequiresSelection bool              `json:"requiresSelection"`
	Schema            json.RawMessage   `json:"schema"`
	OutputSchema      json.RawMessage   `json:"outputSchema,omitempty"`
}

// SearchAmong implements catalog.search and calls t.Shown with the results; see [Index.Search]
// for the limit. Actions for which among returns false are left out and do not count against
// it. If among is nil, every action may be returned.
func (t Tools) SearchAmong(a *compile.Agent, query string, limit int, among func(*compile.Action) bool) Found {
	out := Found{Actions: []FoundAction{}}
	var shown []*compile.Action
	for _, h := range t.Index.Search(a, query, limit, t.Spelling, among) {
		out.Actions = append(out.Actions, FoundAction{
			Name: t.Spelling.Write(a, h.Action), Title: h.Action.Title, Description: cut(h.Action.Description), Effect: h.Action.Effect(),
		})
		shown = append(shown, h.Action)
	}
	t.shown(a, shown...)
	return out
}

func cut(s string) string {
	if len(s) <= maxFoundDescription {
		return s
	}
	return strings.TrimSpace(text.CutBytes(s, maxFoundDescription)) + "…"
}

// DescribeAction implements catalog.describe for one action and calls t.Shown with it. It
// fails if the input schema cannot be built.
func (t Tools) DescribeAction(a *compile.Agent, x *compile.Action) (Described, error) {
	schema, err := x.InputSchema()
	if err != nil {
		return Described{}, err
	}
	t.shown(a, x)
	return Described{
		Name: t.Spelling.Write(a, x), Title: x.Title, Description: x.Description, Effect: x.Effect(),
		RequiresSelection: x.RequiresSelection, Schema: schema, OutputSchema: x.OutputSchema(),
	}, nil
}

// Inner returns the action that catalog.call or, if read, catalog.callRead names; the caller
// must judge the call as one of that action. It fails with invalid_input, reason
// unsupported_action, for catalog.call and catalog.callRead themselves and, if read, for an
// action whose effect is more than read.
func (t Tools) Inner(a *compile.Agent, name string, read bool) (*compile.Action, error) {
	x, err := t.read(a, name)
	if err != nil {
		return nil, err
	}
	switch {
	case x.Canonical == compile.ActionCall || x.Canonical == compile.ActionCallRead:
		return nil, capability.Errorf(capability.CodeInvalidInput, "catalog.call", "%s calls other tools and is not called through another",
			name).
			With("unsupported_action", "name the tool that shall be called in the end")
	case read && x.Effect() != capability.EffectRead:
		return nil, capability.Errorf(capability.CodeInvalidInput, "catalog.callRead", "%s does more than read", name).
			With("unsupported_action", "use catalog.call for it")
	}
	return x, nil
}
