package search

import (
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// Tools are the answers of catalog.search and catalog.describe in one agent
// catalog, and the judgement of catalog.callRead and catalog.call. They only
// compute: who registers them carries out and audits.
type Tools struct {
	Index *Index
	// Spelling is how names are written to the caller; names are understood in it
	// and as they are.
	Spelling compile.Spelling
	// Resolve reads names instead, where callers have leases (see
	// [compile.Leases.Reader]); nil: names mean what they mean now.
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
	Description string            `json:"description,omitempty"` // its first 300 bytes
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

const maxFoundDescription = 300

// SearchAmong is catalog.search: limit 0 is 10, more than 20 is 20. An action for
// which among returns false takes no place in the result; among is called only with
// actions that would be in it. If among is nil, every action may be seen.
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

// DescribeAction describes an action of the catalog.
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

// Inner is the action that catalog.call, or with read catalog.callRead, shall
// call: the call is judged as that action's. callRead takes actions of effect read
// only, and neither calls itself or the other.
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
