package router

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/junctor-run/junctor/capability"
)

// Family is the capability flag of a method.
type Family string

// The five families of the availability object.
const (
	FamilyFS     Family = "fs"
	FamilyPTY    Family = "pty"
	FamilyGit    Family = "git"
	FamilyModel  Family = "model"
	FamilyPlugin Family = "plugin"
)

// Method is one row of the method table: the name, effect, parameters and result of a call. Rows
// are shared and must not be changed.
type Method struct {
	Name   string
	Family Family
	// Surface is the kind of manifest item that a plugin method serves, as in
	// module:surface:name ("action", "provider", "route", …); "module" for
	// plugin.modules.list; empty for low-level methods.
	Surface string
	// Kind is the catalog kind of the contributions that the method calls; empty for methods
	// that only the host uses.
	Kind string
	// Target is the parameter that names the item of the module ("action", "eventName", …),
	// or "".
	Target string
	// Effect is the effect of a call. For plugin.route.call it is that of every verb except
	// GET, see EffectOf.
	Effect capability.Effect

	params, result *shape
}

// EffectOf returns the effect of one call: read for a GET route, else the method's Effect.
func (m Method) EffectOf(params json.RawMessage) capability.Effect {
	if m.Name == "plugin.route.call" && paramText(params, "method") == "GET" {
		return capability.EffectRead
	}
	return m.Effect
}

// Methods returns the 27 methods in the order of the router protocol.
func Methods() []Method { return slices.Clone(methodTable) }

// Lookup returns the row of a method.
func Lookup(name string) (Method, bool) {
	i, ok := methodIndex[name]
	if !ok {
		return Method{}, false
	}
	return methodTable[i], true
}

// Both are immutable after package initialisation.
var (
	methodTable = newMethodTable()
	methodIndex = indexMethods(methodTable)
)

func indexMethods(rows []Method) map[string]int {
	m := make(map[string]int, len(rows))
	for i, r := range rows {
		m[r.Name] = i
	}
	return m
}

// The catalog kinds that module surfaces become.
const (
	kindTool     = "capability.agent-tool"
	kindContext  = "capability.context-augmenter"
	kindEvent    = "capability.event-handler"
	kindBackend  = "capability.runtime-backend"
	kindRPC      = "capability.rpc"
	kindRoute    = kindRPC // routes and assets are called by code
	kindStatus   = kindRPC // and never by planners
	surfaceAsset = "view"
)

func newMethodTable() []Method {
	return slices.Concat(lowLevelMethods(), pluginMethods(), evaluatorMethods(), hostMethods())
}

// low builds the params of a low-level method, whose two additional members are ignored.
func low(parts ...any) *shape {
	return shapeOf(fields(append(parts, opts(anyJSON, "endpointId", "traceSessionId"))...)...)
}

func git(parts ...any) *shape {
	s := low(parts...)
	s.aliasFrom, s.aliasTo = "root", "cwd"
	return s
}

func lowLevelMethods() []Method {
	fileStat := shapeOf(fields(needs(text, "path", "name"), need("kind", text).among("file", "directory", "symlink", "other"),
		need("size", number), opt("modifiedAt", text), opt("isText", boolean))...)
	operation := shapeOf(fields(needs(text, "id", "name", "cwd"), need("command", texts),
		need("status", text).among("running", "completed", "failed"), needs(text, "stdout", "stderr"),
		opt("exitCode", number).orNull(), opt("signal", text).orNull(), need("startedAt", text), opts(text, "completedAt", "error"))...)
	modelStatus := shapeOf(need("ok", boolean), opt("provider", text))
	modelStatus.keepRaw = true
	read, write := capability.EffectRead, capability.EffectWrite
	return []Method{
		{
			Name: "fs.list", Family: FamilyFS, Kind: kindTool, Effect: read,
			params: low(opts(text, "path", "rootId"), opt("limit", number), opt("includeHidden", boolean), opt("ignore", texts)),
			result: shapeOf(need("root", object).apart(), need("path", text), need("entries", records).of(fileStat), need("truncated", boolean),
				need("totalAfterIgnore", number)),
		},
		{
			Name: "fs.readText", Family: FamilyFS, Kind: kindTool, Effect: read,
			params: low(need("path", text), opt("maxBytes", number)),
			result: shapeOf(fields(needs(text, "path", "text"), need("size", number), need("truncated", boolean))...),
		},
		{
			Name: "fs.writeText", Family: FamilyFS, Kind: kindTool, Effect: write,
			params: low(needs(text, "path", "text"), opts(boolean, "createDirectories", "overwrite")),
			result: shapeOf(need("path", text), need("bytesWritten", number), opt("requestedPath", text)),
		},
		{
			Name: "pty.command.run", Family: FamilyPTY, Kind: kindTool, Effect: write,
			params: low(need("command", text), opt("args", texts), opt("cwd", text), opt("env", textMap), opt("timeoutMs", number)),
			result: shapeOf(need("output", text), need("exitCode", number).orNull(), need("timedOut", boolean),
				opt("workspaceExecution", object), opt("workspaceDeltaReceipt", object)),
		},
		{
			Name: "git.status", Family: FamilyGit, Kind: kindTool, Effect: read,
			params: git(need("cwd", text)),
			result: shapeOf(fields(need("repo", object).apart(), opt("branch", text), opts(number, "ahead", "behind"), need("files", objects),
				need("raw", text))...),
		},
		{
			Name: "git.diff", Family: FamilyGit, Kind: kindTool, Effect: read,
			params: git(need("cwd", text), opt("path", text), opt("staged", boolean)),
			result: shapeOf(need("raw", text)),
		},
		{
			Name: "git.command.run", Family: FamilyGit, Kind: kindTool, Effect: write,
			params: git(need("cwd", text), need("args", texts)),
			result: shapeOf(need("operation", record).of(operation)),
		},
		{
			Name: "model.status", Family: FamilyModel, Kind: kindTool, Effect: read,
			params: low(), result: modelStatus,
		},
	}
}

// plugin builds the params of a plugin method.
func plugin(parts ...any) *shape {
	return shapeOf(fields(append([]any{
		need("moduleId", text).where(CheckModuleID),
		opt("endpointId", text).where(endpointKey).reportedAt("capability.endpoint"),
		opt("traceSessionId", anyJSON),
	}, parts...)...)...)
}

func named(name string) field { return need(name, text).where(notBlank) }

func pluginMethods() []Method {
	external, read := capability.EffectExternal, capability.EffectRead
	verbs := []string{"GET", "POST", "PUT", "PATCH", "DELETE"}
	return []Method{
		{
			Name: "plugin.modules.list", Family: FamilyPlugin, Surface: "module", Effect: read,
			params: low(), result: shapeOf(need("modules", records).of(moduleShape)),
		},
		{
			Name: "plugin.action.invoke", Family: FamilyPlugin, Surface: "action", Kind: kindTool, Target: "action", Effect: external,
			params: plugin(named("action"), opts(object, "content", "options")),
			result: shapeOf(fields(opt("text", text), opt("actions", texts), opts(object, "values", "data"))...),
		},
		{
			Name: "plugin.provider.get", Family: FamilyPlugin, Surface: "provider", Kind: kindContext, Target: "provider", Effect: read,
			params: plugin(named("provider"), opt("state", object)),
			result: shapeOf(fields(opt("text", text), opts(object, "values", "data"))...),
		},
		{
			Name: "plugin.route.call", Family: FamilyPlugin, Surface: "route", Kind: kindRoute, Target: "path", Effect: external,
			params: plugin(need("method", text).among(verbs...), need("path", text).where(CheckLocalPath), opt("body", anyJSON),
				opt("query", queryMap), opt("headers", headerMap)),
			result: shapeOf(need("status", number).where(httpStatus), opt("headers", headerMap), opt("body", anyJSON)),
		},
		{
			Name: "plugin.asset.get", Family: FamilyPlugin, Surface: surfaceAsset, Kind: kindStatus, Target: "path", Effect: read,
			params: plugin(need("path", text).where(CheckAssetPath)),
			result: shapeOf(need("path", text).where(CheckAssetPath), need("contentType", text).where(oneLine),
				need("bodyBase64", text).where(standardBase64), opt("integrity", text).where(oneLine)),
		},
	}
}

func evaluatorMethods() []Method {
	read := capability.EffectRead
	row := func(name, surface, kind, target string, params, result *shape) Method {
		return Method{
			Name: "plugin." + name, Family: FamilyPlugin, Surface: surface, Kind: kind, Target: target, Effect: read, params: params,
			result: result,
		}
	}
	evaluator := func(more ...field) *shape {
		return plugin(named("evaluator"), opts(object, "message", "state", "options"), more)
	}
	response := func() *shape { return plugin(named("evaluator"), opt("context", object)) }
	fieldEval := func(more ...field) *shape { return plugin(named("field"), opt("context", object), more) }
	shouldRun := func() *shape { return shapeOf(need("shouldRun", boolean)) }
	preempt := shapeOf(need("mode", text).among("ack-and-stop", "ignore", "direct-reply"), need("reason", text))
	effect := shapeOf(opt("patch", object), opt("preempt", record).of(preempt), opt("debug", texts))
	prepared := opt("prepared", anyJSON)
	return []Method{
		row("evaluator.shouldRun", "evaluator", kindContext, "evaluator", evaluator(), shouldRun()),
		row("evaluator.prepare", "evaluator", kindContext, "evaluator", evaluator(), shapeOf(prepared)),
		row("evaluator.prompt", "evaluator", kindContext, "evaluator", evaluator(prepared), shapeOf(need("prompt", text))),
		row("evaluator.process", "evaluator", kindEvent, "evaluator", evaluator(prepared, opt("output", anyJSON)),
			shapeOf(opt("result", object))),
		row("responseHandlerEvaluator.shouldRun", "responseHandlerEvaluator", kindContext, "evaluator", response(), shouldRun()),
		row("responseHandlerEvaluator.evaluate", "responseHandlerEvaluator", kindEvent, "evaluator", response(), shapeOf(opt("patch", object))),
		row("responseHandlerFieldEvaluator.shouldRun", "responseHandlerFieldEvaluator", kindContext, "field", fieldEval(), shouldRun()),
		row("responseHandlerFieldEvaluator.parse", "responseHandlerFieldEvaluator", kindContext, "field", fieldEval(opt("value", anyJSON)),
			shapeOf(opt("value", anyJSON), opt("softFail", boolean))),
		row("responseHandlerFieldEvaluator.handle", "responseHandlerFieldEvaluator", kindEvent, "field",
			fieldEval(opt("value", anyJSON), opt("parsed", object)), shapeOf(opt("effect", record).of(effect))),
	}
}

func hostMethods() []Method {
	external := capability.EffectExternal
	return []Method{
		{
			Name: "plugin.lifecycle.call", Family: FamilyPlugin, Surface: "lifecycle", Target: "hook", Effect: external,
			params: plugin(need("hook", text).among(LifecycleHooks()...), opt("config", textMap), opt("context", object)),
			result: shapeOf(need("ok", boolean)),
		},
		{
			Name: "plugin.event.handle", Family: FamilyPlugin, Surface: "event", Kind: kindEvent, Target: "eventName", Effect: external,
			params: plugin(named("eventName"), opt("payload", object)), result: shapeOf(need("handled", boolean)),
		},
		{
			Name: "plugin.model.invoke", Family: FamilyPlugin, Surface: "model", Kind: kindBackend, Target: "modelType", Effect: external,
			params: plugin(named("modelType"), opt("params", anyJSON)), result: shapeOf(need("result", anyJSON)),
		},
		{
			Name: "plugin.service.call", Family: FamilyPlugin, Surface: "service", Kind: kindRPC, Target: "serviceType", Effect: external,
			params: plugin(named("serviceType"), need("method", text).where(serviceMethod), opt("args", list)),
			result: shapeOf(opt("result", anyJSON)),
		},
		{
			Name: "plugin.appBridge.call", Family: FamilyPlugin, Surface: "appBridge", Target: "hook", Effect: external,
			params: plugin(need("hook", text).among(AppBridgeHooks()...), opt("context", object)), result: shapeOf(opt("result", anyJSON)),
		},
	}
}

// LifecycleHooks returns the hooks of plugin.lifecycle.call.
func LifecycleHooks() []string { return []string{"init", "dispose", "applyConfig"} }

// AppBridgeHooks returns the hooks of plugin.appBridge.call.
func AppBridgeHooks() []string {
	return []string{
		"prepareLaunch", "resolveViewerAuthMessage", "ensureRuntimeReady", "collectLaunchDiagnostics",
		"resolveLaunchSession", "refreshRunSession", "stopRun", "handleAppRoutes",
	}
}

var errNotOneOf = errors.New("is not one of the values the protocol knows")

func oneOf(values ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(values, s) {
			return nil
		}
		return errNotOneOf
	}
}
