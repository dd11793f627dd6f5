package routerserve

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/jsonx"
)

// view is what the surface works out of one catalog snapshot, once: callers ask
// for the module list in a loop, and name endpoints in every call.
type view struct {
	snap *catalog.Snapshot
	// reach holds the kind and instance of every provider there is.
	reach map[[2]string]bool

	mu      sync.Mutex
	stamped map[*capability.Module]jsonx.Raw
}

// view is that of the snapshot now in force.
func (s *Surface) view() *view {
	snap := s.Catalog.Snapshot()
	if v := s.current.Load(); v != nil && v.snap == snap {
		return v
	}
	v := &view{snap: snap, reach: make(map[[2]string]bool), stamped: make(map[*capability.Module]jsonx.Raw)}
	for _, e := range snap.Entries {
		_, kind, instance := e.Key().Parts()
		v.reach[[2]string{kind, instance}] = true
	}
	s.current.Store(v) // of two that are made at once either will do
	return v
}

// knows reports whether the id names an endpoint or node of ours. Another one is
// the routing key of whoever called us, and is dropped (router spec, 1.2).
func (v *view) knows(endpoint string) bool {
	for kind, id := range selectorOf(endpoint) {
		_, kind, instance := capability.NewProviderKey("any", kind, id).Parts()
		if v.reach[[2]string{kind, instance}] {
			return true
		}
	}
	return false
}

// manifest is the module's, with our name for the endpoint it came from written
// over whatever the endpoint said itself.
func (v *view) manifest(m *capability.Module) (jsonx.Raw, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if done, ok := v.stamped[m]; ok {
		return done, nil
	}
	var members map[string]jsonx.Raw
	if err := jsonx.Unmarshal(m.Manifest, &members); err != nil {
		return nil, capability.Wrap(capability.CodeInternal, "modules.list", "a stored manifest cannot be read", err)
	}
	id, err := jsonx.Marshal(m.Endpoint)
	if err != nil {
		return nil, err
	}
	members["capabilityEndpointId"] = id
	done, err := jsonx.Marshal(members)
	if err != nil {
		return nil, err
	}
	v.stamped[m] = done
	return done, nil
}

// EndpointError says why the modules of an endpoint may be out of date or
// missing. It is an addition to the wire; clients that do not know it ignore it.
type EndpointError struct {
	EndpointID string          `json:"endpointId"`
	Code       capability.Code `json:"code"`
	Message    string          `json:"message"`
}

// modules lists the manifests this caller may use. A module is listed when at
// least one of its entries is permitted. Of endpoints that are down a caller
// hears when it may use a part of them, an operator in any case.
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
	// By endpoint (decision R37); the catalog does not keep the manifest's order
	// within one, so there it is by id.
	slices.SortFunc(permitted, func(a, b *capability.Module) int {
		return cmp.Or(strings.Compare(a.Endpoint, b.Endpoint), strings.Compare(a.ID, b.ID))
	})
	list := make([]jsonx.Raw, len(permitted))
	for i, m := range permitted {
		if list[i], err = v.manifest(m); err != nil {
			return nil, err
		}
	}
	out := map[string]any{"modules": list}
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
