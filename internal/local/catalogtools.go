package local

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/search"
)

// CatalogEngine compiles the catalog of an invocation.
type CatalogEngine interface {
	// Agent returns the catalog for the context of an invocation and a function that
	// reports whether its principal may call an entry.
	Agent(inv capability.Invocation) (agent *compile.Agent, permitted func(*catalog.Entry) bool, err error)
}

// CatalogFunctions returns the functions that find, describe and call other functions, and
// session.status.
func CatalogFunctions(e CatalogEngine, version string) []Function {
	m := &catalogTools{engine: e, tools: search.Tools{Index: new(search.Index)}}
	own := func(action capability.Action, effect capability.Effect,
		do func(context.Context, capability.Call) (json.RawMessage, error),
	) Function {
		domain := "catalog"
		if action == "session.status" {
			domain = "session"
		}
		return Function{Do: do, Contribution: capability.Contribution{
			ID: string(action), Kind: "capability.agent-tool", Action: action, Effect: effect,
			Provider: capability.NewProviderKey(domain, CoreExtension, "default"),
		}}
	}
	status := func(_ context.Context, c capability.Call) (json.RawMessage, error) {
		return jsonx.Marshal(map[string]any{
			"principal": c.Principal.ID, "role": c.Principal.Role, "session": c.Session, "workspace": c.Context.Workspace, "agent": c.Context.Agent,
			"version": version,
		})
	}
	return []Function{
		own(compile.ActionSearch, capability.EffectRead, m.search),
		own(compile.ActionDescribe, capability.EffectRead, m.describe),
		own(compile.ActionCallRead, capability.EffectRead, judgedAsInner),
		own(compile.ActionCall, capability.EffectExternal, judgedAsInner),
		own("session.status", capability.EffectRead, status),
		contextEngine(),
	}
}

// contextEngine returns the function of context engine "builtin", which returns the
// messages of the session unchanged.
func contextEngine() Function {
	return Function{
		Contribution: capability.Contribution{
			ID: "context-engine", Kind: "capability.context-engine", Effect: capability.EffectRead,
			Provider: capability.NewProviderKey("context-engine", "builtin", "default"),
			Title:    "Built-in context engine", Description: "The messages of the session, unchanged.",
			Arbitration: &capability.Arbitration{Slot: catalog.SlotContextEngine, SelectorID: "builtin"},
		},
		Do: func(_ context.Context, c capability.Call) (json.RawMessage, error) {
			var in struct {
				Messages []jsonx.Raw `json:"messages"`
			}
			if err := jsonx.Unmarshal(c.Input, &in); err != nil {
				return nil, capability.Errorf(capability.CodeInvalidInput, "context.engine", "messages must be a list: %s", err)
			}
			if in.Messages == nil {
				in.Messages = []jsonx.Raw{}
			}
			return jsonx.Marshal(in)
		},
	}
}

type catalogTools struct {
	engine CatalogEngine
	tools  search.Tools
}

// outer returns an invocation on behalf of the caller of c, for CatalogEngine.Agent.
func outer(c capability.Call) capability.Invocation {
	return capability.Invocation{
		Parent: c.Invocation, Surface: "catalog", Principal: c.Principal, Session: c.Session, Context: c.Context,
		Audience: capability.AudienceAgent, Within: c.Within,
	}
}

// search finds actions that match the query among those that the caller may call.
func (m *catalogTools) search(_ context.Context, c capability.Call) (json.RawMessage, error) {
	var in struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	}
	if err := jsonx.Unmarshal(c.Input, &in); err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "catalog.search", "the query cannot be read: %s", err)
	}
	agent, permitted, err := m.engine.Agent(outer(c))
	if err != nil {
		return nil, err
	}
	// Actions that the caller may not call must not use up the limit.
	found := m.tools.SearchAmong(agent, in.Query, in.Limit, func(a *compile.Action) bool { return slices.ContainsFunc(a.Entries, permitted) })
	return jsonx.Marshal(found)
}

// describe returns the description of an action. An action that the caller may not call is
// reported as unknown.
func (m *catalogTools) describe(_ context.Context, c capability.Call) (json.RawMessage, error) {
	var in struct {
		Name string `json:"name"`
	}
	if err := jsonx.Unmarshal(c.Input, &in); err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "catalog.describe", "the name cannot be read: %s", err)
	}
	agent, permitted, err := m.engine.Agent(outer(c))
	if err != nil {
		return nil, err
	}
	a, ok := m.tools.Spelling.Read(agent, in.Name)
	if !ok || !slices.ContainsFunc(a.Entries, permitted) {
		return nil, capability.UnknownCapability(capability.Target{Action: capability.Action(in.Name)})
	}
	described, err := m.tools.DescribeAction(agent, a)
	if err != nil {
		return nil, err
	}
	return jsonx.Marshal(described)
}

// judgedAsInner fails, because the engine replaces catalog.call and catalog.callRead by
// the call that they name, so that the policy of the inner call applies.
func judgedAsInner(_ context.Context, c capability.Call) (json.RawMessage, error) {
	return nil, capability.Errorf(capability.CodeInternal, "core", "%s was not taken for the call it makes", c.Action)
}
