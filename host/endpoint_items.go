package host

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

// params has the parameters of all plugin methods. The codec has checked their types.
type params struct {
	ModuleID    string `json:"moduleId"`
	Action      string `json:"action"`
	Provider    string `json:"provider"`
	Evaluator   string `json:"evaluator"`
	Field       string `json:"field"`
	EventName   string `json:"eventName"`
	ModelType   string `json:"modelType"`
	ServiceType string `json:"serviceType"`
	Method      string `json:"method"`
	Hook        string `json:"hook"`
	Path        string `json:"path"`

	Content  json.RawMessage `json:"content"`
	Options  json.RawMessage `json:"options"`
	State    json.RawMessage `json:"state"`
	Message  json.RawMessage `json:"message"`
	Context  json.RawMessage `json:"context"`
	Payload  json.RawMessage `json:"payload"`
	Prepared json.RawMessage `json:"prepared"`
	Output   json.RawMessage `json:"output"`
	Value    json.RawMessage `json:"value"`
	Parsed   json.RawMessage `json:"parsed"`
	Params   json.RawMessage `json:"params"`
	Body     json.RawMessage `json:"body"`

	Args    []json.RawMessage          `json:"args"`
	Query   map[string]json.RawMessage `json:"query"`
	Headers map[string]string          `json:"headers"`
	Config  map[string]string          `json:"config"`
}

// target returns the name of the item that a call of m addresses.
func (p *params) target(m router.Method) string {
	switch m.Target {
	case "action":
		return p.Action
	case "provider":
		return p.Provider
	case "evaluator":
		return p.Evaluator
	case "field":
		return p.Field
	case "eventName":
		return p.EventName
	case "modelType":
		return p.ModelType
	case "serviceType":
		return p.ServiceType + "." + p.Method
	case "hook":
		return p.Hook
	}
	return p.Path
}

func object(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("{}")
	}
	return raw
}

// orEmpty returns {} for a result that must be an object and is empty.
func orEmpty(v any) any {
	if v == nil {
		return struct{}{}
	}
	return v
}

// The results of the protocol.
type (
	reply struct {
		Text    *string  `json:"text,omitzero"`
		Actions []string `json:"actions,omitzero"`
		Values  any      `json:"values,omitzero"`
		Data    any      `json:"data,omitzero"`
	}
	shouldRun struct {
		ShouldRun bool `json:"shouldRun"`
	}
	outcome struct {
		Result any `json:"result"`
	}
)

// newReply omits an empty text only if the result has another member, because it needs at
// least one.
func newReply(text string, actions []string, values, data any) reply {
	r := reply{Actions: actions, Values: values, Data: data}
	if text != "" || actions == nil && values == nil && data == nil {
		r.Text = &text
	}
	return r
}

// register adds the handlers of all items of a module.
func (e *Endpoint) register(m Module, files map[string]json.RawMessage) {
	on := func(method, target string, do serve) { e.items[itemKey{"plugin." + method, m.ID, target}] = do }
	for _, a := range m.Actions {
		on("action.invoke", a.Name, func(ctx context.Context, p *params) (any, error) {
			r, err := a.Handle(ctx, object(p.Content), object(p.Options))
			return newReply(r.Text, r.Actions, r.Values, r.Data), err
		})
	}
	for _, x := range m.Providers {
		on("provider.get", x.Name, func(ctx context.Context, p *params) (any, error) {
			r, err := x.Get(ctx, object(p.State))
			return newReply(r.Text, nil, r.Values, r.Data), err
		})
	}
	for _, x := range m.Events {
		on("event.handle", x.Name, func(ctx context.Context, p *params) (any, error) {
			handled, err := x.Handle(ctx, object(p.Payload))
			return map[string]bool{"handled": handled}, err
		})
	}
	for _, x := range m.Models {
		on("model.invoke", x.Type, func(ctx context.Context, p *params) (any, error) {
			r, err := x.Invoke(ctx, p.Params)
			return outcome{r}, err
		})
	}
	for _, s := range m.Services {
		for _, method := range s.Methods {
			on("service.call", s.Type+"."+method.Name, func(ctx context.Context, p *params) (any, error) {
				r, err := method.Call(ctx, p.Args)
				return outcome{r}, err
			})
		}
	}
	for name, hook := range m.Lifecycle.hooks() {
		on("lifecycle.call", name, func(ctx context.Context, p *params) (any, error) {
			return map[string]bool{"ok": true}, hook(ctx, p.Config, object(p.Context))
		})
	}
	for name, hook := range m.AppBridge.hooks() {
		on("appBridge.call", name, func(ctx context.Context, p *params) (any, error) {
			r, err := hook(ctx, object(p.Context))
			return outcome{r}, err
		})
	}
	if len(m.Routes) > 0 {
		routes := slices.Clone(m.Routes)
		on("route.call", "", func(ctx context.Context, p *params) (any, error) { return callRoute(ctx, m.ID, routes, p) })
	}
	if len(files) > 0 {
		on("asset.get", "", func(_ context.Context, p *params) (any, error) { return getAsset(m.ID, files, p) })
	}
	registerEvaluators(m, on)
}

func registerEvaluators(m Module, on func(method, target string, do serve)) {
	for _, x := range m.Evaluators {
		phase := func(name string, do func(context.Context, EvaluatorCall) (any, error)) {
			on("evaluator."+name, x.Name, func(ctx context.Context, p *params) (any, error) {
				return do(ctx, EvaluatorCall{object(p.Message), object(p.State), object(p.Options), p.Prepared, p.Output})
			})
		}
		phase("shouldRun", func(ctx context.Context, c EvaluatorCall) (any, error) { return whether(ctx, x.ShouldRun, c) })
		phase("prepare", func(ctx context.Context, c EvaluatorCall) (any, error) {
			if x.Prepare == nil {
				return struct{}{}, nil
			}
			prepared, err := x.Prepare(ctx, c)
			return struct {
				Prepared any `json:"prepared,omitzero"`
			}{prepared}, err
		})
		phase("prompt", func(ctx context.Context, c EvaluatorCall) (any, error) {
			prompt, err := x.Prompt, error(nil)
			if x.BuildPrompt != nil {
				prompt, err = x.BuildPrompt(ctx, c)
			}
			return map[string]string{"prompt": prompt}, err
		})
		phase("process", func(ctx context.Context, c EvaluatorCall) (any, error) {
			if x.Process == nil {
				return outcome{struct{}{}}, nil
			}
			r, err := x.Process(ctx, c)
			return outcome{orEmpty(r)}, err
		})
	}
	for _, x := range m.ResponseEvaluators {
		on("responseHandlerEvaluator.shouldRun", x.Name, func(ctx context.Context, p *params) (any, error) {
			return whether(ctx, x.ShouldRun, object(p.Context))
		})
		on("responseHandlerEvaluator.evaluate", x.Name, func(ctx context.Context, p *params) (any, error) {
			var patch any
			var err error
			if x.Evaluate != nil {
				patch, err = x.Evaluate(ctx, object(p.Context))
			}
			return map[string]any{"patch": orEmpty(patch)}, err
		})
	}
	for _, x := range m.FieldEvaluators {
		phase := func(name string, do func(context.Context, FieldCall) (any, error)) {
			on("responseHandlerFieldEvaluator."+name, x.Name, func(ctx context.Context, p *params) (any, error) {
				return do(ctx, FieldCall{object(p.Context), p.Value, p.Parsed})
			})
		}
		phase("shouldRun", func(ctx context.Context, c FieldCall) (any, error) { return whether(ctx, x.ShouldRun, c) })
		phase("parse", func(ctx context.Context, c FieldCall) (any, error) {
			value, ok, err := any(c.Value), c.Value != nil, error(nil)
			if x.Parse != nil {
				value, ok, err = x.Parse(ctx, c)
			}
			if !ok {
				return map[string]bool{"softFail": true}, err
			}
			return map[string]any{"value": value}, err
		})
		phase("handle", func(ctx context.Context, c FieldCall) (any, error) {
			var effect FieldEffect
			var err error
			if x.Handle != nil {
				effect, err = x.Handle(ctx, c)
			}
			return map[string]any{"effect": effect}, err
		})
	}
}

// whether returns the answer of a shouldRun method: the result of ask, or true if ask is nil.
func whether[C any](ctx context.Context, ask func(context.Context, C) (bool, error), c C) (any, error) {
	if ask == nil {
		return shouldRun{true}, nil
	}
	run, err := ask(ctx, c)
	return shouldRun{run}, err
}

func getAsset(module string, files map[string]json.RawMessage, p *params) (any, error) {
	path, err := router.CleanAssetPath(p.Path)
	if err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, opInvoke, "the asset path %v", err)
	}
	a, ok := files[path]
	if !ok {
		return nil, capability.Errorf(capability.CodeNotFound, opInvoke, "%s has no asset %s", module, path)
	}
	return a, nil
}

// callRoute calls the first declared route that matches. Error: unknown_capability if none does.
func callRoute(ctx context.Context, module string, routes []Route, p *params) (any, error) {
	for _, r := range routes {
		if r.Method != p.Method || !router.MatchRoute(r.Path, p.Path) {
			continue
		}
		response, err := r.Handle(ctx, RouteRequest{
			Method: p.Method, Path: p.Path, Params: pathParams(r.Path, p.Path), Query: queryOf(p.Query), Headers: p.Headers, Body: p.Body,
		})
		response.Status = cmp.Or(response.Status, 200)
		return struct {
			Status  int               `json:"status"`
			Headers map[string]string `json:"headers,omitzero"`
			Body    any               `json:"body,omitzero"`
		}{response.Status, response.Headers, response.Body}, err
	}
	return nil, capability.UnknownCapability(capability.Member{Module: module, Kind: "route", Name: p.Method + " " + p.Path})
}

// pathParams reads the parameters of a path that matches declared. A value that
// is not valid percent-encoding stays as it is.
func pathParams(declared, path string) map[string]string {
	out := make(map[string]string)
	have := strings.Split(path, "/")
	for i, want := range strings.Split(declared, "/") {
		name, ok := strings.CutPrefix(want, ":")
		if !ok || i > len(have) {
			continue
		}
		var value string
		if rest, all := strings.CutSuffix(name, "*"); all {
			name, value = rest, strings.Join(have[i:], "/")
		} else {
			value = have[i]
		}
		if decoded, err := url.PathUnescape(value); err == nil {
			value = decoded
		}
		out[name] = value
	}
	return out
}

func queryOf(raw map[string]json.RawMessage) url.Values {
	out := make(url.Values, len(raw))
	for name, value := range raw {
		var one string
		var many []string
		if jsonx.Unmarshal(value, &one) == nil {
			out[name] = []string{one}
		} else if jsonx.Unmarshal(value, &many) == nil {
			out[name] = many
		}
	}
	return out
}
