package routerserve_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/endpoints/routerserve"
)

const publicRoutes = `"routes":[
	{"method":"GET","path":"/menu","public":true,"publicReason":"to be read"},{"method":"GET","path":"/menu/:day","public":true,"publicReason":"to be read"},
	{"method":"GET","path":"/prices"},{"method":"GET","path":"/blank","public":true,"publicReason":" "},{"method":"GET","path":"/other","public":true,"publicReason":"not opened"},
	{"method":"POST","path":"/orders","public":true,"publicReason":"a form","publicWrite":"anybody may order"},
	{"method":"POST","path":"/reviews","public":true,"publicReason":"a form"}]`

func open(far string) func(*routerserve.Config) {
	return func(c *routerserve.Config) {
		for _, r := range [][2]string{
			{"GET", "/menu"},
			{"GET", "/menu/:day"},
			{"GET", "/prices"},
			{"GET", "/blank"},
			{"POST", "/orders"},
			{"POST", "/reviews"},
			{"GET", "/none"},
		} {
			c.Public = append(c.Public, routerserve.PublicRoute{Endpoint: far, Module: "shop", Method: r[0], Path: r[1]})
		}
	}
}

// TestAPublicRouteIsOpenedByBothSides: the module reports that a route is public and
// why, the operator names it, and the rules permit it; or a token is needed.
func TestAPublicRouteIsOpenedByBothSides(t *testing.T) {
	rg := newStack(t, publicRoutes, open("far"))
	rg.say("plugin.route.call", `{"status":200,"body":"served"}`)
	for _, test := range []struct {
		what, method, path, token string
		status                    int
	}{
		{"opened", "GET", "/menu", "", 200},
		{"with a parameter", "GET", "/menu/monday", "", 200},
		{"a write that says so, by a rule", "POST", "/orders", "", 200},
		{"not declared public", "GET", "/prices", "", 401},
		{"without a reason", "GET", "/blank", "", 401},
		{"not opened here", "GET", "/other", "", 401},
		{"a write that does not say so", "POST", "/reviews", "", 401},
		{"another method", "DELETE", "/menu", "", 401},
		{"no route at all", "GET", "/nothing", "", 401},
		{"no sound path", "GET", "//menu", "", 401},
		{"a wrong token is not a stranger's", "GET", "/menu", "wrong", 401},
		{"a token still works", "GET", "/menu", rg.agent, 200},
	} {
		rg.do(test.method, "/api/modules/shop"+test.path, test.token, "").want(t, test.what, test.status)
	}
	if asked := rg.calls(); asked != 4 {
		t.Errorf("the remote was asked %d times; want asked = 4", asked)
	}
	rg.do("GET", "/api/modules/%ff/menu", "", "").want(t, "no module", 401)
	rg.do("GET", "/v1/capabilities", "", "").want(t, "another door", 401)
}

func TestNothingIsPublicByItself(t *testing.T) {
	rg := newStack(t, publicRoutes)
	rg.do("GET", "/api/modules/shop/menu", "", "").want(t, "nothing opened", 401)
	rg = newStack(t, publicRoutes, open("elsewhere"))
	rg.do("GET", "/api/modules/shop/menu", "", "").want(t, "opened for another endpoint", 401)
	if asked := rg.calls(); asked != 0 {
		t.Errorf("the remote was asked %d times; want asked = 0", asked)
	}
}

func TestOperatorsWithholdHeadersOfTheirOwn(t *testing.T) {
	rg := newStack(t, shopRoutes, func(c *routerserve.Config) {
		c.WithheldFromRemotes, c.WithheldFromCallers = []string{"X-Tenant", "x-corp-*"}, []string{"server", "X-Debug*"}
	})
	rg.say("plugin.route.call", `{"status":200,"headers":{"Server":"s","x-debug":"1","X-Debug-Trace":"2","x-own":"3"}}`)
	got := rg.do("GET", "/api/modules/shop/items/1", rg.admin, "", "x-tenant", "t", "X-Corp-User", "u", "X-Corporate", "c", "X-Mine", "m")
	got.want(t, "get", 200)
	_, params := rg.last()
	want := map[string]any{"user-agent": "Go-http-client/1.1", "x-corporate": "c", "x-mine": "m"}
	if diff := cmp.Diff(want, params["headers"]); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"Server": "", "X-Debug": "", "X-Debug-Trace": "", "X-Own": "3"} {
		if got.header.Get(name) != want {
			t.Errorf("%s is %q; want got.header.Get(name) = %v", name, got.header.Get(name), want)
		}
	}
}
