package routerserve

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/protocol/router"
)

const (
	// ownPrefix starts the ids of the modules that this server makes of its own catalog: one per
	// provider whose actions come from no manifest of an endpoint or node.
	ownPrefix   = "junctor."
	ownEndpoint = "local" // the endpoint that they name
	ownPart     = "-part"
)

// ownModule is the manifest of a module that this server makes.
type ownModule struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	Endpoint    string      `json:"capabilityEndpointId"`
	Description string      `json:"description"`
	Actions     []ownAction `json:"actions"`
}

// ownAction is an action as elizaOS lists it to its model, which fills the parameters in.
type ownAction struct {
	Name        string                   `json:"name"`
	Description string                   `json:"description"`
	Parameters  []router.ActionParameter `json:"parameters,omitempty"`
}

// inputShape is what is read of an action's input schema.
type inputShape struct {
	Properties map[string]jsonx.Raw `json:"properties"`
	Required   []string             `json:"required"`
}

func shapeOf(a *compile.Action) (shape inputShape, err error) {
	schema, err := a.InputSchema()
	if err == nil {
		err = jsonx.Unmarshal(schema, &shape)
	}
	return shape, err
}

// ownSpelling writes the names of own actions: letters, digits, '_' and '-', so that a model can
// repeat them.
func ownSpelling() compile.Spelling { return compile.Spelling{Dialect: naming.Strict64} }

// ownsModules reports whether the caller gets modules of the catalog: agents and tasks do. Those
// who test or connect a gateway with an operator's token get what its endpoints and nodes declare.
func (b *backend) ownsModules() bool {
	return b.who.Role == capability.RoleAgent || b.who.Role == capability.RoleTask
}

// ownInvocation is a call of an action of the agent catalog, limited to the view of the token.
func (b *backend) ownInvocation() capability.Invocation {
	inv := capability.Invocation{Surface: "router", Client: b.client, Principal: b.who, Audience: capability.AudienceAgent}
	if b.Within != nil && b.who.View != "" {
		inv.Within = b.Within(b.who.View)
	}
	return inv
}

// ownEntry returns the first provider of an action that the caller may use, or nil if it has none
// or a manifest lists the action already.
func ownEntry(a *compile.Action, permitted func(*catalog.Entry) bool) *catalog.Entry {
	for _, e := range a.Entries {
		switch kind := e.Contribution.Member.Kind; {
		case a.Alias, len(e.Module.Manifest) > 0 && (kind == "action" || kind == "function"):
			return nil
		case e.Provider != nil && permitted(e):
			return e
		}
	}
	return nil
}

// ownModules lists what the caller may use of the catalog and no manifest lists, by provider.
func (b *backend) ownModules() ([]*ownModule, error) {
	agent, permitted, err := b.Engine.Agent(b.ownInvocation())
	if err != nil {
		return nil, err
	}
	made := make(map[string]*ownModule)
	for a := range agent.Actions() {
		e := ownEntry(a, permitted)
		if e == nil {
			continue
		}
		shape, err := shapeOf(a)
		if err != nil {
			continue // its arguments are not an object, so no list of tools has it
		}
		_, kind, instance := e.Key().Parts()
		id := ownID(kind, instance)
		if made[id] == nil {
			label := cmp.Or(e.Module.Label, e.Module.Name, instance)
			made[id] = &ownModule{ID: id, Name: id, Endpoint: ownEndpoint, Description: label + " (" + kind + "), through junctor"}
		}
		name := ownSpelling().Write(agent, a)
		made[id].Actions = append(made[id].Actions, ownAction{
			Name: name, Description: cmp.Or(strings.TrimSpace(a.Description), strings.TrimSpace(a.Title), name), Parameters: shape.parameters(),
		})
	}
	var out []*ownModule
	for _, id := range slices.Sorted(maps.Keys(made)) {
		out = append(out, made[id].divided()...)
	}
	return out, nil
}

// ownID returns the id of a provider's module.
func ownID(kind, instance string) string { return router.ModuleID(ownPrefix + kind + "." + instance) }

// divided returns the module in parts of at most maxOwnActions.
func (m *ownModule) divided() []*ownModule {
	var out []*ownModule
	for part := range slices.Chunk(m.Actions, maxOwnActions) {
		one := *m
		if one.Actions = part; len(out) > 0 {
			one.ID += ownPart + strconv.Itoa(len(out)+1)
			one.Name = one.ID
		}
		out = append(out, &one)
	}
	return out
}

// parameters lists the properties, the required ones first.
func (s inputShape) parameters() []router.ActionParameter {
	required := func(name string) bool { return slices.Contains(s.Required, name) }
	names := slices.SortedFunc(maps.Keys(s.Properties), func(a, b string) int {
		if required(a) != required(b) {
			return map[bool]int{true: -1, false: 1}[required(a)]
		}
		return strings.Compare(a, b)
	})
	out := make([]router.ActionParameter, 0, len(names))
	for _, name := range names {
		var about struct {
			Description string `json:"description"`
		}
		schema := s.Properties[name]
		if schema.Kind() != '{' {
			schema = jsonx.Raw("{}") // true: any value
		}
		_ = jsonx.Unmarshal(schema, &about) // a description that is not text is left out
		out = append(out, router.ActionParameter{
			Name: name, Description: cmp.Or(about.Description, name), Required: required(name), Schema: json.RawMessage(schema),
		})
	}
	return out
}

// own calls an action of a module that this server made. ok is false if the module is not one.
func (b *backend) own(ctx context.Context, p params) (result json.RawMessage, ok bool, err error) {
	module, name, at := p.text("moduleId"), p.text("action"), p.text("endpointId")
	if !b.ownsModules() || !strings.HasPrefix(module, ownPrefix) || at != "" && at != ownEndpoint && b.view().knows(at) {
		return nil, false, nil // or that of a gateway which is connected here
	}
	inv := b.ownInvocation()
	agent, permitted, err := b.Engine.Agent(inv)
	if err != nil {
		return nil, true, err
	}
	a, known := ownSpelling().Read(agent, name)
	if known {
		if e := ownEntry(a, permitted); e == nil {
			known = false
		} else if _, kind, instance := e.Key().Parts(); module != ownID(kind, instance) {
			known = strings.HasPrefix(module, ownID(kind, instance)+ownPart)
		}
	}
	if !known {
		return nil, true, capability.UnknownCapability(capability.Target{Member: capability.Member{Module: module, Kind: "action", Name: name}})
	}
	shape, err := shapeOf(a)
	if err != nil {
		return nil, true, err
	}
	if inv.Input, err = shape.arguments(p); err != nil {
		return nil, true, err
	}
	if inv.Input, inv.Target.Select, err = a.CutSelector(inv.Input); err != nil {
		return nil, true, err
	}
	inv.Target.Action = a.Canonical
	reply, err := b.Engine.Invoke(ctx, inv)
	if err != nil {
		return nil, true, err
	}
	result, err = ownResult(reply)
	return result, true, err
}

// arguments returns the input of a call. elizaOS passes what its model filled in as
// options.parameters; without them, the message itself can be the arguments: a JSON object as its
// text, members of its content with the names of parameters, or its text as the one required
// parameter that is missing. Nothing else of a message is passed on.
func (s inputShape) arguments(p params) (json.RawMessage, error) {
	var options struct {
		Parameters jsonx.Raw `json:"parameters"`
	}
	if raw := p.raw("options"); len(raw) > 0 {
		if err := jsonx.Unmarshal(raw, &options); err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "plugin.action.invoke", "the options must be an object", err)
		}
		if options.Parameters.Kind() == '{' {
			return json.RawMessage(options.Parameters), nil
		}
	}
	var content map[string]jsonx.Raw
	if raw := p.raw("content"); len(raw) > 0 {
		if err := jsonx.Unmarshal(raw, &content); err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "plugin.action.invoke", "the content must be an object", err)
		}
	}
	var message string
	_ = jsonx.Unmarshal(content["text"], &message) // a message without a text has none
	var object map[string]jsonx.Raw
	if jsonx.Unmarshal([]byte(message), &object) == nil && object != nil {
		return json.RawMessage(message), nil
	}
	maps.DeleteFunc(content, func(name string, _ jsonx.Raw) bool { return s.Properties[name] == nil })
	missing := slices.DeleteFunc(slices.Clone(s.Required), func(name string) bool { return content[name] != nil })
	if len(missing) == 1 && strings.TrimSpace(message) != "" {
		var about struct {
			Type string `json:"type"`
		}
		if jsonx.Unmarshal(s.Properties[missing[0]], &about) == nil && about.Type == "string" {
			quoted, err := jsonx.Marshal(message)
			if err != nil {
				return nil, err
			}
			content[missing[0]] = quoted
		}
	}
	if content == nil {
		content = map[string]jsonx.Raw{}
	}
	return jsonx.Marshal(content)
}

// ownResult converts the result of a call to that of an action, with a text of at most maxOwnText.
func ownResult(reply invoke.Reply) (json.RawMessage, error) {
	shown := reply.Text()
	if len(shown) > maxOwnText {
		shown = text.CutBytes(shown, maxOwnText) + "\n[cut; the whole result is in data]"
	}
	return actionResult(shown, reply.Result)
}
