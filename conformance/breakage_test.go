package conformance_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/internal/endpoints/reference"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// broken is one way to break an endpoint, and how the harness must name it.
type broken struct {
	name    string
	how     breakage
	where   string // Fault.Where
	message string // part of Fault.Message
}

func brokenAvailability() []broken {
	const whole = `{"environment":"server","available":true,"capabilities":{"fs":false,"pty":false,"git":false,"model":false,"plugin":true}`
	replace := func(old, new string) func([]byte) []byte { return says(strings.ReplaceAll(whole+"}", old, new)) }
	return []broken{
		{"availability: null reason", body(availability, says(whole+`,"reason":null}`)), "availability", "reason"},
		{"availability: flag missing", body(availability, replace(`,"plugin":true`, ``)), "availability", "plugin"},
		{
			"availability: plugin not offered", body(availability, replace(`"plugin":true`, `"plugin":false`)), "availability",
			"capabilities.plugin must be true",
		},
		{"availability: not available", body(availability, replace(`"available":true`, `"available":false`)), "availability", "available and"},
		{"availability: unknown environment", body(availability, replace(`"server"`, `"moon"`)), "availability", "environment"},
		{"availability: not JSON", body(availability, says("up")), "availability", "not JSON"},
		{"availability: empty", body(availability, says("")), "availability", "empty"},
		{"availability: content type", header(availability, "Content-Type", "text/html"), "content type", "text/html"},
		{"availability: redirect", instead(availability, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}), "availability", "redirect"},
		{
			"availability: status 500", instead(availability, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }), "availability",
			"status 500",
		},
		{
			"availability: query string not ignored", instead(func(r *http.Request, _ string) bool { return r.URL.RawQuery != "" }, http.NotFound),
			"lenience", "?query",
		},
	}
}

func brokenManifests() []broken {
	const list = "plugin.modules.list"
	out := []broken{
		{"list: empty", modules(func([]any) []any { return []any{} }), list, "lists no module"},
		{"list: duplicate module id", modules(func(all []any) []any { return append(all, all[0]) }), list, "two modules have the id"},
		{"list: no array", becomes(list, `{"modules":{}}`), list, "modules"},
		{"list: missing", becomes(list, `{}`), list, "modules"},
		{"list: null result", becomes(list, `null`), list, "object"},
		{"list: content type", header(invoked(list), "Content-Type", "text/plain"), "content type", "text/plain"},
		{"list: foreign endpointId refused", refuseEndpointID, "foreign endpointId", "must be ignored"},
		{"list: differs when asked again", differs(), "repeat", "answers differently"},
		{
			"module with nothing to call", modules(func(all []any) []any { return append(all, object{"id": "bare", "name": "bare"}) }),
			"module bare", "no surface",
		},
		{"dialect n: public route without a reason", item("routes", "public", true), "dialect n", "publicReason"},
		{"dialect n: old slot", item("widgets", "slot", "wallet"), "dialect n", "slot"},
		{"dialect s: xr view", item("views", "viewType", "xr"), "dialect s", "viewType"},
	}
	for _, c := range []struct {
		list, name string
		value      any
		message    string
	}{
		{"", "id", nil, `"id"`},
		{"", "id", "a:b", `"id"`},
		{"", "id", "..", `"id"`},
		{"", "name", "  ", `"name"`},
		{"", "version", null, "version"},
		{"", "priority", "high", "priority"},
		{"", "config", object{"a": []any{}}, "config"},
		{"", "actions", object{}, "actions"},
		{"actions", "description", nil, "actions"},
		{"actions", "similes", null, "actions"},
		{"providers", "name", nil, "providers"},
		{"evaluators", "prompt", nil, "evaluators"},
		{"evaluators", "schema", nil, "evaluators"},
		{"responseHandlerEvaluators", "name", nil, "responseHandlerEvaluators"},
		{"responseHandlerFieldEvaluators", "schema", nil, "responseHandlerFieldEvaluators"},
		{"events", "eventName", nil, "events"},
		{"models", "modelType", nil, "models"},
		{"services", "serviceType", nil, "services"},
		{"services", "methods", []any{"constructor"}, "services"},
		{"componentTypes", "schema", object{}, "componentTypes"},
		{"widgets", "slot", "ceiling", "widgets"},
		{"app", "navTabs", []any{object{"id": "a", "label": "a", "path": "a"}}, "navTabs"},
		{"appBridge", "hooks", []any{}, "appBridge"},
		{"lifecycle", "hooks", []any{"explode"}, "lifecycle"},
		{"routes", "path", "/a/../b", "routes"},
		{"routes", "method", "get", "routes"},
		{"views", "bundlePath", "https://x/y.js", "views"},
		{"views", "id", nil, "views"},
	} {
		value, _ := json.Marshal(c.value)
		out = append(out, broken{"manifest: " + c.list + "." + c.name + "=" + string(value), item(c.list, c.name, c.value), list, c.message})
	}
	for surface, name := range map[string]string{
		"action": "actions", "provider": "providers", "route": "routes", "viewAsset": "views", "model": "models", "lifecycle": "lifecycle",
		"event": "events", "service": "services", "appBridge": "appBridge", "evaluator": "evaluators",
		"responseHandlerEvaluator": "responseHandlerEvaluators", "responseHandlerFieldEvaluator": "responseHandlerFieldEvaluators",
	} {
		out = append(out, broken{"surface not offered: " + surface, item("", name, nil), surface, "no module offers"})
	}
	return out
}

// refuseEndpointID takes the routing key of the caller for one of its own.
func refuseEndpointID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 1<<20 {
			next.ServeHTTP(w, r)
			return
		}
		text, _ := io.ReadAll(r.Body)
		if bytes.Contains(text, []byte("somebody-elses")) {
			_, _ = io.WriteString(w, `{"ok":false,"error":{"code":"CAPABILITY_UNAVAILABLE","message":"not configured"}}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		next.ServeHTTP(w, r)
	})
}

// differs answers each listing with another description.
func differs() breakage {
	var n atomic.Int64
	return modules(func(all []any) []any {
		all[0].(object)["description"] = strings.Repeat("x", int(n.Add(1)))
		return all
	})
}

func brokenAnswers() []broken {
	set := func(name string, value any) func(object) { return func(o object) { o[name] = value } }
	const asset = "plugin.asset.get"
	out := []broken{
		{"action: null text", result("plugin.action.invoke", set("text", nil)), "plugin.action.invoke", "text"},
		{"action: values no object", result("plugin.action.invoke", set("values", []any{})), "plugin.action.invoke", "values"},
		{"route: status 99", result("plugin.route.call", set("status", 99)), "plugin.route.call", "status"},
		{"route: status 500", result("plugin.route.call", set("status", 500)), "plugin.route.call", "status 500 is not 2xx"},
		{
			"route: header with CR", result("plugin.route.call", set("headers", object{"x-a": "b\r\nset-cookie: c"})), "plugin.route.call",
			"headers",
		},
		{"route: header name", result("plugin.route.call", set("headers", object{"x a": "b"})), "plugin.route.call", "headers"},
		{"route: empty body", result("plugin.route.call", set("body", object{})), "plugin.route.call", "body is empty"},
		{"route: no body", result("plugin.route.call", func(o object) { delete(o, "body") }), "plugin.route.call", "body is empty"},
		{"lifecycle: not ok", becomes("plugin.lifecycle.call", `{"ok":false}`), "plugin.lifecycle.call", "ok is not true"},
		{"event: not handled", becomes("plugin.event.handle", `{"handled":false}`), "plugin.event.handle", "handled is not true"},
		{
			"evaluator: shouldRun no boolean", becomes("plugin.evaluator.shouldRun", `{"shouldRun":"yes"}`), "plugin.evaluator.shouldRun",
			"shouldRun",
		},
		{"evaluator: blank prompt", becomes("plugin.evaluator.prompt", `{"prompt":" "}`), "plugin.evaluator.prompt", "prompt is empty"},
		{"evaluator: result no object", becomes("plugin.evaluator.process", `{"result":"x"}`), "plugin.evaluator.process", "result"},
		{"field: unknown preempt mode", becomes("plugin.responseHandlerFieldEvaluator.handle",
			`{"effect":{"preempt":{"mode":"shout","reason":""}}}`), "plugin.responseHandlerFieldEvaluator.handle", "mode"},
		{"asset: integrity of other bytes", result(asset, set("integrity", router.Integrity([]byte("other")))), asset, "integrity"},
		{
			"asset: other bytes", result(asset, set("bodyBase64", base64.StdEncoding.EncodeToString([]byte("other")))), asset,
			"integrity does not match",
		},
		{"asset: integrity without sha256", result(asset, set("integrity", "sha512-AAAA")), asset, "no sha256"},
		{"asset: empty", result(asset, set("bodyBase64", "")), asset, "asset is empty"},
		{"asset: line breaks in base64", result(asset, set("bodyBase64", "AA\nA=")), asset, "bodyBase64"},
		{"asset: HTML", result(asset, set("contentType", "text/html")), asset, "not a script"},
		{"asset: path of a page", result(asset, set("path", "/index.html")), asset, "does not end in .js"},
		{"asset: not the declared type", result(asset, set("contentType", "application/javascript")), asset, "is not the view's"},
		{"asset: manifest with another digest", item("views", "integrity", router.Integrity([]byte("x"))), asset, "is not the view's"},
	}
	for method, message := range map[string]string{
		"plugin.action.invoke": "needs one of", "plugin.provider.get": "needs one of", "plugin.route.call": "status", asset: "path",
		"plugin.model.invoke": "result", "plugin.lifecycle.call": "ok", "plugin.event.handle": "handled", "plugin.service.call": "result key",
		"plugin.appBridge.call": "result key", "plugin.evaluator.shouldRun": "shouldRun", "plugin.evaluator.prompt": "prompt",
		"plugin.evaluator.process": "result key", "plugin.responseHandlerEvaluator.shouldRun": "shouldRun",
		"plugin.responseHandlerEvaluator.evaluate": "patch key", "plugin.responseHandlerFieldEvaluator.shouldRun": "shouldRun",
		"plugin.responseHandlerFieldEvaluator.parse": "value or softFail", "plugin.responseHandlerFieldEvaluator.handle": "effect key",
	} {
		out = append(out, broken{"empty result: " + method, becomes(method, `{}`), method, message})
	}
	for _, m := range router.Methods() {
		if m.Family != router.FamilyPlugin || m.Surface == "module" {
			continue
		}
		out = append(
			out,
			broken{"null result: " + m.Name, becomes(m.Name, `null`), m.Name, "object"},
			broken{"method missing: " + m.Name, body(invoked(m.Name),
				says(`{"ok":false,"error":{"code":"CAPABILITY_UNAVAILABLE","message":"no such method"}}`)), m.Name, "no such method"},
		)
	}
	return out
}

// TestEveryBreakageIsNamed breaks one thing at a time in a sound endpoint.
func TestEveryBreakageIsNamed(t *testing.T) {
	t.Parallel()
	all := slices.Concat(brokenAvailability(), brokenManifests(), brokenAnswers(), brokenTransport())
	if len(all) < 40 {
		t.Fatalf("only %d breakages; want len(all) at least 40", len(all))
	}
	t.Logf("%d breakages", len(all))
	sound := reportOf(t, t, func(next http.Handler) http.Handler { return next }, conformance.DialectUnion, waitTimeout)
	if len(sound) > 0 {
		t.Fatalf("the endpoint is not sound to begin with: %v; want len(sound) at most 0", sound)
	}
	for _, b := range all {
		outer := t
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			dialect, _ := strings.CutPrefix(b.where, "dialect ")
			if dialect == b.where {
				dialect = ""
			}
			timeout := waitTimeout
			if b.name == neverEnds {
				timeout = time.Second // it is waited for in full
			}
			faults := reportOf(outer, t, b.how, conformance.Dialect(dialect), timeout)
			if !slices.ContainsFunc(faults, func(f conformance.Fault) bool {
				return f.Where == b.where && strings.Contains(f.Message, b.message)
			}) {
				t.Errorf("no fault says %s: …%s… in:\n%v", b.where, b.message, faults)
			}
		})
	}
}

// reportOf closes the endpoint with the outermost test only: a server that cut a
// giant body short lingers for half a second.
func reportOf(outer, t *testing.T, how breakage, dialect conformance.Dialect, timeout time.Duration) []conformance.Fault {
	t.Helper()
	ep, err := reference.New(reference.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(how(router.Handler(router.RequireToken(secret.New(token), ep), router.HandlerOptions{})))
	outer.Cleanup(func() { server.Close(); ep.Close() })
	_, err = conformance.Run(t.Context(), conformance.Options{
		BaseURL: server.URL, Token: secret.New(token), Timeout: timeout,
		Dialect: dialect,
	})
	failure, ok := errors.AsType[*conformance.Failure](err)
	if err != nil && !ok {
		t.Fatalf("%v; want not (err != nil && !ok)", err)
	}
	if failure == nil {
		return nil
	}
	return failure.Faults
}
