package restserve_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
)

type object = map[string]any

func (st *stack) listed(path string, as capability.Role) []object {
	st.Helper()
	out := make(map[string][]object)
	if status := st.do("GET", "/api/v1/"+path, as, "", &out); status != 200 || out[path] == nil {
		st.Fatalf("%s: %d %v", path, status, out)
	}
	for _, it := range out[path] {
		delete(it["availability"].(object), "since")
	}
	return out[path]
}

func ids(list []object) []string {
	out := []string{}
	for _, it := range list {
		out = append(out, it["module"].(string)+"/"+it["id"].(string))
	}
	return out
}

func TestListingsNameWhereEachThingIsFrom(t *testing.T) {
	st := newStack(t, "")
	st.offer("far", "shop", `,
		"views":[{"id":"main","label":"Main","bundlePath":"a.js","framePath":"f.html"},{"id":"cdn","label":"C","viewType":"tui","bundleUrl":"https://cdn.example/x.js","bundlePath":"b.js"}],
		"widgets":[{"id":"w","slot":"wallet","label":"W","order":3}],
		"app":{"displayName":"Shop","launchUrl":null,"navTabs":[{"id":"tab","label":"T","path":"/t","viewKind":"release"}]}`, capability.StateReady)
	down := object{"state": "ready"}
	for path, want := range map[string][]object{
		"views": {
			{
				"id": "cdn", "label": "C", "viewType": "tui", "bundleUrl": "https://cdn.example/x.js", "bundlePath": "b.js", "module": "shop",
				"endpoint": "far", "availability": down,
			},
			{
				"id": "main", "label": "Main", "viewType": "gui", "bundlePath": "a.js", "bundleUrl": "/assets/far/shop/a.js", "framePath": "f.html",
				"frameUrl": "/assets/far/shop/f.html", "module": "shop", "endpoint": "far", "availability": down,
			},
		},
		"widgets": {{
			"id": "w", "slot": "wallet", "label": "W", "order": 3.0, "pluginId": "@acme/shop", "module": "shop", "endpoint": "far",
			"availability": down,
		}},
		"nav":  {{"id": "tab", "label": "T", "path": "/t", "viewKind": "release", "module": "shop", "endpoint": "far", "availability": down}},
		"apps": {{"id": "shop", "displayName": "Shop", "launchUrl": nil, "module": "shop", "endpoint": "far", "availability": down}},
	} {
		if diff := cmp.Diff(want, st.listed(path, capability.RoleAgent)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

func TestListingsAreOrderedByOrderThenID(t *testing.T) {
	st := newStack(t, "")
	st.offer("b", "two", `,"widgets":[{"id":"z","slot":"wallet","label":"l"},{"id":"same","slot":"wallet","label":"l","order":5},{"id":"c","slot":"wallet","label":"l","order":1}]`, capability.StateReady)
	st.offer("a", "one", `,"widgets":[{"id":"same","slot":"wallet","label":"l","order":5},{"id":"b","slot":"wallet","label":"l"},{"id":"d","slot":"wallet","label":"l","order":-2.5}]`, capability.StateReady)
	want := []string{"one/d", "two/c", "one/same", "two/same", "one/b", "two/z"}
	if diff := cmp.Diff(want, ids(st.listed("widgets", capability.RoleOperator))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFaultyViewSpoilsNoOther(t *testing.T) {
	st := newStack(t, "")
	st.offer("far", "shop", `,"views":[{"id":"bad","label":"B","bundleUrl":"/x.js","bundlePath":"x.js"},{"id":"good","label":"G","bundlePath":"y.js"}]`, capability.StateReady)
	list := st.listed("views", capability.RoleAdmin)
	if len(list) != 2 || list[0]["fault"] == nil || list[0]["bundleUrl"] != nil || list[1]["fault"] != nil ||
		list[1]["bundleUrl"] != "/assets/far/shop/y.js" {
		t.Errorf(`%v; want len(list) = 2, list[0]["fault"] not nil, list[0]["bundleUrl"] = nil, list[1]["fault"] = nil, `+
			`list[1]["bundleUrl"] = "/assets/far/shop/y.js"`, list)
	}
}

func TestListingsFollowWhatTheCallerMayCall(t *testing.T) {
	const widget = `,"widgets":[{"id":"w","slot":"wallet","label":"W"}]`
	st := newStack(t, `
@id("hide")
forbid (principal in Role::"agent", action, resource in Module::"remote.hidden");`)
	st.offer("one", "hidden", widget, capability.StateReady)
	st.offer("two", "open", widget, capability.StateUnavailable)
	if got := ids(st.listed("widgets", capability.RoleAgent)); cmp.Diff([]string{"open/w"}, got) != "" {
		t.Errorf(`an agent sees %v; want cmp.Diff([]string{"open/w"}, got) = ""`, got)
	}
	list := st.listed("widgets", capability.RoleOperator)
	if got := ids(list); cmp.Diff([]string{"hidden/w", "open/w"}, got) != "" || list[1]["availability"].(object)["state"] != "unavailable" {
		t.Errorf(`an operator sees %v; want cmp.Diff([]string{"hidden/w", "open/w"}, got) = "", `+
			`list[1]["availability"].(object)["state"] = "unavailable"`, list)
	}
	for as, want := range map[capability.Role]int{"": 401, capability.RoleNode: 403} {
		for _, path := range []string{"views", "widgets", "nav", "apps"} {
			if status := st.do("GET", "/api/v1/"+path, as, "", nil); status != want {
				t.Errorf("%s as %q: %d, want %d", path, as, status, want)
			}
		}
	}
	st.offer("two", "open", "", capability.StateReady)
	if got := ids(st.listed("widgets", capability.RoleAgent)); len(got) != 0 {
		t.Errorf("after a change an agent still sees %v; want len(got) = 0", got)
	}
}
