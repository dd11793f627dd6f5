package host

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/protocol/router"
)

// Module declares one module: its names, its items and the closures that handle calls.
// Only ID and Name are required. NewEndpoint copies it, so later changes have no effect.
type Module struct {
	// ID is the module's name on the wire: letters, digits, '.', '_' and '-'.
	ID string
	// Name is the name of the module in lists of agents, such as "@you/greeter".
	Name        string
	Version     string
	Description string
	// Priority orders modules where order matters. If nil, the agent's default applies.
	Priority *float64
	// Contexts lists the agent contexts in which the module is useful.
	Contexts []string
	// Config holds the settings with their defaults: strings, numbers, booleans or nil.
	// Agents pass changed ones to Lifecycle.ApplyConfig as strings.
	Config map[string]any
	// Schema (a JSON Schema of Config) and Metadata are JSON objects or nil.
	Schema, Metadata json.RawMessage

	Actions            []Action
	Providers          []Provider
	Evaluators         []Evaluator
	ResponseEvaluators []ResponseEvaluator
	FieldEvaluators    []FieldEvaluator
	Events             []Event
	Models             []Model
	Services           []Service
	ComponentTypes     []ComponentType
	Widgets            []Widget
	App                *App
	AppBridge          AppBridge
	Lifecycle          Lifecycle
	Routes             []Route
	Views              []View
	// Assets are further files that views load.
	Assets []Asset
	// Provenance is the signed origin of the module, for agents that require one.
	Provenance *router.Provenance
}

// Action is something an agent can do.
type Action struct {
	Name                  string   `json:"name"`
	Description           string   `json:"description"`
	DescriptionCompressed string   `json:"descriptionCompressed,omitzero"`
	Similes               []string `json:"similes,omitzero"`
	// Parameters is the JSON Schema of content, or nil.
	Parameters json.RawMessage `json:"parameters,omitzero"`
	// Handle executes the action; content and options are JSON objects.
	Handle func(ctx context.Context, content, options json.RawMessage) (ActionResult, error) `json:"-"`
}

// ActionResult is the result of an action. Values and Data must encode as JSON objects;
// if nil, they are omitted. The zero value is an empty text.
type ActionResult struct {
	Text    string
	Actions []string // actions that the agent may take next
	Values  any
	Data    any
}

// Provider supplies an agent with context about the current state.
type Provider struct {
	Name                  string `json:"name"`
	Description           string `json:"description,omitzero"`
	DescriptionCompressed string `json:"descriptionCompressed,omitzero"`
	Dynamic               bool   `json:"dynamic,omitzero"`
	Private               bool   `json:"private,omitzero"`
	// Get returns the context for the agent's state, a JSON object.
	Get func(ctx context.Context, state json.RawMessage) (ProviderResult, error) `json:"-"`
}

// ProviderResult is the result of a provider; see [ActionResult].
type ProviderResult struct {
	Text   string
	Values any
	Data   any
}

// Event handles events of an agent.
type Event struct {
	Name string `json:"eventName"`
	// Handle reports whether it handled the event; payload is a JSON object.
	Handle func(ctx context.Context, payload json.RawMessage) (handled bool, err error) `json:"-"`
}

// Model is a model that agents can use. Params and result are any JSON.
type Model struct {
	Type     string                                                                    `json:"modelType"`
	Priority *float64                                                                  `json:"priority,omitzero"`
	Invoke   func(ctx context.Context, params json.RawMessage) (result any, err error) `json:"-"`
}

// Service is a set of methods under one type. Only declared methods can be
// called.
type Service struct {
	Type        string          `json:"serviceType"`
	Description string          `json:"capabilityDescription,omitzero"`
	Config      json.RawMessage `json:"config,omitzero"` // a JSON object or nil
	Methods     []ServiceMethod `json:"-"`
}

// ServiceMethod is one method of a service; its name is an identifier.
type ServiceMethod struct {
	Name string
	Call func(ctx context.Context, args []json.RawMessage) (result any, err error)
}

// ComponentType describes data that agents store for the module.
type ComponentType struct {
	Name string `json:"name"`
	// Schema is an object with type, properties, items, required, enumValues and
	// description; agents drop other keywords.
	Schema json.RawMessage `json:"schema"`
}

// LifecycleHook receives the agent's configuration for the module and a JSON object with
// further details.
type LifecycleHook func(ctx context.Context, config map[string]string, about json.RawMessage) error

// Lifecycle holds the hooks that an agent calls as it loads, configures and unloads the
// module. A nil hook is not declared.
type Lifecycle struct {
	Init, Dispose, ApplyConfig LifecycleHook
}

func (l Lifecycle) hooks() map[string]LifecycleHook {
	return present(map[string]LifecycleHook{"init": l.Init, "dispose": l.Dispose, "applyConfig": l.ApplyConfig})
}

// BridgeHook receives a JSON object that describes the launch, view or request. The result
// is any value that encodes to JSON.
type BridgeHook func(ctx context.Context, about json.RawMessage) (result any, err error)

// AppBridge holds the hooks of a module that is an application. A nil hook is not declared.
type AppBridge struct {
	PrepareLaunch, ResolveViewerAuthMessage, EnsureRuntimeReady, CollectLaunchDiagnostics,
	ResolveLaunchSession, RefreshRunSession, StopRun, HandleAppRoutes BridgeHook
}

func (b AppBridge) hooks() map[string]BridgeHook {
	return present(map[string]BridgeHook{
		"prepareLaunch": b.PrepareLaunch, "resolveViewerAuthMessage": b.ResolveViewerAuthMessage,
		"ensureRuntimeReady": b.EnsureRuntimeReady, "collectLaunchDiagnostics": b.CollectLaunchDiagnostics,
		"resolveLaunchSession": b.ResolveLaunchSession, "refreshRunSession": b.RefreshRunSession,
		"stopRun": b.StopRun, "handleAppRoutes": b.HandleAppRoutes,
	})
}

func present[H LifecycleHook | BridgeHook](hooks map[string]H) map[string]H {
	for name, hook := range hooks {
		if hook == nil {
			delete(hooks, name)
		}
	}
	return hooks
}
