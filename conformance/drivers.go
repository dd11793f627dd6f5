package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/junctor-run/junctor/protocol/router"
)

// driver knows one surface: the first item of a module, and what must hold when
// it is called.
type driver struct {
	surface  string
	target   func(*router.Module) string // "" when the module has none
	exercise func(context.Context, *drive)
}

type object = map[string]any

func drivers() []driver {
	return []driver{
		{"action", func(m *router.Module) string {
			return first(m.Actions, func(a router.ModuleAction) string { return a.Name })
		}, action},
		{"provider", func(m *router.Module) string {
			return first(m.Providers, func(p router.ModuleProvider) string { return p.Name })
		}, provider},
		{"route", routeTarget, route},
		{"viewAsset", func(m *router.Module) string { return viewOf(m).BundlePath }, viewAsset},
		{"model", func(m *router.Module) string {
			return first(m.Models, func(x router.ModuleModel) string { return x.ModelType })
		}, model},
		{"lifecycle", func(m *router.Module) string { return firstHook(m.Lifecycle) }, lifecycle},
		{"event", func(m *router.Module) string {
			return first(m.Events, func(e router.ModuleEvent) string { return e.EventName })
		}, event},
		{"service", serviceTarget, service},
		{"appBridge", func(m *router.Module) string { return firstHook(m.AppBridge) }, appBridge},
		{"evaluator", func(m *router.Module) string {
			return first(m.Evaluators, func(e router.ModuleEvaluator) string { return e.Name })
		}, evaluator},
		{"responseHandlerEvaluator", func(m *router.Module) string {
			return first(m.ResponseHandlerEvaluators, func(e router.ResponseEvaluator) string { return e.Name })
		}, responseEvaluator},
		{"responseHandlerFieldEvaluator", func(m *router.Module) string {
			return first(m.ResponseHandlerFieldEvaluators, func(e router.FieldEvaluator) string { return e.Name })
		}, fieldEvaluator},
	}
}

func first[T any](list []T, name func(T) string) string {
	if len(list) == 0 {
		return ""
	}
	return name(list[0])
}

func firstHook(h *router.Hooks) string {
	if h == nil || len(h.Hooks) == 0 {
		return ""
	}
	return h.Hooks[0]
}

func routeTarget(m *router.Module) string {
	return first(m.Routes, func(r router.Route) string { return r.Method + " " + r.Path })
}

func serviceTarget(m *router.Module) string {
	for _, s := range m.Services {
		if len(s.Methods) > 0 {
			return s.ServiceType + "." + s.Methods[0]
		}
	}
	return ""
}

func viewOf(m *router.Module) router.View {
	for _, v := range m.Views {
		if v.BundlePath != "" {
			return v
		}
	}
	return router.View{}
}

// has reports whether the object has one of the members.
func has(result json.RawMessage, names ...string) bool {
	var o map[string]json.RawMessage
	if json.Unmarshal(result, &o) != nil {
		return false
	}
	for _, n := range names {
		if _, ok := o[n]; ok {
			return true
		}
	}
	return false
}

func member(result json.RawMessage, name string) json.RawMessage {
	var o map[string]json.RawMessage
	if json.Unmarshal(result, &o) != nil {
		return nil
	}
	return o[name]
}

// once calls a method, checks its result and keeps it for the report.
func (d *drive) once(ctx context.Context, method string, params object, kept *json.RawMessage, check func(result json.RawMessage)) {
	if result, ok := d.call(ctx, method, params); ok {
		check(result)
		if d.summary {
			*kept = result
		}
	}
}

// needs returns a check that the result has one of the members.
func (d *drive) needs(method, message string, names ...string) func(json.RawMessage) {
	return func(result json.RawMessage) { d.must(has(result, names...), method, "%s", message) }
}

// isTrue returns a check that a member of the result is true.
func (d *drive) isTrue(method, name string) func(json.RawMessage) {
	return func(result json.RawMessage) {
		d.must(string(member(result, name)) == "true", method, "%s is not true", name)
	}
}

func action(ctx context.Context, d *drive) {
	content := any(object{"text": "capability-router conformance action"})
	if d.opts.ActionContent != nil {
		content = d.opts.ActionContent
	}
	const method = "plugin.action.invoke"
	d.once(ctx, method, object{"action": d.module.Actions[0].Name, "content": content}, &d.report.ActionResult,
		d.needs(method, "the result needs one of text, actions, values, data", "text", "actions", "values", "data"))
}

func provider(ctx context.Context, d *drive) {
	const method = "plugin.provider.get"
	d.once(ctx, method, object{"provider": d.module.Providers[0].Name, "state": object{}}, &d.report.ProviderResult,
		d.needs(method, "the result needs one of text, values, data", "text", "values", "data"))
}

func route(ctx context.Context, d *drive) {
	const method = "plugin.route.call"
	r := d.module.Routes[0]
	body := any(object{"conformance": true})
	if d.opts.RouteBody != nil {
		body = d.opts.RouteBody
	}
	params := object{"method": r.Method, "path": r.Path, "headers": object{}, "body": body}
	d.once(ctx, method, params, &d.report.RouteResult, func(result json.RawMessage) {
		var answer struct{ Status int }
		_ = json.Unmarshal(result, &answer)
		d.must(answer.Status >= 200 && answer.Status <= 299, method, "status %d is not 2xx", answer.Status)
		d.must(!blank(member(result, "body")), method, "the body is empty")
	})
}

// blank is what does not count as a body: nothing, null, blank text, [] and {}.
func blank(raw json.RawMessage) bool {
	switch text := string(bytes.TrimSpace(raw)); text {
	case "", "null", "[]", "{}":
		return true
	default:
		var s string
		return json.Unmarshal(raw, &s) == nil && strings.TrimSpace(s) == ""
	}
}

var scriptType = regexp.MustCompile(`(?i)/(java|ecma)script`)

func viewAsset(ctx context.Context, d *drive) {
	const method = "plugin.asset.get"
	view := viewOf(d.module)
	result, ok := d.call(ctx, method, object{"path": view.BundlePath})
	if !ok {
		return
	}
	asset, err := router.DecodeAsset(result)
	if err != nil {
		d.fail(method, "%v", err)
		return
	}
	d.must(len(asset.Body) > 0, method, "the asset is empty")
	d.must(strings.HasSuffix(asset.Path, ".js") || strings.HasSuffix(asset.Path, ".mjs"), method,
		"the asset path %q does not end in .js or .mjs", asset.Path)
	d.must(scriptType.MatchString(asset.ContentType), method, "the content type %q is not a script", asset.ContentType)
	if d.summary {
		d.must(view.ContentType == "" || view.ContentType == asset.ContentType, method, "the content type %q is not the view's %q",
			asset.ContentType, view.ContentType)
	}
	d.must(view.Integrity == "" || view.Integrity == asset.Integrity, method, "the integrity %q is not the view's %q", asset.Integrity,
		view.Integrity)
	if asset.Integrity != "" {
		d.must(strings.Contains(asset.Integrity, "sha256-"), method, "the integrity has no sha256 token")
		d.must(router.MatchesIntegrity(asset.Body, asset.Integrity), method, "the integrity does not match the bytes")
	}
	if d.summary {
		sum := sha256.Sum256(asset.Body)
		d.report.AssetResult = &AssetResult{
			Path: asset.Path, ContentType: asset.ContentType, ManifestContentType: view.ContentType, ManifestIntegrity: view.Integrity,
			Integrity: asset.Integrity, ByteLength: len(asset.Body), SHA256: hex.EncodeToString(sum[:]),
		}
	}
}

func model(ctx context.Context, d *drive) {
	const method = "plugin.model.invoke"
	d.once(ctx, method, object{
		"modelType": d.module.Models[0].ModelType,
		"params":    object{"prompt": "capability-router conformance model"},
	}, &d.report.ModelResult, d.needs(method, "the result key is missing", "result"))
}

func lifecycle(ctx context.Context, d *drive) {
	const method = "plugin.lifecycle.call"
	d.once(ctx, method, object{"hook": d.module.Lifecycle.Hooks[0], "context": object{"conformance": true}}, &d.report.LifecycleResult,
		d.isTrue(method, "ok"))
}

func event(ctx context.Context, d *drive) {
	const method = "plugin.event.handle"
	d.once(ctx, method, object{"eventName": d.module.Events[0].EventName, "payload": object{"conformance": true}}, &d.report.EventResult,
		d.isTrue(method, "handled"))
}

func service(ctx context.Context, d *drive) {
	const method = "plugin.service.call"
	serviceType, name, _ := strings.Cut(serviceTarget(d.module), ".")
	for _, s := range d.module.Services {
		if len(s.Methods) > 0 { // a service type may hold dots itself
			serviceType, name = s.ServiceType, s.Methods[0]
			break
		}
	}
	d.once(ctx, method, object{"serviceType": serviceType, "method": name, "args": []any{object{"conformance": true}}},
		&d.report.ServiceResult, d.needs(method, "the result key is missing", "result"))
}

func appBridge(ctx context.Context, d *drive) {
	const method = "plugin.appBridge.call"
	const path = "/capability-router-conformance"
	d.once(ctx, method, object{
		"hook":    d.module.AppBridge.Hooks[0],
		"context": object{"method": "GET", "pathname": path, "path": path, "query": object{}, "headers": object{}},
	}, &d.report.AppBridgeResult, d.needs(method, "the result key is missing", "result"))
}

// evaluator calls all four phases, whatever shouldRun and the has* flags say.
func evaluator(ctx context.Context, d *drive) {
	base := func() object {
		return object{
			"evaluator": d.module.Evaluators[0].Name, "message": object{"text": "capability-router conformance evaluator"},
			"state": object{}, "options": object{},
		}
	}
	results := map[string]json.RawMessage{}
	if result, ok := d.call(ctx, "plugin.evaluator.shouldRun", base()); ok {
		results["shouldRun"] = result
	}
	var prepared json.RawMessage
	if result, ok := d.call(ctx, "plugin.evaluator.prepare", base()); ok {
		results["prepare"] = result
		prepared = member(result, "prepared")
	}
	params := base()
	if prepared != nil {
		params["prepared"] = prepared
	}
	var prompt string
	if result, ok := d.call(ctx, "plugin.evaluator.prompt", params); ok {
		results["prompt"] = result
		_ = json.Unmarshal(member(result, "prompt"), &prompt)
		d.must(strings.TrimSpace(prompt) != "", "plugin.evaluator.prompt", "the prompt is empty")
	}
	params = base()
	if prepared != nil {
		params["prepared"] = prepared
	}
	params["output"] = object{"prompt": prompt}
	if result, ok := d.call(ctx, "plugin.evaluator.process", params); ok {
		results["process"] = result
		d.must(has(result, "result"), "plugin.evaluator.process", "the result key is missing")
	}
	if d.summary {
		d.report.EvaluatorResult = results
	}
}

func responseEvaluator(ctx context.Context, d *drive) {
	base := func() object {
		return object{"evaluator": d.module.ResponseHandlerEvaluators[0].Name, "context": object{"conformance": true}}
	}
	results := map[string]json.RawMessage{}
	if result, ok := d.call(ctx, "plugin.responseHandlerEvaluator.shouldRun", base()); ok {
		results["shouldRun"] = result
	}
	const method = "plugin.responseHandlerEvaluator.evaluate"
	if result, ok := d.call(ctx, method, base()); ok {
		results["evaluate"] = result
		d.must(has(result, "patch"), method, "the patch key is missing")
	}
	if d.summary {
		d.report.ResponseHandlerEvaluatorResult = results
	}
}

func fieldEvaluator(ctx context.Context, d *drive) {
	base := func() object {
		return object{"field": d.module.ResponseHandlerFieldEvaluators[0].Name, "context": object{"conformance": true}}
	}
	results := map[string]json.RawMessage{}
	if result, ok := d.call(ctx, "plugin.responseHandlerFieldEvaluator.shouldRun", base()); ok {
		results["shouldRun"] = result
	}
	params := base()
	params["value"] = object{"raw": true}
	handle := base()
	handle["value"] = object{"raw": true}
	const parse = "plugin.responseHandlerFieldEvaluator.parse"
	if result, ok := d.call(ctx, parse, params); ok {
		results["parse"] = result
		d.must(has(result, "value", "softFail"), parse, "the result needs value or softFail")
		if value := member(result, "value"); len(value) > 0 && value[0] == '{' {
			handle["parsed"] = value
		}
	}
	const method = "plugin.responseHandlerFieldEvaluator.handle"
	if result, ok := d.call(ctx, method, handle); ok {
		results["handle"] = result
		d.must(has(result, "effect"), method, "the effect key is missing")
	}
	if d.summary {
		d.report.ResponseHandlerFieldEvaluatorResult = results
	}
}
