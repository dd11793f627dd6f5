package host

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/protocol/router"
)

// Module declares one module: what it is called, what it offers and the closures
// that do the work. Only ID and Name are required. It is copied by NewEndpoint;
// changing it later changes nothing.
type Module struct {
	// ID is the module's name on the wire: letters, digits, '.', '_' and '-'.
	ID string
	// Name is how agents list the module, such as "@you/greeter".
	Name        string
	Version     string
	Description string
	// Priority orders modules where order matters; nil is the agent's default.
	Priority *float64
	// Contexts are the agent contexts in which the module is of use.
	Contexts []string
	// Config are the settings with their defaults: strings, numbers, booleans or
	// nil. Agents hand changed ones to Lifecycle.ApplyConfig as strings.
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
	// Provenance is the signed origin of the module, for agents that demand one.
	Provenance *router.Provenance
}

// Action is something an agent can do.
type Action struct {
	Name                  string   `json:"name"`
	Description           string   `json:"description"`
	DescriptionCompressed string   `json:"descriptionCompressed,omitzero"`
	Similes               []string `json:"similes,omitzero"`
	// Parameters describes content, as a JSON Schema; nil says nothing.
	Parameters json.RawMessage `json:"parameters,omitzero"`
	// Handle does it; content and options are JSON objects.
	Handle func(ctx context.Context, content, options json.RawMessage) (ActionResult, error) `json:"-"`
}

// ActionResult is what an action answers. Values and Data must encode as JSON
// objects; nil leaves them out. The zero value is an empty text.
type ActionResult struct {
	Text    string
	Actions []string // actions that the agent may want to do next
	Values  any
	Data    any
}

// Provider tells an agent something about the present.
type Provider struct {
	Name                  string `json:"name"`
	Description           string `json:"description,omitzero"`
	DescriptionCompressed string `json:"descriptionCompressed,omitzero"`
	Dynamic               bool   `json:"dynamic,omitzero"`
	Private               bool   `json:"private,omitzero"`
	// Get answers for the agent's state, a JSON object.
	Get func(ctx context.Context, state json.RawMessage) (ProviderResult, error) `json:"-"`
}

// ProviderResult is what a provider answers; see [ActionResult].
type ProviderResult struct {
	Text   string
	Values any
	Data   any
}

// Event handles what an agent announces.
type Event struct {
	Name string `json:"eventName"`
	// Handle reports whether it took the event; payload is a JSON object.
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

// ComponentType describes data that agents keep for the module.
type ComponentType struct {
	Name string `json:"name"`
	// Schema is an object with type, properties, items, required, enumValues and
	// description; agents drop other keywords.
	Schema json.RawMessage `json:"schema"`
}

// LifecycleHook is called with the agent's configuration for the module and a
// JSON object that says more.
type LifecycleHook func(ctx context.Context, config map[string]string, about json.RawMessage) error

// Lifecycle are the hooks around a module's life in an agent. A hook that is nil
// is not declared.
type Lifecycle struct {
	Init, Dispose, ApplyConfig LifecycleHook
}

func (l Lifecycle) hooks() map[string]LifecycleHook {
	return present(map[string]LifecycleHook{"init": l.Init, "dispose": l.Dispose, "applyConfig": l.ApplyConfig})
}

// BridgeHook is called with a JSON object that states what is launched, viewed or
// asked for. The result is any JSON.
type BridgeHook func(ctx context.Context, about json.RawMessage) (result any, err error)

// AppBridge are the hooks of a module that is an application. A hook that is nil
// is not declared.
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
