package routerserve_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const shopRoutes = `"routes":[
	{"method":"GET","path":"/items/:id"},{"method":"GET","path":"/items/new"},{"method":"GET","path":"/items/:rest*"},
	{"method":"GET","path":"/:kind/:id"},{"method":"PUT","path":"/items/:id"},{"method":"GET","path":"/a b"},{"method":"GET","path":"/"},
	{"method":"POST","path":"/items","public":true,"publicReason":"a form"},{"method":"DELETE","path":"/items/:id"},{"method":"PATCH","path":"/items/:id"}]`

func TestARouteIsFoundLiteralFirst(t *testing.T) {
	rg := newStack(t, shopRoutes)
	rg.say("plugin.route.call", `{"status":200}`)
	for _, test := range []struct{ method, path, sent string }{
		{"GET", "/items/new", "/items/new"},
		{"GET", "/items/7", "/items/7"},
		{"GET", "/items/7/parts/2", "/items/7/parts/2"},
		{"GET", "/things/7", "/things/7"},
		{"GET", "/a%20b", "/a b"},
		{"GET", "/items/%C3%BC", "/items/%C3%BC"},
		{"GET", "/", "/"},
		{"GET", "", "/"},
		{"PUT", "/items/7", "/items/7"},
		{"PATCH", "/items/7", "/items/7"},
		{"DELETE", "/items/7", "/items/7"},
		{"POST", "/items", "/items"},
	} {
		got := rg.do(test.method, "/api/modules/shop"+test.path, rg.admin, "")
		got.want(t, test.method+" "+test.path, 200)
		method, params := rg.last()
		if method != "plugin.route.call" || params["path"] != test.sent || params["method"] != test.method || params["moduleId"] != "shop" {
			t.Errorf(`%s %s became %s %v; want method = "plugin.route.call", params["path"] = %v, params["method"] = %v, `+
				`params["moduleId"] = "shop"`, test.method, test.path, method, params, test.sent, test.method)
		}
	}
}

func TestADispatchThatCannotBeIsRefusedBeforeTheRemote(t *testing.T) {
	rg := newStack(t, shopRoutes)
	rg.say("plugin.route.call", `{"status":200}`)
	for _, test := range []struct {
		name, method, path, token, body string
		headers                         []string
		status                          int
		code                            string
	}{
		{"no token", "GET", "/items/1", "", "", nil, 401, "unauthenticated"},
		{"no token on a route that calls itself public", "POST", "/items", "", "", nil, 401, "unauthenticated"},
		{"an agent may not write without consent", "POST", "/items", rg.agent, "", nil, 403, "approval_required"},
		{"no such method anywhere", "OPTIONS", "/items/1", rg.admin, "", nil, 405, "method_not_allowed"},
		{"no such method here", "POST", "/items/1", rg.admin, "", nil, 405, "use DELETE, GET, PATCH, PUT"},
		{"nothing there", "GET", "/none/at/all", rg.admin, "", nil, 404, "unknown_capability"},
		{"an empty segment", "GET", "/items//1", rg.admin, "", nil, 400, "invalid_input"},
		{"an escaped dot-dot", "GET", "/items/%2e%2e", rg.admin, "", nil, 400, "invalid_input"},
		{"an escaped slash", "GET", "/items/a%2fb", rg.admin, "", nil, 400, "invalid_input"},
		{"broken JSON", "POST", "/items", rg.admin, `{"a":`, []string{"Content-Type", "application/json"}, 400, "invalid_input"},
		{"no type is JSON", "POST", "/items", rg.admin, `hello`, nil, 400, "invalid_input"},
		{"bytes that are not text", "POST", "/items", rg.admin, "\xff\xfe", []string{"Content-Type", "image/png"}, 400, "base64"},
		{"a packed body", "POST", "/items", rg.admin, "x", []string{"Content-Encoding", "gzip"}, 400, "invalid_input"},
		{"a broken query", "GET", "/items/1?a=%zz", rg.admin, "", nil, 400, "invalid_input"},
		{"a large body", "POST", "/items", rg.admin, `"` + strings.Repeat("x", 1<<20) + `"`, nil, 413, "too_large"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rg.do(test.method, "/api/modules/shop"+test.path, test.token, test.body, test.headers...).want(t, test.path, test.status, test.code)
		})
	}
	rg.do("GET", "/api/modules/%2e%2e/x", rg.admin, "").want(t, "no module id", 400, "MODULE/PATH")
	rg.do("GET", "/api/modules/other/x", rg.admin, "").want(t, "another module", 404, "unknown_capability")
	if n := rg.calls(); n != 0 {
		t.Errorf("the remote was asked %d times; want n = 0", n)
	}
}

func TestTheRemoteSeesTheRequestWithoutOurSecrets(t *testing.T) {
	rg := newStack(t, shopRoutes)
	rg.say("plugin.route.call", `{"status":200}`)
	rg.do("POST", "/api/modules/shop/items?one=1&many=a&many=b", rg.admin, `{"n":9007199254740993}`,
		"Content-Type", "application/json; charset=utf-8", "Cookie", "c=1", "X-Api-Key", "k", "X-Csrf-Token", "t", "X-Forwarded-For", "192.0.2.1",
		"X-Forwarded-Anything", "x", "Forwarded", "for=x", "Connection", "X-Hop", "X-Hop", "h", "X-Mine", "a", "X-Mine", "b", "X-Server-Token",
		"s").
		want(t, "post", 200)
	_, params := rg.last()
	want := map[string]any{"content-type": "application/json; charset=utf-8", "user-agent": "Go-http-client/1.1", "x-mine": "a, b"}
	if diff := cmp.Diff(want, params["headers"]); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"one": "1", "many": []any{"a", "b"}}, params["query"]); diff != "" {
		t.Errorf("query (-want +got):\n%s", diff)
	}
	if asked := rg.asked[len(rg.asked)-1]; !strings.Contains(asked, `"body":{"n":9007199254740993}`) {
		t.Errorf(`the body was changed: %s; want asked with "\"body\":{\"n\":9007199254740993}"`, asked)
	}
	rg.do("POST", "/api/modules/shop/items", rg.admin, "a=1&b", "Content-Type", "application/x-www-form-urlencoded").want(t, "text", 200)
	if _, params := rg.last(); params["body"] != "a=1&b" {
		t.Errorf(`text became %v; want params["body"] = "a=1&b"`, params["body"])
	}
	rg.do("DELETE", "/api/modules/shop/items/1", rg.admin, "").want(t, "no body", 200)
	if _, params := rg.last(); params["body"] != nil || params["query"] != nil {
		t.Errorf(`nothing became %v; want params["body"] = nil, params["query"] = nil`, params)
	}
}

func TestTheAnswerIsAStrangers(t *testing.T) {
	rg := newStack(t, shopRoutes)
	for _, test := range []struct {
		name, result, body string
		status             int
		want               map[string]string
	}{
		{
			"an object", `{"status":201,"headers":{"content-type":"text/html","x-own":"1"},"body":{"a":1}}`, `{"a":1}`, 201,
			map[string]string{
				"Content-Type": "application/json", "X-Own": "1", "Content-Security-Policy": "sandbox",
				"X-Content-Type-Options": "nosniff", "Content-Length": "7",
			},
		},
		{
			"JSON of its own type", `{"status":200,"headers":{"Content-Type":"application/problem+json"},"body":[1]}`, `[1]`, 200,
			map[string]string{"Content-Type": "application/problem+json"},
		},
		{"text", `{"status":200,"body":"hi"}`, "hi", 200, map[string]string{"Content-Type": "text/plain; charset=utf-8"}},
		{
			"a page", `{"status":200,"headers":{"content-type":"text/html"},"body":"<p>"}`, "<p>", 200,
			map[string]string{"Content-Type": "text/html", "Content-Security-Policy": "sandbox"},
		},
		{
			"a length that lies", `{"status":200,"headers":{"content-length":"9999","transfer-encoding":"chunked"},"body":"hi"}`, "hi", 200,
			map[string]string{"Content-Length": "2"},
		},
		{"nothing", `{"status":200}`, "", 200, map[string]string{"Content-Length": "0", "Content-Type": ""}},
		{"no content", `{"status":204,"body":"x"}`, "", 204, map[string]string{"Content-Length": ""}},
		{
			"what governs our origin", `{"status":200,"headers":{"set-cookie":"a=b","access-control-allow-origin":"*","content-security-policy":"default-src *","clear-site-data":"*","X-Junctor-Invocation":"forged","refresh":"0;url=//x","strict-transport-security":"max-age=1"}}`, "", 200,
			map[string]string{
				"Set-Cookie": "", "Access-Control-Allow-Origin": "", "Content-Security-Policy": "sandbox", "Clear-Site-Data": "",
				"Refresh": "", "Strict-Transport-Security": "",
			},
		},
		{"a foreign place", `{"status":302,"headers":{"location":"https://evil.example/x"}}`, "", 302, map[string]string{"Location": ""}},
		{
			"a foreign place without scheme", `{"status":302,"headers":{"location":"//evil.example/x"}}`, "", 302,
			map[string]string{"Location": ""},
		},
		{"a foreign place in disguise", `{"status":302,"headers":{"location":"/\\evil.example/x"}}`, "", 302, map[string]string{"Location": ""}},
		{"a script as a place", `{"status":302,"headers":{"location":"javascript:alert(1)"}}`, "", 302, map[string]string{"Location": ""}},
		{
			"a place of the module", `{"status":303,"headers":{"Location":"/items/1"}}`, "", 303,
			map[string]string{"Location": "/api/modules/shop/items/1"},
		},
		{"a place beside", `{"status":303,"headers":{"Location":"2?x=1"}}`, "", 303, map[string]string{"Location": "2?x=1"}},
		{"a status of its own", `{"status":418,"body":"tea"}`, "tea", 418, nil},
		{"a status that is not one of an answer", `{"status":101}`, "", 502, nil},
		{"no status", `{}`, "", 502, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			rg.say("plugin.route.call", test.result)
			got := rg.do("GET", "/api/modules/shop/items/1", rg.agent, "")
			if got.status != test.status || test.status != 502 && got.body != test.body {
				t.Errorf("%d %q, want %d %q", got.status, got.body, test.status, test.body)
			}
			for name, want := range test.want {
				if got.header.Get(name) != want {
					t.Errorf("%s is %q, want %q", name, got.header.Get(name), want)
				}
			}
			if run := got.header.Get("X-Junctor-Invocation"); !strings.HasPrefix(run, "run_") ||
				len(got.header.Values("X-Junctor-Invocation")) != 1 {
				t.Errorf(`the invocation is %q; want run beginning with "run_", len(got.header.Values("X-Junctor-Invocation")) = 1`,
					run)
			}
		})
	}
}

func TestTheAppBridgeServesWhatNoRouteDoes(t *testing.T) {
	rg := newStack(t, `"routes":[{"method":"GET","path":"/own"}],"appBridge":{"hooks":["handleAppRoutes"]}`)
	rg.say("plugin.route.call", `{"status":200,"body":"route"}`)
	for _, test := range []struct {
		name, result, body string
		status             int
		headers            map[string]string
	}{
		{
			"handled", `{"handled":true,"status":202,"headers":{"x-n":7,"x-b":true,"x-drop":{"a":1},"set-cookie":"a"},"body":{"ok":1}}`, `{"ok":1}`,
			202,
			map[string]string{"X-N": "7", "X-B": "true", "X-Drop": "", "Set-Cookie": ""},
		},
		{"without a status", `{"handled":true,"body":"text"}`, "text", 200, nil},
		{"a status that is not a number", `{"handled":true,"status":"500"}`, "", 200, nil},
		{"not handled", `{"handled":false}`, "", 404, nil},
		{"not an object", `"handled"`, "", 404, nil},
		{"a status out of range", `{"handled":true,"status":99}`, "", 502, nil},
		{"a header that is not a token", `{"handled":true,"headers":{"a b":"c"}}`, "", 502, nil},
		{"a header of two lines", `{"handled":true,"headers":{"a":"b\r\nc: d"}}`, "", 502, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			rg.say("plugin.appBridge.call", `{"result":`+test.result+`}`)
			got := rg.do("POST", "/api/modules/shop/any/where?q=1", rg.admin, `{"in":1}`, "Authorization-Extra", "x")
			if got.status != test.status || test.status < 300 && got.body != test.body {
				t.Errorf("%d %q, want %d %q", got.status, got.body, test.status, test.body)
			}
			for name, want := range test.headers {
				if got.header.Get(name) != want {
					t.Errorf("%s is %q, want %q", name, got.header.Get(name), want)
				}
			}
		})
	}
	_, params := rg.last()
	raw, _ := json.Marshal(params["context"])
	var context struct {
		Method, Pathname, Path string
		Query                  map[string]any
		Headers                map[string]string
		Body                   map[string]any
	}
	if err := json.Unmarshal(raw, &context); err != nil {
		t.Fatal(err)
	}
	if context.Method != "POST" || context.Pathname != "/any/where" || context.Path != "/any/where" || context.Query["q"] != "1" ||
		context.Body["in"] != 1.0 || context.Headers["authorization"] != "" {
		t.Errorf(`the bridge was given %s; want context.Method = "POST", context.Pathname = "/any/where", context.Path = `+
			`"/any/where", context.Query["q"] = "1", context.Body["in"] = 1.0, context.Headers["authorization"] = ""`, raw)
	}
	rg.do(http.MethodGet, "/api/modules/shop/own", rg.agent, "").want(t, "a declared route goes first", 200, "route")
	rg.do(http.MethodGet, "/api/modules/shop/other", rg.agent, "").want(t, "an agent needs consent for the bridge", 403, "approval_required")
}

// In elizaOS an app's routes hang under the slug of its plugin, and its hook receives the whole path.
func TestAnAppIsServedUnderItsSlug(t *testing.T) {
	rg := newStack(t, `"routes":[{"method":"GET","path":"/api/apps/shop/own"}],"app":{"displayName":"Corner shop"},`+
		`"appBridge":{"hooks":["handleAppRoutes"]}`)
	rg.say("plugin.appBridge.call", `{"result":{"handled":true,"status":201,"headers":{"location":"/api/apps/shop/new"},"body":"made"}}`)
	for _, path := range []string{"/api/apps/shop/own", "/api/apps/Corner%20shop/items", "/api/apps/shop"} {
		got := rg.do("POST", path+"?q=1", rg.admin, `{"in":1}`)
		got.want(t, path, 201, "made")
		_, params := rg.last()
		context, _ := params["context"].(map[string]any)
		if context["pathname"] != path || params["moduleId"] != "shop" {
			t.Errorf("%s: the hook received %v of %v, want the whole path, of shop", path, context["pathname"], params["moduleId"])
		}
		if to := got.header.Get("Location"); to != "/api/apps/shop/new" {
			t.Errorf("%s: the location is %q, want /api/apps/shop/new", path, to)
		}
	}
	before := rg.calls()
	rg.do("GET", "/api/apps/shed/items", rg.admin, "").want(t, "an unknown app", 404, "unknown_capability")
	rg.do("GET", "/api/apps/shop/items", rg.agent, "").want(t, "an agent needs an approval", 403, "approval_required")
	rg.do("GET", "/api/apps/shop/items", "", "").want(t, "without a token", 401, "unauthenticated")
	there, absent := rg.do("GET", "/api/apps/shop/items", rg.node, ""), rg.do("GET", "/api/apps/shed/items", rg.node, "")
	if there.status != absent.status || there.body != strings.ReplaceAll(absent.body, "shed", "shop") {
		t.Errorf("a forbidden app: got %d %s, want the answer for an absent one, %d %s", there.status, there.body, absent.status, absent.body)
	}
	if now := rg.calls(); now != before {
		t.Errorf("the endpoint was asked %d times more, want 0", now-before)
	}
}

// An agent that loads the gateway's modules calls their init. They are initialized, for all.
func TestAnAgentLoadsAModuleWithoutAnApproval(t *testing.T) {
	rg := newStack(t, `"lifecycle":{"hooks":["init","dispose","applyConfig"]}`)
	rg.say("plugin.lifecycle.call", `{"ok":true}`)
	before := rg.calls()
	call := func(token, hook string) reply {
		return rg.do("POST", "/v1/capabilities/invoke", token,
			`{"method":"plugin.lifecycle.call","params":{"moduleId":"shop","hook":"`+hook+`","config":{}}}`)
	}
	for _, hook := range []string{"init", "dispose"} {
		call(rg.agent, hook).want(t, "an agent's "+hook, 200, `{"ok":true,"result":{"ok":true}}`)
	}
	call(rg.agent, "applyConfig").want(t, "an agent's applyConfig", 200, `"ok":false`, "approval_required")
	if now := rg.calls(); now != before {
		t.Errorf("the endpoint was asked %d times for the agent, want 0", now-before)
	}
	call(rg.node, "init").want(t, "init by a caller who may not use the module", 200, `"ok":false`, "unknown_capability")
	call(rg.admin, "init").want(t, "an operator's init", 200, `"ok":true`)
	if now := rg.calls(); now != before+1 {
		t.Errorf("the endpoint was asked %d times for the operator, want 1", now-before)
	}
}

// TestWhoMayNotCallLearnsNothing: what is there and forbidden answers as what is
// not there, on every door of a module.
func TestWhoMayNotCallLearnsNothing(t *testing.T) {
	rg := newStack(t, bundleView+","+shopRoutes)
	rg.say("plugin.asset.get", assetResult("/assets/main.js", "text/javascript", script, ""))
	rg.say("plugin.route.call", `{"status":200}`)
	for _, test := range []struct{ method, path, absent string }{
		{"GET", base + "far/shop/assets/main.js", base + "far/shed/assets/main.js"},
		{"GET", base + "far/shop/undeclared/x.js", base + "far/shed/undeclared/x.js"},
		{"GET", "/api/modules/shop/items/1", "/api/modules/shed/items/1"},
		{"POST", "/api/modules/shop/items/1", "/api/modules/shed/items/1"}, // 405 for who may
	} {
		there, absent := rg.do(test.method, test.path, rg.node, ""), rg.do(test.method, test.absent, rg.node, "")
		neutral := strings.NewReplacer("shed", "shop", "/items/:id", "/items/1")
		got, want := neutral.Replace(there.body), neutral.Replace(absent.body)
		if there.status != absent.status || got != want || !strings.Contains(there.body, "unknown_capability") {
			t.Errorf("%s %s, which is forbidden: %d %s; want the response for an absent module, %d %s, with unknown_capability", test.method,
				test.path, there.status, got, absent.status, want)
		}
		if there.header.Get("Allow") != "" {
			t.Errorf(`%s tells of its methods; want there.header.Get("Allow") = ""`, test.path)
		}
	}
	if n := rg.calls(); n != 0 {
		t.Errorf("the remote was asked %d times; want n = 0", n)
	}
}
