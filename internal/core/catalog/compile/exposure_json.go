package compile

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
)

// ActionJSON is an action in the form sent to clients.
type ActionJSON struct {
	Name              string            `json:"name"`
	CanonicalAction   capability.Action `json:"canonicalAction"`
	Title             string            `json:"title"`
	Description       string            `json:"description"`
	InputSchema       json.RawMessage   `json:"inputSchema"`
	OutputSchema      json.RawMessage   `json:"outputSchema"` // null: none declared
	Providers         []string          `json:"providers"`
	Entries           []capability.ID   `json:"entries"`
	RequiresSelection bool              `json:"requiresSelection"`
	Exposure          string            `json:"exposure"` // direct, deferred
	WireNames         map[string]string `json:"wireNames"`
}

// EntryJSON is a catalog entry in the form sent to clients. Every field is always present.
type EntryJSON struct {
	CapabilityID      capability.ID          `json:"capabilityId"`
	Kind              string                 `json:"kind"`
	CanonicalAction   capability.Action      `json:"canonicalAction"`
	DisplayName       string                 `json:"displayName"`
	Description       string                 `json:"description"`
	ProviderKey       capability.ProviderKey `json:"providerKey"`
	Scope             capability.Scope       `json:"scope"`
	Availability      AvailabilityJSON       `json:"availability"`
	RequiresSelection bool                   `json:"requiresSelection"`
	InputSchema       json.RawMessage        `json:"inputSchema"`
	OutputSchema      json.RawMessage        `json:"outputSchema"` // null: none declared
	Policy            PolicyJSON             `json:"policy"`
	TelemetryTags     map[string]string      `json:"telemetryTags"`
}

// AvailabilityJSON is the value at snapshot time.
type AvailabilityJSON struct {
	State  capability.State `json:"state"`
	Reason string           `json:"reason"`
	Since  time.Time        `json:"since,omitzero"`
}

// PolicyJSON is the effective policy of an entry.
type PolicyJSON struct {
	RouteEffect  string            `json:"routeEffect,omitempty"`
	FailureMode  string            `json:"failureMode,omitempty"`
	Effect       capability.Effect `json:"effect"`
	Approval     string            `json:"approval"` // none, required
	MatchedRules []string          `json:"matchedRules"`
}

// ActionJSON returns an action of the catalog in the form for clients. direct reports whether
// the caller's exposure lists it. It fails if the input schema cannot be built.
func (a *Agent) ActionJSON(x *Action, direct bool) (ActionJSON, error) {
	input, err := x.InputSchema()
	if err != nil {
		return ActionJSON{}, err
	}
	out := ActionJSON{
		Name: x.Name, CanonicalAction: x.Canonical, Title: x.Title, Description: x.Description, InputSchema: input,
		OutputSchema: orNull(x.OutputSchema()), Providers: x.Providers(), Entries: x.Capabilities(),
		RequiresSelection: x.RequiresSelection, Exposure: "deferred", WireNames: make(map[string]string, 3),
	}
	if direct {
		out.Exposure = "direct"
	}
	for _, d := range []naming.Dialect{naming.Dotted, naming.MCP, naming.Strict64} {
		out.WireNames[string(d)] = a.Wire(x, d, 0)
	}
	return out, nil
}

// EntryJSON returns one entry of an action in the form for clients, with the action's schema
// and the effective policy in the catalog's context. It fails if the schema cannot be built.
func (a *Agent) EntryJSON(x *Action, e *catalog.Entry) (EntryJSON, error) {
	input, err := x.InputSchema()
	if err != nil {
		return EntryJSON{}, err
	}
	out := entryJSON(e, a.Frame)
	out.InputSchema, out.RequiresSelection = input, x.RequiresSelection
	return out, nil
}

// InternalJSON returns an entry of the internal catalog in the form for clients. shared
// reports whether other entries have the same action.
func InternalJSON(e *catalog.Entry, shared bool) EntryJSON {
	out := entryJSON(e, nil)
	out.RequiresSelection = shared
	if out.InputSchema = e.InputSchema(); len(out.InputSchema) == 0 {
		out.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	return out
}

// entryJSON returns the fields that do not depend on the action's schema. If f is nil, the
// policy does not include the operator's rules.
func entryJSON(e *catalog.Entry, f *arbitration.Frame) EntryJSON {
	c := e.Contribution
	out := EntryJSON{
		CapabilityID: e.ID, Kind: c.Kind, CanonicalAction: e.Action, DisplayName: e.DisplayName(), Description: e.Description(),
		ProviderKey: e.Key(), Scope: normalScope(c.Scope), OutputSchema: orNull(e.OutputSchema()), TelemetryTags: tags(e),
		Availability: AvailabilityJSON{State: c.Availability.State, Reason: c.Availability.Reason, Since: c.Availability.Since},
		Policy:       PolicyJSON{Effect: e.Effect, Approval: "none", MatchedRules: []string{}},
	}
	out.Availability.State = cmp.Or(out.Availability.State, capability.StateReady)
	approval := e.Approval()
	if f != nil {
		approval = f.Approval(e, false)
		if matched := f.Matched(e); len(matched) > 0 {
			slices.Sort(matched)
			out.Policy.MatchedRules = slices.Compact(matched)
		}
	}
	if approval {
		out.Policy.Approval = "required"
	}
	if x := c.Augment; x != nil {
		out.Policy.RouteEffect, out.Policy.FailureMode = x.Effect, x.FailureMode
	}
	return out
}

func orNull(doc []byte) json.RawMessage {
	if len(doc) == 0 {
		return json.RawMessage("null")
	}
	return doc
}

// normalScope returns the scope with its lists sorted and without repetitions.
func normalScope(s *capability.Scope) capability.Scope {
	if s == nil {
		return capability.Scope{}
	}
	norm := func(list []string) []string {
		list = slices.Clone(list)
		slices.Sort(list)
		return slices.Compact(list)
	}
	return capability.Scope{
		Workspace: norm(s.Workspace), Agent: norm(s.Agent), Session: norm(s.Session), Account: norm(s.Account), Channel: norm(s.Channel),
		Conversation: norm(s.Conversation), ConversationKind: norm(s.ConversationKind), Provider: norm(s.Provider),
	}
}

// tags returns the entry's telemetry tags. Tags with invalid names are dropped, and long
// values are truncated.
func tags(e *catalog.Entry) map[string]string {
	all := e.TelemetryTags()
	for key, value := range all {
		if key == "" || len(key) > 32 || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_.") != "" {
			delete(all, key)
			continue
		}
		all[key] = text.ClipBytes(value, maxTag)
	}
	return all
}
