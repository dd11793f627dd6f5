package restserve

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/router"
)

// listings serves the views, widgets, navigation tabs and apps of all modules for a front end.
type listings struct {
	*Surface

	mu   sync.Mutex
	snap *catalog.Snapshot
	read map[*capability.Module]listed
}

// listed holds the parts of one manifest that are listed.
type listed struct{ views, widgets, nav, apps []item }

// item is one listed entry with all members of its manifest.
type item struct {
	id      string
	order   *float64
	members map[string]any
}

func (s *Surface) listingRoutes(mux *http.ServeMux) {
	l := &listings{Surface: s}
	for path, part := range map[string]func(listed) []item{
		"views":   func(m listed) []item { return m.views },
		"widgets": func(m listed) []item { return m.widgets },
		"nav":     func(m listed) []item { return m.nav },
		"apps":    func(m listed) []item { return m.apps },
	} {
		mux.Handle("GET /api/v1/"+path, s.Door.Guard(func(w http.ResponseWriter, _ *http.Request, who capability.Principal) error {
			return httpapi.Answer(w, map[string]any{path: l.list(who, part)}, nil)
		}, capability.RoleAdmin, capability.RoleOperator, capability.RoleAgent))
	}
}

// list returns one part of every module of which the caller may call something, ordered
// by order and id. Operators also see modules without contributions.
func (l *listings) list(who capability.Principal, part func(listed) []item) []map[string]any {
	state := make(map[*capability.Module]capability.Availability)
	var modules []*capability.Module
	for _, e := range l.Engine.List(who, capability.AudienceInternal) {
		if _, seen := state[e.Module]; !seen {
			state[e.Module] = e.Contribution.Availability
			modules = append(modules, e.Module)
		}
	}
	snap := l.Catalog.Snapshot()
	if audienceFor(who) == capability.AudienceInternal {
		for m := range snap.Modules() {
			if len(m.Contributions) == 0 {
				modules = append(modules, m)
			}
		}
	}
	type shown struct {
		item
		module *capability.Module
	}
	var all []shown
	for _, m := range modules {
		for _, it := range part(l.listed(snap, m)) {
			all = append(all, shown{it, m})
		}
	}
	slices.SortFunc(all, func(a, b shown) int {
		return cmp.Or(compareOrder(a.order, b.order), strings.Compare(a.id, b.id),
			strings.Compare(a.module.ID, b.module.ID), strings.Compare(a.module.Endpoint, b.module.Endpoint))
	})
	out := make([]map[string]any, len(all))
	for i, it := range all {
		out[i] = make(map[string]any, len(it.members)+1)
		for name, value := range it.members {
			out[i][name] = value
		}
		availability := state[it.module]
		availability.State = cmp.Or(availability.State, capability.StateReady)
		out[i]["availability"] = availability
	}
	return out
}

// compareOrder compares two orders; nil sorts last.
func compareOrder(a, b *float64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Compare(*a, *b)
}

// listed returns the parts of a module's manifest, cached for the life of a snapshot.
func (l *listings) listed(snap *catalog.Snapshot, m *capability.Module) listed {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.snap != snap {
		l.snap, l.read = snap, make(map[*capability.Module]listed)
	}
	done, ok := l.read[m]
	if !ok {
		done = l.readManifest(m)
		l.read[m] = done
	}
	return done
}

// readManifest extracts the parts of a stored manifest; none if it cannot be decoded.
func (l *listings) readManifest(m *capability.Module) (out listed) {
	typed, err := router.ParseModule(m.Manifest)
	if len(m.Manifest) == 0 || err != nil {
		return out
	}
	var raw struct {
		Views   []map[string]any `json:"views"`
		Widgets []map[string]any `json:"widgets"`
		App     map[string]any   `json:"app"`
	}
	if err := jsonx.Unmarshal(typed.Raw, &raw); err != nil {
		return out
	}
	stamp := func(members map[string]any) map[string]any {
		members["module"], members["endpoint"] = m.ID, m.Endpoint
		return members
	}
	for i, v := range typed.Views {
		out.views = append(out.views, item{id: v.ID, members: l.view(m, v, stamp(raw.Views[i]))})
	}
	for i, w := range typed.Widgets {
		members := stamp(raw.Widgets[i])
		if w.PluginID == "" {
			members["pluginId"] = m.Name
		}
		out.widgets = append(out.widgets, item{w.ID, w.Order, members})
	}
	if typed.App == nil {
		return out
	}
	tabs, _ := raw.App["navTabs"].([]any)
	for i, tab := range typed.App.NavTabs {
		members, _ := tabs[i].(map[string]any)
		out.nav = append(out.nav, item{tab.ID, tab.Order, stamp(members)})
	}
	delete(raw.App, "navTabs") // listed separately
	raw.App["id"] = m.ID
	if typed.App.DisplayName == "" {
		raw.App["displayName"] = m.Name
	}
	out.apps = []item{{id: m.ID, members: stamp(raw.App)}}
	return out
}

// view sets the URLs of a view: a valid URL of the manifest is kept, a path becomes a URL
// of this server. An invalid URL is removed and reported in the member fault.
func (l *listings) view(m *capability.Module, v router.View, members map[string]any) map[string]any {
	if v.ViewType == "" {
		members["viewType"] = "gui"
	}
	for _, u := range []struct{ name, url, path string }{{"bundleUrl", v.BundleURL, v.BundlePath}, {"frameUrl", v.FrameURL, v.FramePath}} {
		switch {
		case u.url != "" && router.CheckBrowserURL(u.url) != nil:
			delete(members, u.name)
			members["fault"] = u.name + " must be an absolute http or https URL without credentials"
		case u.url == "" && u.path != "":
			if local := l.AssetURL(m.Endpoint, m.ID, u.path); local != "" {
				members[u.name] = local
			}
		}
	}
	return members
}
