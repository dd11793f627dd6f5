package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const objectSchema = `{"type":"object"}`

// whole is a module with every surface; each closure answers with what it got.
func whole(id string) Module {
	echo := func(_ context.Context, about json.RawMessage) (any, error) { return about, nil }
	return Module{
		ID: id, Name: "@test/" + id, Version: "1.2.3", Description: "Everything.", Priority: new(2.5), Contexts: []string{"general"},
		Config: map[string]any{"level": 3, "on": true, "name": "x", "none": nil}, Schema: json.RawMessage(objectSchema),
		Metadata: json.RawMessage(`{"a":1}`),
		Actions: []Action{{
			Name: "DO", Description: "Does.", Parameters: json.RawMessage(`{}`),
			Handle: func(_ context.Context, content, options json.RawMessage) (ActionResult, error) {
				return ActionResult{Text: "done", Actions: []string{"NEXT"}, Values: content, Data: options}, nil
			},
		}},
		Providers: []Provider{{Name: "P", Dynamic: true, Get: func(_ context.Context, state json.RawMessage) (ProviderResult, error) {
			return ProviderResult{Data: state}, nil
		}}},
		Evaluators: []Evaluator{
			{Name: "E", Description: "Looks.", Prompt: "Look.", Schema: json.RawMessage(objectSchema)},
			{
				Name: "F", Description: "Looks.", Prompt: "Look.", Schema: json.RawMessage(objectSchema),
				ShouldRun:   func(context.Context, EvaluatorCall) (bool, error) { return false, nil },
				Prepare:     func(_ context.Context, c EvaluatorCall) (any, error) { return c.Message, nil },
				BuildPrompt: func(_ context.Context, c EvaluatorCall) (string, error) { return string(c.Prepared), nil },
				Process:     func(_ context.Context, c EvaluatorCall) (any, error) { return c.Output, nil },
			},
		},
		ResponseEvaluators: []ResponseEvaluator{{Name: "R"}, {
			Name:     "S",
			Evaluate: func(_ context.Context, about json.RawMessage) (any, error) { return about, nil },
		}},
		FieldEvaluators: []FieldEvaluator{
			{Name: "g", Description: "Reads.", Schema: json.RawMessage(objectSchema)},
			{
				Name: "h", Description: "Reads.", Schema: json.RawMessage(objectSchema),
				Parse: func(context.Context, FieldCall) (any, bool, error) { return nil, false, nil },
				Handle: func(_ context.Context, c FieldCall) (FieldEffect, error) {
					return FieldEffect{Patch: c.Parsed, Preempt: &Preempt{Mode: "ignore"}, Debug: []string{"x"}}, nil
				},
			},
		},
		Events: []Event{{Name: "e", Handle: func(context.Context, json.RawMessage) (bool, error) { return true, nil }}},
		Models: []Model{{
			Type: "TEXT_SMALL", Priority: new(1.0),
			Invoke: func(_ context.Context, params json.RawMessage) (any, error) { return params, nil },
		}},
		Services: []Service{{
			Type: "s.t", Config: json.RawMessage(`{}`),
			Methods: []ServiceMethod{
				{"all", func(_ context.Context, args []json.RawMessage) (any, error) { return args, nil }},
				{"none", func(context.Context, []json.RawMessage) (any, error) { return nil, nil }},
			},
		}},
		ComponentTypes: []ComponentType{{Name: "c", Schema: json.RawMessage(objectSchema)}},
		Widgets:        []Widget{{ID: "w", Label: "W", Slot: SlotNavPage, Kind: KindDeveloper}},
		App:            &App{DisplayName: "App", LaunchURL: "https://example.com/", NavTabs: []NavTab{{ID: "t", Label: "T", Path: "/t"}}},
		AppBridge:      AppBridge{StopRun: echo, PrepareLaunch: echo},
		Lifecycle:      Lifecycle{Init: func(_ context.Context, config map[string]string, _ json.RawMessage) error { return checkLevel(config) }},
		Routes: []Route{
			{
				Method: "GET", Path: "/a/:x/b/:rest*", Public: &Public{Reason: "It tells nothing."},
				Handle: func(_ context.Context, r RouteRequest) (RouteResponse, error) {
					return RouteResponse{
						Status: 201, Headers: map[string]string{"x-y": "z"},
						Body: map[string]any{"params": r.Params, "query": r.Query, "headers": r.Headers},
					}, nil
				},
			},
			{Method: "POST", Path: "/a", Handle: func(_ context.Context, r RouteRequest) (RouteResponse, error) {
				return RouteResponse{Body: r.Body}, nil
			}},
		},
		Views:  []View{{ID: "v", Label: "V", Bundle: []byte("export {}")}, {ID: "far", Label: "Far", URL: "https://example.com/v.js"}},
		Assets: []Asset{{Path: "assets/v.css", ContentType: "text/css", Body: []byte("p{}")}},
	}
}

func checkLevel(config map[string]string) error {
	if config["level"] == "bad" {
		return capability.Errorf(capability.CodeInvalidInput, "", "level is bad")
	}
	return nil
}

func TestEverySurfaceAnswers(t *testing.T) {
	t.Parallel()
	e, err := NewEndpoint(whole("a"), whole("b"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ method, params, want string }{
		{
			"action.invoke", `"action":"DO","content":{"n":1.50},"options":{"o":1}`,
			`{"text":"done","actions":["NEXT"],"values":{"n":1.50},"data":{"o":1}}`,
		},
		{"action.invoke", `"action":"DO"`, `{"text":"done","actions":["NEXT"],"values":{},"data":{}}`},
		{"provider.get", `"provider":"P","state":{"s":1}`, `{"data":{"s":1}}`},
		{"event.handle", `"eventName":"e"`, `{"handled":true}`},
		{"model.invoke", `"modelType":"TEXT_SMALL","params":[1]`, `{"result":[1]}`},
		{"service.call", `"serviceType":"s.t","method":"all","args":[1,{}]`, `{"result":[1,{}]}`},
		{"service.call", `"serviceType":"s.t","method":"none"`, `{"result":null}`},
		{"lifecycle.call", `"hook":"init","config":{"level":"1"}`, `{"ok":true}`},
		{"appBridge.call", `"hook":"stopRun","context":{"r":1}`, `{"result":{"r":1}}`},
		{"evaluator.shouldRun", `"evaluator":"E"`, `{"shouldRun":true}`},
		{"evaluator.prepare", `"evaluator":"E"`, `{}`},
		{"evaluator.prompt", `"evaluator":"E"`, `{"prompt":"Look."}`},
		{"evaluator.process", `"evaluator":"E","output":{"x":1}`, `{"result":{}}`},
		{"evaluator.shouldRun", `"evaluator":"F"`, `{"shouldRun":false}`},
		{"evaluator.prepare", `"evaluator":"F","message":{"m":1}`, `{"prepared":{"m":1}}`},
		{"evaluator.prompt", `"evaluator":"F","prepared":[7]`, `{"prompt":"[7]"}`},
		{"evaluator.process", `"evaluator":"F","output":{"x":1}`, `{"result":{"x":1}}`},
		{"responseHandlerEvaluator.shouldRun", `"evaluator":"R"`, `{"shouldRun":true}`},
		{"responseHandlerEvaluator.evaluate", `"evaluator":"R"`, `{"patch":{}}`},
		{"responseHandlerEvaluator.evaluate", `"evaluator":"S","context":{"c":1}`, `{"patch":{"c":1}}`},
		{"responseHandlerFieldEvaluator.shouldRun", `"field":"g"`, `{"shouldRun":true}`},
		{"responseHandlerFieldEvaluator.parse", `"field":"g","value":null`, `{"value":null}`},
		{"responseHandlerFieldEvaluator.parse", `"field":"g"`, `{"softFail":true}`},
		{"responseHandlerFieldEvaluator.handle", `"field":"g"`, `{"effect":{}}`},
		{"responseHandlerFieldEvaluator.parse", `"field":"h","value":1`, `{"softFail":true}`},
		{
			"responseHandlerFieldEvaluator.handle", `"field":"h","parsed":{"p":1}`,
			`{"effect":{"patch":{"p":1},"preempt":{"mode":"ignore","reason":""},"debug":["x"]}}`,
		},
		{
			"route.call", `"method":"GET","path":"/a/%C3%A4/b/c/d","query":{"q":["1","2"],"r":"3"},"headers":{"h":"i"}`,
			`{"status":201,"headers":{"x-y":"z"},"body":{"headers":{"h":"i"},"params":{"rest":"c/d","x":"ä"},"query":{"q":["1","2"],"r":["3"]}}}`,
		},
		{"route.call", `"method":"POST","path":"/a","body":{"b":1}`, `{"status":200,"body":{"b":1}}`},
		{"asset.get", `"path":"assets/v.css"`, `{"path":"/assets/v.css","contentType":"text/css","bodyBase64":"cHt9","integrity":"` +
			router.Integrity([]byte("p{}")) + `"}`},
	} {
		t.Run(tt.method+" "+tt.params, func(t *testing.T) {
			t.Parallel()
			raw, err := e.Invoke(t.Context(), "plugin."+tt.method, json.RawMessage(`{"moduleId":"b",`+tt.params+`}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(raw)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheManifestSpeaksToEveryGeneration(t *testing.T) {
	t.Parallel()
	e, err := NewEndpoint(whole("a"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := e.Invoke(t.Context(), "plugin.modules.list", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"slot":"nav-page","label":"W","developerOnly":true,"viewKind":"developer"`,
		`"displayName":"App","launchUrl":"https://example.com/","developerOnly":false,"viewKind":"release","navTabs":[{"id":"t","label":"T","path":"/t","developerOnly":false,"viewKind":"release"}]`,
		`"public":true,"publicReason":"It tells nothing."`,
		`"appBridge":{"hooks":["prepareLaunch","stopRun"]},"lifecycle":{"hooks":["init"]}`,
		`"bundlePath":"/assets/v.js","contentType":"text/javascript","viewKind":"release","integrity":"` + router.Integrity([]byte("export {}")),
		`"hasPrepare":false,"hasProcessor":false`, `"hasPrepare":true,"hasProcessor":true`, `"hasParse":true,"hasHandle":true`,
		`"parameters":{}`, `"methods":["all","none"]`,
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("the manifest lacks %s:\n%s\nwant string(raw) with %v", want, raw, want)
		}
	}
	if modules, err := router.DecodeModules(raw, router.Limits{}); err != nil || string(modules[0].Raw) == "" || len(modules[0].Views) != 2 {
		t.Errorf(`%v; want no error, string(modules[0].Raw) other than "", len(modules[0].Views) = 2`, err)
	}
}

func TestAWrongDeclarationIsNamedAtStart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Module)
		want   string
	}{
		{"id", func(m *Module) { m.ID = "a:b" }, `"id"`},
		{"name", func(m *Module) { m.Name = " " }, `"name"`},
		{"config", func(m *Module) { m.Config["x"] = []int{1} }, "config"},
		{"schema", func(m *Module) { m.Schema = json.RawMessage(`[]`) }, "schema"},
		{"malformed JSON", func(m *Module) { m.Metadata = json.RawMessage(`{`) }, "cannot be encoded"},
		{"nil action closure", func(m *Module) { m.Actions[0].Handle = nil }, "Actions[0].Handle"},
		{"nil provider closure", func(m *Module) { m.Providers[0].Get = nil }, "Providers[0].Get"},
		{"nil event closure", func(m *Module) { m.Events[0].Handle = nil }, "Events[0].Handle"},
		{"nil model closure", func(m *Module) { m.Models[0].Invoke = nil }, "Models[0].Invoke"},
		{"nil service closure", func(m *Module) { m.Services[0].Methods[1].Call = nil }, "Services[0].Methods[1].Call"},
		{"nil route closure", func(m *Module) { m.Routes[1].Handle = nil }, "Routes[1].Handle"},
		{"action without a description", func(m *Module) { m.Actions[0].Description = "" }, `actions`},
		{"repeated action", func(m *Module) { m.Actions = append(m.Actions, m.Actions[0]) }, "Actions[1] repeats"},
		{"repeated route", func(m *Module) { m.Routes = append(m.Routes, m.Routes[0]) }, "Routes[2] repeats"},
		{"evaluator without a schema", func(m *Module) { m.Evaluators[0].Schema = nil }, "evaluators"},
		{"reserved service method", func(m *Module) { m.Services[0].Methods[0].Name = "constructor" }, "services"},
		{"component schema", func(m *Module) { m.ComponentTypes[0].Schema = json.RawMessage(`{}`) }, "componentTypes"},
		{"slot", func(m *Module) { m.Widgets[0].Slot = "wallet" }, "Widgets[0].Slot"},
		{"view kind", func(m *Module) { m.Widgets[0].Kind = "secret" }, "/widgets/0/viewKind"},
		{"view kind of a tab", func(m *Module) { m.App.NavTabs[0].Kind = "secret" }, "/app/navTabs/0/viewKind"},
		{"launch URL", func(m *Module) { m.App.LaunchURL = "ftp://x/" }, "launchUrl"},
		{"nav path", func(m *Module) { m.App.NavTabs[0].Path = "t" }, "navTabs"},
		{"route verb", func(m *Module) { m.Routes[0].Method = "STATIC" }, "Routes[0].Method"},
		{"route path", func(m *Module) { m.Routes[0].Path = "/a/" }, "routes"},
		{"public without reason", func(m *Module) { m.Routes[0].Public.Reason = " " }, "Routes[0].Public.Reason"},
		{"public write without reason", func(m *Module) { m.Routes[1].Public = &Public{Reason: "r"} }, "Routes[1].Public.Write"},
		{"view type", func(m *Module) { m.Views[0].Type = "xr" }, "Views[0].Type"},
		{"view without a bundle", func(m *Module) { m.Views[0].Bundle = nil }, "Views[0].Bundle"},
		{"view with both", func(m *Module) { m.Views[0].URL = "https://x/" }, "Views[0].Bundle"},
		{"bundle that is not a script", func(m *Module) { m.Views[0].Path = "/a.html" }, "Views[0].Path"},
		{"asset path", func(m *Module) { m.Assets[0].Path = "../x" }, "Assets[0].Path"},
		{"asset path twice", func(m *Module) { m.Assets[0].Path = "/assets/v.js" }, "Assets[0].Path"},
		{"asset type", func(m *Module) { m.Assets[0].ContentType = "a\r\nb" }, "Assets[0].ContentType"},
		{"provenance", func(m *Module) { m.Provenance = &router.Provenance{Issuer: "i"} }, "provenance"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := whole("a")
			tt.change(&m)
			_, err := NewEndpoint(m)
			if capability.CodeOf(err) != capability.CodeInvalidInput || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v does not name %s; want capability.CodeOf(err) = capability.CodeInvalidInput, err.Error() with %v",
					err, tt.want, tt.want)
			}
		})
	}
	if _, err := NewEndpoint(); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("no module: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
	if _, err := NewEndpoint(whole("a"), whole("a")); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf(`one id twice: %v; want an error, err.Error() with "twice"`, err)
	}
}

func TestFailuresOfHandlersAreNamedAtTheirSource(t *testing.T) {
	t.Parallel()
	shared := capability.Errorf(capability.CodeNotFound, "x", "no such thing")
	tests := []struct {
		name   string
		handle func(context.Context) (ActionResult, error)
		code   string // of the wire
		says   string
		hides  string
	}{
		{
			"panic", func(context.Context) (ActionResult, error) { panic("inner detail") }, router.CodeRequestFailed, "m:action:DO broke",
			"inner detail",
		},
		{
			"foreign error", func(context.Context) (ActionResult, error) { return ActionResult{}, errors.New("inner detail") },
			router.CodeRequestFailed, "m:action:DO failed", "inner detail",
		},
		{"own error", func(context.Context) (ActionResult, error) { return ActionResult{}, shared }, "", "no such thing", ""},
		{"wire error", func(context.Context) (ActionResult, error) {
			return ActionResult{}, &router.Error{Code: router.CodeUnavailable, Message: "gone"}
		}, router.CodeUnavailable, "gone", ""},
		{
			"deadline", func(context.Context) (ActionResult, error) { return ActionResult{}, context.DeadlineExceeded }, router.CodeRequestFailed,
			"", "",
		},
		{
			"values are not an object", func(context.Context) (ActionResult, error) { return ActionResult{Values: 7}, nil }, router.CodeDecodeFailed,
			"m:action:DO answered against the protocol", "",
		},
		{
			"data is null", func(context.Context) (ActionResult, error) { return ActionResult{Data: json.RawMessage(nil)}, nil },
			router.CodeDecodeFailed, "data", "",
		},
		{
			"not JSON", func(context.Context) (ActionResult, error) { return ActionResult{Data: make(chan int)}, nil }, router.CodeRequestFailed,
			"cannot be encoded", "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, err := NewEndpoint(Module{ID: "m", Name: "m", Actions: []Action{{
				Name: "DO", Description: "Does.",
				Handle: func(ctx context.Context, _, _ json.RawMessage) (ActionResult, error) { return tt.handle(ctx) },
			}}})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(e.Handler(secret.Value{}))
			defer server.Close()
			client, err := router.NewClient(router.ClientConfig{BaseURL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdle()
			_, err = client.Invoke(t.Context(), "plugin.action.invoke", json.RawMessage(`{"moduleId":"m","action":"DO"}`))
			wire, ok := errors.AsType[*router.Error](err)
			if !ok || tt.code != "" && wire.Code != tt.code || !strings.Contains(wire.Message, tt.says) {
				t.Fatalf(`%#v; want ok = true, not (tt.code != "" && wire.Code != tt.code), wire.Message with %v`, err, tt.says)
			}
			if tt.hides != "" && strings.Contains(fmt.Sprint(wire.Message, string(wire.Details)), tt.hides) {
				t.Errorf("the answer tells strangers %q", tt.hides)
			}
			if _, err := client.Availability(t.Context()); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
	if shared.Target != "" {
		t.Errorf(`a handler's shared error was changed; got shared.Target = %q; want shared.Target = ""`, shared.Target)
	}
}

func TestUnknownThingsAreUnknown(t *testing.T) {
	t.Parallel()
	e, err := NewEndpoint(whole("a"))
	if err != nil {
		t.Fatal(err)
	}
	for method, params := range map[string]string{
		"plugin.action.invoke": `{"moduleId":"a","action":"NO"}`, "plugin.route.call": `{"moduleId":"a","method":"PUT","path":"/a"}`,
		"plugin.service.call": `{"moduleId":"a","serviceType":"s.t","method":"no"}`, "plugin.appBridge.call": `{"moduleId":"a","hook":"launch"}`,
		"plugin.provider.get": `{"moduleId":"z","provider":"P"}`, "plugin.no": `{}`,
	} {
		if _, err := e.Invoke(t.Context(), method, json.RawMessage(params)); capability.CodeOf(err) != capability.CodeUnknownCapability {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeUnknownCapability", method, err)
		}
	}
	if _, err := e.Invoke(t.Context(), "fs.list", json.RawMessage(`{}`)); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
	if _, err := e.Invoke(t.Context(), "plugin.asset.get", json.RawMessage(`{"moduleId":"a","path":"x.js"}`)); capability.CodeOf(
		err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf( err) = capability.CodeNotFound", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Invoke(cancelled, "plugin.action.invoke", json.RawMessage(`{"moduleId":"a","action":"DO"}`)); capability.CodeOf(
		err) != capability.CodeCancelled {
		t.Errorf("%v; want capability.CodeOf( err) = capability.CodeCancelled", err)
	}
}

func TestOnlyOpenEndpointsOpenTheirAssets(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]string{"": "*", "t": ""} {
		e, err := NewEndpoint(whole("a"))
		if err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequest(http.MethodGet, router.PathAssets+"a/assets/v.js", nil)
		req.Header.Set("Authorization", "Bearer t")
		w := httptest.NewRecorder()
		e.Handler(secret.New(token)).ServeHTTP(w, req)
		if w.Code != http.StatusOK || w.Header().Get("Access-Control-Allow-Origin") != want || w.Body.String() != "export {}" {
			t.Errorf(`token %q: %d %v; want w.Code = http.StatusOK, w.Header().Get("Access-Control-Allow-Origin") = %v, `+
				`w.Body.String() = "export {}"`, token, w.Code, w.Header(), want)
		}
	}
}

func TestAHostsFunctionsBecomeActions(t *testing.T) {
	t.Parallel()
	h := New(Config{})
	list := Function{ID: "list", Action: "fs.list", Handle: func(context.Context, capability.Call) (capability.Result, error) {
		return capability.Result{Value: json.RawMessage(`[1]`)}, nil
	}}
	if err := h.Register(echo("same"), list, Function{
		ID: "later", Tool: "later", Effect: "read",
		Unavailable: "it is not plugged in",
	}); err != nil {
		t.Fatal(err)
	}
	e, err := NewEndpoint(ModuleOf("box", "@test/box", h))
	if err != nil {
		t.Fatal(err)
	}
	for params, want := range map[string]string{
		`"action":"same","content":{"x":1}`: `{"data":{"x":1}}`, `"action":"same"`: `{"data":{}}`, `"action":"fs.list"`: `{"data":{"value":[1]}}`,
	} {
		raw, err := e.Invoke(t.Context(), "plugin.action.invoke", json.RawMessage(`{"moduleId":"box",`+params+`}`))
		if err != nil || string(raw) != want {
			t.Errorf("%s: %s, %v; want no error, string(raw) = %v", params, raw, err, want)
		}
	}
	if _, err := e.Invoke(t.Context(), "plugin.action.invoke", json.RawMessage(`{"moduleId":"box","action":"later"}`)); capability.CodeOf(
		err) != capability.CodeUnavailable {
		t.Errorf("%v; want capability.CodeOf( err) = capability.CodeUnavailable", err)
	}
}

func TestEndpointsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	e, err := NewEndpoint(whole("a"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				for _, m := range []string{"plugin.modules.list", "plugin.action.invoke"} {
					if _, err := e.Invoke(t.Context(), m, json.RawMessage(`{"moduleId":"a","action":"DO"}`)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}
