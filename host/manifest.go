package host

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

// The JSON forms of a manifest: the declaration, and the members that are derived from its
// closures.
type (
	wireEvaluator struct {
		Evaluator
		HasPrepare   bool `json:"hasPrepare"`
		HasProcessor bool `json:"hasProcessor"`
	}
	wireField struct {
		FieldEvaluator
		HasParse  bool `json:"hasParse"`
		HasHandle bool `json:"hasHandle"`
	}
	wireService struct {
		Service
		Methods []string `json:"methods"`
	}
	// audience has both the old and the new spelling.
	audience struct {
		DeveloperOnly bool     `json:"developerOnly"`
		ViewKind      ViewKind `json:"viewKind"`
	}
	wireWidget struct {
		Widget
		audience
	}
	wireTab struct {
		NavTab
		audience
	}
	wireApp struct {
		App
		audience
		NavTabs []wireTab `json:"navTabs,omitzero"`
	}
	wireRoute struct {
		Route
		Public       bool   `json:"public,omitzero"`
		PublicReason string `json:"publicReason,omitzero"`
		PublicWrite  string `json:"publicWrite,omitzero"`
	}
	wireView struct {
		View
		Integrity string `json:"integrity,omitzero"`
	}
	wireHooks struct {
		Hooks []string `json:"hooks"`
	}
	wireModule struct {
		ID                 string              `json:"id"`
		Name               string              `json:"name"`
		Version            string              `json:"version,omitzero"`
		Description        string              `json:"description,omitzero"`
		Priority           *float64            `json:"priority,omitzero"`
		Contexts           []string            `json:"contexts,omitzero"`
		Config             map[string]any      `json:"config,omitzero"`
		Schema             json.RawMessage     `json:"schema,omitzero"`
		Actions            []Action            `json:"actions,omitzero"`
		Providers          []Provider          `json:"providers,omitzero"`
		Evaluators         []wireEvaluator     `json:"evaluators,omitzero"`
		ResponseEvaluators []ResponseEvaluator `json:"responseHandlerEvaluators,omitzero"`
		FieldEvaluators    []wireField         `json:"responseHandlerFieldEvaluators,omitzero"`
		Events             []Event             `json:"events,omitzero"`
		Models             []Model             `json:"models,omitzero"`
		Services           []wireService       `json:"services,omitzero"`
		ComponentTypes     []ComponentType     `json:"componentTypes,omitzero"`
		Widgets            []wireWidget        `json:"widgets,omitzero"`
		App                *wireApp            `json:"app,omitzero"`
		AppBridge          *wireHooks          `json:"appBridge,omitzero"`
		Lifecycle          *wireHooks          `json:"lifecycle,omitzero"`
		Routes             []wireRoute         `json:"routes,omitzero"`
		Views              []wireView          `json:"views,omitzero"`
		Provenance         *router.Provenance  `json:"provenance,omitzero"`
		Metadata           json.RawMessage     `json:"metadata,omitzero"`
	}
)

// MarshalText implements encoding.TextMarshaler. It fails for a kind without a constant: routers accept
// kinds that may come later, but in a declaration they are mistakes.
func (k ViewKind) MarshalText() ([]byte, error) {
	if !slices.Contains([]ViewKind{"", KindRelease, KindSystem, KindDeveloper, KindPreview}, k) {
		return nil, fmt.Errorf("%q is not a kind of view; use release, system, developer or preview", string(k))
	}
	return []byte(k), nil
}

func (k ViewKind) audience() audience {
	k = cmp.Or(k, KindRelease)
	return audience{k == KindDeveloper, k}
}

// each maps a list. A nil list stays nil, so that it is omitted.
func each[From, To any](list []From, to func(From) To) []To {
	if list == nil {
		return nil
	}
	out := make([]To, len(list))
	for i, x := range list {
		out[i] = to(x)
	}
	return out
}

// declaredHooks lists the hooks of a module in the protocol's order.
func declaredHooks[H LifecycleHook | BridgeHook](order []string, hooks map[string]H) *wireHooks {
	if len(hooks) == 0 {
		return nil
	}
	return &wireHooks{slices.DeleteFunc(order, func(name string) bool { return hooks[name] == nil })}
}

// wire returns the module's manifest before it is encoded. The views must have their paths.
func (m *Module) wire() wireModule {
	w := wireModule{
		ID: m.ID, Name: m.Name, Version: m.Version, Description: m.Description, Priority: m.Priority,
		Contexts: m.Contexts, Config: m.Config, Schema: m.Schema, Actions: m.Actions, Providers: m.Providers,
		ResponseEvaluators: m.ResponseEvaluators, Events: m.Events, Models: m.Models, ComponentTypes: m.ComponentTypes,
		AppBridge:  declaredHooks(router.AppBridgeHooks(), m.AppBridge.hooks()),
		Lifecycle:  declaredHooks(router.LifecycleHooks(), m.Lifecycle.hooks()),
		Provenance: m.Provenance, Metadata: m.Metadata,
	}
	w.Evaluators = each(m.Evaluators, func(e Evaluator) wireEvaluator {
		return wireEvaluator{e, e.Prepare != nil, e.Process != nil}
	})
	w.FieldEvaluators = each(m.FieldEvaluators, func(e FieldEvaluator) wireField {
		return wireField{e, e.Parse != nil, e.Handle != nil}
	})
	w.Services = each(m.Services, func(s Service) wireService {
		names := make([]string, len(s.Methods))
		for i, method := range s.Methods {
			names[i] = method.Name
		}
		return wireService{s, names}
	})
	w.Widgets = each(m.Widgets, func(x Widget) wireWidget { return wireWidget{x, x.Kind.audience()} })
	if m.App != nil {
		w.App = &wireApp{*m.App, m.App.Kind.audience(), each(m.App.NavTabs, func(t NavTab) wireTab { return wireTab{t, t.Kind.audience()} })}
	}
	w.Routes = each(m.Routes, func(r Route) wireRoute {
		out := wireRoute{Route: r}
		if r.Public != nil {
			out.Public, out.PublicReason, out.PublicWrite = true, r.Public.Reason, r.Public.Write
		}
		return out
	})
	w.Views = each(m.Views, func(v View) wireView {
		v.Kind = v.Kind.audience().ViewKind
		if v.URL != "" {
			return wireView{View: v}
		}
		return wireView{v, router.Integrity(v.Bundle)}
	})
	return w
}

// manifest encodes the declaration and decodes it as routers do, to check it.
func (m *Module) manifest() (json.RawMessage, error) {
	raw, err := jsonx.Marshal(m.wire())
	if err != nil {
		return nil, invalidModule(m.ID, "", "cannot be encoded as JSON: %v", err)
	}
	if _, err := router.ParseModule(raw); err != nil {
		return nil, invalidModule(m.ID, "", "is not what routers accept: %v", err)
	}
	return raw, nil
}

func invalidModule(id, field, format string, args ...any) error {
	where := fmt.Sprintf("module %q", id)
	if field != "" {
		where += ": " + field
	}
	return capability.Errorf(capability.CodeInvalidInput, "host.endpoint", "%s %s", where, fmt.Sprintf(format, args...)).
		With("invalid_module", "correct the declaration of the module")
}
