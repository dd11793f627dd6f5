package routerserve

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint/offered"
	"github.com/junctor-run/junctor/protocol/router"
)

// view is what the surface works out of one catalog snapshot, once: callers ask
// for the module list in a loop, and name endpoints in every call.
type view struct {
	snap *catalog.Snapshot
	// reach holds the kind and instance of every provider there is.
	reach map[[2]string]bool

	// routes holds the names ("GET /notes/:id") of the routes of each module, by
	// its id and by its extension.
	routes map[string][]string

	// apps returns the module of each slug whose app bridge serves routes; of several, "".
	apps func() map[string]string

	// open holds the routes that need no token.
	open map[capability.Member]bool

	mu      sync.Mutex
	stamped map[*capability.Module]stamp
	rules   map[*capability.Module]*assetRules
}

// view is that of the snapshot now in force.
func (s *Surface) view() *view {
	snap := s.Catalog.Snapshot()
	if v := s.current.Load(); v != nil && v.snap == snap {
		return v
	}
	v := &view{
		snap: snap, reach: make(map[[2]string]bool), routes: make(map[string][]string),
		stamped: make(map[*capability.Module]stamp), rules: make(map[*capability.Module]*assetRules),
	}
	for e := range snap.Entries() {
		_, kind, instance := e.Key().Parts()
		v.reach[[2]string{kind, instance}] = true
		if m := e.Contribution.Member; m.Kind == "route" {
			v.routes[m.Module] = append(v.routes[m.Module], m.Name)
			if e.Module.Extension != m.Module {
				v.routes[e.Module.Extension] = append(v.routes[e.Module.Extension], m.Name)
			}
		}
	}
	v.apps = sync.OnceValue(func() map[string]string { return appsOf(snap) })
	v.open = s.openRoutes(slices.Collect(snap.Modules()))
	s.current.Store(v) // of two that are made at once either will do
	return v
}

// appsOf returns the module of each app's slug.
func appsOf(snap *catalog.Snapshot) map[string]string {
	apps := make(map[string]string)
	for e := range snap.Entries() {
		if e.Contribution.Member.Kind != bridgeKind || e.Contribution.Member.Name != appRoutesHook {
			continue
		}
		manifest, err := router.ParseModule(e.Module.Manifest)
		if err != nil {
			continue // modules of this machine have none
		}
		for _, slug := range offered.AppSlugs(&manifest) {
			if other, taken := apps[slug]; taken && other != e.Module.ID {
				apps[slug] = ""
			} else {
				apps[slug] = e.Module.ID
			}
		}
	}
	return apps
}

// knows reports whether the id names an endpoint or node of ours. Another one is
// the routing key of our caller, and is dropped.
func (v *view) knows(endpoint string) bool {
	for kind, id := range selectorOf(endpoint) {
		_, kind, instance := capability.NewProviderKey("any", kind, id).Parts()
		if v.reach[[2]string{kind, instance}] {
			return true
		}
	}
	return false
}

// stamp is a manifest as it is listed, and what is wrong with its views.
type stamp struct {
	manifest jsonx.Raw
	faults   []ViewError
}

// ViewError states why a view is listed without its bundleUrl. Like EndpointError
// it is an addition to the wire.
type ViewError struct {
	EndpointID string          `json:"endpointId"`
	ModuleID   string          `json:"moduleId"`
	ViewID     string          `json:"viewId"`
	Code       capability.Code `json:"code"`
	Message    string          `json:"message"`
}

// manifest returns the module's manifest with our name of its endpoint instead of the
// endpoint's own, and without unusable bundle URLs, because elizaOS refuses the whole
// list for one of them.
func (v *view) manifest(m *capability.Module) (stamp, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if done, ok := v.stamped[m]; ok {
		return done, nil
	}
	var members map[string]jsonx.Raw
	if err := jsonx.Unmarshal(m.Manifest, &members); err != nil {
		return stamp{}, capability.Wrap(capability.CodeInternal, "modules.list", "a stored manifest cannot be read", err)
	}
	id, err := jsonx.Marshal(m.Endpoint)
	if err != nil {
		return stamp{}, err
	}
	members["capabilityEndpointId"] = id
	var done stamp
	if views, ok := members["views"]; ok {
		if members["views"], done.faults, err = soundViews(m, views); err != nil {
			return stamp{}, err
		}
	}
	if done.manifest, err = jsonx.Marshal(members); err != nil {
		return stamp{}, err
	}
	v.stamped[m] = done
	return done, nil
}

// soundViews takes the bundle URLs out that are not absolute http(s) URLs without
// credentials. A bundlePath is left to the caller that lists: the URL it leads to is on
// the origin that the browser knows, not on ours.
func soundViews(m *capability.Module, raw jsonx.Raw) (jsonx.Raw, []ViewError, error) {
	var views []map[string]jsonx.Raw
	if err := jsonx.Unmarshal(raw, &views); err != nil {
		return nil, nil, capability.Wrap(capability.CodeInternal, "modules.list", "the views of a stored manifest cannot be read", err)
	}
	var faults []ViewError
	for _, declared := range views {
		for _, name := range []string{"bundleUrl", "frameUrl"} {
			var id, address string
			if jsonx.Unmarshal(declared[name], &address) != nil || address == "" || router.CheckBrowserURL(address) == nil {
				continue
			}
			_ = jsonx.Unmarshal(declared["id"], &id) // the decoder has seen to it that it is there
			delete(declared, name)
			faults = append(faults, ViewError{
				m.Endpoint, m.ID, id, capability.CodeInvalidInput, name + " must be an absolute http or https URL without credentials; it is left out",
			})
		}
	}
	if len(faults) == 0 {
		return raw, nil, nil // the bytes as they are: signatures are over them
	}
	out, err := jsonx.Marshal(views)
	return out, faults, err
}

// EndpointError states why the modules of an endpoint may be out of date or
// missing. It is an addition to the wire; clients that do not know it ignore it.
type EndpointError struct {
	EndpointID string          `json:"endpointId"`
	Code       capability.Code `json:"code"`
	Message    string          `json:"message"`
}

// modules lists the manifests this caller may use. A module is listed when at
// least one of its entries is permitted. Of endpoints that are down a caller
// is shown when it may use a part of them, an operator in any case.
func (b *backend) modules(raw json.RawMessage) (json.RawMessage, error) {
	p, err := parseParams(raw)
	if err != nil {
		return nil, err
	}
	v := b.view()
	only := p.text("endpointId")
	if only != "" && !v.knows(only) {
		only = ""
	}
	seen := make(map[*capability.Module]bool)
	endpoints := make(map[string]bool)
	var permitted []*capability.Module
	for _, e := range b.Engine.List(b.who, capability.AudienceInternal) {
		m := e.Module
		if seen[m] {
			continue
		}
		seen[m] = true
		endpoints[m.Endpoint] = true
		if len(m.Manifest) == 0 || (only != "" && m.Endpoint != only) {
			continue
		}
		permitted = append(permitted, m)
	}
	// By endpoint; the catalog does not keep the manifest's order within one, so
	// there it is by id.
	slices.SortFunc(permitted, func(a, b *capability.Module) int {
		return cmp.Or(strings.Compare(a.Endpoint, b.Endpoint), strings.Compare(a.ID, b.ID))
	})
	list := make([]jsonx.Raw, len(permitted))
	var faults []ViewError
	for i, m := range permitted {
		one, err := v.manifest(m)
		if err != nil {
			return nil, err
		}
		list[i], faults = one.manifest, append(faults, one.faults...)
	}
	if b.ownsModules() && (only == "" || only == ownEndpoint) {
		own, err := b.ownModules()
		if err != nil {
			return nil, err
		}
		for _, m := range own {
			one, err := jsonx.Marshal(m)
			if err != nil {
				return nil, err
			}
			list = append(list, one)
		}
	}
	out := map[string]any{"modules": list}
	if len(faults) > 0 {
		out["viewErrors"] = faults
	}
	operator := b.who.Role == capability.RoleAdmin || b.who.Role == capability.RoleOperator
	var down []EndpointError
	for _, e := range b.Registry.Down() {
		if (operator || endpoints[e.EndpointID]) && (only == "" || e.EndpointID == only) {
			down = append(down, e)
		}
	}
	if len(down) > 0 {
		out["endpointErrors"] = down
	}
	return jsonx.Marshal(out)
}
