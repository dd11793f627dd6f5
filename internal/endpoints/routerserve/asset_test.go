package routerserve_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/endpoints/routerserve"
	"github.com/junctor-run/junctor/protocol/router"
)

const (
	script     = "export default 1\n"
	base       = "/api/capability-router/assets/"
	bundleView = `"views":[{"id":"main","label":"Main","bundlePath":"assets/main.js"},{"id":"doc","label":"Doc","bundlePath":"/top.js"}]`
)

func TestAnAssetIsServedAsAStrangersFile(t *testing.T) {
	rg := newStack(t, bundleView)
	rg.say("plugin.asset.get", assetResult("/assets/main.js", "text/javascript", script, router.Integrity([]byte(script))))
	got := rg.do("GET", base+"far/shop/assets/main.js", rg.agent, "")
	got.want(t, "a script", 200, script)
	for name, want := range map[string]string{
		"Content-Type": "text/javascript", "Content-Length": "17", "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff",
		router.HeaderIntegrity: router.Integrity([]byte(script)), "Content-Security-Policy": "",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.header.Get(name), want)
		}
	}
	if _, params := rg.last(); params["path"] != "/assets/main.js" || params["moduleId"] != "shop" {
		t.Errorf(`the endpoint was asked for %v; want params["path"] = "/assets/main.js", params["moduleId"] = "shop"`, params)
	}
	tag := got.header.Get("Etag")
	if again := rg.do("GET", base+"far/shop/assets/main.js", rg.agent, "", "If-None-Match", `"x", W/`+tag); tag == "" ||
		again.status != http.StatusNotModified || again.body != "" {
		t.Errorf(`with the tag %s: %d %s; want tag other than "", again.status = http.StatusNotModified, again.body = ""`,
			tag, again.status, again.body)
	}
	if head := rg.do("HEAD", base+"far/shop/assets/main.js", rg.agent, ""); head.status != 200 || head.header.Get("Content-Length") != "17" ||
		head.body != "" {
		t.Errorf(`HEAD: %d %v %q; want head.status = 200, head.header.Get("Content-Length") = "17", head.body = ""`,
			head.status, head.header, head.body)
	}
	for declared, want := range map[string]string{
		"text/html": "text/html", "image/svg+xml": "image/svg+xml", "text/javascript2": "text/javascript2",
		"nonsense;;": "application/octet-stream",
	} {
		rg.say("plugin.asset.get", assetResult("/assets/page", declared, "<script>", ""))
		page := rg.do("GET", base+"far/shop/assets/page", rg.agent, "")
		if page.status != 200 || page.header.Get("Content-Security-Policy") != "sandbox" || page.header.Get("Content-Type") != want {
			t.Errorf(`%s: %d %v; want page.status = 200, page.header.Get("Content-Security-Policy") = "sandbox", `+
				`page.header.Get("Content-Type") = %v`, declared, page.status, page.header, want)
		}
	}
}

func TestTheProxyChecksInTheOrderOfTheSpecification(t *testing.T) {
	rg := newStack(t, bundleView)
	rg.say("plugin.asset.get", assetResult("/assets/main.js", "text/javascript", script, ""))
	for _, test := range []struct {
		name, method, path, token string
		headers                   []string
		status                    int
	}{
		{"no token", "PUT", "far/shop/x.js", "", nil, 401},
		{"another method goes before the platform", "POST", "far//x.js", rg.agent, []string{"X-Eliza-Platform", "ios"}, 405},
		{"the platform goes before the form", "GET", "far//x.js", rg.agent, []string{"X-Eliza-Platform", "ios"}, 403},
		{"android", "GET", "far/shop/assets/main.js", rg.agent, []string{"X-Eliza-Platform", "android"}, 403},
		{"a shell on iOS", "GET", "far/shop/assets/main.js", rg.agent, []string{"User-Agent", "Mozilla CAPACITOR/5 ios"}, 403},
		{"a shell on Android", "GET", "far/shop/assets/main.js", rg.agent, []string{"User-Agent", "Capacitor Android"}, 403},
		{"the platform's name is exact", "GET", "far/shop/assets/main.js", rg.agent, []string{"X-Eliza-Platform", "iOS"}, 200},
		{"iOS without the shell", "GET", "far/shop/assets/main.js", rg.agent, []string{"User-Agent", "iOS Capacitor"}, 200},
		{"a desktop shell", "GET", "far/shop/assets/main.js", rg.agent, []string{"User-Agent", "Electrobun"}, 200},
		{"no path", "GET", "far/shop", rg.agent, nil, 400},
		{"an empty path", "GET", "far/shop/", rg.agent, nil, 400},
		{"a blank endpoint", "GET", "%20/shop/x.js", rg.agent, nil, 400},
		{"no endpoint", "GET", "/shop/x.js", rg.agent, nil, 400},
		{"a blank module", "GET", "far/%20/x.js", rg.agent, nil, 400},
		{"an empty segment", "GET", "far/shop/assets//main.js", rg.agent, nil, 400},
		{"a dot segment", "GET", "far/shop/assets/./main.js", rg.agent, nil, 400},
		{"a dot-dot segment", "GET", "far/shop/assets/../main.js", rg.agent, nil, 400},
		{"escaped dots", "GET", "far/shop/assets/%2e%2e/main.js", rg.agent, nil, 400},
		{"an escaped slash", "GET", "far/shop/assets%2fmain.js", rg.agent, nil, 400},
		{"an escaped backslash", "GET", "far/shop/assets%5cmain.js", rg.agent, nil, 400},
		{"escaped twice", "GET", "far/shop/assets/%252e%252e/main.js", rg.agent, nil, 400},
		{"an unknown endpoint", "GET", "near/shop/assets/main.js", rg.agent, nil, 502},
		{"an unknown module", "GET", "far/shed/assets/main.js", rg.agent, nil, 502},
		{"no declared path", "GET", "far/shop/secrets/key", rg.agent, nil, 404},
		{"a bundle at the top opens its level only", "GET", "far/shop/chunk.js", rg.agent, nil, 200},
		{"what lies beside a bundle", "GET", "far/shop/assets/deep/chunk%201.js", rg.agent, nil, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := rg.do(test.method, base+test.path, test.token, "", test.headers...)
			got.want(t, test.path, test.status)
			var body struct{ Error, Code string }
			if test.status != 200 && (json.Unmarshal([]byte(got.body), &body) != nil || body.Error == "" || body.Code == "") {
				t.Errorf("the failure is not in the original's form: %s", got.body)
			}
			if test.status == 405 && got.header.Get("Allow") != "GET, HEAD" {
				t.Errorf(`Allow: %s; want not (test.status == 405 && got.header.Get("Allow") != "GET, HEAD")`, got.header.Get("Allow"))
			}
		})
	}
}

func TestAChangedFileIsNotServed(t *testing.T) {
	right := router.Integrity([]byte(script))
	wrong := router.Integrity([]byte("other"))
	for _, test := range []struct {
		name, manifest, result string
		status                 int
	}{
		{"both right", right, right, 200},
		{"none", "", "", 200},
		{"the manifest's is wrong", wrong, right, 502},
		{"the result's is wrong", right, wrong, 502},
		{"one of an unknown kind says nothing that holds", "md5-abc", "", 502},
	} {
		t.Run(test.name, func(t *testing.T) {
			rg := newStack(t, `"views":[{"id":"main","label":"Main","bundlePath":"assets/main.js","integrity":"`+test.manifest+`"}]`)
			rg.say("plugin.asset.get", assetResult("assets/main.js", "text/javascript", script, test.result))
			got := rg.do("GET", base+"far/shop/assets/main.js", rg.agent, "")
			got.want(t, test.name, test.status)
			if test.status != 200 && (!strings.Contains(got.body, "integrity_mismatch") || got.header.Get("Etag") != "") {
				t.Errorf("%v %s", got.header, got.body)
			}
		})
	}
}

func TestFetchingAnAssetIsAnInvocationOnRecord(t *testing.T) {
	rg := newStack(t, bundleView)
	got := rg.do("GET", base+"far/shop/assets/main.js", rg.agent, "")
	got.want(t, "a failing endpoint", 502, "nothing is prepared for plugin.asset.get", `"code":"failed"`)
	run := got.header.Get("X-Junctor-Invocation")
	records, err := rg.log.Query(t.Context(), audit.Query{Run: run, Limit: 10})
	if err != nil || run == "" || len(records) == 0 {
		t.Errorf(`invocation %q left %d records: %v; want no error, run other than "", len(records) other than 0`,
			run, len(records), err)
	}
}

func TestTheModuleListDropsOnlyAFaultyBundleURL(t *testing.T) {
	rg := newStack(t, `"views":[
		{"id":"bad","label":"Bad","bundleUrl":"/local.js","bundlePath":"assets/bad.js"},
		{"id":"good","label":"Good","bundleUrl":"https://cdn.example/good.js"},
		{"id":"file","label":"File","bundlePath":"assets/a b.js"}]`)
	got := rg.do("POST", router.PathInvoke, rg.admin, `{"method":"plugin.modules.list","params":{}}`)
	got.want(t, "list", 200, `"bundleUrl":"https://cdn.example/good.js"`, `"bundlePath":"assets/a b.js"`, `"bundlePath":"assets/bad.js"`,
		`"viewErrors":[{"endpointId":"far","moduleId":"shop","viewId":"bad"`)
	if strings.Contains(got.body, `"/local.js"`) {
		t.Errorf(`the faulty URL is passed on: %s; want got.body without "\"/local.js\""`, got.body)
	}
}

func TestAssetURLsAreEscapedPerSegment(t *testing.T) {
	for _, test := range [][4]string{
		{"far", "shop", "assets/a b.js", base + "far/shop/assets/a%20b.js"},
		{"a:b", "shop", "/ü.js", base + "a:b/shop/%C3%BC.js"},
		{"far", "shop", "../x.js", ""},
		{"", "shop", "x.js", ""},
	} {
		if got := routerserve.AssetURL(test[0], test[1], test[2]); got != test[3] {
			t.Errorf("%v: %s; want got = test[3]", test, got)
		}
	}
}
